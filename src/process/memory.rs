//! Memory of a process with devices: one setting, split by one rule.
//!
//! ```text
//! memory         the setting; else a share of the machine's memory, or of the control group's limit
//! index writes   16 MiB for each device, at most a quarter; at least 8 MiB for each device, and 40 MiB
//! bodies         of a server `write_buffer`, of a storage node 128 MiB
//! index cache    the rest, at least 32 MiB
//! ```
//!
//! Beside it, devices take the memory that `docs/SCALE.md` counts, and requests take their own.

use std::fs;
use std::path::{Path, PathBuf};

use martlet_admin_api::MemoryLine;
use martlet_serving::{Failure, Size};
use martlet_storage_node::{NodeOptions, WRITE_BUFFER_BYTES_MIN};
use rustix::process::{Resource, getrlimit};

const MIB: u64 = 1024 * 1024;
/// Least memory that the setting accepts.
const MEMORY_BYTES_MIN: u64 = 64 * MIB;
const CACHE_BYTES_MIN: u64 = 32 * MIB;
const INDEX_WRITE_BYTES_MIN: u64 = 40 * MIB;
const INDEX_WRITE_BYTES_PER_DEVICE: u64 = 16 * MIB;
/// Bytes of bodies that a storage node has in buffers, for all devices together.
pub(crate) const NODE_BODY_BYTES: u64 = 128 * MIB;
/// Memory of a machine that doesn't tell its own.
const UNKNOWN_MACHINE_BYTES: u64 = 1024 * MIB;
/// Bounds of the number of files that each index keeps open. Half of all files that the process may
/// open are left to extents and connections.
const OPEN_FILES_MIN: u64 = 64;
const OPEN_FILES_MAX: u64 = 4096;

/// Share of the machine's memory that a process takes without a setting: one part in so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineShare {
    /// A storage node, which has its machine for itself.
    Quarter,
    /// An embedded server, beside the programs that use it.
    Eighth,
}

/// Split of the memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemorySplit {
    memory: u64,
    cache: u64,
    index_writes: u64,
    bodies: u64,
    devices: u64,
}

impl MemorySplit {
    /// Splits the memory of a process that holds `bodies` bytes of bodies at most.
    pub(crate) fn new(
        setting: Option<Size>,
        share: MachineShare,
        bodies: u64,
        devices: usize,
    ) -> Self {
        let parts = match share {
            MachineShare::Quarter => 4,
            MachineShare::Eighth => 8,
        };
        let memory = setting.map_or_else(|| machine_bytes() / parts, |Size(bytes)| bytes);
        Self::of(memory, bodies, devices as u64)
    }

    fn of(memory: u64, bodies: u64, devices: u64) -> Self {
        let least = (WRITE_BUFFER_BYTES_MIN as u64 * devices).max(INDEX_WRITE_BYTES_MIN);
        let index_writes = (INDEX_WRITE_BYTES_PER_DEVICE * devices).min(memory / 4).max(least);
        let cache = memory.saturating_sub(index_writes + bodies).max(CACHE_BYTES_MIN);
        Self { memory, cache, index_writes, bodies, devices }
    }

    /// Returns the options of a node whose devices share this memory.
    pub(crate) fn node_options(&self) -> NodeOptions {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // A limit that is missing is no limit.
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        NodeOptions {
            block_cache_bytes: bytes(self.cache),
            write_buffer_bytes: bytes(self.index_writes),
            open_files_max: bytes(open_files(files, self.devices)),
            ..NodeOptions::default()
        }
    }

    /// Returns the line of the status.
    pub(crate) fn line(&self) -> MemoryLine {
        let Self { memory, cache, index_writes, bodies, .. } = *self;
        MemoryLine {
            memory_bytes: memory,
            index_cache_bytes: cache,
            index_write_bytes: index_writes,
            body_bytes: bodies,
        }
    }
}

/// Checks the setting.
pub(crate) fn check(setting: Option<Size>) -> Result<(), Failure> {
    match setting {
        Some(Size(bytes)) if bytes < MEMORY_BYTES_MIN => {
            Err(Failure::usage("memory must be at least 64MiB"))
        }
        _ => Ok(()),
    }
}

/// Returns the number of files that each of `devices` indexes keeps open.
fn open_files(files: u64, devices: u64) -> u64 {
    (files / 2 / devices.max(1)).clamp(OPEN_FILES_MIN, OPEN_FILES_MAX)
}

/// Returns the memory of the machine, or the limit of the process's control group if it is lower.
fn machine_bytes() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total_bytes(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| read(&path));
    let limits = limits.filter_map(|text| text.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(UNKNOWN_MACHINE_BYTES)
}

/// Returns the total in the text of `/proc/meminfo`.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the files that may limit the memory, by the text of `/proc/self/cgroup`: those of the
/// group and of all groups around it.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let around = Path::new(group).ancestors().map(|group| root.join(group).join("memory.max"));
    around.chain([root.join("memory/memory.limit_in_bytes")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    #[test]
    fn a_large_node_gives_most_of_its_memory_to_the_index() {
        let split = MemorySplit::of(64 * GIB, NODE_BODY_BYTES, 60);
        assert_eq!(split.index_writes, 960 * MIB);
        assert_eq!(split.cache, 64 * GIB - 960 * MIB - 128 * MIB);
        let line = split.line();
        let parts = line.index_cache_bytes + line.index_write_bytes + line.body_bytes;
        assert_eq!((parts, line.memory_bytes), (64 * GIB, 64 * GIB));
    }

    #[test]
    fn devices_get_what_they_need_from_little_memory() {
        let split = MemorySplit::of(GIB, NODE_BODY_BYTES, 60);
        assert_eq!(split.index_writes, 480 * MIB, "8 MiB for each");
        let split = MemorySplit::of(64 * MIB, 256 * MIB, 1);
        assert_eq!((split.index_writes, split.cache), (40 * MIB, 32 * MIB));
        let split = MemorySplit::of(GIB, 256 * MIB, 12);
        assert_eq!((split.index_writes, split.cache), (192 * MIB, 576 * MIB));
    }

    #[test]
    fn the_options_of_a_node_are_those_of_the_split() {
        let split = MemorySplit::of(GIB, 256 * MIB, 12);
        let options = split.node_options();
        assert_eq!(options.block_cache_bytes as u64, split.cache);
        assert_eq!(options.write_buffer_bytes as u64, split.index_writes);
        assert!((64..=4096).contains(&options.open_files_max));
        assert_eq!(open_files(1024, 60), 64);
        assert_eq!(open_files(1 << 20, 60), 4096);
        assert_eq!(open_files(48_000, 12), 2000);
        assert_eq!(open_files(u64::MAX, 0), 4096);
    }

    #[test]
    fn memory_limits_come_from_the_machine_and_its_control_groups() {
        let meminfo = "MemFree: 5 kB\nMemTotal:       24684880 kB\n";
        assert_eq!(total_bytes(meminfo), Some(24_684_880 * 1024));
        assert_eq!(total_bytes("MemFree: 5 kB"), None);
        let files = limit_files("1:name=x:/\n0::/a/b\n");
        let expected =
            ["a/b/memory.max", "a/memory.max", "memory.max", "memory/memory.limit_in_bytes"];
        assert_eq!(files, expected.map(|file| Path::new("/sys/fs/cgroup").join(file)));
        assert!(machine_bytes() > 64 * MIB);
    }

    #[test]
    fn a_setting_wins_over_the_machine_and_is_checked() {
        let split = MemorySplit::new(Some(Size(3 * GIB)), MachineShare::Quarter, 0, 1);
        assert_eq!(split.line().memory_bytes, 3 * GIB);
        let eighth = MemorySplit::new(None, MachineShare::Eighth, 0, 1).line().memory_bytes;
        let quarter = MemorySplit::new(None, MachineShare::Quarter, 0, 1).line().memory_bytes;
        assert_eq!(quarter / 2, eighth);
        assert!(check(None).is_ok() && check(Some(Size(MEMORY_BYTES_MIN))).is_ok());
        assert!(check(Some(Size(MEMORY_BYTES_MIN - 1))).is_err());
    }
}
