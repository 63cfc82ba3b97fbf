//! PTX text -> tokens with their lines.

use super::error::{PtxError, Refusal};

/// A token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tok<'a> {
    /// A name, an opcode, a register: `ld`, `%r1`, `$L__BB0_2`, `_`.
    Word(&'a str),
    /// A directive or modifier, without its dot: `global`, `L1::no_allocate`.
    Dot(&'a str),
    /// An integer literal.
    Int(u64),
    /// `0f` and 8 hexadecimal digits.
    F32(u32),
    /// `0d` and 16 hexadecimal digits, or a decimal fraction, as the bits of an f64.
    F64(u64),
    /// A quoted text.
    Str(&'a str),
    /// Any other character with a meaning.
    Punct(u8),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Tok<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Dot(word) => write!(f, "`.{word}`"),
            Self::Int(value) => write!(f, "`{value}`"),
            Self::F32(bits) => write!(f, "`0f{bits:08X}`"),
            Self::F64(bits) => write!(f, "`0d{bits:016X}`"),
            Self::Str(text) => write!(f, "`\"{text}\"`"),
            Self::Punct(byte) => write!(f, "`{}`", char::from(*byte)),
            Self::End => write!(f, "the end of the text"),
        }
    }
}

/// The tokens of `text`, each with its line from 1, the last one [`Tok::End`].
///
/// # Errors
/// On a character, number or comment that PTX does not have.
pub(crate) fn lex(text: &str) -> Result<Vec<(Tok<'_>, u32)>, PtxError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank()?;
        let line = lexer.line;
        let tok = lexer.token()?;
        tokens.push((tok, line));
        if tok == Tok::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

impl<'a> Lexer<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn refuse(&self, what: Refusal) -> PtxError {
        let text = self.text.lines().nth(self.line as usize - 1).unwrap_or_default().trim();
        PtxError { line: self.line, text: text.to_owned(), what }
    }

    fn skip_blank(&mut self) -> Result<(), PtxError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                (b'/', b'*') => {
                    let rest = &self.text[self.at..];
                    let end = rest.find("*/").ok_or_else(|| self.refuse(Refusal::Unreadable("/*".into())))?;
                    self.line += rest[..end].matches('\n').count() as u32;
                    self.at += end + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The run of characters that `accepts`, from `self.at` on.
    fn run(&mut self, accepts: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let len = rest.bytes().position(|byte| !accepts(byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn token(&mut self) -> Result<Tok<'a>, PtxError> {
        if self.at == self.text.len() {
            return Ok(Tok::End);
        }
        match self.peek(0) {
            b'.' => {
                self.at += 1;
                self.dotted()
            }
            b'"' => {
                self.at += 1;
                let text = self.run(|byte| byte != b'"' && byte != b'\n');
                if self.peek(0) != b'"' {
                    return Err(self.refuse(Refusal::Unreadable(format!("\"{text}"))));
                }
                self.at += 1;
                Ok(Tok::Str(text))
            }
            b'0'..=b'9' => self.number(),
            byte if is_word(byte) => Ok(Tok::Word(self.run(is_word))),
            byte if b"@!{}()[],;:=<>+-|".contains(&byte) => {
                self.at += 1;
                Ok(Tok::Punct(byte))
            }
            _ => {
                let what = self.text[self.at..].chars().take(1).collect();
                Err(self.refuse(Refusal::Unreadable(what)))
            }
        }
    }

    /// `global`, `shared::cta`, `L2::128B`, behind the dot.
    fn dotted(&mut self) -> Result<Tok<'a>, PtxError> {
        let start = self.at;
        self.run(is_word);
        while self.peek(0) == b':' && self.peek(1) == b':' {
            self.at += 2;
            self.run(is_word);
        }
        let word = &self.text[start..self.at];
        if word.is_empty() {
            return Err(self.refuse(Refusal::Unreadable(".".into())));
        }
        Ok(Tok::Dot(word))
    }

    fn number(&mut self) -> Result<Tok<'a>, PtxError> {
        let start = self.at;
        self.run(is_word);
        let word = &self.text[start..self.at];
        if word.bytes().all(|byte| byte.is_ascii_digit())
            && self.peek(0) == b'.'
            && self.peek(1).is_ascii_digit()
        {
            self.at += 1;
            self.run(|byte| byte.is_ascii_digit());
        }
        let word = &self.text[start..self.at];
        literal(word).ok_or_else(|| self.refuse(Refusal::Unreadable(word.into())))
    }
}

/// The value of a numeric literal.
fn literal(word: &str) -> Option<Tok<'static>> {
    let lower = word.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0f") {
        return (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())?.map(Tok::F32);
    }
    if let Some(digits) = lower.strip_prefix("0d") {
        return (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?.map(Tok::F64);
    }
    if lower.contains('.') {
        return lower.parse::<f64>().ok().map(|value| Tok::F64(value.to_bits()));
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    let value = if let Some(digits) = digits.strip_prefix("0x") {
        u64::from_str_radix(digits, 16)
    } else if let Some(digits) = digits.strip_prefix("0b") {
        u64::from_str_radix(digits, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8)
    } else {
        digits.parse()
    };
    value.ok().map(Tok::Int)
}
