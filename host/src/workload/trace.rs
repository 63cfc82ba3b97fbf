//! Reads a request trace in Mooncake's format: one JSON object a line.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

/// Tokens that one hash id of a trace stands for.
pub const HASH_BLOCK_TOKENS: u32 = 512;

/// The longest request, in tokens: twelve of them keep every row index of a batch within 31 bits.
pub const MAX_INPUT_LENGTH: u32 = 1 << 24;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The line it stands on, from 1.
    pub line: u64,
    /// When it arrived, in milliseconds.
    pub timestamp_ms: u64,
    /// Tokens of its prompt.
    pub input_length: u32,
    /// Tokens of its answer.
    pub output_length: u32,
    /// `[ceil(input_length / 512)]` one id per 512 tokens of the prompt, the last of them possibly fewer.
    /// Equal leading ids mean equal leading tokens.
    pub hash_ids: Vec<u64>,
}

/// Why a request makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestProblem {
    /// A prompt of no token, or of too many.
    #[error("input_length {got} is outside 1..={MAX_INPUT_LENGTH}")]
    InputLength {
        /// The refused length.
        got: u64,
    },
    /// More or fewer ids than the prompt has 512-token parts.
    #[error("{got} hash_ids for input_length {input_length}: there must be {needed}, one per 512 tokens")]
    NumHashIds {
        /// Ids there are.
        got: usize,
        /// Ids there must be.
        needed: u32,
        /// Tokens of the prompt.
        input_length: u32,
    },
}

/// A trace that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// More than 1 GiB.
    #[error("the trace {} is over 1 GiB: is it a file of requests? Cut it", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read the trace {}: {problem}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        problem: std::io::Error,
    },
    /// A line is not a request: not JSON, or a field is missing or of another type.
    #[error("trace {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The parser's reason.
        reason: String,
    },
    /// A line is a request that makes no sense.
    #[error("trace {}, line {line}: {problem}", path.display())]
    Request {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Why.
        problem: RequestProblem,
    },
    /// No request at all.
    #[error("the trace {} holds no request: name a file with one JSON object a line", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// A line as written. Fields that are not named here are ignored.
#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: u64,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// The longest trace, in bytes.
pub(super) const MAX_TRACE_BYTES: u64 = 1 << 30;

impl TraceRequest {
    /// Checks the length and the number of ids.
    ///
    /// # Errors
    /// [`RequestProblem`], as its variants say.
    pub fn check(&self) -> Result<(), RequestProblem> {
        if self.input_length == 0 || self.input_length > MAX_INPUT_LENGTH {
            return Err(RequestProblem::InputLength { got: u64::from(self.input_length) });
        }
        let (got, needed) = (self.hash_ids.len(), self.input_length.div_ceil(HASH_BLOCK_TOKENS));
        if got != needed as usize {
            return Err(RequestProblem::NumHashIds { got, needed, input_length: self.input_length });
        }
        Ok(())
    }

    /// Ids that stand for 512 whole tokens: all but a partial last one.
    pub fn full_hash_ids(&self) -> &[u64] {
        let num_full = (self.input_length / HASH_BLOCK_TOKENS) as usize;
        self.hash_ids.get(..num_full).unwrap_or(&self.hash_ids)
    }
}

/// Reads a whole trace, in file order. Empty lines at the end are passed over.
///
/// # Errors
/// [`TraceError::Read`] where the file cannot be read; the other variants for the first bad line. A trace
/// with a bad line gives no request at all.
pub fn read_trace(path: &Path) -> Result<Vec<TraceRequest>, TraceError> {
    let wrap = |problem| TraceError::Read { path: path.to_owned(), problem };
    let mut text = Vec::new();
    // A device that never ends must not fill the memory.
    let file = fs::File::open(path).map_err(wrap)?;
    file.take(MAX_TRACE_BYTES + 1).read_to_end(&mut text).map_err(wrap)?;
    if text.len() as u64 > MAX_TRACE_BYTES {
        return Err(TraceError::TooLong { path: path.to_owned() });
    }
    parse_trace(path, &text)
}

/// Parses the text of a trace. `path` is used in errors only.
///
/// # Errors
/// As [`read_trace`].
pub fn parse_trace(path: &Path, text: &[u8]) -> Result<Vec<TraceRequest>, TraceError> {
    let text = text.trim_ascii_end();
    if text.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    (1..).zip(text.split(|&byte| byte == b'\n')).map(|(line, text)| parse_line(path, line, text)).collect()
}

fn parse_line(path: &Path, line: u64, text: &[u8]) -> Result<TraceRequest, TraceError> {
    let wrong = |reason| TraceError::Line { path: path.to_owned(), line, reason };
    if text.trim_ascii().is_empty() {
        return Err(wrong("an empty line between requests".to_owned()));
    }
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(wrong("not a JSON object".to_owned()));
    }
    let parsed: Line = serde_json::from_slice(text).map_err(|error| wrong(reason_of(&error)))?;
    let refused = |problem| TraceError::Request { path: path.to_owned(), line, problem };
    let input_length = u32::try_from(parsed.input_length)
        .map_err(|_| refused(RequestProblem::InputLength { got: parsed.input_length }))?;
    let request = TraceRequest {
        line,
        timestamp_ms: parsed.timestamp,
        input_length,
        output_length: parsed.output_length,
        hash_ids: parsed.hash_ids,
    };
    request.check().map_err(refused)?;
    Ok(request)
}

/// The parser's message without its line number, which counts from the start of our line.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(reason) => format!("{reason} at column {}", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"timestamp": 7, "input_length": 513, "output_length": 3, "hash_ids": [4, 9]}"#;

    fn parse(text: &str) -> Result<Vec<TraceRequest>, TraceError> {
        parse_trace(Path::new("some.jsonl"), text.as_bytes())
    }

    fn refusal(line: &str) -> String {
        parse(&format!("{GOOD}\n{line}\n{GOOD}\n")).unwrap_err().to_string()
    }

    #[test]
    fn a_line_becomes_a_request_that_knows_its_line() {
        let requests = parse(&format!("{GOOD}\n{GOOD}\r\n\n  \n")).unwrap();
        assert_eq!(requests.len(), 2);
        let expected = TraceRequest {
            line: 2,
            timestamp_ms: 7,
            input_length: 513,
            output_length: 3,
            hash_ids: vec![4, 9],
        };
        assert_eq!(requests[1], expected);
        assert_eq!(requests[1].full_hash_ids(), [4]);
    }

    #[test]
    fn a_bad_line_is_named_with_file_line_and_reason() {
        for (line, reason) in [
            ("not json", "not a JSON object"),
            ("[0, 1, 1, [1]]", "not a JSON object"),
            ("", "empty line"),
            (r#"{"timestamp": 0, "output_length": 1, "hash_ids": [1]}"#, "missing field `input_length`"),
            (r#"{"timestamp": 0, "input_length": 1, "output_length": 1}"#, "missing field `hash_ids`"),
            (r#"{"timestamp": 0, "input_length": -1, "output_length": 1, "hash_ids": []}"#, "-1"),
            (r#"{"timestamp": 0, "input_length": 1.5, "output_length": 1, "hash_ids": [1]}"#, "1.5"),
            (r#"{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}"#, "input_length 0"),
            (
                r#"{"timestamp": 0, "input_length": 99999999999, "output_length": 1, "hash_ids": []}"#,
                "99999999999",
            ),
            (r#"{"timestamp": 0, "input_length": 16777217, "output_length": 1, "hash_ids": []}"#, "16777217"),
            (r#"{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}"#, "must be 2"),
            (r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}"#, "must be 1"),
        ] {
            let error = refusal(line);
            assert!(error.starts_with("trace some.jsonl, line 2: "), "{error}");
            assert!(error.contains(reason) && !error.contains("at line"), "{error}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_an_error_of_their_line() {
        let error = parse_trace(Path::new("t"), b"{\"timestamp\xff\": 0}").unwrap_err();
        assert!(matches!(error, TraceError::Line { line: 1, .. }), "{error}");
    }

    #[test]
    fn an_empty_trace_is_an_error() {
        for text in ["", "\n", " \n\n"] {
            assert!(matches!(parse(text), Err(TraceError::Empty { .. })));
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named_with_the_systems_reason() {
        let path = tempfile::tempdir().unwrap().path().join("gone.jsonl");
        let error = read_trace(&path).unwrap_err().to_string();
        assert!(error.contains("gone.jsonl") && error.contains("os error 2"), "{error}");
    }
}
