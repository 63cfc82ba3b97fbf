//! Operands as they are written, before an instruction gives them a type.

use super::error::Refusal;
use super::lexer::Tok;
use super::tokens::Tokens;

/// An operand as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw<'a> {
    /// A register, variable, label or function; `_` is the sink.
    Name(&'a str),
    /// A component of a special register: `%tid.x`.
    Component(&'a str, &'a str),
    /// An integer, two's complement.
    Int(u64),
    /// The bits of an f32.
    F32(u32),
    /// The bits of an f64.
    F64(u64),
    /// `!%p1`.
    Not(&'a str),
    /// `%p1|%p2`.
    Pair(&'a str, &'a str),
    /// `{a, b}`.
    Vector(Vec<Raw<'a>>),
    /// `[base+offset]`.
    Addr(Box<Raw<'a>>, i64),
    /// `(a, b)` of a call.
    List(Vec<Raw<'a>>),
}

impl<'a> Tokens<'a> {
    /// The operands up to and with the `;`.
    pub(super) fn operands(&mut self) -> Result<Vec<Raw<'a>>, Refusal> {
        let mut operands = Vec::new();
        if self.eat(b';') {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand()?);
            if self.eat(b';') {
                return Ok(operands);
            }
            self.expect(b',')?;
        }
    }

    fn operand(&mut self) -> Result<Raw<'a>, Refusal> {
        match self.next() {
            Tok::Word(word) => self.word(word),
            Tok::Int(value) => Ok(Raw::Int(value)),
            Tok::F32(bits) => Ok(Raw::F32(bits)),
            Tok::F64(bits) => Ok(Raw::F64(bits)),
            Tok::Punct(b'-') => match self.next() {
                Tok::Int(value) => Ok(Raw::Int(value.wrapping_neg())),
                Tok::F64(bits) => Ok(Raw::F64(bits ^ 1 << 63)),
                other => Err(expected("a number behind `-`", other)),
            },
            Tok::Punct(b'!') => Ok(Raw::Not(self.name()?)),
            Tok::Punct(b'{') => Ok(Raw::Vector(self.list(b'}')?)),
            Tok::Punct(b'(') => Ok(Raw::List(self.list(b')')?)),
            Tok::Punct(b'[') => self.address(),
            other => Err(expected("an operand", other)),
        }
    }

    fn word(&mut self, word: &'a str) -> Result<Raw<'a>, Refusal> {
        if word.starts_with('%')
            && let Tok::Dot(component) = self.peek()
        {
            self.next();
            return Ok(Raw::Component(word, component));
        }
        if self.eat(b'|') {
            return Ok(Raw::Pair(word, self.name()?));
        }
        Ok(Raw::Name(word))
    }

    fn list(&mut self, close: u8) -> Result<Vec<Raw<'a>>, Refusal> {
        let mut list = Vec::new();
        if self.eat(close) {
            return Ok(list);
        }
        loop {
            list.push(self.operand()?);
            if self.eat(close) {
                return Ok(list);
            }
            self.expect(b',')?;
        }
    }

    /// Behind the `[`.
    fn address(&mut self) -> Result<Raw<'a>, Refusal> {
        let base = match self.next() {
            Tok::Word(word) => Raw::Name(word),
            Tok::Int(value) => Raw::Int(value),
            other => return Err(expected("a register, variable or number", other)),
        };
        let mut offset = 0i64;
        let signed = matches!(self.peek(), Tok::Punct(b'+' | b'-'));
        if signed {
            let mut negative = !self.eat(b'+') && self.eat(b'-');
            negative ^= self.eat(b'-');
            let Tok::Int(value) = self.next() else { return Err(expected("an offset", self.peek())) };
            offset = if negative { value.wrapping_neg() as i64 } else { value as i64 };
        }
        self.expect(b']')?;
        Ok(Raw::Addr(Box::new(base), offset))
    }
}

/// A refusal that says what was expected.
pub(super) fn expected(expected: &'static str, found: Tok<'_>) -> Refusal {
    Refusal::Expected { expected, found: found.to_string() }
}
