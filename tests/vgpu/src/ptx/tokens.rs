//! The stream of tokens, and what every level of the grammar asks of it.

use super::error::{PtxError, Refusal};
use super::lexer::{self, Tok};
use super::operand::expected;

/// The tokens of a text, with a place among them.
pub(crate) struct Tokens<'a> {
    tokens: Vec<(Tok<'a>, u32)>,
    at: usize,
    /// The line that a refusal names, where it is not that of the token taken last.
    blamed: Option<u32>,
}

impl<'a> Tokens<'a> {
    /// The tokens of `text`.
    pub(super) fn new(text: &'a str) -> Result<Self, PtxError> {
        Ok(Self { tokens: lexer::lex(text)?, at: 0, blamed: None })
    }

    /// The next token, which stays.
    pub(super) fn peek(&self) -> Tok<'a> {
        self.tokens[self.at].0
    }

    /// The line of the next token.
    pub(super) fn next_line(&self) -> u32 {
        self.tokens[self.at].1
    }

    /// The line of the token that was taken last.
    pub(super) fn line(&self) -> u32 {
        self.tokens[self.at.saturating_sub(1)].1
    }

    /// The refusal that follows is about `line`.
    pub(super) fn blame(&mut self, line: u32) {
        self.blamed = Some(line);
    }

    /// The line a refusal names.
    pub(super) fn blamed_line(&self) -> u32 {
        self.blamed.unwrap_or(self.line())
    }

    /// Takes a token; the end stays the end.
    pub(super) fn next(&mut self) -> Tok<'a> {
        let tok = self.peek();
        if tok != Tok::End {
            self.at += 1;
        }
        tok
    }

    /// Takes `punct` if it is next.
    pub(super) fn eat(&mut self, punct: u8) -> bool {
        let found = self.peek() == Tok::Punct(punct);
        if found {
            self.at += 1;
        }
        found
    }

    /// Takes the directive or modifier `.word` if it is next.
    pub(super) fn eat_dot(&mut self, word: &str) -> bool {
        let found = self.peek() == Tok::Dot(word);
        if found {
            self.at += 1;
        }
        found
    }

    /// Takes `punct`.
    pub(super) fn expect(&mut self, punct: u8) -> Result<(), Refusal> {
        match self.next() {
            Tok::Punct(found) if found == punct => Ok(()),
            other => {
                let what = match punct {
                    b';' => "`;`",
                    b',' => "`,`",
                    b']' => "`]`",
                    b'(' => "`(`",
                    b')' => "`)`",
                    b'{' => "`{`",
                    b'}' => "`}`",
                    b'>' => "`>`",
                    _ => "another character",
                };
                Err(expected(what, other))
            }
        }
    }

    /// Takes a name.
    pub(super) fn name(&mut self) -> Result<&'a str, Refusal> {
        match self.next() {
            Tok::Word(word) => Ok(word),
            other => Err(expected("a name", other)),
        }
    }

    /// Takes a number below 2^32.
    pub(super) fn number(&mut self) -> Result<u32, Refusal> {
        match self.next() {
            Tok::Int(value) => u32::try_from(value).map_err(|_| Refusal::TooLarge(value.to_string())),
            other => Err(expected("a number", other)),
        }
    }

    /// Takes what is left of the line of the token taken last.
    pub(super) fn skip_line(&mut self) {
        let line = self.line();
        while self.peek() != Tok::End && self.next_line() == line {
            self.at += 1;
        }
    }
}
