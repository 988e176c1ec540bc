//! Quarantine of contradictory bytes: they are never deleted and never served.
//!
//! A file moves to `quarantine/` under its own name. A record can't move, so an empty file
//! `volume-<number>-<offset>-<bytes>` names its run in the volume, which is not reused.

use std::path::{Path, PathBuf};

use martlet_protocol::{ErrorKind, Result};

use crate::disk::{Caching, Disk};

use super::record::BlockRun;

pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("quarantine")
}

/// Moves a file to quarantine, durably.
pub(super) fn file(disk: &dyn Disk, root: &Path, file: &Path) -> Result<()> {
    let Some(name) = file.file_name() else { return Ok(()) };
    disk.rename(file, &folder(root).join(name))?;
    disk.sync_dir(&folder(root))?;
    file.parent().map_or(Ok(()), |from| disk.sync_dir(from))
}

/// Quarantines a run of a volume, durably. False if it was quarantined before.
pub(super) fn run(disk: &dyn Disk, root: &Path, run: BlockRun) -> Result<bool> {
    let BlockRun { volume, offset, bytes } = run;
    let name = format!("volume-{volume}-{offset}-{bytes}");
    match disk.create(&folder(root).join(name), Caching::Cached) {
        Err(error) if error.kind() == ErrorKind::Conflict => return Ok(false),
        created => created?,
    };
    disk.sync_dir(&folder(root)).map(|()| true)
}

/// Returns the run of a volume that a name in quarantine stands for.
pub(super) fn named_run(name: &str) -> Option<BlockRun> {
    let mut numbers = name.strip_prefix("volume-")?.split('-');
    let run = BlockRun {
        volume: numbers.next()?.parse().ok()?,
        offset: numbers.next()?.parse().ok()?,
        bytes: numbers.next()?.parse().ok()?,
    };
    numbers.next().is_none().then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs_are_understood_and_others_are_not() {
        let run = BlockRun { volume: 3, offset: 8192, bytes: 4096 };
        assert_eq!(named_run("volume-3-8192-4096"), Some(run));
        for other in ["volume-3-8192", "volume-3-8192-1-1", "3.vol", "00ff"] {
            assert_eq!(named_run(other), None);
        }
    }
}
