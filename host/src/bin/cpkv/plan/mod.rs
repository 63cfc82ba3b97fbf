//! `cpkv plan`: one batch of a trace, without composing it: requests, spans, who computes and who owns each page, staging
//! slots, as text, as JSON and as a picture.

pub(crate) mod args;
mod palette;
mod picture;
mod rank_view;
mod strips;
mod text;
mod view;

use std::io::{Write, stdout};

use cpkv::compose::ComposerOptions;
use cpkv::model::ModelSpec;
use cpkv::plan::PlanShape;
use cpkv::units::GroupSize;

use crate::args::DEFAULT_NUM_BATCHES;
use crate::batches::{BatchSource, Batches, with_heap_variable};
use crate::error::RunError;
use crate::output_file::OutputFile;
use crate::ranks;
use args::PlanArgs;
use view::PlanView;

/// Runs the command.
pub(crate) fn run(args: &PlanArgs) -> Result<(), RunError> {
    let view = view(args, ranks::group_size(args.ranks)?)?;
    if !ranks::speaks() {
        return Ok(());
    }
    if let Some(path) = &args.svg {
        let file = OutputFile::open(path, Some(&args.trace));
        let written = file.and_then(|file| file.write(|out| out.write_all(picture::draw(&view).as_bytes())));
        written.map_err(|problem| RunError::Picture { path: path.clone(), problem })?;
    }
    let mut out = stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &view).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        text::print(&view, &mut out)?;
    }
    Ok(out.flush()?)
}

/// Forms the batches up to the one asked for, and plans it for every rank.
fn view(args: &PlanArgs, group_size: GroupSize) -> Result<PlanView, RunError> {
    let model = ModelSpec::preset(&args.model)?;
    let source = BatchSource {
        trace: &args.trace,
        max_extend_tokens: args.max_extend_tokens,
        max_batch_requests: args.max_batch_requests,
        pool_pages: args.pool_pages,
    };
    let num_batches = args.batch.saturating_add(1).max(DEFAULT_NUM_BATCHES);
    let Batches { batches, num_pool_pages } = source.form(&model, num_batches as usize)?;
    let planned = batches
        .get(args.batch as usize)
        .ok_or(RunError::NoSuchBatch { batch: args.batch, num_batches: batches.len() })?;
    let options = ComposerOptions { admission: Some(source.admission()), ..ComposerOptions::default() };
    let shape = PlanShape { group_size, page_size: model.page_size, num_logical_pages: num_pool_pages };
    let capacity = with_heap_variable(options)?.staging_capacity(&model, shape);
    PlanView::new(planned, shape, &model, capacity)
}
