//! What a kernel uses, as `ptxas -v` reports it.

/// One kernel's registers and what did not fit into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) kernel: String,
    pub(crate) registers: u32,
    pub(crate) stack_bytes: u32,
    pub(crate) spill_store_bytes: u32,
    pub(crate) spill_load_bytes: u32,
}

/// The kernels of a report.
pub(crate) fn parse(report: &str) -> Result<Vec<Usage>, String> {
    let mut usages: Vec<Usage> = Vec::new();
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let (kernel, _) = rest.split_once('\'').ok_or(format!("no name: {line}"))?;
            usages.push(Usage { kernel: kernel.to_owned(), ..Usage::default() });
        }
        let Some(usage) = usages.last_mut() else { continue };
        let number = |what: &str| number_before(line, what);
        if let Some(stack_bytes) = number(" bytes stack frame") {
            // A function that the kernel calls is reported behind it, and counts as well.
            let spill_store_bytes =
                number(" bytes spill stores").ok_or(format!("no spill stores: {line}"))?;
            let spill_load_bytes = number(" bytes spill loads").ok_or(format!("no spill loads: {line}"))?;
            usage.stack_bytes = usage.stack_bytes.max(stack_bytes);
            usage.spill_store_bytes = usage.spill_store_bytes.max(spill_store_bytes);
            usage.spill_load_bytes = usage.spill_load_bytes.max(spill_load_bytes);
        }
        if let Some(registers) = number(" registers") {
            usage.registers = registers;
        }
    }
    match usages.iter().find(|usage| usage.registers == 0) {
        Some(usage) => Err(format!("the report has no registers of {}:\n{report}", usage.kernel)),
        None => Ok(usages),
    }
}

/// The number directly before `what`.
fn number_before(line: &str, what: &str) -> Option<u32> {
    let before = &line[..line.find(what)?];
    before[before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1)..].parse().ok()
}

mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'cpkv_gather' for 'sm_90'
ptxas info    : Function properties for cpkv_gather
    24 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Function properties for panic
    0 bytes stack frame, 0 bytes spill stores, 16 bytes spill loads
ptxas info    : Compiling entry function 'cpkv_zero' for 'sm_90'
ptxas info    : Function properties for cpkv_zero
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 128 bytes smem
";
        let gather = Usage {
            kernel: "cpkv_gather".into(),
            registers: 32,
            stack_bytes: 24,
            spill_store_bytes: 8,
            spill_load_bytes: 16,
        };
        let zero = Usage { kernel: "cpkv_zero".into(), registers: 12, ..Usage::default() };
        assert_eq!(parse(report), Ok(vec![gather, zero]));
        assert!(parse(&report.replace("Used 12 registers", "Used few registers")).is_err());
    }
}
