//! Machine code as `cuobjdump -sass` lists it: functions of instructions.

/// One kernel's machine code.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// By address, upwards.
    pub(crate) instructions: Vec<Instruction>,
}

/// One instruction, such as `@!P0 LDG.E.NA.128 R4, desc[UR4][R2.64+0x200]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    /// The predicate it runs under, `!P0` say.
    pub(crate) guard: Option<String>,
    /// `LDG`.
    pub(crate) opcode: String,
    /// `E`, `NA`, `128`.
    pub(crate) modifiers: Vec<String>,
    /// `R4`, `desc[UR4][R2.64+0x200]`.
    pub(crate) operands: Vec<String>,
}

/// A backward branch and what it repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loop<'a> {
    /// From the branch's target up to and with the branch.
    pub(crate) body: &'a [Instruction],
}

/// The functions of a listing.
pub(crate) fn parse(text: &str) -> Result<Vec<Function>, String> {
    let mut functions: Vec<Function> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if let Some((_, name)) = line.split_once("Function : ") {
            functions.push(Function { name: name.trim().to_owned(), instructions: Vec::new() });
            continue;
        }
        let Some(instruction) =
            parse_line(line).map_err(|why| format!("listing, line {number}: {why}: {line}"))?
        else {
            continue;
        };
        let function =
            functions.last_mut().ok_or(format!("listing, line {number}: code outside a function"))?;
        if function.instructions.last().is_some_and(|last| last.address >= instruction.address) {
            return Err(format!("listing, line {number}: the address goes back"));
        }
        function.instructions.push(instruction);
    }
    Ok(functions)
}

/// The instruction of a line; `None` where there is none (headers, and the second halves of encodings).
fn parse_line(line: &str) -> Result<Option<Instruction>, String> {
    let Some((address, rest)) = line.trim().strip_prefix("/*").and_then(|line| line.split_once("*/")) else {
        return Ok(None);
    };
    // An encoding stands in spaces: `/* 0x00000a00ff017b82 */`.
    if address.starts_with(' ') {
        return Ok(None);
    }
    let address = u64::from_str_radix(address, 16).map_err(|error| error.to_string())?;
    let (code, _) = rest.split_once(';').ok_or("no semicolon")?;
    let mut code = code.trim();
    let mut guard = None;
    if let Some(guarded) = code.strip_prefix('@') {
        let (predicate, rest) = guarded.split_once(' ').ok_or("nothing behind the predicate")?;
        guard = Some(predicate.to_owned());
        code = rest.trim();
    }
    let (name, operands) = code.split_once(' ').unwrap_or((code, ""));
    let mut parts = name.split('.').map(str::to_owned);
    let opcode = parts.next().filter(|opcode| !opcode.is_empty()).ok_or("no opcode")?;
    let instruction = Instruction {
        address,
        guard,
        opcode,
        modifiers: parts.collect(),
        operands: split_operands(operands),
    };
    Ok(Some(instruction))
}

/// Operands at the commas that stand in no bracket.
fn split_operands(text: &str) -> Vec<String> {
    let mut operands = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match operands.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => operands.push(String::new()),
        }
    }
    operands
        .into_iter()
        .map(|operand| operand.trim().to_owned())
        .filter(|operand| !operand.is_empty())
        .collect()
}

impl Instruction {
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|own| own == modifier)
    }

    pub(crate) fn is(&self, opcode: &str) -> bool {
        self.opcode == opcode
    }

    /// `LDG.E.NA.128`, for messages.
    pub(crate) fn name(&self) -> String {
        [std::slice::from_ref(&self.opcode), &self.modifiers].concat().join(".")
    }

    /// Where it branches to.
    pub(crate) fn target(&self) -> Option<u64> {
        let target = self.is("BRA").then(|| self.operands.last())??;
        u64::from_str_radix(target.strip_prefix("0x")?, 16).ok()
    }

    /// Bytes that a load or store moves a thread.
    pub(crate) fn width_bytes(&self) -> u32 {
        let width = |modifier: &String| match modifier.as_str() {
            "128" => Some(16),
            "64" => Some(8),
            "U16" | "S16" | "16" => Some(2),
            "U8" | "S8" | "8" => Some(1),
            _ => None,
        };
        self.modifiers.iter().find_map(width).unwrap_or(4)
    }

    /// Whether it reads or writes memory that is neither constant nor the caches' own business.
    pub(crate) fn accesses_memory(&self) -> bool {
        let prefixes = ["LD", "ST", "RED", "ATOM", "UBLK"];
        let others = ["LDC", "LDGSTS", "LDGDEPBAR", "LDL", "STL"];
        self.is("LDGSTS")
            || (prefixes.iter().any(|prefix| self.opcode.starts_with(prefix))
                && !others.contains(&&*self.opcode))
    }

    /// The first of the general registers it writes, where its first operand is one: what a load fills.
    pub(crate) fn first_register(&self) -> Option<u32> {
        register(self.operands.first()?)
    }

    /// Whether it names one of `count` general registers from `first` on.
    pub(crate) fn names_register(&self, first: u32, count: u32) -> bool {
        let named = |operand: &String| {
            let starts = operand.match_indices('R').filter(|&(at, _)| !operand[..at].ends_with(is_name));
            starts.filter_map(|(at, _)| register(&operand[at..])).any(|r| (first..first + count).contains(&r))
        };
        self.operands.iter().any(named)
    }
}

/// The number of `R12`, with whatever stands behind it.
fn register(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('R')?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Function {
    /// Its loops. The branch to itself behind the end of every function is none.
    pub(crate) fn loops(&self) -> Vec<Loop<'_>> {
        let mut loops = Vec::new();
        for (end, branch) in self.instructions.iter().enumerate() {
            let Some(target) = branch.target().filter(|&target| target < branch.address) else { continue };
            if let Some(start) = self.instructions.iter().position(|i| i.address == target) {
                loops.push(Loop { body: &self.instructions[start..=end] });
            }
        }
        loops
    }

    /// The loops that no other loop lies in.
    pub(crate) fn innermost_loops(&self) -> Vec<Loop<'_>> {
        let all = self.loops();
        let inside = |inner: &Loop<'_>, outer: &Loop<'_>| {
            inner != outer && outer.first() <= inner.first() && inner.last() <= outer.last()
        };
        all.iter().filter(|outer| !all.iter().any(|inner| inside(inner, outer))).copied().collect()
    }

    /// The instructions of one opcode.
    pub(crate) fn all<'a>(&'a self, opcode: &'a str) -> impl Iterator<Item = &'a Instruction> {
        self.instructions.iter().filter(move |instruction| instruction.is(opcode))
    }
}

impl Loop<'_> {
    pub(crate) fn first(&self) -> u64 {
        self.body.first().map_or(0, |instruction| instruction.address)
    }

    pub(crate) fn last(&self) -> u64 {
        self.body.last().map_or(0, |instruction| instruction.address)
    }
}

mod tests {
    use super::*;

    /// Two functions; a loop in a loop; a header, second halves of encodings, and the end of a function.
    const CANNED: &str = "
	code for sm_90
		Function : cpkv_one
	.headerflags	@\"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)\"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                      /* 0x00000a00ff017b82 */
                                                                               /* 0x000ff00000000800 */
        /*0010*/              @!P0 LDG.E.NA.128 R4, desc[UR4][R28.64+0x200] ;  /* 0x000200041c088981 */
                                                                               /* 0x000ee8000c5e1d00 */
        /*0020*/                   STG.E desc[UR4][R2.64], R7 ;                /* 0x0004000402008986 */
        /*0030*/               @P0 BRA 0x10 ;                                  /* 0x0000000000b09947 */
        /*0040*/                   ATOMG.E.CAS.STRONG.SYS PT, R7, [R2], R6, R7 ;  /* 0x0 */
        /*0050*/              @!P1 BRA P2, 0x0 ;                               /* 0x0 */
        /*0060*/                   ERRBAR;                                     /* 0x0 */
        /*0070*/                   BRA 0x70;                                   /* 0x0 */
		..........

		Function : cpkv_two
        /*0000*/                   EXIT ;                                      /* 0x0 */
";

    #[test]
    fn listings_are_read() {
        let functions = parse(CANNED).expect("a listing");
        assert_eq!(
            functions.iter().map(|f| (&*f.name, f.instructions.len())).collect::<Vec<_>>(),
            [("cpkv_one", 8), ("cpkv_two", 1)]
        );
        let load = &functions[0].instructions[1];
        assert_eq!((load.address, load.guard.as_deref(), &*load.opcode), (0x10, Some("!P0"), "LDG"));
        assert_eq!(load.modifiers, ["E", "NA", "128"]);
        assert_eq!(load.operands, ["R4", "desc[UR4][R28.64+0x200]"]);
        assert_eq!(
            (load.width_bytes(), load.first_register(), load.name()),
            (16, Some(4), "LDG.E.NA.128".into())
        );
        let cas = &functions[0].instructions[4];
        assert_eq!(cas.operands, ["PT", "R7", "[R2]", "R6", "R7"]);
        assert_eq!((cas.width_bytes(), cas.first_register()), (4, None));
        let bare = &functions[0].instructions[6];
        assert_eq!((&*bare.opcode, bare.operands.len(), bare.guard.as_deref()), ("ERRBAR", 0, None));
    }

    #[test]
    fn registers_are_found_by_number() {
        let functions = parse(CANNED).expect("a listing");
        let load = &functions[0].instructions[1];
        assert!(load.names_register(4, 4) && load.names_register(28, 1) && load.names_register(25, 4));
        // `R2` is not in `R28`, and `UR4` is another file of registers.
        assert!(!load.names_register(2, 1) && !load.names_register(5, 4));
        let store = &functions[0].instructions[2];
        assert!(store.names_register(4, 4) && store.names_register(2, 1) && !store.names_register(4, 3));
    }

    #[test]
    fn loops_are_backward_branches() {
        let functions = parse(CANNED).expect("a listing");
        let spans = |loops: Vec<Loop<'_>>| loops.iter().map(|l| (l.first(), l.last())).collect::<Vec<_>>();
        assert_eq!(spans(functions[0].loops()), [(0x10, 0x30), (0, 0x50)]);
        assert_eq!(spans(functions[0].innermost_loops()), [(0x10, 0x30)]);
        assert_eq!(spans(functions[1].loops()), []);
    }

    #[test]
    fn garbage_is_refused() {
        for text in [
            "/*0000*/ EXIT ;",
            "Function : a\n/*00x0*/ EXIT ;",
            "Function : a\n/*0000*/ EXIT",
            "Function : a\n/*0000*/ ;",
            "Function : a\n/*0010*/ NOP;\n/*0010*/ NOP;",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_memory_counts_as_an_access() {
        let accesses = |opcode: &str| {
            let text = format!("Function : a\n/*0000*/ {opcode} R1, [R2] ;");
            parse(&text).expect("a listing")[0].instructions[0].accesses_memory()
        };
        for opcode in [
            "LDG.E",
            "STG.E.128",
            "REDG.E.ADD",
            "ATOMG.E.CAS",
            "LD.E",
            "ST.E",
            "LDS",
            "STS",
            "UBLKCP.S.G",
            "LDGSTS",
        ] {
            assert!(accesses(opcode), "{opcode}");
        }
        for opcode in ["LDC.64", "ULDC.64", "CCTL.IVALL", "MEMBAR.ALL.SYS", "ERRBAR", "IADD3", "LDL", "STL"] {
            assert!(!accesses(opcode), "{opcode}");
        }
    }
}
