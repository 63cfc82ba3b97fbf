//! The function being read: its names, its slots, its instructions.

use std::collections::{BTreeSet, HashMap};

use super::decode::special;
use super::error::Refusal;
use super::operand::Raw;
use super::parser::{ModuleSymbol, State};
use super::program::{Init, Op, Slot, Special};
use super::types::{Kind, Type};

/// What a name means inside a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// A register.
    Reg(Slot, Type),
    /// A parameter, a result or an argument: its place in the parameter area.
    Param { offset: u32, bytes: u32 },
    /// A local variable: its place in the function's local memory.
    Local(u32),
    /// Index of a shared variable.
    Shared(u32),
    /// Index of a global variable.
    Global(u32),
}

/// A `{ ... }` with what it declares.
#[derive(Default)]
struct Scope {
    parent: Option<usize>,
    names: HashMap<String, Symbol>,
    labels: HashMap<String, u32>,
    /// Tables of `brx.idx`.
    tables: HashMap<String, u32>,
}

/// Where the index of a label's instruction is missing.
enum Missing {
    /// In the branch at this index.
    Branch(usize),
    /// In this table.
    Table(usize),
}

/// The function being read.
pub(crate) struct Builder<'s> {
    pub(super) state: &'s mut State,
    function: u32,
    scopes: Vec<Scope>,
    scope: usize,
    num_slots: u32,
    inits: Vec<(Slot, Init)>,
    init_slots: HashMap<Init, Slot>,
    param_area_bytes: u32,
    local_bytes: u32,
    local_align: u32,
    num_regs: u32,
    callees: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    fixups: Vec<(Missing, Vec<String>, usize, u32)>,
    /// The line of the statement being read.
    pub(super) line: u32,
    entry: u32,
}

impl<'s> Builder<'s> {
    pub(super) fn new(state: &'s mut State, function: u32) -> Result<Self, Refusal> {
        let signature = &state.signatures[function as usize];
        let mut scope = Scope::default();
        for (name, param) in signature.params.iter().chain(&signature.rets) {
            let symbol = Symbol::Param { offset: param.offset, bytes: param.bytes };
            if scope.names.insert(name.clone(), symbol).is_some() {
                return Err(Refusal::Redeclared(name.clone()));
            }
        }
        let param_area_bytes = signature.area_bytes();
        let entry = state.program.ops.len() as u32;
        Ok(Self {
            state,
            function,
            scopes: vec![scope],
            scope: 0,
            num_slots: 0,
            inits: Vec::new(),
            init_slots: HashMap::new(),
            param_area_bytes,
            local_bytes: 0,
            local_align: 1,
            num_regs: 0,
            callees: BTreeSet::new(),
            shared: BTreeSet::new(),
            fixups: Vec::new(),
            line: 0,
            entry,
        })
    }

    /// Opens a `{`.
    pub(super) fn open_scope(&mut self) {
        self.scopes.push(Scope { parent: Some(self.scope), ..Scope::default() });
        self.scope = self.scopes.len() - 1;
    }

    /// Closes a `}`; false: it was the function's.
    pub(super) fn close_scope(&mut self) -> bool {
        let Some(parent) = self.scopes[self.scope].parent else { return false };
        self.scope = parent;
        true
    }

    fn declare(&mut self, name: &str, symbol: Symbol) -> Result<(), Refusal> {
        match self.scopes[self.scope].names.insert(name.to_owned(), symbol) {
            None => Ok(()),
            Some(_) => Err(Refusal::Redeclared(name.to_owned())),
        }
    }

    /// Declares a register.
    pub(super) fn declare_reg(&mut self, name: &str, ty: Type) -> Result<(), Refusal> {
        let slot = self.scratch()?;
        self.num_regs += 1;
        self.declare(name, Symbol::Reg(slot, ty))
    }

    /// Declares an argument or result of a call.
    pub(super) fn declare_param(&mut self, name: &str, bytes: u32, align: u32) -> Result<(), Refusal> {
        let offset = self.param_area_bytes.next_multiple_of(align);
        self.param_area_bytes = offset.saturating_add(bytes);
        self.declare(name, Symbol::Param { offset, bytes })
    }

    /// Declares a local variable.
    pub(super) fn declare_local(&mut self, name: &str, bytes: u32, align: u32) -> Result<(), Refusal> {
        let offset = self.local_bytes.next_multiple_of(align);
        self.local_bytes = offset.saturating_add(bytes);
        self.local_align = self.local_align.max(align);
        if self.local_bytes > 512 * 1024 {
            return Err(Refusal::TooLarge(name.to_owned()));
        }
        self.declare(name, Symbol::Local(offset))
    }

    /// Declares shared variable `index` in this function.
    pub(super) fn declare_shared(&mut self, name: &str, index: u32) -> Result<(), Refusal> {
        self.declare(name, Symbol::Shared(index))
    }

    /// The next instruction is `name`'s.
    pub(super) fn declare_label(&mut self, name: &str) -> Result<(), Refusal> {
        let target = self.state.program.ops.len() as u32;
        match self.scopes[self.scope].labels.insert(name.to_owned(), target) {
            None => Ok(()),
            Some(_) => Err(Refusal::Redeclared(name.to_owned())),
        }
    }

    /// The scopes from the current one outwards.
    fn enclosing(&self, scope: usize) -> impl Iterator<Item = &Scope> {
        std::iter::successors(Some(&self.scopes[scope]), |scope| {
            scope.parent.map(|parent| &self.scopes[parent])
        })
    }

    /// What `name` means here.
    pub(super) fn lookup(&self, name: &str) -> Option<Symbol> {
        let here = self.enclosing(self.scope).find_map(|scope| scope.names.get(name).copied());
        here.or_else(|| match self.state.symbols.get(name)? {
            ModuleSymbol::Global(index) => Some(Symbol::Global(*index)),
            ModuleSymbol::Shared(index) => Some(Symbol::Shared(*index)),
            ModuleSymbol::Function(_) => None,
        })
    }

    /// A slot that nothing else uses.
    pub(super) fn scratch(&mut self) -> Result<Slot, Refusal> {
        let slot =
            Slot::try_from(self.num_slots).map_err(|_| Refusal::TooLarge("registers and literals".into()))?;
        self.num_slots += 1;
        Ok(slot)
    }

    /// The slot that holds `init` from the start.
    pub(super) fn init(&mut self, init: Init) -> Result<Slot, Refusal> {
        if let Some(&slot) = self.init_slots.get(&init) {
            return Ok(slot);
        }
        let slot = self.scratch()?;
        self.init_slots.insert(init, slot);
        self.inits.push((slot, init));
        Ok(slot)
    }

    /// The slot of a literal.
    pub(super) fn literal(&mut self, value: u64) -> Result<Slot, Refusal> {
        self.init(Init::Const(value))
    }

    /// The slot of an operand that is read at type `ty`: a register of that width, a literal, an address.
    pub(super) fn src(&mut self, raw: &Raw<'_>, ty: Type) -> Result<Slot, Refusal> {
        self.src_at_least(raw, ty, false)
    }

    /// As [`src`](Self::src); with `wider`, the register may be wider.
    pub(super) fn src_at_least(&mut self, raw: &Raw<'_>, ty: Type, wider: bool) -> Result<Slot, Refusal> {
        let mask = u64::MAX >> (64 - ty.bits);
        match raw {
            Raw::Name(name) => match self.lookup(name) {
                Some(Symbol::Reg(slot, reg)) => {
                    check_width(name, reg, ty, wider)?;
                    Ok(slot)
                }
                Some(symbol) => self.address_of(symbol, ty),
                None => match special::constant(name, None) {
                    Some(init) => self.special(name, init, ty),
                    None => Err(Refusal::Undeclared((*name).to_owned())),
                },
            },
            Raw::Component(name, component) => match special::constant(name, Some(component)) {
                Some(init) => self.special(name, init, ty),
                None => Err(Refusal::Undeclared(format!("{name}.{component}"))),
            },
            Raw::Int(value) if ty.kind != Kind::Float => self.literal(value & mask),
            Raw::F32(bits) if ty.bits == 32 => self.literal(u64::from(*bits)),
            Raw::F64(bits) if ty.bits == 64 => self.literal(*bits),
            Raw::F64(bits) if ty.is_float() => {
                self.literal(u64::from((f64::from_bits(*bits) as f32).to_bits()))
            }
            other => Err(Refusal::Operands(format!("{other:?} where a value of {} bits is read", ty.bits))),
        }
    }

    fn special(&mut self, name: &str, special: Special, ty: Type) -> Result<Slot, Refusal> {
        if ty.bits != 32 {
            return Err(Refusal::Operands(format!("`{name}` has 32 bits, {} are read", ty.bits)));
        }
        self.init(Init::Special(special))
    }

    /// The slot that holds the address of a variable.
    pub(super) fn address_of(&mut self, symbol: Symbol, ty: Type) -> Result<Slot, Refusal> {
        let init = match symbol {
            Symbol::Global(index) if ty.bits == 64 => Init::Global(index),
            Symbol::Shared(index) if ty.bits >= 32 => {
                self.shared.insert(index);
                Init::Shared(index)
            }
            Symbol::Local(offset) if ty.bits >= 32 => Init::Local(offset),
            Symbol::Param { offset, .. } if ty.bits >= 32 => Init::Param(offset),
            _ => return Err(Refusal::Operands(format!("no address of {} bits", ty.bits))),
        };
        self.init(init)
    }

    /// The slot of a register that is written at type `ty`.
    pub(super) fn dst(&mut self, raw: &Raw<'_>, ty: Type) -> Result<Slot, Refusal> {
        Ok(self.dst_at_least(raw, ty, false)?.0)
    }

    /// As [`dst`](Self::dst), with the register's width; with `wider`, it may be wider. `_` is a slot that nobody reads.
    pub(super) fn dst_at_least(
        &mut self,
        raw: &Raw<'_>,
        ty: Type,
        wider: bool,
    ) -> Result<(Slot, u8), Refusal> {
        match raw {
            Raw::Name("_") => Ok((self.scratch()?, ty.bits)),
            Raw::Name(name) => match self.lookup(name) {
                Some(Symbol::Reg(slot, reg)) => {
                    check_width(name, reg, ty, wider)?;
                    Ok((slot, reg.bits))
                }
                Some(_) => Err(Refusal::Operands(format!("`{name}` is not a register"))),
                None => Err(Refusal::Undeclared((*name).to_owned())),
            },
            other => Err(Refusal::Operands(format!("{other:?} where a register is written"))),
        }
    }

    /// A register's slot and type.
    pub(super) fn reg(&self, name: &str) -> Result<(Slot, Type), Refusal> {
        match self.lookup(name) {
            Some(Symbol::Reg(slot, ty)) => Ok((slot, ty)),
            _ => Err(Refusal::Undeclared(name.to_owned())),
        }
    }

    /// Adds an instruction.
    pub(super) fn emit(&mut self, op: Op) {
        self.state.program.ops.push(op);
        self.state.program.lines.push(self.line);
    }

    /// Adds a branch (its target is filled in later) to `label`.
    pub(super) fn emit_branch(&mut self, op: Op, label: &str) {
        let missing = Missing::Branch(self.state.program.ops.len());
        self.fixups.push((missing, vec![label.to_owned()], self.scope, self.line));
        self.emit(op);
    }

    /// Adds a table of targets; returns its index.
    pub(super) fn add_table(&mut self, labels: Vec<String>) -> u32 {
        let index = self.state.program.tables.len();
        self.state.program.tables.push(Vec::new());
        self.fixups.push((Missing::Table(index), labels, self.scope, self.line));
        index as u32
    }

    /// Gives table `index` a name.
    pub(super) fn declare_table(&mut self, name: &str, index: u32) -> Result<(), Refusal> {
        match self.scopes[self.scope].tables.insert(name.to_owned(), index) {
            None => Ok(()),
            Some(_) => Err(Refusal::Redeclared(name.to_owned())),
        }
    }

    /// The table called `name`.
    pub(super) fn table(&self, name: &str) -> Result<u32, Refusal> {
        let found = self.enclosing(self.scope).find_map(|scope| scope.tables.get(name).copied());
        found.ok_or_else(|| Refusal::Undeclared(name.to_owned()))
    }

    /// Makes the conditional branch at `at` jump to the next instruction.
    pub(super) fn land(&mut self, at: usize) {
        let here = self.state.program.ops.len() as u32;
        if let Some(Op::BraIf { target, .. }) = self.state.program.ops.get_mut(at) {
            *target = here;
        }
    }

    /// Notes a call of function `index`.
    pub(super) fn note_call(&mut self, index: u32) {
        self.callees.insert(index);
    }

    /// Resolves the labels and adds the function to the module.
    pub(super) fn finish(mut self) -> Result<(), (u32, Refusal)> {
        self.emit(Op::Ret);
        for (missing, labels, scope, line) in std::mem::take(&mut self.fixups) {
            let mut targets = Vec::with_capacity(labels.len());
            for label in labels {
                let target = self.enclosing(scope).find_map(|scope| scope.labels.get(&label).copied());
                targets.push(target.ok_or((line, Refusal::Undeclared(label)))?);
            }
            match missing {
                Missing::Table(index) => self.state.program.tables[index] = targets,
                Missing::Branch(index) => {
                    if let Op::Bra { target } | Op::BraIf { target, .. } = &mut self.state.program.ops[index]
                    {
                        *target = targets[0];
                    }
                }
            }
        }
        let function = &mut self.state.functions[self.function as usize];
        function.entry = self.entry;
        function.num_slots = self.num_slots;
        function.inits = self.inits;
        function.param_area_bytes = self.param_area_bytes;
        function.local_bytes = self.local_bytes;
        function.local_align = self.local_align;
        function.num_regs = self.num_regs;
        function.callees = self.callees.into_iter().collect();
        function.shared = self.shared.into_iter().collect();
        Ok(())
    }
}

fn check_width(name: &str, reg: Type, ty: Type, wider: bool) -> Result<(), Refusal> {
    let is_pred = |ty: Type| ty.kind == Kind::Pred;
    let fits = if wider { reg.bits >= ty.bits } else { reg.bits == ty.bits };
    if fits && is_pred(reg) == is_pred(ty) {
        return Ok(());
    }
    Err(Refusal::Operands(format!("`{name}` has {} bits, the instruction {}", reg.bits, ty.bits)))
}
