//! Quarantine of contradictory bytes: they are never deleted and never served.
//!
//! A file moves to `quarantine/` under its own name, followed by `.2`, `.3` and so on if earlier files
//! of this name are there. A record can't move, so an empty file `volume-<number>-<offset>-<bytes>`
//! names its run in the volume, which is not reused.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use martlet_protocol::backend::{QuarantineKind, QuarantinePage, QuarantinedItem};
use martlet_protocol::{ErrorKind, ExtentId, Result};

use super::record::BlockRun;
use crate::disk::{Caching, Disk};

/// Returns up to `limit` items with names above `after`. Each page reads all names of the folder.
pub(super) fn page(
    disk: &dyn Disk,
    root: &Path,
    after: Option<&str>,
    limit: usize,
) -> Result<QuarantinePage> {
    let folder = folder(root);
    let mut names = match disk.list(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    names.retain(|name| after.is_none_or(|after| name.as_str() > after));
    names.sort_unstable();
    let is_cut = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| is_cut).cloned();
    let mut items = Vec::new();
    for name in names {
        match item(disk, &folder, name) {
            // An operator moved the file away.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            item => items.push(item?),
        }
    }
    Ok(QuarantinePage { items, next })
}

fn item(disk: &dyn Disk, folder: &Path, name: String) -> Result<QuarantinedItem> {
    let details = disk.details(&folder.join(&name))?;
    // The file that stands for a record is empty.
    let record = named_run(&name).map(|run| run.bytes);
    let kind = kind(&name);
    Ok(QuarantinedItem {
        name,
        kind,
        bytes: record.or(details.bytes),
        since_ms: details.changed_ms,
    })
}

fn kind(name: &str) -> QuarantineKind {
    if let Some(BlockRun { volume, offset, .. }) = named_run(name) {
        return QuarantineKind::Record { volume, offset };
    }
    let generation = name.strip_prefix("index-").and_then(|number| number.parse().ok());
    match (generation, named_extent(name)) {
        (Some(generation), _) => QuarantineKind::Index { generation },
        (None, Some(id)) => QuarantineKind::Extent(id),
        (None, None) => QuarantineKind::Other,
    }
}

pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("quarantine")
}

/// Moves a file to quarantine, durably.
pub(super) fn file(disk: &dyn Disk, root: &Path, file: &Path) -> Result<()> {
    let Some(name) = file.file_name().and_then(OsStr::to_str) else { return Ok(()) };
    disk.rename(file, &unused(disk, &folder(root), name)?)?;
    disk.sync_dir(&folder(root))?;
    file.parent().map_or(Ok(()), |from| disk.sync_dir(from))
}

/// Returns the first path for a name that no earlier item has.
fn unused(disk: &dyn Disk, folder: &Path, name: &str) -> Result<PathBuf> {
    let mut path = folder.join(name);
    for number in 2_u32.. {
        match disk.details(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            details => details?,
        };
        path = folder.join(format!("{name}.{number}"));
    }
    Ok(path)
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

/// Returns the extent that a name in quarantine stands for.
pub(super) fn named_extent(name: &str) -> Option<ExtentId> {
    match name.split_once('.') {
        None => name.parse().ok(),
        Some((id, number)) => number.parse::<u32>().ok().and_then(|_| id.parse().ok()),
    }
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
    fn pages_name_all_items_in_order() {
        let place = tempfile::tempdir().unwrap();
        let (root, disk) = (place.path(), &crate::disk::PosixDisk);
        let all = |limit| page(disk, root, None, limit).unwrap();
        assert_eq!(all(10), QuarantinePage::default(), "a device without the folder");
        disk.create_dir(&folder(root)).unwrap();
        disk.create_dir(&folder(root).join("index-7")).unwrap();
        let id = ExtentId([0xab; 16]);
        std::fs::write(folder(root).join(id.to_string()), [1; 300]).unwrap();
        std::fs::write(folder(root).join("odd <name>"), [2; 5]).unwrap();
        assert!(run(disk, root, BlockRun { volume: 3, offset: 8192, bytes: 4096 }).unwrap());
        let shown: Vec<_> = all(10).items.into_iter().map(|item| (item.kind, item.bytes)).collect();
        let expected = [
            (QuarantineKind::Extent(id), Some(300)),
            (QuarantineKind::Index { generation: 7 }, None),
            (QuarantineKind::Other, Some(5)),
            (QuarantineKind::Record { volume: 3, offset: 8192 }, Some(4096)),
        ];
        assert_eq!(shown, expected);
        let is_recent =
            |item: &QuarantinedItem| item.since_ms.is_some_and(|ms| ms > 1_700_000_000_000);
        assert!(all(10).items.iter().all(is_recent));
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = page(disk, root, after.as_deref(), 3).unwrap();
            found.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, all(4).items);
        assert_eq!(all(4).next, None, "the last page is known to be the last");
    }

    #[test]
    fn names_of_runs_are_understood_and_others_are_not() {
        let run = BlockRun { volume: 3, offset: 8192, bytes: 4096 };
        assert_eq!(named_run("volume-3-8192-4096"), Some(run));
        for other in ["volume-3-8192", "volume-3-8192-1-1", "3.vol", "00ff"] {
            assert_eq!(named_run(other), None);
        }
        let id = ExtentId([0xab; 16]);
        for (name, expected) in [
            (id.to_string(), Some(id)),
            (format!("{id}.2"), Some(id)),
            (format!("{id}.x"), None),
            ("3.vol".to_owned(), None),
            ("3.vol.2".to_owned(), None),
        ] {
            assert_eq!(named_extent(&name), expected, "{name}");
        }
    }
}
