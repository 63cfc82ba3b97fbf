//! `cvt`.

use super::Decoder;
use crate::ptx::error::Refusal;
use crate::ptx::operation::{Convert, Rounding};
use crate::ptx::program::Op;
use crate::ptx::types::{Kind, Type};

impl Decoder<'_, '_, '_, '_> {
    /// `cvt{.rounding}{.sat}.to.from d, a`.
    pub(super) fn cvt(&mut self) -> Result<(), Refusal> {
        let from = self.ty()?;
        let to = self.ty()?;
        for ty in [from, to] {
            if matches!(ty.kind, Kind::Pred | Kind::Bits) {
                return Err(self.no_type(ty));
            }
        }
        let saturate = self.take("sat");
        let rounding = self.take_map(rounding);
        let (rounding, integral) = rounding.unwrap_or((Rounding::None, false));
        self.check_rounding(from, to, rounding, integral)?;
        let [d, a] = self.take_operands()?;
        let a = self.builder.src_at_least(a, from, true)?;
        let (d, to_bits) = self.builder.dst_at_least(d, to, true)?;
        let converts = &mut self.builder.state.program.converts;
        let convert = converts.len() as u32;
        converts.push(Convert { to, from, rounding, integral, saturate, to_bits });
        self.builder.emit(Op::Cvt { convert, d, a });
        Ok(())
    }

    /// Rounding must be said exactly where a conversion can lose something.
    fn check_rounding(
        &self,
        from: Type,
        to: Type,
        rounding: Rounding,
        integral: bool,
    ) -> Result<(), Refusal> {
        let allowed = match (from.is_float(), to.is_float()) {
            (false, false) => rounding == Rounding::None,
            (true, false) => integral,
            // The other directions of rounding are not needed by anything here.
            (false, true) => rounding == Rounding::Nearest && !integral,
            (true, true) if from.bits > to.bits => rounding == Rounding::Nearest && !integral,
            (true, true) if from.bits < to.bits => rounding == Rounding::None,
            (true, true) => rounding == Rounding::None || integral,
        };
        if allowed { Ok(()) } else { Err(self.needs("another rounding for these types")) }
    }
}

/// The rounding called `name`, and whether it rounds to an integral value.
fn rounding(name: &str) -> Option<(Rounding, bool)> {
    match name {
        "rn" => Some((Rounding::Nearest, false)),
        "rni" => Some((Rounding::Nearest, true)),
        "rzi" => Some((Rounding::Zero, true)),
        "rmi" => Some((Rounding::Down, true)),
        "rpi" => Some((Rounding::Up, true)),
        _ => None,
    }
}
