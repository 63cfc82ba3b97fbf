//! The scalar types, state spaces, orders and scopes of instructions.

/// How the bits of a scalar are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A predicate, 0 or 1.
    Pred,
    /// Untyped.
    Bits,
    /// Unsigned.
    Unsigned,
    /// Signed.
    Signed,
    /// IEEE binary.
    Float,
}

/// A scalar type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Type {
    /// How its bits are read.
    pub(crate) kind: Kind,
    /// Its width; 1 for a predicate.
    pub(crate) bits: u8,
}

impl Type {
    /// A predicate.
    pub(crate) const PRED: Self = Self { kind: Kind::Pred, bits: 1 };

    /// The type called `name`, without its dot.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name == "pred" {
            return Some(Self::PRED);
        }
        let kind = match name.as_bytes().first()? {
            b'b' => Kind::Bits,
            b'u' => Kind::Unsigned,
            b's' => Kind::Signed,
            b'f' => Kind::Float,
            _ => return None,
        };
        let bits = match &name[1..] {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        (kind != Kind::Float || bits >= 32).then_some(Self { kind, bits })
    }

    /// Its size in memory.
    pub(crate) const fn bytes(self) -> u8 {
        self.bits.div_ceil(8)
    }

    /// Whether it is signed.
    pub(crate) const fn is_signed(self) -> bool {
        matches!(self.kind, Kind::Signed)
    }

    /// Whether it is floating point.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self.kind, Kind::Float)
    }

    /// Whether it is an integer or untyped.
    pub(crate) const fn is_int(self) -> bool {
        matches!(self.kind, Kind::Bits | Kind::Unsigned | Kind::Signed)
    }
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// Decided by the address.
    Generic,
    /// Device and host memory.
    Global,
    /// A block's.
    Shared,
    /// A thread's.
    Local,
    /// A function's parameters.
    Param,
}

/// The order of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// An ordinary access.
    Weak,
    /// Relaxed, or volatile.
    Relaxed,
    /// A load that acquires.
    Acquire,
    /// A store that releases.
    Release,
}

/// The order of a read-modify-write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RmwOrder {
    /// Orders nothing.
    Relaxed,
    /// Acquires.
    Acquire,
    /// Releases.
    Release,
    /// Both.
    AcqRel,
}

/// The scope of a synchronising access, narrow to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The block.
    Cta,
    /// The cluster.
    Cluster,
    /// The device.
    Gpu,
    /// Everything that shares the memory.
    Sys,
}

impl Scope {
    /// The scope called `name`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "cta" => Some(Self::Cta),
            "cluster" => Some(Self::Cluster),
            "gpu" => Some(Self::Gpu),
            "sys" => Some(Self::Sys),
            _ => None,
        }
    }
}
