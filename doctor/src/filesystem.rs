//! File systems of devices and data folders: type, mount options, free space and inodes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::mounts::{self, Mount};
use crate::target::{DeviceTarget, Target};

const TYPE: &str = "file system";
const SPACE: &str = "space";
const INODES: &str = "inodes";
const PLACES: &str = "disks";
/// File systems whose contents end with the power.
const VOLATILE: [&str; 2] = ["tmpfs", "ramfs"];
/// File systems whose syncs and shutdowns are not those of a disk of this machine.
const REMOTE: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "ceph"];
/// File systems that Martlet is tested on.
const TESTED: [&str; 1] = ["ext4"];
/// Options by which a file system sends no flush to its disk.
const UNFLUSHED: [&str; 3] = ["nobarrier", "barrier=0", "barrier=none"];
/// Shares of free space, in percent, below which there is a finding. Devices refuse new extents at
/// about 2 % by themselves.
const FREE_PERCENT_WARN: u64 = 10;
const FREE_PERCENT_FAIL: u64 = 2;
/// Free bytes below which a first start may fail.
const FREE_BYTES_MIN: u64 = 256 << 20;
/// Free inodes below which there is a finding: each extent over 1 MiB is a file.
const FREE_INODES_WARN: u64 = 100_000;
const FREE_INODES_FAIL: u64 = 1000;

/// Observed folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderFacts {
    /// Folder, or its nearest existing parent before the first start.
    pub(crate) examined: PathBuf,
    /// True if the folder itself exists.
    pub(crate) exists: bool,
    pub(crate) mount: Mount,
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    /// Inodes in all; 0 if the file system makes them as needed.
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    /// Number of the file system, equal for two folders on one file system.
    pub(crate) file_system: u64,
}

/// Returns the folder, or its nearest existing parent.
pub(crate) fn nearest_existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let existing = absolute.ancestors().find(|folder| folder.is_dir())?;
    existing.canonicalize().ok()
}

impl FolderFacts {
    /// Observes a folder.
    fn observe(mounts: &[Mount], path: &Path) -> Result<Self, String> {
        let examined = nearest_existing(path).ok_or("no folder around it can be read")?;
        let space = rustix::fs::statvfs(&examined).map_err(|error| error.to_string())?;
        let about = fs::metadata(&examined).map_err(|error| error.to_string())?;
        Ok(Self {
            exists: path.is_dir(),
            mount: mounts::of_path(mounts, &examined).cloned().unwrap_or_default(),
            total_bytes: space.f_blocks * space.f_frsize,
            free_bytes: space.f_bavail * space.f_frsize,
            inodes: space.f_files,
            free_inodes: space.f_favail,
            file_system: about.dev(),
            examined,
        })
    }

    fn free_percent(&self) -> u64 {
        self.free_bytes.saturating_mul(100) / self.total_bytes.max(1)
    }
}

/// Returns the mounts of this machine.
pub(crate) fn mounts_here() -> Vec<Mount> {
    mounts::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// Examines all device folders, or the data folder of a process without any.
pub(crate) fn examine(target: &Target) -> Vec<Finding> {
    let mounts = mounts_here();
    let mut devices = target.devices.clone();
    devices.extend(
        target
            .data_dir
            .iter()
            .map(|path| DeviceTarget { name: "state".into(), path: path.clone() }),
    );
    let (mut findings, mut places) = (Vec::new(), Vec::new());
    for device in &devices {
        match FolderFacts::observe(&mounts, &device.path) {
            Ok(facts) => {
                findings.extend(judge(&device.shown(), &facts));
                if device.name != "state" {
                    places.push(DevicePlace { shown: device.shown(), facts });
                }
            }
            Err(error) => findings.push(
                Finding::ok(TYPE, device.shown(), error)
                    .fail("mount the disk, or correct the path in the settings"),
            ),
        }
    }
    findings.extend(judge_places(&places));
    findings
}

/// Judges one folder.
fn judge(subject: &str, facts: &FolderFacts) -> Vec<Finding> {
    let mut findings = vec![judge_type(subject, facts), judge_space(subject, facts)];
    findings.extend(judge_inodes(subject, facts));
    findings
}

fn judge_type(subject: &str, facts: &FolderFacts) -> Finding {
    let Mount { kind, source, point, options, .. } = &facts.mount;
    let seen =
        format!("{kind} on {source}, mounted at {} ({})", point.display(), options.join(","));
    let finding = Finding::ok(TYPE, subject, seen);
    if facts.mount.has_any(&["ro"]) {
        return finding.fail(
            "mount it for writing; an error of the disk may have made it read-only: \
            see dmesg",
        );
    }
    if VOLATILE.contains(&kind.as_str()) {
        return finding.fail("use a disk: this file system loses everything with the power");
    }
    if facts.mount.has_any(&UNFLUSHED) {
        return finding
            .fail("mount it with barriers: without them a power cut loses acknowledged writes");
    }
    if kind == "overlay" {
        return finding
            .warn("mount a volume: the writable layer of a container ends with the container");
    }
    if REMOTE.contains(&kind.as_str()) || kind.starts_with("fuse") {
        return finding.warn(
            "use a local disk: whether syncs reach a medium is up to another machine or program",
        );
    }
    if facts.mount.has_any(&["data=writeback"]) {
        return finding
            .warn("mount it with data=ordered: after a power cut files may contain old blocks");
    }
    if facts.mount.has_any(&["sync", "dirsync"]) {
        return finding.warn("mount it without sync: each write waits for the disk as it is");
    }
    if !TESTED.contains(&kind.as_str()) {
        return finding.warn("ext4 is the file system that Martlet's tests cut the power of");
    }
    finding
}

fn judge_space(subject: &str, facts: &FolderFacts) -> Finding {
    let percent = facts.free_percent();
    let seen =
        format!("{} of {} free, {percent} %", size(facts.free_bytes), size(facts.total_bytes));
    let finding = Finding::ok(SPACE, subject, seen);
    let advice = "add devices, delete objects, or shorten lifecycle rules; martlet admin capacity \
                  shows what fills";
    match (percent, facts.free_bytes) {
        (..FREE_PERCENT_FAIL, _) => finding.fail(advice),
        (_, ..FREE_BYTES_MIN) if !facts.exists => finding.fail(advice),
        (..FREE_PERCENT_WARN, _) => finding.warn(advice),
        _ => finding,
    }
}

fn judge_inodes(subject: &str, facts: &FolderFacts) -> Option<Finding> {
    if facts.inodes == 0 {
        return None;
    }
    let seen = format!("{} of {} inodes free", facts.free_inodes, facts.inodes);
    let finding = Finding::ok(INODES, subject, seen);
    let advice = "each extent over 1 MiB is a file: make the file system with more inodes (mkfs.ext4 \
                  -i 65536 or less)";
    // Small file systems have few inodes for their few bytes.
    let is_small = facts.total_bytes / facts.inodes <= 64 << 10;
    Some(match facts.free_inodes {
        ..FREE_INODES_FAIL => finding.fail(advice),
        ..FREE_INODES_WARN if !is_small => finding.warn(advice),
        _ => finding,
    })
}

/// Device folder with its facts.
struct DevicePlace {
    shown: String,
    facts: FolderFacts,
}

/// Judges the folders of several devices together: each should be a disk of its own.
fn judge_places(places: &[DevicePlace]) -> Vec<Finding> {
    if places.len() < 2 {
        return Vec::new();
    }
    let mut by_system: BTreeMap<u64, Vec<&DevicePlace>> = BTreeMap::new();
    for place in places {
        by_system.entry(place.facts.file_system).or_default().push(place);
    }
    let shared = by_system.values().filter(|places| places.len() > 1);
    let findings: Vec<Finding> = shared
        .map(|together| {
            let names: Vec<&str> = together.iter().map(|place| place.shown.as_str()).collect();
            let point = together[0].facts.mount.point.display();
            let seen = format!("{} are on one file system, {point}", names.join(", "));
            Finding::ok(PLACES, format!("{} devices", together.len()), seen).warn(
                "mount a disk for each: if disks should be mounted, one of them is missing; copies \
                 on one disk are lost together",
            )
        })
        .collect();
    if findings.is_empty() {
        let seen = format!("{} devices, each on a file system of its own", places.len());
        return vec![Finding::ok(PLACES, "all", seen)];
    }
    findings
}

/// Formats bytes.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut divisor: u64 = 1;
    while unit + 1 < units.len() && bytes / divisor >= 1024 {
        divisor *= 1024;
        unit += 1;
    }
    let tenths = bytes.saturating_mul(10) / divisor;
    if unit == 0 || tenths >= 1000 {
        return format!("{} {}", bytes / divisor, units[unit]);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;

    fn disk() -> FolderFacts {
        FolderFacts {
            exists: true,
            mount: Mount {
                kind: "ext4".into(),
                source: "/dev/sdb1".into(),
                point: "/mnt/d1".into(),
                options: vec!["rw".into(), "nodev".into(), "noatime".into()],
                device: "8:17".into(),
            },
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            inodes: 1 << 24,
            free_inodes: 1 << 23,
            ..FolderFacts::default()
        }
    }

    fn of_type(kind: &str, option: &str) -> (Verdict, String) {
        let mut facts = disk();
        facts.mount.kind = kind.to_owned();
        facts.mount.options.push(option.to_owned());
        let finding = judge_type("d1", &facts);
        (finding.verdict, finding.advice.unwrap_or_default())
    }

    #[test]
    fn types_and_options_that_lose_data_fail() {
        assert_eq!(of_type("ext4", "discard"), (Verdict::Ok, String::new()));
        assert_eq!(of_type("tmpfs", "rw").0, Verdict::Fail);
        assert_eq!(of_type("ramfs", "rw").0, Verdict::Fail);
        assert!(of_type("ext4", "ro").1.contains("dmesg"));
        for option in ["nobarrier", "barrier=0"] {
            let (verdict, advice) = of_type("ext4", option);
            assert!(verdict == Verdict::Fail && advice.contains("barriers"), "{option}");
        }
    }

    #[test]
    fn types_and_options_that_are_risky_or_slow_warn() {
        for (kind, option, word) in [
            ("overlay", "rw", "volume"),
            ("nfs4", "rw", "local disk"),
            ("fuse.x", "rw", "local disk"),
            ("ext4", "data=writeback", "data=ordered"),
            ("ext4", "sync", "without sync"),
            ("btrfs", "rw", "ext4"),
        ] {
            let (verdict, advice) = of_type(kind, option);
            assert!(verdict == Verdict::Warn && advice.contains(word), "{kind} {option}: {advice}");
        }
    }

    #[test]
    fn space_is_judged_by_its_share() {
        let space = |free_bytes: u64| {
            judge_space("d1", &FolderFacts { free_bytes, total_bytes: 1000 << 30, ..disk() })
        };
        assert_eq!(space(500 << 30).verdict, Verdict::Ok);
        assert_eq!(space(500 << 30).seen, "500 GiB of 1000 GiB free, 50 %");
        assert_eq!(space(60 << 30).verdict, Verdict::Warn);
        assert_eq!(space(10 << 30).verdict, Verdict::Fail);
        let small = FolderFacts { total_bytes: 64 << 20, free_bytes: 60 << 20, ..disk() };
        assert_eq!(judge_space("d1", &small).verdict, Verdict::Ok);
        let before = FolderFacts { exists: false, ..small };
        assert_eq!(judge_space("d1", &before).verdict, Verdict::Fail, "too small for a start");
    }

    #[test]
    fn inodes_are_judged_by_their_number() {
        let inodes = |free_inodes: u64| {
            judge_inodes("d1", &FolderFacts { free_inodes, ..disk() }).unwrap().verdict
        };
        assert_eq!(inodes(1 << 23), Verdict::Ok);
        assert_eq!(inodes(50_000), Verdict::Ok, "it has an inode for each 64 KiB");
        assert_eq!(inodes(10), Verdict::Fail);
        let sparse = FolderFacts { inodes: 1 << 20, free_inodes: 50_000, ..disk() };
        assert_eq!(judge_inodes("d1", &sparse).unwrap().verdict, Verdict::Warn);
        assert!(judge_inodes("d1", &FolderFacts { inodes: 0, ..disk() }).is_none());
    }

    #[test]
    fn devices_on_one_disk_are_named() {
        let place = |shown: &str, file_system| DevicePlace {
            shown: shown.to_owned(),
            facts: FolderFacts { file_system, ..disk() },
        };
        assert!(judge_places(&[place("d1", 1)]).is_empty());
        let apart = judge_places(&[place("d1", 1), place("d2", 2)]);
        assert_eq!(apart[0].verdict, Verdict::Ok);
        let together = judge_places(&[place("d1", 1), place("d2", 1), place("d3", 2)]);
        assert_eq!((together.len(), together[0].verdict), (1, Verdict::Warn));
        assert!(together[0].seen.starts_with("d1, d2 are on one"), "{}", together[0].seen);
    }

    #[test]
    fn a_folder_that_is_missing_is_examined_at_its_parent() {
        let place = tempfile::tempdir().unwrap();
        let facts = FolderFacts::observe(&mounts_here(), &place.path().join("a/b")).unwrap();
        assert!(!facts.exists && facts.total_bytes > 0);
        assert_eq!(facts.examined, place.path().canonicalize().unwrap());
        assert!(!facts.mount.kind.is_empty());
        assert!(FolderFacts::observe(&mounts_here(), place.path()).unwrap().exists);
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!([size(512), size(1536), size(3 << 40)], ["512 B", "1.5 KiB", "3.0 TiB"]);
    }
}
