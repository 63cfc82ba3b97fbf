//! What instructions compute: operations without their operands.

use super::types::Type;

/// Integer operations of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnOp {
    Not,
    Neg,
    Abs,
    Clz,
    Popc,
    Brev,
    Cnot,
}

/// Integer operations of two operands; `U` reads them unsigned, `S` signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinOp {
    Add,
    Sub,
    MulLo,
    MulHiU,
    MulHiS,
    MulWideU,
    MulWideS,
    DivU,
    DivS,
    RemU,
    RemS,
    MinU,
    MinS,
    MaxU,
    MaxS,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
}

/// Integer operations of three operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerOp {
    /// `mad`, by the product it adds to.
    Mad(BinOp),
    Prmt,
    ShfLeftWrap,
    ShfLeftClamp,
    ShfRightWrap,
    ShfRightClamp,
    BfeU,
    BfeS,
}

/// Floating-point operations of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    MinNan,
    MaxNan,
}

/// Floating-point operations of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatUnOp {
    Neg,
    Abs,
    Sqrt,
    Rcp,
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Neither is NaN.
    Num,
    /// One is NaN.
    Nan,
}

/// How two operands are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The relation.
    pub(crate) cmp: Cmp,
    /// For floats: true as well where one is NaN.
    pub(crate) unordered: bool,
    /// What is compared.
    pub(crate) ty: Type,
}

/// How a conversion rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Not needed.
    None,
    /// To nearest even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
}

/// A conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Convert {
    pub(crate) to: Type,
    pub(crate) from: Type,
    pub(crate) rounding: Rounding,
    /// Whether a float result is an integral value (`rni` and its like, float to float).
    pub(crate) integral: bool,
    pub(crate) saturate: bool,
    /// Width of the destination register: a signed result is extended to it.
    pub(crate) to_bits: u8,
}

/// What a read-modify-write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RmwOp {
    Add,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    MinU,
    MinS,
    MaxU,
    MaxS,
    Inc,
    Dec,
}

/// How the lanes of a warp exchange values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarpOp {
    ShflUp,
    ShflDown,
    ShflBfly,
    ShflIdx,
    VoteAll,
    VoteAny,
    VoteUni,
    VoteBallot,
    /// `bar.warp.sync`.
    Sync,
}
