//! Captured layers: every replay is exact, with the inputs of its time and in the half of its epoch.

use cpkv::plan::Strategy;
use cpkv::units::GroupSize;

use crate::batches::{CONVERSATION_PAGES, conversation, model};
use crate::context::Context;
use crate::outcome::{Outcome, Problem};
use crate::prover::Prover;
use crate::ranks::{on_threads, thread_seats};

/// Strategies without a collective of the host.
const CAPTURABLE: [Strategy; 3] = [Strategy::StagingFill, Strategy::StagingPublish, Strategy::SymmDense];
/// Odd, so that the next strategy starts in the other half.
const NUM_REPLAYS: usize = 5;
const PAGE_SIZE: u32 = 8;

/// All group sizes on the first GPU.
pub(crate) fn run(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    let batches = conversation(PAGE_SIZE, context.pick(25, 5))?;
    let model = model(context.pick(2, 1), PAGE_SIZE, 20)?;
    for &num_ranks in &context.ranks {
        on_threads(thread_seats(&gpu, GroupSize::new(num_ranks)?), |seat| {
            let mut prover = Prover::register(&seat, &model, CONVERSATION_PAGES)?;
            prover.prove_all(&batches[..1], &[Strategy::StagingFill])?;
            for strategy in CAPTURABLE {
                let proven = prover.prove_captured(&batches[1], strategy, NUM_REPLAYS);
                proven.map_err(|problem| format!("{strategy}: {problem}"))?;
            }
            prover.close()
        })?;
    }
    let sizes = context.ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let num = CAPTURABLE.len();
    Ok(Outcome::passed(format!("{num} strategies, {NUM_REPLAYS} replays each, with {sizes} ranks: exact")))
}
