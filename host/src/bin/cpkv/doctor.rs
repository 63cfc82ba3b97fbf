//! `cpkv doctor`: what this machine has, and which strategy would be chosen and why.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use cpkv::compose::{Composer, ComposerOptions, SharedPool, StrategyChoice};
use cpkv::group::{Group, GroupOptions, Transport};
use cpkv::model::ModelSpec;
use cpkv::plan::Batch;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::devices;
use crate::error::RunError;
use crate::ranks::{self, RankEnv};

const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Serialize)]
struct Findings {
    cores: usize,
    memory_available_bytes: Option<u64>,
    transport: Transport,
    ranks: u32,
    mpi: String,
    device: String,
    device_reason: String,
    cuda: String,
    collective: &'static str,
    collective_reason: String,
    peer_access: bool,
    strategy: String,
    reason: String,
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), RunError> {
    let asked = if ranks::mpi_processes().is_some() { None } else { Some(args.ranks) };
    let size = ranks::group_size(asked)?;
    let platform = devices::choose(args.device)?;
    let findings = ranks::run_all(size, TIMEOUT, &platform, |env| examine(&env))?;
    if let Some(findings) = findings.filter(|_| ranks::speaks()) {
        print(&findings, args.json)?;
    }
    Ok(())
}

/// Registers a tiny pool, as a runtime would, and asks what a batch would use.
fn examine(env: &RankEnv) -> Result<Option<Findings>, RunError> {
    let options = GroupOptions {
        barrier_timeout: TIMEOUT,
        host_timeout: 2 * TIMEOUT,
        bootstrap_timeout: 2 * TIMEOUT,
        checked: true,
        num_spins: None,
    };
    let (bootstrap, backend) = (Arc::clone(&env.bootstrap), Arc::clone(&env.backend));
    let group = Group::register(bootstrap, Arc::clone(&env.device), backend, options)?;
    let pool = SharedPool::register(&group, ModelSpec::preset("tiny")?, 64)?;
    let collective = Some(Arc::clone(&env.collective));
    let mut composer = Composer::register(group, pool, collective, ComposerOptions::default())?;
    composer.begin(&Batch::default(), StrategyChoice::Auto)?.finish()?;
    let stats = composer.stats();
    composer.close()?;
    let path = stats.last_path;
    let (strategy, fallback) =
        path.map_or((String::new(), String::new()), |path| (path.strategy.to_string(), path.reason));
    let reason = if fallback.is_empty() {
        "every rank read every peer's bytes, and no concurrent add was lost".to_owned()
    } else {
        fallback
    };
    Ok((env.rank().0 == 0).then(|| Findings {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_available_bytes: cpkv::symm::available_bytes(),
        transport: env.bootstrap.transport(),
        ranks: env.bootstrap.group_size().get(),
        mpi: describe_mpi(env),
        device: env.device.name(),
        device_reason: env.device_reason.clone(),
        cuda: devices::describe_cuda(),
        collective: env.collective.name(),
        collective_reason: env.collective_reason.clone(),
        peer_access: stats.unreachable.is_none(),
        strategy,
        reason,
    }))
}

#[cfg(feature = "mpi")]
fn describe_mpi(env: &RankEnv) -> String {
    let version = ranks::mpi_library_version();
    match &env.library {
        Some(library) => format!("{version}; copies by {}", library.copy_mechanism()),
        None => format!("{version}; not started by mpirun, so ranks are threads"),
    }
}

#[cfg(not(feature = "mpi"))]
fn describe_mpi(_env: &RankEnv) -> String {
    "this build has none (feature `mpi`), so ranks are threads".to_owned()
}

fn print(findings: &Findings, json: bool) -> Result<(), RunError> {
    let mut out = stdout().lock();
    if json {
        serde_json::to_writer(&mut out, findings).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    let transport = match findings.transport {
        Transport::Threads => "threads of one process",
        Transport::Processes => "processes",
    };
    let memory = findings.memory_available_bytes.map_or("unknown".to_owned(), |bytes| {
        format!("{:.1} GiB available", bytes as f64 / f64::from(1 << 30))
    });
    writeln!(out, "cores          {}", findings.cores)?;
    writeln!(out, "shared memory  {memory}")?;
    writeln!(out, "ranks          {} as {transport}", findings.ranks)?;
    writeln!(out, "MPI            {}", findings.mpi)?;
    writeln!(out, "CUDA           {}", findings.cuda)?;
    match &*findings.device_reason {
        "" => writeln!(out, "device         {}", findings.device)?,
        reason => writeln!(out, "device         {}, since {reason}", findings.device)?,
    }
    match &*findings.collective_reason {
        "" => writeln!(out, "collective     {}", findings.collective)?,
        reason => writeln!(out, "collective     {}, since {reason}", findings.collective)?,
    }
    writeln!(out, "peer access    {}", if findings.peer_access { "yes" } else { "no" })?;
    writeln!(out, "strategy       {}: {}", findings.strategy, findings.reason)?;
    Ok(())
}
