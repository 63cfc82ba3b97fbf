//! Functions: signatures, entry points, and the layout of a kernel's memory.

use std::collections::BTreeSet;

use super::body;
use super::builder::Builder;
use super::error::Refusal;
use super::lexer::Tok;
use super::module::{Function, Kernel, Module, Param};
use super::operand::expected;
use super::parser::{ModuleSymbol, Parser};
use super::tokens::Tokens;
use super::variable;

/// What a caller knows of a function.
#[derive(Debug, Default)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) params: Vec<(String, Param)>,
    /// Results; they lie behind the parameters.
    pub(crate) rets: Vec<(String, Param)>,
    pub(crate) has_body: bool,
}

impl Signature {
    /// Where the parameter area goes on behind parameters and results.
    pub(super) fn area_bytes(&self) -> u32 {
        let last = self.rets.last().or(self.params.last());
        last.map_or(0, |(_, param)| param.offset + param.bytes)
    }
}

/// Adds parameters from `(` to `)` behind `offset`.
fn params(tokens: &mut Tokens<'_>, mut offset: u32) -> Result<Vec<(String, Param)>, Refusal> {
    let mut params = Vec::new();
    if !tokens.eat(b'(') || tokens.eat(b')') {
        return Ok(params);
    }
    loop {
        if !tokens.eat_dot("param") {
            return Err(expected("`.param`", tokens.peek()));
        }
        let declared = variable::declared(tokens)?;
        let (bytes, align) = (declared.sized()?, declared.align);
        offset = offset.next_multiple_of(align);
        params.push((declared.name.to_owned(), Param { offset, bytes, align }));
        offset = offset.checked_add(bytes).ok_or_else(|| Refusal::TooLarge(declared.name.to_owned()))?;
        if tokens.eat(b')') {
            return Ok(params);
        }
        tokens.expect(b',')?;
    }
}

/// `.maxntid` and its like.
#[derive(Default)]
struct Limits {
    max_threads: Option<u32>,
    required_block: Option<[u32; 3]>,
}

fn limits(tokens: &mut Tokens<'_>) -> Result<Limits, Refusal> {
    let mut limits = Limits::default();
    while let Tok::Dot(word) = tokens.peek() {
        tokens.next();
        match word {
            "maxntid" | "reqntid" => {
                let mut shape = [1; 3];
                shape[0] = tokens.number()?;
                let mut at = 1;
                while at < 3 && tokens.eat(b',') {
                    shape[at] = tokens.number()?;
                    at += 1;
                }
                limits.max_threads = Some(shape.iter().fold(1u32, |product, &n| product.saturating_mul(n)));
                limits.required_block = (word == "reqntid").then_some(shape).or(limits.required_block);
            }
            // Hints for the assembler.
            "minnctapersm" | "maxnreg" => drop(tokens.number()?),
            "noreturn" => {}
            other => return Err(Refusal::Directive(format!(".{other}"))),
        }
    }
    Ok(limits)
}

impl Parser<'_> {
    /// Behind `.entry`.
    pub(super) fn entry(&mut self) -> Result<(), Refusal> {
        let name = self.tokens.name()?.to_owned();
        let params = params(&mut self.tokens, 0)?;
        let limits = limits(&mut self.tokens)?;
        let kernel_params = params.iter().map(|(_, param)| param.clone()).collect();
        let signature = Signature { name: name.clone(), params, rets: Vec::new(), has_body: true };
        let function = self.add_function(signature)?;
        self.body(function)?;
        self.state.kernels.push(Kernel {
            name,
            function,
            params: kernel_params,
            static_shared_bytes: 0,
            shared_offsets: Vec::new(),
            local_bytes: 0,
            num_regs: 0,
            max_threads: limits.max_threads,
            required_block: limits.required_block,
        });
        Ok(())
    }

    /// Behind `.func`: a prototype or a function.
    pub(super) fn device_function(&mut self, external: bool) -> Result<(), Refusal> {
        let rets = params(&mut self.tokens, 0)?;
        let name = self.tokens.name()?.to_owned();
        let params = params(&mut self.tokens, 0)?;
        limits(&mut self.tokens)?;
        let mut signature = Signature { name, params, rets: Vec::new(), has_body: false };
        let mut offset = signature.area_bytes();
        for (name, mut ret) in rets {
            offset = offset.next_multiple_of(ret.align);
            ret.offset = offset;
            offset += ret.bytes;
            signature.rets.push((name, ret));
        }
        if self.tokens.eat(b';') {
            self.add_function(signature)?;
            return Ok(());
        }
        if external {
            return Err(expected("`;`", self.tokens.peek()));
        }
        signature.has_body = true;
        let function = self.add_function(signature)?;
        self.body(function)
    }

    /// The index of the function; a prototype may have come before.
    fn add_function(&mut self, signature: Signature) -> Result<u32, Refusal> {
        if let Some(&ModuleSymbol::Function(index)) = self.state.symbols.get(&signature.name) {
            let known = &mut self.state.signatures[index as usize];
            let shape = |signature: &Signature| {
                let of = |list: &[(String, Param)]| list.iter().map(|(_, p)| p.clone()).collect::<Vec<_>>();
                (of(&signature.params), of(&signature.rets))
            };
            if (known.has_body && signature.has_body) || shape(known) != shape(&signature) {
                return Err(Refusal::Redeclared(signature.name));
            }
            if signature.has_body {
                *known = signature;
            }
            return Ok(index);
        }
        let index = self.state.signatures.len() as u32;
        self.state.declare(&signature.name, ModuleSymbol::Function(index))?;
        self.state.signatures.push(signature);
        self.state.functions.push(Function::default());
        Ok(index)
    }

    fn body(&mut self, function: u32) -> Result<(), Refusal> {
        self.tokens.expect(b'{')?;
        let mut builder = Builder::new(&mut self.state, function)?;
        body::parse(&mut self.tokens, &mut builder)?;
        if let Err((line, what)) = builder.finish() {
            self.tokens.blame(line);
            return Err(what);
        }
        Ok(())
    }
}

/// Lays out the shared memory of kernel `index` and sums up what it needs.
pub(super) fn lay_out(module: &mut Module, index: usize) -> Result<(), (u32, Refusal)> {
    let root = module.kernels[index].function;
    let mut reached = BTreeSet::new();
    let local_bytes = reach(module, root, &mut Vec::new(), &mut reached)?;
    let mut offsets = vec![None; module.shared.len()];
    let mut end = 0u32;
    let mut dynamic_align = 1;
    let named: BTreeSet<u32> = reached
        .iter()
        .flat_map(|&function| module.functions[function as usize].shared.iter().copied())
        .collect();
    for &variable in &named {
        let shared = &module.shared[variable as usize];
        if shared.dynamic {
            dynamic_align = dynamic_align.max(shared.align);
            continue;
        }
        let offset = end.next_multiple_of(shared.align);
        offsets[variable as usize] = Some(offset);
        end = offset + shared.bytes;
    }
    let dynamic_start = end.next_multiple_of(dynamic_align);
    let mut has_dynamic = false;
    for &variable in &named {
        if module.shared[variable as usize].dynamic {
            offsets[variable as usize] = Some(dynamic_start);
            has_dynamic = true;
        }
    }
    let num_regs = reached.iter().map(|&function| module.functions[function as usize].num_regs).max();
    let kernel = &mut module.kernels[index];
    kernel.static_shared_bytes = if has_dynamic { dynamic_start } else { end };
    kernel.shared_offsets = offsets;
    kernel.local_bytes = local_bytes;
    kernel.num_regs = num_regs.unwrap_or(0);
    Ok(())
}

/// The functions that `function` reaches, and the local memory of its deepest chain of calls.
fn reach(
    module: &Module,
    function: u32,
    chain: &mut Vec<u32>,
    reached: &mut BTreeSet<u32>,
) -> Result<u32, (u32, Refusal)> {
    let this = &module.functions[function as usize];
    if chain.contains(&function) {
        let line = module.program.lines.get(this.entry as usize).copied().unwrap_or(1);
        return Err((
            line,
            Refusal::TooLarge("a function calls itself; recursion is not interpreted".into()),
        ));
    }
    chain.push(function);
    reached.insert(function);
    let mut deepest = 0;
    for &callee in &this.callees {
        deepest = deepest.max(reach(module, callee, chain, reached)?);
    }
    chain.pop();
    Ok(this.local_bytes.next_multiple_of(16) + deepest)
}
