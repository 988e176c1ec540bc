//! Counts of free runs by length and backing, which lead to the volumes that have such runs.

use std::collections::BTreeMap;

use super::run::{Backing, FreeRun};

/// Number of runs by volume.
type RunCounts = BTreeMap<u32, u32>;

/// Counts of the runs of a space map. Memory: about 12 bytes for each volume and length of run that
/// the volume has: at most 257 lengths of four backings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Classes {
    /// By backing and length.
    counts: BTreeMap<(u32, u32), RunCounts>,
    bytes: [u64; Backing::ALL.len()],
}

impl Classes {
    /// Counts a run that was added.
    pub(super) fn count(&mut self, volume: u32, run: FreeRun) {
        self.bytes[run.backing().number() as usize] += run.bytes();
        *self.counts.entry(key(run)).or_default().entry(volume).or_default() += 1;
    }

    /// Uncounts a run that was removed.
    pub(super) fn forget(&mut self, volume: u32, run: FreeRun) {
        self.bytes[run.backing().number() as usize] -= run.bytes();
        let Some(volumes) = self.counts.get_mut(&key(run)) else { return };
        if let Some(count) = volumes.get_mut(&volume) {
            *count -= 1;
            if *count == 0 {
                volumes.remove(&volume);
            }
        }
        if volumes.is_empty() {
            self.counts.remove(&key(run));
        }
    }

    /// Returns the lowest class from `class` on that has runs with this backing.
    pub(super) fn first(&self, backing: Backing, class: u32) -> Option<u32> {
        let backing = backing.number();
        let mut counts = self.counts.range((backing, class)..=(backing, u32::MAX));
        counts.next().map(|((_, class), _)| *class)
    }

    /// Returns the volumes with runs of a class and backing, in order.
    pub(super) fn volumes(&self, class: u32, backing: Backing) -> impl Iterator<Item = u32> + '_ {
        self.counts.get(&(backing.number(), class)).into_iter().flat_map(|it| it.keys().copied())
    }

    /// Returns the lowest class from `class` on that has runs with this backing in one of `volumes`,
    /// and the volume.
    pub(super) fn first_in(
        &self,
        backing: Backing,
        class: u32,
        volumes: &[u32],
    ) -> Option<(u32, u32)> {
        let backing = backing.number();
        self.counts.range((backing, class)..=(backing, u32::MAX)).find_map(
            |((_, class), counts)| {
                let volume = volumes.iter().find(|volume| counts.contains_key(volume))?;
                Some((*class, *volume))
            },
        )
    }

    /// Returns the bytes of all runs with a backing.
    pub(super) fn bytes(&self, backing: Backing) -> u64 {
        self.bytes[backing.number() as usize]
    }
}

fn key(run: FreeRun) -> (u32, u32) {
    (run.backing().number(), run.class())
}
