//! Bytes and names of a faulty disk: live, durable and pending.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Unit in bytes that a disk writes whole or not at all.
pub(super) const SECTOR: usize = 512;

/// A file's live bytes, its bytes at the last sync, and the changes between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<ContentChange>,
    /// Positions of bytes with a flipped bit in the page cache.
    pub(super) misread: BTreeSet<usize>,
    /// Positions of bytes that can't be read until they are written again.
    pub(super) unreadable: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum ContentChange {
    Write(usize, Vec<u8>),
    Length(usize),
    Punch(Range<usize>),
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// A small generator of pseudo-random numbers, deterministic for a seed.
#[derive(Clone, Debug)]
pub(super) struct ContentRng(pub(super) u64);

impl ContentRng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }
}

impl ContentChange {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            // A write doesn't lengthen the file; the `Length` change recorded with it does.
            Self::Write(at, data) => {
                let kept = bytes.len().saturating_sub(*at).min(data.len());
                let at = (*at).min(bytes.len());
                bytes[at..][..kept].copy_from_slice(&data[..kept]);
            }
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Punch(range) => {
                let end = range.end.min(bytes.len());
                bytes[range.start.min(end)..end].fill(0);
            }
        }
    }

    /// Applies a part of the change: of each write, some sectors.
    fn apply_torn(&self, bytes: &mut Vec<u8>, chance: &mut ContentRng) {
        match chance.next() % 4 {
            0 => {}
            1 => self.apply(bytes),
            _ => {
                let Self::Write(at, data) = self else { return };
                let mut from = 0;
                while from < data.len() {
                    let to = ((at + from) / SECTOR * SECTOR + SECTOR - at).min(data.len());
                    if chance.one_in(2) {
                        Self::Write(at + from, data[from..to].to_vec()).apply(bytes);
                    }
                    from = to;
                }
            }
        }
    }
}

impl Content {
    pub(super) fn change(&mut self, change: ContentChange) {
        if let ContentChange::Write(at, data) = &change
            && at + data.len() > self.live.len()
        {
            self.change(ContentChange::Length(at + data.len()));
        }
        change.apply(&mut self.live);
        if let ContentChange::Write(at, data) = &change {
            self.misread.retain(|byte| !(*at..at + data.len()).contains(byte));
            self.unreadable.retain(|byte| !(*at..at + data.len()).contains(byte));
        }
        self.pending.push(change);
    }

    pub(super) fn synced(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    /// Drops clean bytes from the cache: reads return the durable ones. Unsynced bytes stay.
    pub(super) fn drop_cached(&mut self, range: Range<usize>) {
        self.misread.retain(|at| !range.contains(at));
        if !self.pending.is_empty() {
            return;
        }
        let end = range.end.min(self.live.len());
        let start = range.start.min(end);
        // Behind the durable end, no block was ever written.
        let written = self.durable.len().clamp(start, end);
        self.live[start..written].copy_from_slice(&self.durable[start..written]);
        self.live[written..end].fill(0);
    }

    /// Applies a random part of the unsynced changes to the durable bytes.
    pub(super) fn scatter(&mut self, chance: &mut ContentRng) {
        for change in std::mem::take(&mut self.pending) {
            change.apply_torn(&mut self.durable, chance);
        }
    }
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Link(path, file) => drop(names.insert(path.clone(), *file)),
            Self::Unlink(path) => drop(names.remove(path)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }

    pub(super) fn touches(&self, folder: &Path) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) => path.parent() == Some(folder),
            Self::Rename(from, to) => from.parent() == Some(folder) || to.parent() == Some(folder),
        }
    }
}
