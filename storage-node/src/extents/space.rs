//! Free space in volumes: free runs, and which of them still hold bytes of deleted records.

use std::collections::{BTreeMap, BTreeSet};

use super::record::BlockRun;

/// Disjoint runs, merged where they touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunSet {
    by_place: BTreeMap<(u32, u64), u64>,
    by_bytes: BTreeSet<(u64, u32, u64)>,
    total_bytes: u64,
}

impl RunSet {
    /// Adds a run that isn't in the set.
    pub(super) fn insert(&mut self, run: BlockRun) {
        if run.bytes == 0 {
            return;
        }
        let mut joined = run;
        if let Some(before) = self.before(run.volume, run.offset) {
            debug_assert!(before.end() <= run.offset, "{run:?} is already in the set");
            if before.end() == run.offset {
                self.take(before);
                joined = BlockRun { bytes: before.bytes + run.bytes, ..before };
            }
        }
        if let Some(bytes) = self.by_place.get(&(run.volume, run.end())).copied() {
            self.take(BlockRun { volume: run.volume, offset: run.end(), bytes });
            joined.bytes += bytes;
        }
        self.put(joined);
    }

    /// Takes `bytes` from the start of the shortest sufficient run; of equal runs, the first.
    pub(super) fn take_best(&mut self, bytes: u64) -> Option<BlockRun> {
        let (found, volume, offset) = self.by_bytes.range((bytes, 0, 0)..).next().copied()?;
        self.take(BlockRun { volume, offset, bytes: found });
        self.put(BlockRun { volume, offset: offset + bytes, bytes: found - bytes });
        Some(BlockRun { volume, offset, bytes })
    }

    /// Removes all parts of `run` from the set.
    pub(super) fn remove(&mut self, run: BlockRun) {
        let mut at = self
            .before(run.volume, run.offset + 1)
            .filter(|before| before.end() > run.offset)
            .map_or(run.offset, |before| before.offset);
        while at < run.end() {
            let rest = (run.volume, at)..(run.volume, run.end());
            let Some((&(volume, offset), &bytes)) = self.by_place.range(rest).next() else { break };
            let held = BlockRun { volume, offset, bytes };
            self.take(held);
            let before = run.offset.saturating_sub(held.offset);
            self.put(BlockRun { bytes: before, ..held });
            let after = held.end().saturating_sub(run.end());
            self.put(BlockRun { offset: held.end() - after, bytes: after, ..held });
            at = held.end();
        }
    }

    /// Returns the longest run.
    pub(super) fn longest(&self) -> Option<BlockRun> {
        self.by_bytes.last().map(|&(bytes, volume, offset)| BlockRun { volume, offset, bytes })
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn before(&self, volume: u32, offset: u64) -> Option<BlockRun> {
        let (&(volume, offset), &bytes) =
            self.by_place.range((volume, 0)..(volume, offset)).next_back()?;
        Some(BlockRun { volume, offset, bytes })
    }

    fn put(&mut self, run: BlockRun) {
        if run.bytes > 0 {
            self.by_place.insert((run.volume, run.offset), run.bytes);
            self.by_bytes.insert((run.bytes, run.volume, run.offset));
            self.total_bytes += run.bytes;
        }
    }

    fn take(&mut self, run: BlockRun) {
        self.by_place.remove(&(run.volume, run.offset));
        self.by_bytes.remove(&(run.bytes, run.volume, run.offset));
        self.total_bytes -= run.bytes;
    }
}

/// Free space of all volumes of a store.
#[derive(Debug, Default)]
pub(super) struct SpaceMap {
    free: RunSet,
    /// Free runs that were not returned to the file system since their last use.
    stale: RunSet,
}

impl SpaceMap {
    /// Adds free space that holds no bytes of records.
    pub(super) fn grow(&mut self, run: BlockRun) {
        self.free.insert(run);
    }

    /// Frees the space of a removed record.
    pub(super) fn release(&mut self, run: BlockRun) {
        self.free.insert(run);
        self.stale.insert(run);
    }

    /// Allocates space for a record.
    pub(super) fn allocate(&mut self, bytes: u64) -> Option<BlockRun> {
        let run = self.free.take_best(bytes)?;
        self.stale.remove(run);
        Some(run)
    }

    /// Marks all free space as returnable, also preallocated space.
    pub(super) fn all_stale(&mut self) {
        self.stale = self.free.clone();
    }

    /// Takes a long free run to return to the file system. The run can't be allocated meanwhile:
    /// call [`Self::grow`] when done.
    pub(super) fn take_stale(&mut self, bytes_min: u64) -> Option<BlockRun> {
        let run = self.stale.longest().filter(|run| run.bytes >= bytes_min)?;
        self.stale.remove(run);
        self.free.remove(run);
        Some(run)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free.total_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(offset: u64, bytes: u64) -> BlockRun {
        BlockRun { volume: 0, offset, bytes }
    }

    #[test]
    fn neighbours_join_and_the_best_fit_is_taken() {
        let mut set = RunSet::default();
        set.insert(run(0, 4));
        set.insert(run(8, 4));
        assert_eq!(set.longest(), Some(run(8, 4)));
        set.insert(run(4, 4));
        assert_eq!(set.longest(), Some(run(0, 12)));
        set.insert(run(20, 5));
        assert_eq!(set.take_best(5), Some(run(20, 5)));
        assert_eq!(set.take_best(5), Some(run(0, 5)));
        assert_eq!(set.take_best(8), None);
        assert_eq!(set.total_bytes(), 7);
    }

    #[test]
    fn stale_space_is_given_back_once() {
        let mut map = SpaceMap::default();
        map.grow(run(0, 100));
        let (first, second) = (map.allocate(10).unwrap(), map.allocate(10).unwrap());
        assert_eq!(map.take_stale(1), None, "fresh space has nothing to give back");
        map.release(first);
        map.release(second);
        assert_eq!(map.take_stale(21), None);
        assert_eq!(map.take_stale(20), Some(run(0, 20)));
        assert_eq!(map.allocate(100), None, "it is not free while it is being given back");
        map.grow(run(0, 20));
        assert_eq!(map.take_stale(1), None);
        map.all_stale();
        assert_eq!(map.take_stale(1), Some(run(0, 100)));
        map.grow(run(0, 100));
        assert_eq!(map.allocate(100), Some(run(0, 100)));
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_of_units(steps in proptest::collection::vec((0..64_u64, 1..9_u64, 0..3_u8), 1..60)) {
            let (mut set, mut model) = (RunSet::default(), BTreeSet::new());
            for (offset, bytes, what) in steps {
                let units = offset..offset + bytes;
                match what {
                    0 if units.clone().all(|unit| !model.contains(&unit)) => {
                        set.insert(run(offset, bytes));
                        model.extend(units);
                    }
                    1 => {
                        set.remove(run(offset, bytes));
                        model.retain(|unit| !units.contains(unit));
                    }
                    _ => {
                        if let Some(taken) = set.take_best(bytes) {
                            prop_assert_eq!(taken.bytes, bytes);
                            for unit in taken.offset..taken.end() {
                                prop_assert!(model.remove(&unit));
                            }
                        }
                    }
                }
                prop_assert_eq!(set.total_bytes(), model.len() as u64);
                let held: BTreeSet<u64> =
                    set.by_place.iter().flat_map(|(&(_, at), &bytes)| at..at + bytes).collect();
                prop_assert_eq!(&held, &model);
                prop_assert_eq!(set.by_place.len(), set.by_bytes.len());
            }
        }
    }
}
