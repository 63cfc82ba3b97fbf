//! Declarations of variables and parameters.

use super::error::Refusal;
use super::lexer::Tok;
use super::module::{Global, Relocation, SharedVariable};
use super::operand::expected;
use super::parser::{ModuleSymbol, Parser};
use super::tokens::Tokens;
use super::types::{Kind, Type};

/// Shared memory of a block, at most.
const MAX_SHARED_BYTES: u64 = 227 * 1024;
/// A variable, at most.
const MAX_VARIABLE_BYTES: u64 = 1 << 30;

/// A declared variable, before its initialiser.
pub(super) struct Declared<'a> {
    pub(super) name: &'a str,
    /// `None`: an array without a length.
    pub(super) bytes: Option<u64>,
    pub(super) align: u32,
    element: Type,
}

/// `[.align n] .type name[n]...`, behind the space.
pub(super) fn declared<'a>(tokens: &mut Tokens<'a>) -> Result<Declared<'a>, Refusal> {
    let mut align = alignment(tokens)?;
    let tok = tokens.next();
    let Tok::Dot(word) = tok else { return Err(expected("a type", tok)) };
    let Some(element) = Type::parse(word).filter(|ty| ty.kind != Kind::Pred) else {
        return Err(Refusal::Directive(format!(".{word}")));
    };
    if tokens.eat_dot("ptr") {
        // What a pointer parameter points to changes nothing here.
        for space in ["global", "shared", "local", "const"] {
            tokens.eat_dot(space);
        }
        alignment(tokens)?;
    }
    let element_bytes = u32::from(element.bytes());
    align = align.or(Some(element_bytes));
    let name = tokens.name()?;
    let mut bytes = Some(u64::from(element_bytes));
    while tokens.eat(b'[') {
        if tokens.eat(b']') {
            bytes = None;
            continue;
        }
        let len = tokens.number()?;
        tokens.expect(b']')?;
        bytes = bytes.map(|bytes| bytes.saturating_mul(u64::from(len)));
    }
    if bytes.is_some_and(|bytes| bytes > MAX_VARIABLE_BYTES) {
        return Err(Refusal::TooLarge(name.to_owned()));
    }
    Ok(Declared { name, bytes, align: align.unwrap_or(element_bytes), element })
}

fn alignment(tokens: &mut Tokens<'_>) -> Result<Option<u32>, Refusal> {
    if !tokens.eat_dot("align") {
        return Ok(None);
    }
    let align = tokens.number()?;
    if !align.is_power_of_two() || align > 1024 {
        return Err(Refusal::TooLarge(format!(".align {align}")));
    }
    Ok(Some(align))
}

impl Declared<'_> {
    /// Its size; refused where an array has no length.
    pub(super) fn sized(&self) -> Result<u32, Refusal> {
        let bytes = self.bytes.ok_or_else(|| Refusal::Operands(format!("`{}` has no size", self.name)))?;
        u32::try_from(bytes).map_err(|_| Refusal::TooLarge(self.name.to_owned()))
    }
}

impl Parser<'_> {
    /// `.global` variables up to their `;`.
    pub(super) fn global_variables(&mut self) -> Result<(), Refusal> {
        let declared = declared(&mut self.tokens)?;
        let (mut init, mut relocations) = (Vec::new(), Vec::new());
        if self.tokens.eat(b'=') {
            initialiser(&mut self.tokens, declared.element, &mut init, &mut relocations)?;
        }
        let bytes = declared.bytes.unwrap_or(init.len() as u64);
        if init.len() as u64 > bytes {
            return Err(Refusal::Operands(format!("the initialiser of `{}` is too long", declared.name)));
        }
        init.resize(bytes as usize, 0);
        self.tokens.expect(b';')?;
        let index = self.state.globals.len() as u32;
        self.state.declare(declared.name, ModuleSymbol::Global(index))?;
        let align = u64::from(declared.align);
        self.state.globals.push(Global { name: declared.name.to_owned(), bytes, align, init, relocations });
        Ok(())
    }

    /// A `.shared` variable up to its `;`.
    pub(super) fn shared_variables(&mut self, external: bool) -> Result<(), Refusal> {
        let (name, variable) = shared_variable(&mut self.tokens, external)?;
        let index = self.state.shared.len() as u32;
        self.state.declare(name, ModuleSymbol::Shared(index))?;
        self.state.shared.push(variable);
        Ok(())
    }
}

/// A `.shared` variable up to its `;`. `external` without a size: the dynamic shared memory.
pub(super) fn shared_variable<'a>(
    tokens: &mut Tokens<'a>,
    external: bool,
) -> Result<(&'a str, SharedVariable), Refusal> {
    let declared = declared(tokens)?;
    tokens.expect(b';')?;
    let dynamic = external && declared.bytes.is_none();
    if external && !dynamic {
        return Err(Refusal::Operands(format!("`{}` is defined elsewhere", declared.name)));
    }
    let bytes = if dynamic { 0 } else { declared.sized()? };
    if u64::from(bytes) > MAX_SHARED_BYTES {
        return Err(Refusal::TooLarge(declared.name.to_owned()));
    }
    Ok((declared.name, SharedVariable { bytes, align: declared.align, dynamic }))
}

/// A number, the address of a global variable, or a list of these; little endian.
fn initialiser(
    tokens: &mut Tokens<'_>,
    element: Type,
    out: &mut Vec<u8>,
    relocations: &mut Vec<Relocation>,
) -> Result<(), Refusal> {
    if tokens.eat(b'{') {
        loop {
            initialiser(tokens, element, out, relocations)?;
            if tokens.eat(b'}') {
                return Ok(());
            }
            tokens.expect(b',')?;
        }
    }
    let negative = tokens.eat(b'-');
    let bits = match tokens.next() {
        Tok::Int(value) if negative => value.wrapping_neg(),
        Tok::Int(value) => value,
        Tok::F32(bits) if element.bits == 32 && !negative => u64::from(bits),
        Tok::F64(bits) if element.bits == 64 && !negative => bits,
        Tok::Word(word) if element.bits == 64 && !negative => {
            relocations.push(relocation(tokens, word, out.len() as u64)?);
            0
        }
        other => return Err(expected("a number or an address", other)),
    };
    out.extend_from_slice(&bits.to_le_bytes()[..usize::from(element.bytes())]);
    Ok(())
}

/// `generic(name)`, `name`, and an offset behind it.
fn relocation(tokens: &mut Tokens<'_>, word: &str, offset: u64) -> Result<Relocation, Refusal> {
    let symbol = if word == "generic" && tokens.eat(b'(') {
        let name = tokens.name()?;
        tokens.expect(b')')?;
        name.to_owned()
    } else {
        word.to_owned()
    };
    let addend = if tokens.eat(b'+') { u64::from(tokens.number()?) } else { 0 };
    Ok(Relocation { offset, symbol, addend })
}
