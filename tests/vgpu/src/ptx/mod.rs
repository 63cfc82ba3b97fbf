//! PTX text -> a checked, typed program. What is not understood is refused, with its line; nothing is skipped.

mod body;
mod builder;
mod decode;
mod error;
mod function;
mod lexer;
mod module;
mod operand;
pub(crate) mod operation;
mod parser;
pub(crate) mod program;
mod tokens;
pub(crate) mod types;
mod variable;

pub use error::{PtxError, Refusal};
pub(crate) use module::Function;
pub use module::{Global, Kernel, Module, Param, Relocation};
