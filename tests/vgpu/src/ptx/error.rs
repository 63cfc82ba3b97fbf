//! Why a PTX text is refused.

/// A refusal: the line, its text, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: `{text}`: {what}")]
pub struct PtxError {
    /// The line, counted from 1.
    pub line: u32,
    /// The line's text, trimmed.
    pub text: String,
    /// What is wrong.
    pub what: Refusal,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A character or literal that PTX does not have.
    #[error("cannot read `{0}`")]
    Unreadable(String),
    /// Something else was expected at this place.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What grammar asks for.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A directive that is not interpreted.
    #[error("the directive `{0}` is not interpreted")]
    Directive(String),
    /// An opcode that is not interpreted.
    #[error("the opcode `{0}` is not interpreted")]
    Opcode(String),
    /// A modifier that is not interpreted with this opcode.
    #[error("the modifier `.{modifier}` of `{opcode}` is not interpreted")]
    Modifier {
        /// The opcode.
        opcode: String,
        /// The modifier, without its dot.
        modifier: String,
    },
    /// A modifier is missing.
    #[error("`{opcode}` needs {needs}")]
    MissingModifier {
        /// The opcode.
        opcode: String,
        /// What is missing.
        needs: &'static str,
    },
    /// The operands do not fit the opcode.
    #[error("the operands do not fit: {0}")]
    Operands(String),
    /// A register, variable, label or function that is not declared.
    #[error("`{0}` is not declared")]
    Undeclared(String),
    /// A name declared twice in one scope.
    #[error("`{0}` is declared twice")]
    Redeclared(String),
    /// A limit of the interpreter.
    #[error("too large: {0}")]
    TooLarge(String),
}
