//! Free space in volumes: its runs, and which of them still hold blocks of the file system.
//!
//! A device whose packed objects were deleted at random has as many free runs as objects. So a run
//! costs 8 bytes: each volume has a sorted list of its runs. A count of the runs of each length, by
//! volume, leads an allocation to the shortest run that fits.
//!
//! Invariants:
//! * runs of a volume are disjoint, sorted, and don't touch each other;
//! * the counts agree with the lists.

mod classes;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::classes::Classes;
use self::run::CLASS_MAX;
pub(super) use self::run::{Backing, FreeRun};
use super::record::BlockRun;

/// Volumes that one search for returnable runs visits.
const VOLUMES_VISITED_MAX: usize = 64;

/// Backing that an allocation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Any free run.
    Any,
    /// A run whose blocks are allocated: the write takes no space of the file system.
    Blocks,
}

impl Needs {
    fn suits(self, backing: Backing) -> bool {
        self == Self::Any || backing.has_blocks()
    }
}

/// Free space of all volumes of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SpaceMap {
    volumes: BTreeMap<u32, Vec<FreeRun>>,
    classes: Classes,
    /// Volume at which the next search for returnable runs begins.
    search_from: u32,
}

impl SpaceMap {
    /// Adds a run that isn't in the map.
    pub(super) fn insert(&mut self, run: BlockRun, backing: Backing) {
        if run.bytes == 0 {
            return;
        }
        let runs = self.volumes.entry(run.volume).or_default();
        let mut joined = FreeRun::new(run, backing);
        let at = runs.partition_point(|held| held.start() < joined.start());
        let (mut first, mut last) = (at, at);
        if let Some(before) = at.checked_sub(1).map(|before| runs[before]) {
            debug_assert!(before.end() <= joined.start(), "{run:?} is already in the map");
            if before.end() == joined.start() {
                (first, joined) = (at - 1, before.join(joined));
            }
        }
        if let Some(after) = runs.get(at).copied() {
            debug_assert!(joined.end() <= after.start(), "{run:?} is already in the map");
            if joined.end() == after.start() {
                (last, joined) = (at + 1, joined.join(after));
            }
        }
        for replaced in &runs[first..last] {
            self.classes.forget(run.volume, *replaced);
        }
        self.classes.count(run.volume, joined);
        runs.splice(first..last, [joined]);
    }

    /// Makes space for exactly `runs` runs of a volume.
    pub(super) fn reserve(&mut self, volume: u32, runs: usize) {
        self.volumes.entry(volume).or_default().reserve_exact(runs);
    }

    /// Appends a run behind all others of its volume. Returns none, and adds nothing, if it touches
    /// or precedes another run.
    pub(super) fn append(&mut self, volume: u32, run: FreeRun) -> Option<()> {
        let runs = self.volumes.entry(volume).or_default();
        if runs.last().is_some_and(|last| last.end() >= run.start()) || run.blocks() == 0 {
            return None;
        }
        self.classes.count(volume, run);
        runs.push(run);
        Some(())
    }

    /// Frees the space of a removed record.
    pub(super) fn release(&mut self, run: BlockRun) {
        self.insert(run, Backing::Stale);
    }

    /// Takes `bytes` from the start of the shortest sufficient run.
    pub(super) fn allocate(&mut self, bytes: u64, needs: Needs) -> Option<BlockRun> {
        let (volume, at) = self.find(bytes, needs)?;
        self.take(volume, at, bytes)
    }

    /// Takes `bytes` from the start of the shortest sufficient run in one of `volumes`.
    pub(super) fn allocate_in(
        &mut self,
        volumes: &[u32],
        bytes: u64,
        needs: Needs,
    ) -> Option<BlockRun> {
        let wanted = run::blocks(bytes);
        let first = |backing: Backing| {
            let (class, volume) = self.classes.first_in(backing, wanted.min(CLASS_MAX), volumes)?;
            Some((class, volume, backing))
        };
        let backings = Backing::ALL.into_iter().filter(|backing| needs.suits(*backing));
        let (class, volume, backing) = backings.filter_map(first).min_by_key(|found| found.0)?;
        let fits = |run: &FreeRun| {
            run.class() == class && run.backing() == backing && run.blocks() >= wanted
        };
        let at = self.volumes.get(&volume)?.iter().position(fits)?;
        self.take(volume, at, bytes)
    }

    /// Takes `bytes` from the start of a run.
    fn take(&mut self, volume: u32, at: usize, bytes: u64) -> Option<BlockRun> {
        let runs = self.volumes.get_mut(&volume)?;
        let held = runs[at];
        self.classes.forget(volume, held);
        let (taken, rest) = held.split(bytes);
        match rest {
            Some(rest) => {
                self.classes.count(volume, rest);
                runs[at] = rest;
            }
            None => {
                runs.remove(at);
            }
        }
        Some(taken.to_block_run(volume))
    }

    /// Returns true if a record of `bytes` fits without new blocks of the file system.
    pub(super) fn has_blocks_for(&self, bytes: u64) -> bool {
        self.find(bytes, Needs::Blocks).is_some()
    }

    /// Returns volume and position of the shortest sufficient run.
    fn find(&self, bytes: u64, needs: Needs) -> Option<(u32, usize)> {
        let wanted = run::blocks(bytes);
        let first = |backing| self.classes.first(backing, wanted.min(CLASS_MAX));
        let backings = Backing::ALL.into_iter().filter(|backing| needs.suits(*backing));
        let mut found: Vec<_> = backings.filter_map(|it| Some((first(it)?, it))).collect();
        found.sort_by_key(|(class, _)| *class);
        for (class, backing) in found {
            let fits = |run: &FreeRun| {
                run.class() == class && run.backing() == backing && run.blocks() >= wanted
            };
            // Only runs of the last class may be too short, and no record is that long.
            for volume in self.classes.volumes(class, backing) {
                if let Some(at) = self.volumes.get(&volume)?.iter().position(fits) {
                    return Some((volume, at));
                }
            }
        }
        None
    }

    /// Takes up to `runs_max` runs of one volume, each of at least `bytes_min`, whose blocks may be
    /// returned to the file system; with `preallocated`, also runs that were never written. They
    /// can't be allocated meanwhile: [insert](Self::insert) them when done.
    pub(super) fn take_returnable(
        &mut self,
        bytes_min: u64,
        preallocated: bool,
        runs_max: usize,
    ) -> Vec<(BlockRun, Backing)> {
        let blocks_min = run::blocks(bytes_min);
        let is_returnable = |run: FreeRun| {
            let backing = run.backing();
            let wanted = match backing {
                Backing::Stale | Backing::Unknown => true,
                Backing::Fresh => preallocated,
                Backing::Hole => false,
            };
            wanted && run.blocks() >= blocks_min
        };
        for _ in 0..VOLUMES_VISITED_MAX.min(self.volumes.len() + 1) {
            let next = self.volumes.range_mut(self.search_from..).next();
            let Some((&volume, runs)) = next else {
                self.search_from = 0;
                continue;
            };
            let mut taken = Vec::new();
            runs.retain(|run| {
                let takes = taken.len() < runs_max && is_returnable(*run);
                if takes {
                    taken.push((run.to_block_run(volume), run.backing()));
                    self.classes.forget(volume, *run);
                }
                !takes
            });
            if !taken.is_empty() {
                self.search_from = volume;
                return taken;
            }
            self.search_from = volume.saturating_add(1);
        }
        Vec::new()
    }

    /// Returns true if a block of a run is free.
    pub(super) fn is_free(&self, run: BlockRun) -> bool {
        let wanted = FreeRun::new(run, Backing::Unknown);
        let runs = self.runs(run.volume);
        let at = runs.partition_point(|held| held.end() <= wanted.start());
        runs.get(at).is_some_and(|held| held.start() < wanted.end())
    }

    pub(super) fn free_bytes(&self) -> u64 {
        Backing::ALL.iter().map(|backing| self.classes.bytes(*backing)).sum()
    }

    /// Returns the runs of a volume, by offset.
    pub(super) fn runs(&self, volume: u32) -> &[FreeRun] {
        self.volumes.get(&volume).map(Vec::as_slice).unwrap_or_default()
    }
}
