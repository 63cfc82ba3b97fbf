//! Branches, calls, barriers of a block, pauses.

use super::Decoder;
use crate::ptx::builder::Symbol;
use crate::ptx::error::Refusal;
use crate::ptx::module::Param;
use crate::ptx::operand::Raw;
use crate::ptx::parser::ModuleSymbol;
use crate::ptx::program::{Call, Op};
use crate::ptx::types::{Kind, Type};

const U32: Type = Type { kind: Kind::Unsigned, bits: 32 };

impl<'i, 'a> Decoder<'i, 'a, '_, '_> {
    /// `bra`, `brx`, `call`, `ret`, `exit`, `trap`, `nanosleep`.
    pub(super) fn control(&mut self) -> Result<(), Refusal> {
        match self.opcode {
            "bra" => {
                self.take("uni");
                let [label] = self.take_operands()?;
                let Raw::Name(label) = label else {
                    return Err(Refusal::Operands("`bra` takes a label".into()));
                };
                self.builder.emit_branch(Op::Bra { target: 0 }, label);
                Ok(())
            }
            "brx" => self.brx(),
            "call" => self.call(),
            "nanosleep" => {
                let ty = self.ty()?;
                if ty != U32 {
                    return Err(self.no_type(ty));
                }
                let [a] = self.take_operands()?;
                let a = self.builder.src(a, ty)?;
                self.builder.emit(Op::Nanosleep { a });
                Ok(())
            }
            opcode => {
                let [] = self.take_operands()?;
                let op = match opcode {
                    "ret" => Op::Ret,
                    "exit" => Op::Exit,
                    _ => Op::Trap,
                };
                if op == Op::Ret {
                    self.take("uni");
                }
                self.builder.emit(op);
                Ok(())
            }
        }
    }

    fn brx(&mut self) -> Result<(), Refusal> {
        if !self.take("idx") {
            return Err(self.needs("`.idx`"));
        }
        self.take("uni");
        let [a, table] = self.take_operands()?;
        let Raw::Name(table) = table else {
            return Err(Refusal::Operands("a table of targets is expected".into()));
        };
        let (a, table) = (self.builder.src(a, U32)?, self.builder.table(table)?);
        self.builder.emit(Op::Brx { a, table });
        Ok(())
    }

    /// `call{.uni} {(results),} function{, (arguments)}`.
    fn call(&mut self) -> Result<(), Refusal> {
        self.take("uni");
        let operands = self.operands;
        let none: &[Raw<'a>] = &[];
        let (rets, name, args) = match operands {
            [Raw::Name(name)] => (none, name, none),
            [Raw::Name(name), Raw::List(args)] => (none, name, &args[..]),
            [Raw::List(rets), Raw::Name(name)] => (&rets[..], name, none),
            [Raw::List(rets), Raw::Name(name), Raw::List(args)] => (&rets[..], name, &args[..]),
            _ => return Err(Refusal::Operands("a function that is named is expected".into())),
        };
        let Some(&ModuleSymbol::Function(function)) = self.builder.state.symbols.get(*name) else {
            return Err(Refusal::Undeclared((*name).to_owned()));
        };
        let signature = &self.builder.state.signatures[function as usize];
        let call = Call {
            function,
            args: self.matched(args, &signature.params)?,
            rets: self.matched(rets, &signature.rets)?,
        };
        self.builder.note_call(function);
        let calls = &mut self.builder.state.program.calls;
        let index = calls.len() as u32;
        calls.push(call);
        self.builder.emit(Op::Call { call: index });
        Ok(())
    }

    /// The caller's places of arguments or results, beside the callee's.
    fn matched(
        &self,
        given: &[Raw<'a>],
        wanted: &[(String, Param)],
    ) -> Result<Vec<(u32, u32, u32)>, Refusal> {
        if given.len() != wanted.len() {
            return Err(Refusal::Operands(format!("{} given, {} are declared", given.len(), wanted.len())));
        }
        let pairs = given.iter().zip(wanted);
        pairs
            .map(|(given, (name, param))| {
                let Raw::Name(given) = given else {
                    return Err(Refusal::Operands("a `.param` is expected".into()));
                };
                match self.builder.lookup(given) {
                    Some(Symbol::Param { offset, bytes }) if bytes == param.bytes => {
                        Ok((offset, param.offset, bytes))
                    }
                    _ => Err(Refusal::Operands(format!("`{given}` is no `.param` of the size of `{name}`"))),
                }
            })
            .collect()
    }

    /// `bar{.cta}.sync`, `bar.arrive`, `bar.warp.sync`, and the same of `barrier`.
    pub(super) fn bar(&mut self) -> Result<(), Refusal> {
        if self.take("warp") {
            return self.bar_warp();
        }
        self.take("cta");
        let waits = self.take("sync");
        if !waits && !self.take("arrive") {
            return Err(self.needs("`.sync` or `.arrive`"));
        }
        self.take("aligned");
        let all = self.take("all");
        let (id, count) = match self.operands {
            [id] => (id, None),
            [id, count] if !all => (id, Some(count)),
            _ => return Err(Refusal::Operands("a barrier and a number of threads are expected".into())),
        };
        if count.is_none() && !waits {
            return Err(Refusal::Operands("`.arrive` needs a number of threads".into()));
        }
        let id = self.builder.src(id, U32)?;
        let counted = count.is_some();
        let count = count.map(|count| self.builder.src(count, U32)).transpose()?.unwrap_or(id);
        self.builder.emit(Op::Bar { id, count, counted, waits });
        Ok(())
    }
}
