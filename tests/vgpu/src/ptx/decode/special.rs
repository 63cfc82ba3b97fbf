//! Special registers.

use crate::ptx::program::{Clock, LaneMask, Special};

/// The special register called `name` (and `component`) that does not change while a thread lives.
pub(crate) fn constant(name: &str, component: Option<&str>) -> Option<Special> {
    if let Some(component) = component {
        let axis = match component {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            _ => return None,
        };
        return match name {
            "%tid" => Some(Special::Tid(axis)),
            "%ntid" => Some(Special::NumTid(axis)),
            "%ctaid" => Some(Special::CtaId(axis)),
            "%nctaid" => Some(Special::NumCtaId(axis)),
            _ => None,
        };
    }
    match name {
        "%laneid" => Some(Special::LaneId),
        "%warpid" => Some(Special::WarpId),
        "%nwarpid" => Some(Special::NumWarpId),
        "%lanemask_eq" => Some(Special::LaneMask(LaneMask::Eq)),
        "%lanemask_le" => Some(Special::LaneMask(LaneMask::Le)),
        "%lanemask_lt" => Some(Special::LaneMask(LaneMask::Lt)),
        "%lanemask_ge" => Some(Special::LaneMask(LaneMask::Ge)),
        "%lanemask_gt" => Some(Special::LaneMask(LaneMask::Gt)),
        "%smid" => Some(Special::SmId),
        "%nsmid" => Some(Special::NumSmId),
        "%dynamic_smem_size" => Some(Special::DynamicShared),
        "%total_smem_size" => Some(Special::TotalShared),
        _ => None,
    }
}

/// The clock called `name`, and its width.
pub(crate) fn clock(name: &str) -> Option<(Clock, u8)> {
    match name {
        "%globaltimer" | "%clock64" => Some((Clock::GlobalTimer, 64)),
        "%globaltimer_lo" | "%clock" => Some((Clock::Low, 32)),
        "%globaltimer_hi" | "%clock_hi" => Some((Clock::High, 32)),
        _ => None,
    }
}
