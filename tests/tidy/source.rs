//! Source files, and the part of them that is code.

use std::fs;
use std::path::Path;

/// One file: its path from the root of the repository, its text, and the text with everything but code blanked.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: code_only(text) }
    }

    /// `path:line: message`; lines count from 1.
    pub(crate) fn at(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path)
    }
}

/// Every `.rs` file of the repository's own folders, in order.
pub(crate) fn tree() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["benches", "host", "kernels", "tests"] {
        collect(root, &root.join(folder), &mut sources);
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    // Git keeps no empty folder: `benches` may be missing.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(root, &path, sources);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            let relative = path.strip_prefix(root).expect("a path below the root");
            sources.push(Source::new(&relative.display().to_string(), &text));
        }
    }
}

/// `text` with comments, strings and character literals blanked. Lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        if let Some(end) = opaque_end(&chars, at) {
            code.extend(chars[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
            at = end;
        } else {
            code.push(chars[at]);
            at += 1;
        }
    }
    code
}

/// Where the comment, string or character literal that starts at `at` ends; `None` where none starts.
fn opaque_end(chars: &[char], at: usize) -> Option<usize> {
    let find = |from: usize, wanted: &[char]| -> usize {
        let len = wanted.len();
        (from..chars.len()).find(|&i| chars[i..].starts_with(wanted)).map_or(chars.len(), |i| i + len)
    };
    match &chars[at..] {
        ['/', '/', ..] => Some(chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |i| at + i)),
        ['/', '*', ..] => Some(block_comment_end(chars, at)),
        ['"', ..] => Some(string_end(chars, at + 1)),
        ['r', '"' | '#', ..] if at == 0 || !is_name(chars[at - 1]) || chars[at - 1] == 'b' => {
            let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
            let quote = at + 1 + hashes;
            let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            // `r#name` is a name.
            (chars.get(quote) == Some(&'"')).then(|| find(quote + 1, &closing))
        }
        ['\'', '\\', _, ..] => Some(find(at + 3, &['\''])),
        ['\'', _, '\'', ..] => Some(at + 3),
        _ => None,
    }
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < chars.len() {
        match &chars[i..] {
            ['/', '*', ..] => (depth, i) = (depth + 1, i + 2),
            ['*', '/', ..] => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Whether `c` can be part of a name.
pub(crate) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The places where `wanted` stands in `code` with no longer name before it.
pub(crate) fn places(code: &str, wanted: &str) -> Vec<usize> {
    let all = code.match_indices(wanted).map(|(at, _)| at);
    all.filter(|&at| !code[..at].ends_with(is_name)).collect()
}

/// The line of a place in `code`, from 1.
pub(crate) fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}
