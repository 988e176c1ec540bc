//! Volumes that may hold records without a durable row. An opening after a crash inspects the free
//! space of these volumes alone.
//!
//! A volume is named in the table, durably, before a record is written into it. Rows are written
//! without a log. So the name stays until rows were flushed that were put after the last write into
//! the volume. Where a write failed, the name stays until the next opening.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use martlet_protocol::Result;
use parking_lot::Mutex;

use super::table::Table;

/// Number of volumes that new records prefer.
const RECENT_MAX: usize = 8;

/// The volumes of a store that are named in its table.
pub(super) struct OpenVolumes {
    table: Table,
    /// Held while names are written, so that a name is never removed after it was set again.
    volumes: Mutex<BTreeMap<u32, VolumeUse>>,
}

/// The volumes that were written to last: new records go there first, so that a crash leaves few
/// volumes to inspect.
#[derive(Debug)]
pub(super) struct RecentVolumes(Vec<u32>);

impl RecentVolumes {
    /// Returns the numbers of the volumes.
    pub(super) fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// Adds the volume of a record; forgets the oldest of too many.
    pub(super) fn add(&mut self, volume: u32) {
        if !self.0.contains(&volume) {
            self.0.insert(0, volume);
            self.0.truncate(RECENT_MAX);
        }
    }
}

/// Use of a volume by the committer.
#[derive(Clone, Copy)]
struct VolumeUse {
    /// Time of the last write.
    at: Instant,
    /// True while records are written whose rows are not put yet.
    is_written: bool,
    /// True if a write failed.
    has_failed: bool,
}

impl OpenVolumes {
    /// Creates the state of a store whose places are all settled.
    pub(super) fn new(table: Table) -> Self {
        Self { table, volumes: Mutex::default() }
    }

    /// Returns the volumes that were written to last.
    pub(super) fn recent(&self) -> RecentVolumes {
        let volumes = self.volumes.lock();
        let mut found: Vec<(Instant, u32)> = volumes.iter().map(|(id, it)| (it.at, *id)).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        RecentVolumes(found.into_iter().take(RECENT_MAX).map(|(_, volume)| volume).collect())
    }

    /// Names a volume, durably. Only the committer calls this, before it writes records.
    pub(super) fn begin(&self, volume: u32) -> Result<()> {
        let mut volumes = self.volumes.lock();
        let has_failed = volumes.get(&volume).is_some_and(|it| it.has_failed);
        if !volumes.contains_key(&volume) {
            self.table.open_volume(volume)?;
        }
        volumes.insert(volume, VolumeUse { at: Instant::now(), is_written: true, has_failed });
        Ok(())
    }

    /// Records that the rows of all written records are in the table, unless the write failed.
    pub(super) fn end(&self, volume: u32, in_order: bool) {
        if let Some(it) = self.volumes.lock().get_mut(&volume) {
            it.is_written = false;
            it.has_failed |= !in_order;
        }
    }

    /// Flushes the rows, and removes the names of volumes without writes for `idle`. Returns the
    /// number of these volumes. Flushes nothing if no volume is idle. Blocks.
    pub(super) fn close_idle(&self, idle: Duration) -> Result<usize> {
        let is_idle = |it: &VolumeUse| !it.is_written && !it.has_failed && it.at.elapsed() >= idle;
        let mut closing = self.volumes.lock().clone();
        closing.retain(|_, it| is_idle(it));
        if closing.is_empty() {
            return Ok(0);
        }
        self.table.flush_rows()?;
        let mut volumes = self.volumes.lock();
        let is_unused = |volume: &u32| {
            let before = closing.get(volume).map(|it| it.at);
            volumes.get(volume).is_some_and(|it| !it.is_written && Some(it.at) == before)
        };
        let closed: Vec<u32> = closing.keys().copied().filter(is_unused).collect();
        self.table.close_volumes(&closed)?;
        for volume in &closed {
            volumes.remove(volume);
        }
        Ok(closed.len())
    }
}
