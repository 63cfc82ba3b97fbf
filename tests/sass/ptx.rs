//! The PTX module as text: its entry points, and what tests spoil in it.

/// One entry point.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    /// Bytes of its one parameter.
    pub(crate) params_bytes: usize,
    /// From the opening brace to the closing one.
    pub(crate) body: &'a str,
}

/// The entry points of a module.
pub(crate) fn entries(ptx: &str) -> Result<Vec<Entry<'_>>, String> {
    let mut entries = Vec::new();
    for part in ptx.split(".entry ").skip(1) {
        let (name, rest) = part.split_once('(').ok_or("an entry point without parameters")?;
        let (params, rest) = rest.split_once(')').ok_or(format!("{name}: its parameters do not end"))?;
        let params: Vec<&str> = params.split(',').map(str::trim).filter(|param| !param.is_empty()).collect();
        let [param] = params[..] else {
            return Err(format!("{name}: {} parameters, one struct is expected", params.len()));
        };
        let bytes = param.split_once('[').and_then(|(_, bytes)| bytes.split_once(']')?.0.parse().ok());
        let params_bytes = bytes.ok_or(format!("{name}: `{param}` is no struct by value"))?;
        let body = braced(rest).ok_or(format!("{name}: its body does not end"))?;
        entries.push(Entry { name: name.trim(), params_bytes, body });
    }
    Ok(entries)
}

/// From the first opening brace to the one that closes it.
fn braced(text: &str) -> Option<&str> {
    let start = text.find('{')?;
    let mut depth = 0_u32;
    for (at, c) in text[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[start..=start + at]);
        }
    }
    None
}

impl Entry<'_> {
    /// Instructions that release.
    pub(crate) fn num_releases(&self) -> usize {
        self.body.lines().filter(|line| line.contains(".release.") || line.contains(".acq_rel.")).count()
    }
}

/// The module with the body of `name` replaced by `change` of it. A change that changes nothing is an error.
pub(crate) fn changed(ptx: &str, name: &str, change: impl Fn(&str) -> String) -> Result<String, String> {
    let entries = entries(ptx)?;
    let entry = entries.iter().find(|entry| entry.name == name).ok_or(format!("no entry point {name}"))?;
    let body = change(entry.body);
    if body == entry.body {
        return Err(format!("{name}: there is nothing to change"));
    }
    Ok(ptx.replace(entry.body, &body))
}

/// A line `OPCODE.v4.u32` split into its opcode, its four registers and its address; `None` for other lines.
fn wide_access<'a>(line: &'a str, opcode: &str) -> Option<(&'a str, [&'a str; 4], &'a str)> {
    let line = line.trim();
    let (name, operands) = line.split_once(' ')?;
    if !name.starts_with(opcode) || !name.ends_with(".v4.u32") {
        return None;
    }
    let inside = |open: char, close: char| Some(operands.split_once(open)?.1.split_once(close)?.0);
    let registers: Vec<&str> = inside('{', '}')?.split(',').map(str::trim).collect();
    Some((name.strip_suffix(".v4.u32")?, registers.try_into().ok()?, inside('[', ']')?.trim()))
}

/// Every 16-byte load as two of 8 bytes.
pub(crate) fn narrow_loads(body: &str) -> String {
    each_line(body, |line| {
        let (name, [a, b, c, d], address) = wide_access(line, "ld.global")?;
        Some(format!(
            "{name}.v2.u32 {{{a}, {b}}}, [{address}];\n{name}.v2.u32 {{{c}, {d}}}, [{address}+8];\n"
        ))
    })
}

/// Every 16-byte store as two of 8 bytes.
pub(crate) fn narrow_stores(body: &str) -> String {
    each_line(body, |line| {
        let (name, [a, b, c, d], address) = wide_access(line, "st.global")?;
        Some(format!(
            "{name}.v2.u32 [{address}], {{{a}, {b}}};\n{name}.v2.u32 [{address}+8], {{{c}, {d}}};\n"
        ))
    })
}

/// Every 16-byte load directly before the store of what it loads: one is in flight at a time.
pub(crate) fn loads_next_to_stores(body: &str) -> String {
    let stored: Vec<[&str; 4]> = body
        .lines()
        .filter_map(|line| wide_access(line, "st.global"))
        .map(|(_, registers, _)| registers)
        .collect();
    let load_of = |wanted: [&str; 4]| {
        body.lines().find(|line| wide_access(line, "ld.global").is_some_and(|(_, own, _)| own == wanted))
    };
    each_line(body, |line| {
        if let Some((_, registers, _)) = wide_access(line, "ld.global") {
            return stored.contains(&registers).then(String::new);
        }
        let (_, registers, _) = wide_access(line, "st.global")?;
        Some(format!("{}\n{line}\n", load_of(registers)?))
    })
}

/// `body` with the lines replaced that `change` has something for.
pub(crate) fn each_line(body: &str, change: impl Fn(&str) -> Option<String>) -> String {
    body.split_inclusive('\n').map(|line| change(line).unwrap_or_else(|| line.to_owned())).collect()
}

mod tests {
    use super::*;

    const CANNED: &str = "
.version 8.3
.visible .entry cpkv_one(
	.param .align 8 .b8 cpkv_one_param_0[48]
)
{
	red.release.sys.global.add.s32 [%rd1], %r1;
	{
.reg .pred %p;
}
	st.release.sys.global.u32 [%rd1], %r2;
	ret;

}
	// .globl	cpkv_two
.visible .entry cpkv_two(
	.param .align 8 .b8 cpkv_two_param_0[8]
)
{
	ld.global.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
	ld.global.L1::no_allocate.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2+16];
	add.s64 %rd3, %rd3, 1;
	st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r4};
	st.global.v4.u32 [%rd4], {%r5, %r6, %r7, %r8};
}
";

    #[test]
    fn entry_points_are_found() {
        let entries = entries(CANNED).expect("PTX");
        let found: Vec<_> = entries.iter().map(|e| (e.name, e.params_bytes, e.num_releases())).collect();
        assert_eq!(found, [("cpkv_one", 48, 2), ("cpkv_two", 8, 0)]);
        assert!(entries[0].body.ends_with("ret;\n\n}"));
    }

    #[test]
    fn other_parameters_are_refused() {
        for params in ["", ".param .b64 a", ".param .b8 a[8], .param .b8 b[8]"] {
            assert!(super::entries(&format!(".entry a({params})\n{{\n}}\n")).is_err(), "{params}");
        }
    }

    #[test]
    fn changes_touch_one_entry_point() {
        let weaker = |body: &str| body.replace(".sys", ".gpu");
        let text = changed(CANNED, "cpkv_one", weaker).expect("a change");
        assert_eq!((text.matches(".gpu").count(), text.len()), (2, CANNED.len()));
        assert!(changed(CANNED, "cpkv_two", weaker).is_err());
        assert!(changed(CANNED, "cpkv_three", weaker).is_err());
    }

    #[test]
    fn wide_accesses_are_spoilt_as_said() {
        let lines = |change: fn(&str) -> String| {
            let text = changed(CANNED, "cpkv_two", change).expect("a change");
            let body = super::entries(&text).expect("PTX")[1].body.to_owned();
            body.lines().map(|line| line.trim().to_owned()).filter(|line| line.len() > 1).collect::<Vec<_>>()
        };
        let narrow = lines(narrow_loads);
        assert_eq!(narrow[0], "ld.global.L1::no_allocate.v2.u32 {%r1, %r2}, [%rd1];");
        assert_eq!(narrow[3], "ld.global.L1::no_allocate.v2.u32 {%r7, %r8}, [%rd2+16+8];");
        assert_eq!(lines(narrow_stores)[4], "st.global.v2.u32 [%rd3+8], {%r3, %r4};");
        let [add, load, store, ..] = &lines(loads_next_to_stores)[..] else { panic!("too few lines") };
        assert!(add.starts_with("add") && load.contains("%r1") && store.contains("%r1"));
        assert!(load.starts_with("ld.global") && store.starts_with("st.global"));
    }
}
