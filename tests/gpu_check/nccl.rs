//! The collective strategies over NCCL.

use std::sync::Arc;
use std::time::Duration;

use cpkv::collective::NcclCollective;
use cpkv::collective::nccl::Timeouts;
use cpkv::plan::Strategy;
use cpkv::units::GroupSize;

use crate::context::{Context, LONG};
use crate::outcome::{Outcome, Problem};
use crate::ranks::{Seat, on_threads, thread_seats};
use crate::strategies::{prove_large, prove_small};

/// Strategies whose collective is put into NCCL's hands.
const COLLECTIVE: [Strategy; 3] = [Strategy::PerSpan, Strategy::FusedAllReduce, Strategy::GatherCompact];
const TIMEOUTS: Timeouts = Timeouts { setup: LONG, queue: LONG, teardown: Duration::from_secs(5) };

/// One rank a GPU: NCCL refuses several on one.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let num_gpus = context.gpus.len() as u32;
    if num_gpus < 2 {
        return Ok(Outcome::skipped("NCCL refuses several ranks on one GPU, and this process sees one only"));
    }
    let gpus = (0..num_gpus).map(|rank| context.open_gpu(rank)).collect::<Result<Vec<_>, _>>()?;
    let reasons = on_threads(thread_seats(&gpus, GroupSize::new(num_gpus)?), |seat| {
        let gpu = &gpus[seat.rank().idx()];
        // The same on every rank: all have it, or none.
        match NcclCollective::register(&*seat.bootstrap, gpu, TIMEOUTS)? {
            Err(reason) => Ok(Some(reason)),
            Ok(nccl) => {
                let seat = Seat { collective: Some(Arc::new(nccl)), ..seat };
                prove_small(&seat, context, &COLLECTIVE)?;
                if !context.quick {
                    prove_large(&seat, &COLLECTIVE)?;
                }
                Ok(None)
            }
        }
    })?;
    if let Some(reason) = reasons.into_iter().flatten().next() {
        return Ok(Outcome::skipped(format!("no rank uses NCCL: {reason}")));
    }
    Ok(Outcome::passed(format!("{} strategies exact over NCCL, {num_gpus} GPUs", COLLECTIVE.len())))
}
