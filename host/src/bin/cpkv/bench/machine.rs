//! What the figures were measured on.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use cpkv::group::Transport;
use cpkv::model::ModelSpec;
use serde::Serialize;

use crate::ranks::RankEnv;

/// The machine, and how the ranks ran on it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_available_bytes: Option<u64>,
    pub(crate) os: String,
    pub(crate) ranks: u32,
    pub(crate) transport: Transport,
    pub(crate) device: String,
    pub(crate) device_reason: String,
    pub(crate) collective: &'static str,
    pub(crate) collective_reason: String,
    /// How the MPI library copies between ranks; `null` without one.
    pub(crate) mpi_copy: Option<String>,
}

impl Machine {
    pub(crate) fn of(env: &RankEnv) -> Self {
        Self {
            cpu: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_available_bytes: cpkv::symm::available_bytes(),
            os: format!(
                "{} {}",
                std::env::consts::OS,
                fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim()
            ),
            ranks: env.bootstrap.group_size().get(),
            transport: env.bootstrap.transport(),
            device: env.device.name(),
            device_reason: env.device_reason.clone(),
            collective: env.collective.name(),
            collective_reason: env.collective_reason.clone(),
            mpi_copy: env.library.as_ref().map(|library| library.copy_mechanism()),
        }
    }
}

/// What was composed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelFacts {
    pub(crate) name: String,
    pub(crate) layers: usize,
    pub(crate) page_size: u32,
    pub(crate) buffers: Vec<BufferFacts>,
}

/// A buffer of the model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BufferFacts {
    pub(crate) name: String,
    pub(crate) page_bytes: u64,
    /// Layers that have it.
    pub(crate) layers: usize,
}

impl ModelFacts {
    pub(crate) fn of(model: &ModelSpec) -> Self {
        let buffers = model.buffer_ids().zip(&model.buffers).map(|(id, buffer)| BufferFacts {
            name: buffer.name.clone(),
            page_bytes: buffer.spec.page_bytes(),
            layers: model.num_layers_with(id),
        });
        Self {
            name: model.name.clone(),
            layers: model.num_layers(),
            page_size: model.page_size,
            buffers: buffers.collect(),
        }
    }
}

/// The first processor's name in `/proc/cpuinfo`.
fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim());
    name.filter(|name| !name.is_empty()).unwrap_or(std::env::consts::ARCH).to_owned()
}

/// The time now by the system's clock, as `2026-01-31 12:00:00 UTC`.
pub(crate) fn now_utc() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(since.as_secs())
}

/// `secs` since 1970 as date and time, by Howard Hinnant's calendar of eras of 400 years that begin in March.
fn utc(secs: u64) -> String {
    let (days, of_day) = (secs / 86_400 + 719_468, secs % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_ends_of_years() {
        for (secs, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(secs), date);
        }
    }

    #[test]
    fn a_processor_without_a_name_is_called_by_its_architecture() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3\n"), "Fast CPU @ 3");
        assert_eq!(cpu_model("processor: 0\n"), std::env::consts::ARCH);
        assert_eq!(cpu_model("model name\t:\n"), std::env::consts::ARCH);
    }
}
