//! The module level of the text: directives, variables, functions.

use std::collections::HashMap;

use super::error::{PtxError, Refusal};
use super::function::Signature;
use super::lexer::Tok;
use super::module::{Function, Global, Kernel, Module, SharedVariable};
use super::operand::expected;
use super::program::Program;
use super::tokens::Tokens;

/// What a name means at module level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleSymbol {
    /// Index of a global variable.
    Global(u32),
    /// Index of a shared variable.
    Shared(u32),
    /// Index of a function.
    Function(u32),
}

/// What was read so far.
#[derive(Default)]
pub(crate) struct State {
    pub(super) program: Program,
    pub(super) symbols: HashMap<String, ModuleSymbol>,
    pub(super) signatures: Vec<Signature>,
    pub(super) functions: Vec<Function>,
    pub(super) kernels: Vec<Kernel>,
    pub(super) globals: Vec<Global>,
    pub(super) shared: Vec<SharedVariable>,
}

/// The state while a text is read.
pub(crate) struct Parser<'a> {
    pub(super) tokens: Tokens<'a>,
    pub(super) state: State,
}

/// Parses and checks `text`.
pub(super) fn parse(text: &str) -> Result<Module, PtxError> {
    let mut parser = Parser { tokens: Tokens::new(text)?, state: State::default() };
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut outcome = Ok(());
    while outcome.is_ok() && parser.tokens.peek() != Tok::End {
        outcome = parser.directive();
    }
    match outcome.and_then(|()| parser.state.check_bodies()) {
        Ok(()) => parser.state.finish(lines),
        Err(what) => {
            let line = parser.tokens.blamed_line();
            Err(refusal(&lines, line, what))
        }
    }
}

fn refusal(lines: &[String], line: u32, what: Refusal) -> PtxError {
    let text = lines.get(line as usize - 1).map_or("", |text| text.trim());
    PtxError { line, text: text.to_owned(), what }
}

impl<'a> Parser<'a> {
    fn directive(&mut self) -> Result<(), Refusal> {
        let tok = self.tokens.next();
        let Tok::Dot(word) = tok else { return Err(expected("a directive", tok)) };
        match word {
            "version" | "target" | "file" | "loc" => {
                self.tokens.skip_line();
                Ok(())
            }
            "address_size" => match self.tokens.number()? {
                64 => Ok(()),
                bits => Err(Refusal::Directive(format!(".address_size {bits}"))),
            },
            "section" => self.section(),
            "visible" | "weak" | "extern" => self.linked(word),
            "entry" => self.entry(),
            "func" => self.device_function(false),
            "global" => self.global_variables(),
            "shared" => self.shared_variables(false),
            other => Err(Refusal::Directive(format!(".{other}"))),
        }
    }

    fn linked(&mut self, linkage: &str) -> Result<(), Refusal> {
        let external = linkage == "extern";
        match self.tokens.next() {
            Tok::Dot("entry") if !external => self.entry(),
            Tok::Dot("func") => self.device_function(external),
            Tok::Dot("global") if !external => self.global_variables(),
            Tok::Dot("shared") => self.shared_variables(external),
            other => Err(Refusal::Directive(format!(".{linkage} {other}"))),
        }
    }

    /// Debug information: `.section .name { ... }`.
    fn section(&mut self) -> Result<(), Refusal> {
        while self.tokens.peek() != Tok::Punct(b'{') {
            if self.tokens.next() == Tok::End {
                return Err(expected("`{`", Tok::End));
            }
        }
        loop {
            match self.tokens.next() {
                Tok::Punct(b'}') => return Ok(()),
                Tok::End => return Err(expected("`}`", Tok::End)),
                _ => {}
            }
        }
    }
}

impl State {
    /// Declares `name` at module level.
    pub(super) fn declare(&mut self, name: &str, symbol: ModuleSymbol) -> Result<(), Refusal> {
        match self.symbols.insert(name.to_owned(), symbol) {
            None => Ok(()),
            Some(_) => Err(Refusal::Redeclared(name.to_owned())),
        }
    }

    /// Every function that is called has a body.
    fn check_bodies(&self) -> Result<(), Refusal> {
        let called = self.functions.iter().flat_map(|function| &function.callees);
        for &callee in called {
            let signature = &self.signatures[callee as usize];
            if !signature.has_body {
                return Err(Refusal::Undeclared(format!("{}: a body for it", signature.name)));
            }
        }
        for relocation in self.globals.iter().flat_map(|global| &global.relocations) {
            if !matches!(self.symbols.get(&relocation.symbol), Some(ModuleSymbol::Global(_))) {
                return Err(Refusal::Undeclared(relocation.symbol.clone()));
            }
        }
        Ok(())
    }

    fn finish(self, lines: Vec<String>) -> Result<Module, PtxError> {
        let mut module = Module {
            program: self.program,
            functions: self.functions,
            kernels: self.kernels,
            globals: self.globals,
            shared: self.shared,
            lines,
        };
        for index in 0..module.kernels.len() {
            super::function::lay_out(&mut module, index)
                .map_err(|(line, what)| refusal(&module.lines, line, what))?;
        }
        Ok(module)
    }
}
