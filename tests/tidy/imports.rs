//! Who may import whom, in the library under `host/src`.

use super::source::{Source, is_name, line_of, places};

/// Modules that sit side by side.
struct Layer {
    modules: &'static [&'static str],
    /// Whether they may also import each other.
    know_each_other: bool,
}

const fn strangers(modules: &'static [&'static str]) -> Layer {
    Layer { modules, know_each_other: false }
}

/// From top to bottom: a module imports from the layers below its own, and nothing else.
const LAYERS: [Layer; 9] = [
    strangers(&["bin", "ffi"]),
    strangers(&["compose", "transfer"]),
    Layer { modules: &["device", "symm", "collective", "group"], know_each_other: true },
    strangers(&["deadline", "priority"]),
    strangers(&["verify", "workload"]),
    strangers(&["plan", "model"]),
    strangers(&["pages"]),
    strangers(&["units"]),
    strangers(&["error"]),
];

/// Modules that compute values from values.
const PURE: [&str; 7] = ["error", "units", "pages", "plan", "model", "workload", "verify"];

/// What gives a pure module a thread, a clock or a socket.
const IMPURE_NAMES: [&str; 4] = ["Instant", "SystemTime", "now_ns", "rustix"];
const IMPURE_STD: [&str; 4] = ["thread", "net", "os", "process"];
/// What a pure module may have of the kernels: definitions and arithmetic.
const PURE_KERNELS: [&str; 3] = ["abi", "fp8", "half"];

/// Names that only some files may have, so that a build without them stays one.
const CONFINED: [(&str, &[&str]); 3] = [
    (
        "mpi::",
        &[
            "host/src/group/mpi/",
            "host/src/collective/mpi",
            "host/src/bin/cpkv/ranks.rs",
            "host/src/bin/cpkv/baselines.rs",
        ],
    ),
    ("cust::", &["host/src/device/cuda", "host/src/symm/ipc", "host/src/collective/nccl"]),
    ("nixl_sys::", &["host/src/transfer/engine/nixl/"]),
];

/// The top-level module of a file of the library or the program.
fn top_module(path: &str) -> Option<&str> {
    let path = path.strip_prefix("host/src/")?;
    let name = path.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    (name != "lib").then_some(name)
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.modules.contains(&module))
}

/// The lines and names that follow `root` (such as `crate::`), those of a group in braces included.
fn names_after(code: &str, root: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for start in places(code, root) {
        let begin = start + root.len();
        let (mut depth, mut expects_name) = (0_u32, true);
        for (offset, c) in code[begin..].char_indices() {
            let at = begin + offset;
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 1 => expects_name = true,
                c if c.is_whitespace() => continue,
                _ if expects_name && depth <= 1 => {
                    let name = code[at..].chars().take_while(|&c| is_name(c)).collect();
                    names.push((line_of(code, at), name));
                    expects_name = false;
                }
                _ => {}
            }
            if depth == 0 && !expects_name {
                break;
            }
        }
    }
    names
}

/// What a file imports of the library's top-level modules.
fn imports(source: &Source, module: &str) -> Vec<(usize, String)> {
    if module == "bin" {
        return names_after(&source.code, "cpkv::");
    }
    let mut names = names_after(&source.code, "crate::");
    // `super::super::...` up to the crate is the same.
    let path = source.path.trim_start_matches("host/src/").trim_end_matches(".rs").trim_end_matches("/mod");
    let to_crate = "super::".repeat(path.split('/').count());
    names.extend(names_after(&source.code, &to_crate));
    names
}

/// Imports against the direction of the layers.
pub(crate) fn upward(source: &Source) -> Vec<String> {
    let Some(module) = top_module(&source.path) else { return Vec::new() };
    let Some(own_layer) = layer_of(module) else {
        return vec![source.at(1, &format!("`{module}` has no layer: give it one in tests/tidy/imports.rs"))];
    };
    let mut violations = Vec::new();
    for (line, name) in imports(source, module) {
        let Some(layer) = layer_of(&name).filter(|_| name != module) else { continue };
        let message = if layer < own_layer {
            format!("imports `{name}`, which is above `{module}`")
        } else if layer == own_layer && !LAYERS[layer].know_each_other {
            format!("imports `{name}`, but `{module}` and `{name}` are strangers")
        } else {
            continue;
        };
        violations.push(source.at(line, &message));
    }
    violations
}

/// Pure modules that name a thread, a clock, a socket or a running kernel.
pub(crate) fn impure(source: &Source) -> Vec<String> {
    let Some(module) = top_module(&source.path).filter(|module| PURE.contains(module)) else {
        return Vec::new();
    };
    let code = &source.code;
    let mut found = Vec::new();
    for name in IMPURE_NAMES {
        let whole = |at: &usize| !code[at + name.len()..].starts_with(is_name);
        found.extend(
            places(code, name).into_iter().filter(whole).map(|at| (line_of(code, at), name.to_owned())),
        );
    }
    for (line, name) in names_after(code, "std::") {
        if IMPURE_STD.contains(&name.as_str()) {
            found.push((line, format!("std::{name}")));
        }
    }
    for (line, name) in names_after(code, "cpkv_kernels::") {
        if !PURE_KERNELS.contains(&name.as_str()) {
            found.push((line, format!("cpkv_kernels::{name}")));
        }
    }
    let message = |name: &str| {
        format!("`{module}` is pure and knows no device, thread, clock or socket, so no `{name}`")
    };
    found.into_iter().map(|(line, name)| source.at(line, &message(&name))).collect()
}

/// Names outside the files they are confined to.
pub(crate) fn escaped(source: &Source) -> Vec<String> {
    if !source.path.starts_with("host/") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (name, homes) in CONFINED {
        if homes.iter().any(|home| source.path.starts_with(home)) {
            continue;
        }
        for at in places(&source.code, name) {
            let message = format!("`{name}` belongs into {} only", homes.join(", "));
            violations.push(source.at(line_of(&source.code, at), &message));
        }
    }
    violations
}
