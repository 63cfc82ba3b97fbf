//! `cpkv decode-worker`: the process of a decode worker. `run` starts it, and it ends when `run` does.

use std::io::{BufRead, Write, stdin, stdout};

use cpkv::units::GroupSize;
use serde::Serialize;

use super::engines::Engines;
use super::job::RunJob;
use super::message::{Command, Reply, SetUp};
use super::service::DecodeService;
use crate::error::RunError;

/// Runs the command: answers lines until there are no more.
pub(crate) fn serve() -> Result<(), RunError> {
    let mut lines = stdin().lock().lines();
    let Some(first) = lines.next() else { return Err(RunError::NotStarted) };
    let Ok(SetUp { args, group_size, worker }) = serde_json::from_str(&first?) else {
        return Err(RunError::NotStarted);
    };
    let job =
        match GroupSize::new(group_size).map_err(RunError::from).and_then(|size| RunJob::prepare(args, size))
        {
            Ok(job) => job,
            Err(error) => return say(&Reply::Failed { message: error.to_string() }),
        };
    let engine = Engines::new(job.engine).open(&format!("decode-{worker}"), job.args.transfer_nice);
    let mut service = match engine.and_then(|engine| DecodeService::start(&job, engine, worker)) {
        Ok(service) => service,
        Err(error) => return say(&Reply::Failed { message: error.to_string() }),
    };
    say(&Reply::Hello(Box::new(service.greeting())))?;
    for line in lines {
        let reply = match serde_json::from_str::<Command>(&line?) {
            Ok(command) => service.answer(&command),
            Err(error) => Reply::Failed { message: format!("was told what is no command: {error}") },
        };
        say(&reply)?;
    }
    Ok(())
}

fn say(message: &impl Serialize) -> Result<(), RunError> {
    let mut line = serde_json::to_string(message).map_err(std::io::Error::from)?;
    line.push('\n');
    let mut out = stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}
