//! Figures of this process, from `/proc`.

use std::fs;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Figures of a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessFigures {
    /// CPU seconds so far, user and kernel.
    pub(crate) cpu_s: f64,
    /// CPU seconds so far in the kernel.
    pub(crate) system_s: f64,
    /// Read calls so far.
    pub(crate) reads: u64,
}

/// Returns the figures of this moment; 0 where `/proc` lacks one.
pub(crate) fn now() -> ProcessFigures {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    ProcessFigures {
        cpu_s: (ticks(11) + ticks(12)) / 100.0,
        system_s: ticks(12) / 100.0,
        reads: field(&io, "syscr:"),
    }
}

/// Returns the resident bytes of this moment, and their peak.
pub(crate) fn resident_bytes() -> [u64; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["VmRSS:", "VmHWM:"].map(|name| field(&status, name) * 1024)
}

/// Removes the files of a folder from the page cache.
pub(crate) fn forget_pages(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Ok(file) = fs::File::open(file.path()) {
            // Pages that stay make the figures smaller than those of a cold disk.
            let _ = file.sync_all();
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}

/// Returns the allocated bytes of all files in a folder.
pub(crate) fn allocated_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |file: fs::DirEntry| match file.metadata() {
        Ok(metadata) if metadata.is_dir() => allocated_bytes(&file.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    files.map(bytes).sum()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
