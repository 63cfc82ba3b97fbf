//! Rules that look at one file alone. Each returns its violations.

use super::source::{Source, is_name, line_of, places};

/// Past this, a file has more than one noun.
const MAX_LINES: usize = 400;

/// How far above an unsafe block its proof may begin.
const MAX_LINES_TO_PROOF: usize = 12;

pub(crate) fn too_long(source: &Source) -> Vec<String> {
    let num_lines = source.text.lines().count();
    let message = format!("{num_lines} lines, {MAX_LINES} are allowed: split it");
    (num_lines > MAX_LINES).then(|| source.at(MAX_LINES + 1, &message)).into_iter().collect()
}

pub(crate) fn without_doc(source: &Source) -> Vec<String> {
    let message = "the file does not begin with `//!`: say in one line what it is";
    (!source.text.starts_with("//! ")).then(|| source.at(1, message)).into_iter().collect()
}

/// What is written while one works, and must not stay.
pub(crate) fn unfinished(source: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    for wanted in ["todo!", "unimplemented!", "dbg!"] {
        for at in places(&source.code, wanted) {
            violations.push(source.at(line_of(&source.code, at), &format!("`{wanted}` is left over")));
        }
    }
    for (at, _) in source.code.match_indices("#[ignore") {
        let message = "an ignored test is a silent skip: run it, or remove it";
        violations.push(source.at(line_of(&source.code, at), message));
    }
    violations
}

/// Every `unsafe {` and `unsafe impl` has its proof: a `SAFETY:` comment above the statement it stands in, or in it.
pub(crate) fn unproven(source: &Source) -> Vec<String> {
    let code = &source.code;
    let is_block = |at: usize| {
        let rest = code[at + "unsafe".len()..].trim_start();
        rest.starts_with('{') || (rest.starts_with("impl") && !rest["impl".len()..].starts_with(is_name))
    };
    let lines: Vec<usize> = places(code, "unsafe")
        .into_iter()
        .filter(|&at| is_block(at))
        .map(|at| line_of(code, at))
        .filter(|&line| !has_proof(source, line))
        .collect();
    let message = "no `// SAFETY:` comment directly above: say why each precondition holds";
    lines.into_iter().map(|line| source.at(line, message)).collect()
}

/// Looks up from `line` (from 1) until the statement before, which a blank line or a line with a full end shows.
fn has_proof(source: &Source, line: usize) -> bool {
    let texts: Vec<&str> = source.text.lines().take(line).collect();
    let codes: Vec<&str> = source.code.lines().take(line).collect();
    for above in 0..=MAX_LINES_TO_PROOF.min(line - 1) {
        let (text, code) = (texts[line - 1 - above], codes[line - 1 - above].trim());
        if above > 0 && (text.trim().is_empty() || code.ends_with([';', '}', '{'])) {
            return false;
        }
        // In a comment only: a string is no proof.
        if text.split_once("//").is_some_and(|(_, comment)| comment.contains("SAFETY:")) {
            return true;
        }
    }
    false
}
