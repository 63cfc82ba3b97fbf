//! A rank's composer over a registered pool, as every command starts it.

use std::sync::Arc;
use std::time::Duration;

use cpkv::compose::{Composer, ComposerOptions, SharedPool};
use cpkv::group::{Group, GroupOptions};
use cpkv::model::ModelSpec;

use crate::error::RunError;
use crate::job::Job;
use crate::ranks::RankEnv;

/// Registers group, pool and composer. Collective.
pub(crate) fn compose_rig(env: &RankEnv, job: &Job) -> Result<Composer, RunError> {
    composer(env, &job.model, job.num_pool_pages, job.options, job.timeout)
}

/// As [`compose_rig`], for who has no trace.
pub(crate) fn composer(
    env: &RankEnv,
    model: &ModelSpec,
    num_pool_pages: u32,
    options: ComposerOptions,
    timeout: Duration,
) -> Result<Composer, RunError> {
    let group = group(env, timeout)?;
    let pool = SharedPool::register(&group, model.clone(), num_pool_pages)?;
    Ok(Composer::register(group, pool, Some(Arc::clone(&env.collective)), options)?)
}

/// Registers a group whose barriers give up after `timeout`. Collective.
pub(crate) fn group(env: &RankEnv, timeout: Duration) -> Result<Group, RunError> {
    let options = GroupOptions {
        barrier_timeout: timeout,
        host_timeout: 3 * timeout,
        bootstrap_timeout: (2 * timeout).max(Duration::from_secs(5)),
        checked: true,
        num_spins: None,
    };
    let (bootstrap, backend) = (Arc::clone(&env.bootstrap), Arc::clone(&env.backend));
    Ok(Group::register(bootstrap, Arc::clone(&env.device), backend, options)?)
}
