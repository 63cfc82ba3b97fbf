//! The body of a function: declarations, labels, statements.

use super::builder::Builder;
use super::decode::{self, Instruction};
use super::error::Refusal;
use super::lexer::Tok;
use super::operand::expected;
use super::program::Op;
use super::tokens::Tokens;
use super::types::Type;
use super::variable;

/// Reads behind the `{` up to and with its `}`.
pub(super) fn parse(tokens: &mut Tokens<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    loop {
        let line = tokens.next_line();
        builder.line = line;
        match tokens.next() {
            Tok::Punct(b'{') => builder.open_scope(),
            Tok::Punct(b'}') => {
                if !builder.close_scope() {
                    return Ok(());
                }
            }
            Tok::Punct(b';') => {}
            Tok::Dot(directive) => declaration(directive, tokens, builder)?,
            Tok::Punct(b'@') => guarded(tokens, builder)?,
            Tok::Word(label) if tokens.eat(b':') => labelled(label, tokens, builder)?,
            Tok::Word(opcode) => statement(opcode, tokens, builder)?,
            other => return Err(expected("a statement", other)),
        }
    }
}

fn declaration(directive: &str, tokens: &mut Tokens<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    match directive {
        "reg" => registers(tokens, builder),
        "param" => {
            let declared = variable::declared(tokens)?;
            tokens.expect(b';')?;
            builder.declare_param(declared.name, declared.sized()?, declared.align)
        }
        "local" => {
            let declared = variable::declared(tokens)?;
            tokens.expect(b';')?;
            builder.declare_local(declared.name, declared.sized()?, declared.align)
        }
        "shared" => {
            let (name, variable) = variable::shared_variable(tokens, false)?;
            let index = builder.state.shared.len() as u32;
            builder.state.shared.push(variable);
            builder.declare_shared(name, index)
        }
        "loc" => {
            tokens.skip_line();
            Ok(())
        }
        "pragma" => match (tokens.next(), tokens.next()) {
            (Tok::Str("nounroll"), Tok::Punct(b';')) => Ok(()),
            (other, _) => Err(Refusal::Directive(format!(".pragma {other}"))),
        },
        other => Err(Refusal::Directive(format!(".{other}"))),
    }
}

/// `.type %r<10>, %SP;` behind `.reg`.
fn registers(tokens: &mut Tokens<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let tok = tokens.next();
    let Tok::Dot(word) = tok else { return Err(expected("a type", tok)) };
    let ty = Type::parse(word).ok_or_else(|| Refusal::Directive(format!(".reg .{word}")))?;
    loop {
        let name = tokens.name()?;
        if tokens.eat(b'<') {
            let count = tokens.number()?;
            tokens.expect(b'>')?;
            for index in 0..count {
                builder.declare_reg(&format!("{name}{index}"), ty)?;
            }
        } else {
            builder.declare_reg(name, ty)?;
        }
        if tokens.eat(b';') {
            return Ok(());
        }
        tokens.expect(b',')?;
    }
}

/// Behind `label:`.
fn labelled(label: &str, tokens: &mut Tokens<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    if !tokens.eat_dot("branchtargets") {
        return builder.declare_label(label);
    }
    let mut targets = Vec::new();
    loop {
        targets.push(tokens.name()?.to_owned());
        if tokens.eat(b';') {
            break;
        }
        tokens.expect(b',')?;
    }
    let table = builder.add_table(targets);
    builder.declare_table(label, table)
}

/// Behind `@`: an instruction that runs only where a predicate holds.
fn guarded(tokens: &mut Tokens<'_>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let negate = tokens.eat(b'!');
    let name = tokens.name()?;
    let (p, ty) = builder.reg(name)?;
    if ty != Type::PRED {
        return Err(Refusal::Operands(format!("`{name}` is not a predicate")));
    }
    let opcode = tokens.name()?;
    let instruction = instruction(opcode, tokens)?;
    if opcode == "bra" {
        let label = instruction.branch_label().inspect_err(|_| tokens.blame(builder.line))?;
        builder.emit_branch(Op::BraIf { p, negate, target: 0 }, label);
        return Ok(());
    }
    let skip = builder.state.program.ops.len();
    builder.emit(Op::BraIf { p, negate: !negate, target: 0 });
    blamed(tokens, builder, &instruction)?;
    builder.land(skip);
    Ok(())
}

fn statement<'a>(opcode: &'a str, tokens: &mut Tokens<'a>, builder: &mut Builder<'_>) -> Result<(), Refusal> {
    let instruction = instruction(opcode, tokens)?;
    blamed(tokens, builder, &instruction)
}

/// Decodes; a refusal names the line where the statement starts.
fn blamed(
    tokens: &mut Tokens<'_>,
    builder: &mut Builder<'_>,
    instruction: &Instruction<'_>,
) -> Result<(), Refusal> {
    let line = builder.line;
    decode::decode(instruction, builder).inspect_err(|_| tokens.blame(line))
}

/// Opcode, modifiers and operands.
fn instruction<'a>(opcode: &'a str, tokens: &mut Tokens<'a>) -> Result<Instruction<'a>, Refusal> {
    let mut modifiers = Vec::new();
    while let Tok::Dot(modifier) = tokens.peek() {
        tokens.next();
        modifiers.push(modifier);
    }
    Ok(Instruction::new(opcode, modifiers, tokens.operands()?))
}
