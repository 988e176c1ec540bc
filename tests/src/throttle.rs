//! A disk that is slow for one process: the kernel limits that process's writes per second on the
//! disk and holds further writes back.
//!
//! Requires root and cgroup v1 with the blkio controller. Without them [`Throttle::new`] prints
//! that the test is skipped.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::image::Image;

const GROUPS: &str = "/sys/fs/cgroup/blkio";

/// A limit that lasts while this value lives.
#[derive(Debug)]
pub struct Throttle {
    group: PathBuf,
}

impl Throttle {
    /// Limits a process's writes per second on a disk. Prints that the test is skipped and returns
    /// `None` on failure.
    pub fn new(test: &str, disk: &Image, pid: u32, writes_per_second: u32) -> Option<Self> {
        let throttle = Self { group: Path::new(GROUPS).join(format!("martlet-{pid}")) };
        let made = throttle.begin(disk, pid, writes_per_second);
        if let Err(error) = made {
            println!("SKIPPED {test}: it needs root and cgroup v1 with blkio ({error})");
            return None;
        }
        Some(throttle)
    }

    fn begin(&self, disk: &Image, pid: u32, writes_per_second: u32) -> std::io::Result<()> {
        let device = fs::metadata(disk.path())?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let rule = format!("{major}:{minor} {writes_per_second}");
        fs::create_dir(&self.group)?;
        fs::write(self.group.join("blkio.throttle.write_iops_device"), rule)?;
        fs::write(self.group.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let inside = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            drop(fs::write(Path::new(GROUPS).join("cgroup.procs"), pid));
        }
        drop(fs::remove_dir(&self.group));
    }
}
