//! What the driver tells a person: one line on stderr, and faults in the fault log too.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Says something that a person running a test wants to know.
pub(super) fn note(text: &str) {
    line("note", text);
}

/// Reports a broken rule of the machine or of the driver.
pub(super) fn fault(log: Option<&Path>, text: &str) {
    line("fault", text);
    let Some(path) = log else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One write, so that the lines of several processes do not mix.
    let written =
        file.and_then(|mut file| file.write_all(format!("vgpu: fault: {}\n", one_line(text)).as_bytes()));
    if let Err(error) = written {
        line("note", &format!("the fault log {} cannot be written: {error}", path.display()));
    }
}

fn line(kind: &str, text: &str) {
    // A closed stderr is no reason to fail.
    let _ = std::io::stderr().write_all(format!("vgpu: {kind}: {}\n", one_line(text)).as_bytes());
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
