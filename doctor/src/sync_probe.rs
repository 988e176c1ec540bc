//! Probe of syncs: small writes, each followed by `fdatasync`, and a judgement of their times by the
//! medium.
//!
//! A disk that acknowledges a sync before the bytes are on its medium loses acknowledged writes when
//! the power goes. No program can prove that a sync is honest. But no medium is faster than its
//! physics: a sync that is too fast for it came from a cache. Such a cache may be safe, if a battery
//! or capacitors keep it, so that the finding is a doubt.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::filesystem::{mounts_here, nearest_existing};
use crate::finding::Finding;
use crate::mounts::{self, Mount};
use crate::target::DeviceTarget;

const CHECK: &str = "syncs";
/// Longest time of one device's probe. One hanging sync may exceed it.
pub(crate) const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
/// Writes of one probe.
const WRITES: u32 = 100;
/// Writes below which the figures say too little.
const WRITES_MIN: usize = 8;
const BYTES: usize = 4096;
/// Fastest median of an honest sync on turning disks: a quarter of a turn at 15,000 turns a minute.
const TURNING_US_MIN: u64 = 1000;
/// Fastest median of an honest sync on flash without a protected cache: one program of a cell.
const FLASH_US_MIN: u64 = 10;
/// Median from which every write of a client is slow.
const SLOW_US: u64 = 100_000;

/// Medium of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Turning disk.
    Turning,
    /// Flash.
    Flash,
    /// Virtual disk, memory or a stack of disks.
    Unknown,
}

/// Observed syncs of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyncFacts {
    pub(crate) medium: Medium,
    /// True if the disk says that it has no volatile cache, so that the kernel sends no flushes.
    pub(crate) is_write_through: bool,
    /// Times of a write and its sync in microseconds, sorted.
    pub(crate) times_us: Vec<u64>,
}

/// Probes a device folder, or its nearest existing parent. Writes a file of its own there, and
/// removes it.
pub(crate) fn examine(device: &DeviceTarget) -> Finding {
    let Some(folder) = nearest_existing(&device.path) else {
        return Finding::ok(CHECK, device.shown(), "no folder to write to").fail("mount the disk");
    };
    match measure(&folder) {
        Ok(times_us) => {
            let mounts = mounts_here();
            let mount = mounts::of_path(&mounts, &folder).cloned().unwrap_or_default();
            let (medium, is_write_through) = medium_of(&mount, Path::new("/sys"));
            judge(&device.shown(), &SyncFacts { medium, is_write_through, times_us })
        }
        Err(error) => {
            let seen = format!("{} can't be written: {error}", folder.display());
            Finding::ok(CHECK, device.shown(), seen).fail(
                "run doctor as the server's user, and see the findings about space and mounts",
            )
        }
    }
}

/// File that is removed when this value is dropped.
struct ProbeFile(PathBuf);

impl Drop for ProbeFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Measures syncs in a folder; returns sorted microseconds.
fn measure(folder: &Path) -> std::io::Result<Vec<u64>> {
    let path = folder.join(format!(".martlet-doctor-{}", std::process::id()));
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
    let _removed_at_the_end = ProbeFile(path);
    write(&file, 0)?;
    let begun = Instant::now();
    let mut times_us = Vec::new();
    for number in 1..=WRITES {
        let start = Instant::now();
        write(&file, number)?;
        times_us.push(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
        if begun.elapsed() > PROBE_TIME_MAX {
            break;
        }
    }
    times_us.sort_unstable();
    Ok(times_us)
}

/// Writes a block with contents that no write before had, and syncs it.
fn write(file: &File, number: u32) -> std::io::Result<()> {
    let mut block = [0; BYTES];
    for chunk in block.chunks_exact_mut(4) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    file.write_all_at(&block, 0)?;
    file.sync_data()
}

/// Returns the medium of a mount, and true if its disk has no volatile cache, by files below `sys`.
fn medium_of(mount: &Mount, sys: &Path) -> (Medium, bool) {
    let Ok(disk) = sys.join("dev/block").join(&mount.device).canonicalize() else {
        return (Medium::Unknown, false);
    };
    // A partition's queue is its disk's.
    let queue = [disk.join("queue"), disk.join("../queue")].into_iter().find(|it| it.is_dir());
    let Some(queue) = queue else { return (Medium::Unknown, false) };
    let read = |name: &str| fs::read_to_string(queue.join(name)).unwrap_or_default();
    let is_write_through = read("write_cache").trim() == "write through";
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_virtual = ["loop", "zram", "ram", "nbd", "vd", "xvd", "dm-", "md", "rbd"]
        .iter()
        .any(|start| name.starts_with(start));
    let medium = match read("rotational").trim() {
        _ if is_virtual => Medium::Unknown,
        "1" => Medium::Turning,
        "0" => Medium::Flash,
        _ => Medium::Unknown,
    };
    (medium, is_write_through)
}

/// Judges the syncs of a device.
fn judge(subject: &str, facts: &SyncFacts) -> Finding {
    let times = &facts.times_us;
    let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100).copied();
    let (median, slowest) = (at(50).unwrap_or_default(), at(100).unwrap_or_default());
    let medium = match facts.medium {
        Medium::Turning => "a turning disk",
        Medium::Flash => "flash",
        Medium::Unknown => "an unknown medium",
    };
    let cache = if facts.is_write_through { ", which reports no volatile cache" } else { "" };
    let seen = format!(
        "{} writes of 4 KiB with fdatasync on {medium}{cache}: median {}, slowest {}",
        times.len(),
        span(median),
        span(slowest)
    );
    let finding = Finding::ok(CHECK, subject, seen);
    if median >= SLOW_US || times.len() < WRITES_MIN {
        return finding.warn(
            "each write of a client waits for such a sync: look for errors of the disk (smartctl -a, \
             dmesg) and for other programs that write to it",
        );
    }
    match facts.medium {
        Medium::Turning if median < TURNING_US_MIN => finding.warn(format!(
            "doubtful: a turning disk needs at least {} to reach its medium. A controller with a \
             battery may answer so fast and keep its word; otherwise turn the disk's write cache off \
             (hdparm -W 0)",
            span(TURNING_US_MIN)
        )),
        Medium::Flash if median < FLASH_US_MIN => finding.warn(format!(
            "doubtful: flash needs at least {} to reach its cells. A disk whose capacitors keep its \
             cache may answer so fast and keep its word: see its data sheet for power loss \
             protection",
            span(FLASH_US_MIN)
        )),
        _ => finding,
    }
}

/// Formats microseconds.
fn span(us: u64) -> String {
    if us >= 10_000 {
        return format!("{} ms", us / 1000);
    }
    if us >= 1000 {
        return format!("{}.{} ms", us / 1000, us % 1000 / 100);
    }
    format!("{us} µs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    fn facts(medium: Medium, median_us: u64) -> SyncFacts {
        SyncFacts { medium, is_write_through: false, times_us: vec![median_us; 100] }
    }

    fn verdict(medium: Medium, median_us: u64) -> Verdict {
        judge("d1", &facts(medium, median_us)).verdict
    }

    #[test]
    fn syncs_faster_than_their_medium_are_doubted() {
        assert_eq!(verdict(Medium::Turning, 8000), Verdict::Ok);
        assert_eq!(verdict(Medium::Turning, 80), Verdict::Warn);
        assert_eq!(verdict(Medium::Flash, 80), Verdict::Ok);
        assert_eq!(verdict(Medium::Flash, 3), Verdict::Warn);
        assert_eq!(verdict(Medium::Unknown, 3), Verdict::Ok, "nothing is known of its medium");
        let doubt = judge("d1", &facts(Medium::Turning, 80));
        assert!(doubt.seen.contains("median 80 µs"), "{}", doubt.seen);
        let advice = doubt.advice.unwrap();
        assert!(advice.starts_with("doubtful") && advice.contains("battery"), "{advice}");
    }

    #[test]
    fn syncs_that_are_slow_or_few_warn() {
        assert_eq!(verdict(Medium::Turning, 250_000), Verdict::Warn);
        let few = SyncFacts { times_us: vec![50_000; 3], ..facts(Medium::Turning, 1) };
        assert_eq!(judge("d1", &few).verdict, Verdict::Warn);
        let none = SyncFacts { times_us: Vec::new(), ..few };
        assert_eq!(judge("d1", &none).verdict, Verdict::Warn);
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let device = DeviceTarget { name: "d1".into(), path: place.path().join("later/d1") };
        let finding = examine(&device);
        assert_eq!(finding.check, CHECK);
        assert!(finding.seen.contains("writes of 4 KiB"), "{}", finding.seen);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let nowhere = DeviceTarget { name: "d2".into(), path: "/proc/d2".into() };
        assert_eq!(examine(&nowhere).verdict, Verdict::Fail);
    }

    #[test]
    fn a_medium_is_read_from_the_kernels_files() {
        let sys = tempfile::tempdir().unwrap();
        let disk = |name: &str, rotational: &str, cache: &str| {
            let queue = sys.path().join("devices").join(name).join("queue");
            fs::create_dir_all(&queue).unwrap();
            fs::write(queue.join("rotational"), rotational).unwrap();
            fs::write(queue.join("write_cache"), cache).unwrap();
            sys.path().join("devices").join(name)
        };
        let blocks = sys.path().join("dev/block");
        fs::create_dir_all(&blocks).unwrap();
        let link = |number: &str, to: &Path| {
            std::os::unix::fs::symlink(to, blocks.join(number)).unwrap();
        };
        let sda = disk("sda", "1\n", "write back\n");
        fs::create_dir(sda.join("sda1")).unwrap();
        link("8:1", &sda.join("sda1"));
        link("259:0", &disk("nvme0n1", "0\n", "write through\n"));
        link("7:0", &disk("loop0", "0\n", "write back\n"));
        let medium = |device: &str| {
            medium_of(&Mount { device: device.to_owned(), ..Mount::default() }, sys.path())
        };
        assert_eq!(medium("8:1"), (Medium::Turning, false));
        assert_eq!(medium("259:0"), (Medium::Flash, true));
        assert_eq!(medium("7:0").0, Medium::Unknown);
        assert_eq!(medium("9:9"), (Medium::Unknown, false));
    }
}
