//! Every strategy with ranks as threads: on one GPU, and one rank a GPU.

use cpkv::device::CudaDevice;
use cpkv::plan::{Batch, Strategy};
use cpkv::units::GroupSize;

use crate::batches::{CONVERSATION_PAGES, PageDealer, conversation, model};
use crate::context::Context;
use crate::outcome::{Outcome, Problem};
use crate::prover::Prover;
use crate::ranks::{Seat, on_threads, thread_seats};

/// Tokens a page of the small model.
const SMALL_PAGE: u32 = 8;

/// All group sizes on the first GPU.
pub(crate) fn on_one_gpu(context: &Context) -> Result<Outcome, Problem> {
    let gpu = [context.open()?];
    for &num_ranks in &context.ranks {
        prove(context, &gpu, GroupSize::new(num_ranks)?)?;
    }
    let sizes = context.ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(Outcome::passed(format!("{} strategies exact with {sizes} ranks on one GPU", Strategy::ALL.len())))
}

/// As many ranks as GPUs.
pub(crate) fn one_rank_a_gpu(context: &Context) -> Result<Outcome, Problem> {
    let num_gpus = context.gpus.len() as u32;
    if num_gpus < 2 {
        return Ok(Outcome::skipped("this process sees one GPU only"));
    }
    let gpus = (0..num_gpus).map(|rank| context.open_gpu(rank)).collect::<Result<Vec<_>, _>>()?;
    prove(context, &gpus, GroupSize::new(num_gpus)?)?;
    Ok(Outcome::passed(format!(
        "{} strategies exact with a rank on each of {num_gpus} GPUs",
        Strategy::ALL.len()
    )))
}

fn prove(context: &Context, gpus: &[CudaDevice], size: GroupSize) -> Result<(), Problem> {
    on_threads(thread_seats(gpus, size), |seat| {
        prove_small(&seat, context, &Strategy::ALL)?;
        if context.quick { Ok(()) } else { prove_large(&seat, &Strategy::ALL) }
    })?;
    Ok(())
}

/// The small batches: with one layer, and with several.
pub(crate) fn prove_small(seat: &Seat, context: &Context, strategies: &[Strategy]) -> Result<(), Problem> {
    let batches = conversation(SMALL_PAGE, context.pick(25, 5))?;
    let num_layers: &[usize] = if context.quick { &[2] } else { &[1, 3] };
    for &num_layers in num_layers {
        let mut prover = Prover::register(seat, &model(num_layers, SMALL_PAGE, 20)?, CONVERSATION_PAGES)?;
        prover.prove_all(&batches, strategies)?;
        prover.close()?;
    }
    Ok(())
}

/// Pages of the size that models have: 64 tokens of 656 bytes.
pub(crate) fn prove_large(seat: &Seat, strategies: &[Strategy]) -> Result<(), Problem> {
    const NUM_PAGES: u32 = 400;
    let mut dealer = PageDealer::new(NUM_PAGES, 64);
    let first = Batch {
        requests: vec![dealer.request(&[], 64 * 100)?, dealer.request(&[], 1000)?],
        num_pad_slots: 0,
    };
    let prefix = &first.requests[0].current_pages;
    let second = Batch { requests: vec![dealer.request(prefix, 64 * 150 + 17)?], num_pad_slots: 2 };
    let mut prover = Prover::register(seat, &model(2, 64, 656)?, NUM_PAGES)?;
    prover.prove_all(&[first, second], strategies)?;
    prover.close()
}
