//! How much memory may still be had: the machine's, and what the control groups leave of it.

use std::fs;
use std::path::{Path, PathBuf};

/// One control group's limit and use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CgroupMemory {
    limit_bytes: u64,
    used_bytes: u64,
    /// File cache that the kernel drops before it refuses memory: counted as used, but free for the asking.
    inactive_file_bytes: u64,
}

/// The least of what the machine has available and what each control group above this process leaves, in bytes.
/// `None` where the system says nothing. A snapshot: other processes allocate too.
pub fn available_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups: Vec<_> = cgroup_folders(&own).iter().filter_map(|folder| read_cgroup(folder)).collect();
    least(&meminfo, &groups)
}

fn least(meminfo: &str, groups: &[CgroupMemory]) -> Option<u64> {
    let room = |group: &CgroupMemory| {
        group.limit_bytes.saturating_sub(group.used_bytes.saturating_sub(group.inactive_file_bytes))
    };
    mem_available(meminfo).into_iter().chain(groups.iter().map(room)).min()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The folders of this process's memory control group and of all above it, from `/proc/self/cgroup`. Inside a
/// container the path may be the host's: the folders that do not exist are passed over, the root is always there.
fn cgroup_folders(own: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mount = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            list if list.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let inner = mount.join(path.trim_start_matches('/'));
        folders.extend(inner.ancestors().take_while(|folder| folder.starts_with(mount)).map(Path::to_owned));
    }
    folders
}

fn read_cgroup(folder: &Path) -> Option<CgroupMemory> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let inactive_file_bytes =
        inactive_file(&fs::read_to_string(folder.join("memory.stat")).unwrap_or_default());
    // Version 2, then version 1. "max" (no limit) is no number.
    let (limit_bytes, used_bytes) = number("memory.max")
        .zip(number("memory.current"))
        .or_else(|| number("memory.limit_in_bytes").zip(number("memory.usage_in_bytes")))?;
    Some(CgroupMemory { limit_bytes, used_bytes, inactive_file_bytes })
}

/// The inactive file cache of a `memory.stat`, with everything below it where version 1 tells, in bytes.
fn inactive_file(stat: &str) -> u64 {
    let value = |key: &str| {
        stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    value("total_inactive_file").or_else(|| value("inactive_file")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       2048 kB\nMemFree:         10 kB\nMemAvailable:    1000 kB\n";

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        let group = |limit_bytes, used_bytes, inactive_file_bytes| CgroupMemory {
            limit_bytes,
            used_bytes,
            inactive_file_bytes,
        };
        assert_eq!(least(MEMINFO, &[]), Some(1_024_000));
        assert_eq!(least(MEMINFO, &[group(u64::MAX, 5, 0), group(4096, 1024, 24)]), Some(3096));
        assert_eq!(least(MEMINFO, &[group(4096, 8192, 0)]), Some(0));
        assert_eq!(least("", &[group(4096, 96, 4096)]), Some(4096));
        assert_eq!(least("", &[]), None);
    }

    #[test]
    fn malformed_meminfo_says_nothing() {
        for text in [
            "MemAvailable:",
            "MemAvailable: x kB",
            "MemAvailable: 12",
            "MemAvailable: 99999999999999999999 kB",
        ] {
            assert_eq!(mem_available(text), None, "{text}");
        }
    }

    #[test]
    fn every_group_up_to_the_root_is_looked_at() {
        let folders = cgroup_folders("9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/\n");
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup",
        ];
        assert_eq!(folders, expected.map(PathBuf::from));
        assert!(cgroup_folders("nonsense\n").is_empty());
    }

    #[test]
    fn the_inactive_cache_is_read_from_both_versions() {
        assert_eq!(inactive_file("anon 5\ninactive_file 77\n"), 77);
        assert_eq!(inactive_file("inactive_file 77\ntotal_inactive_file 99\n"), 99);
        assert_eq!(inactive_file("inactive_file_x 3\n"), 0);
    }

    #[test]
    fn this_machine_says_something() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
