//! What processes agree on before anything is registered: whether they run on GPUs, and that every rank has its own.

use std::time::Duration;

use cpkv::deadline::Deadline;
use cpkv::group::Bootstrap;
use cpkv::units::Rank;

use crate::devices::Platform;
use crate::error::RunError;

/// What all ranks run on. With `--device auto` all take the CPU where one has no GPU; else those that differ are named.
/// Collective.
pub(crate) fn agree(
    bootstrap: &dyn Bootstrap,
    mine: &Platform,
    timeout: Duration,
) -> Result<Platform, RunError> {
    let blobs = bootstrap.all_gather("agree on a device", &encode(mine), Deadline::after(timeout))?;
    let platforms: Vec<Platform> = blobs.iter().map(|blob| decode(blob)).collect();
    decide(&platforms, bootstrap.rank())
}

/// What `rank` runs on, if the ranks chose `platforms`. Pure.
fn decide(platforms: &[Platform], rank: Rank) -> Result<Platform, RunError> {
    let without = (0..).map(Rank).zip(platforms).find_map(|(rank, platform)| match platform {
        Platform::Cpu { reason } => Some((rank, reason)),
        Platform::Cuda { .. } => None,
    });
    let mine = &platforms[rank.idx()];
    let (Some((odd, reason)), Some(with)) = (without, platforms.iter().position(Platform::is_cuda)) else {
        return Ok(mine.clone());
    };
    let why = if reason.is_empty() { "it was told to use the CPU" } else { reason };
    let insists =
        platforms.iter().any(|platform| matches!(platform, Platform::Cuda { may_fall_back: false }));
    if insists {
        return Err(RunError::MixedDevices { with: Rank(with as u32), without: odd, reason: why.to_owned() });
    }
    Ok(match mine {
        Platform::Cpu { .. } => mine.clone(),
        Platform::Cuda { .. } => Platform::Cpu { reason: format!("rank {odd} has no GPU: {why}") },
    })
}

/// What this rank made, if every rank made its own; else an error on all that names the first which did not. Collective.
#[cfg(feature = "cuda")]
pub(crate) fn all_made<T>(
    bootstrap: &dyn Bootstrap,
    made: Result<T, RunError>,
    timeout: Duration,
) -> Result<T, RunError> {
    let failure = made.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let failures = bootstrap.all_gather("open devices", failure.as_bytes(), Deadline::after(timeout))?;
    let failed = (0..).map(Rank).zip(failures).find(|(_, failure)| !failure.is_empty());
    match (made, failed) {
        (Ok(_), Some((rank, failure))) => {
            Err(RunError::Rank { rank, message: String::from_utf8_lossy(&failure).into_owned() })
        }
        (made, _) => made,
    }
}

/// `gpu`, `gpu or cpu`, or `cpu` and the reason.
fn encode(platform: &Platform) -> Vec<u8> {
    match platform {
        Platform::Cuda { may_fall_back: false } => b"gpu".to_vec(),
        Platform::Cuda { may_fall_back: true } => b"gpu or cpu".to_vec(),
        Platform::Cpu { reason } => format!("cpu{reason}").into_bytes(),
    }
}

fn decode(blob: &[u8]) -> Platform {
    match blob {
        b"gpu" => Platform::Cuda { may_fall_back: false },
        b"gpu or cpu" => Platform::Cuda { may_fall_back: true },
        blob => {
            let reason = String::from_utf8_lossy(blob.strip_prefix(b"cpu").unwrap_or(blob)).into_owned();
            Platform::Cpu { reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(reason: &str) -> Platform {
        Platform::Cpu { reason: reason.to_owned() }
    }

    const GPU: Platform = Platform::Cuda { may_fall_back: false };
    const AUTO: Platform = Platform::Cuda { may_fall_back: true };

    #[test]
    fn ranks_that_chose_alike_keep_their_choice() {
        for all in [[GPU, GPU], [AUTO, GPU], [cpu("none"), cpu("")]] {
            for rank in 0..2 {
                assert_eq!(decide(&all, Rank(rank)).unwrap(), all[rank as usize]);
            }
        }
    }

    #[test]
    fn with_auto_all_take_the_cpu_where_one_has_no_gpu_and_say_whose_fault_it_is() {
        let all = [AUTO, cpu("no driver"), AUTO];
        let Platform::Cpu { reason } = decide(&all, Rank(2)).unwrap() else { panic!("a GPU") };
        assert_eq!(reason, "rank 1 has no GPU: no driver");
        assert_eq!(decide(&all, Rank(1)).unwrap(), cpu("no driver"));
    }

    #[test]
    fn who_insists_on_a_gpu_is_told_who_has_none() {
        let error = decide(&[GPU, cpu("no driver")], Rank(0)).unwrap_err().to_string();
        assert!(error.contains("rank 1") && error.contains("no driver"), "{error}");
        let error = decide(&[AUTO, GPU, cpu("")], Rank(2)).unwrap_err().to_string();
        assert!(error.contains("rank 2") && error.contains("told to use the CPU"), "{error}");
    }

    #[test]
    fn what_a_rank_says_is_what_the_others_hear() {
        for platform in [GPU, AUTO, cpu(""), cpu("cpu: none")] {
            assert_eq!(decode(&encode(&platform)), platform);
        }
    }
}
