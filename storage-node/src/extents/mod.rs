//! The extents of one device: immutable object bytes, stored so that they can be read in place.
//!
//! ```text
//!              write                                read
//!                │                                    │
//!             Gather ── chunks to aligned buffers   OpenExtent ── cached, with its checksums
//!        ┌───────┴────────┐                           │
//!   up to 1 MiB        longer                  page cache, else a thread
//!        │                │                           │
//!    Committer       FileWriter                verify each block
//!  one sync for    one file, one sync,
//!  all that wait   names by Folders
//!        └───────┬────────┘
//!             Table ── a row for each extent
//! ```
//!
//! * [`footer`] and [`record`]: layout of file extents and packed extents; [`seal`]: their
//!   descriptions; [`row`]: their rows in the table.
//! * [`write`]: writes; [`committer`], [`file_write`] and [`folders`]: durability of records, files
//!   and names.
//! * [`read`] and [`open`]: reads; [`lease`]: keeps a record's space while readers use it.
//! * [`in_place`]: reads by clients of the node's data port.
//! * [`lend`] and [`lent_extent`]: descriptors of file extents for other processes; [`file_lease`]:
//!   keeps the bytes of deleted files while other processes read them.
//! * [`volumes`] and [`space`]: allocation of packed extents; [`saved_space`]: free space as it was
//!   at the last closing; [`heads`]: copies of volume heads.
//! * [`recover`], [`believe`], [`used`], [`scan`], [`settle_records`], [`classify`],
//!   [`unknown_extent`] and [`recovery_actions`]: recovery at opening; [`count`]: the count of extents
//!   after it; [`recovery_report`]: its findings; [`open_volumes`]: the volumes that it inspects after
//!   a crash; [`unreadable`]: bytes that the disk can't read.
//! * [`options`] and [`usage`]: options and figures of a store.
//! * [`bulk`]: places of extents without bytes, for benchmarks.
//! * [`audit`]: reads and verifies all extents; [`quarantine`]: storage of contradictory bytes;
//!   [`upkeep`]: presence and release of copies that move (rule X4); [`wrong_copies`]: destruction
//!   of copies with other bytes.
//!
//! Invariants:
//! * a row is written after the extent's bytes, description and name are synced (rule X6), so a row
//!   proves that its extent was durable once;
//! * the removal of a row is synced before its name is removed or its space is used again. A delete
//!   removes the row in one batch with its mark. The header of a deleted record is durably zero
//!   before its space is free. The bytes of a wrong copy are durably gone before its row is removed;
//! * no byte is returned before its checksum was verified, except to a client of the data port that
//!   requested to verify all blocks itself;
//! * before a record is written, its volume is durably named as unsettled; the batch that removes a
//!   row names the header of its record. So every record without a durable row lies in a named place;
//! * the place of an extent changes in one batch with its row;
//! * a leased file has its bytes while its lease lasts, and takes no space afterwards;
//! * contradictory bytes are moved to quarantine, never deleted.

mod audit;
mod believe;
mod blocks;
mod buffer;
mod bulk;
mod classify;
mod committer;
mod count;
mod file_lease;
mod file_write;
mod folders;
mod footer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod gather;
mod heads;
mod in_place;
mod lease;
mod lend;
mod lent_extent;
mod open;
mod open_volumes;
mod options;
mod quarantine;
mod read;
mod record;
mod recover;
mod recovery_actions;
mod recovery_report;
mod row;
mod saved_space;
mod scan;
mod seal;
mod seek;
mod sender;
mod settle_records;
mod space;
mod state;
mod store;
mod table;
mod unknown_extent;
mod unreadable;
mod upkeep;
mod usage;
mod used;
mod volumes;
mod write;
mod wrong_copies;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use martlet_protocol::backend::{ExtentStat, NewExtent};
use martlet_protocol::extent::{ExtentLocation, ExtentRecord, ExtentRef};
use martlet_protocol::{ByteStream, Clock, Error, ExtentId, Result};

pub(crate) use self::bulk::BulkVolumes;
use self::file_lease::FileLeases;
pub use self::file_lease::{FileLease, Revocation};
pub use self::in_place::{ExtentInPlace, SentBytes};
pub use self::lent_extent::{LendError, LendingLimit, LentExtent};
pub use self::options::ExtentOptions;
use self::read::ExtentReader;
use self::record::BlockRun;
pub use self::recovery_report::RecoveryReport;
use self::row::{Row, RowLocation};
use self::saved_space::SavedFigures;
use self::seal::SealLocation;
pub use self::sender::SendEnd;
use self::store::{Removal, RemovalGuard, StoreState};
pub use self::table::Table;
pub use self::usage::ExtentUsage;
use crate::disk::Disk;

/// The extents of one device. Clones share its state.
#[derive(Clone)]
pub struct ExtentStore(Arc<StoreState>);

impl std::fmt::Debug for ExtentStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExtentStore").field(&self.0.root).finish()
    }
}

impl ExtentStore {
    /// Opens the store in `root`. Blocks.
    pub fn open(
        root: &Path,
        disk: Arc<dyn Disk>,
        table: impl Into<Table>,
        clock: Arc<dyn Clock>,
        options: &ExtentOptions,
    ) -> Result<(Self, RecoveryReport)> {
        let (inner, report) = StoreState::open(root, disk, table.into(), clock, options)?;
        Ok((Self(Arc::new(inner)), report))
    }

    /// Stores an extent, durably.
    pub async fn write(
        &self,
        extent: NewExtent,
        birth_ms: u64,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        write::write(&self.0, extent, birth_ms, body).await
    }

    /// Returns verified bytes of an extent. `Invalid` if `range` is empty or exceeds the extent.
    pub async fn read(&self, id: ExtentId, range: Range<u64>) -> Result<ByteStream> {
        let extent = match self.0.opened.get(&id) {
            Some(extent) => extent,
            None => StoreState::open_extent(&self.0, id).await?,
        };
        if range.is_empty() || range.end > extent.length {
            let sentence = format!("extent {id} of {} bytes has no range {range:?}", extent.length);
            return Err(Error::invalid(sentence));
        }
        read::stream(ExtentReader::of(&self.0), extent, range).await
    }

    /// Returns the extent's record and its location on disk.
    pub async fn stat(&self, id: ExtentId) -> Result<ExtentStat> {
        let store = self.0.clone();
        let stat = move || {
            let row = store.row(id)?;
            let location = store.location(&row)?;
            Ok(ExtentStat { record: row.record, location })
        };
        self.0.threads.run(stat).await
    }

    /// Deletes extents, durably, with a mark that refuses later writes of these ids (rule X4).
    pub async fn delete(&self, ids: &[ExtentId]) -> Result<()> {
        self.remove(ids, Removal::Marked(None)).await
    }

    async fn remove(&self, ids: &[ExtentId], removal: Removal) -> Result<()> {
        let ids = ids.to_vec();
        self.remove_by(move |store| store.remove(&ids, removal)).await
    }

    /// Removes the rows of extents by `first`, then frees the space of the records.
    async fn remove_by(
        &self,
        first: impl FnOnce(&StoreState) -> Result<Vec<(ExtentId, BlockRun)>> + Send + 'static,
    ) -> Result<()> {
        let removing = RemovalGuard::begin(&self.0);
        // A separate task, because the caller may go away between the two steps. No other code
        // would free the space of the records.
        let task = tokio::spawn(removing.both_steps(first));
        self.0.threads.pulse().wait(task).await?.unwrap_or_else(|error| {
            Err(Error::internal("the removal of extents panicked").with_source(error))
        })
    }

    /// Returns up to `limit` extents with ids above `after`, in order of ids.
    pub async fn list(&self, after: Option<ExtentId>, limit: usize) -> Result<Vec<ExtentRecord>> {
        let store = self.0.clone();
        self.0.threads.run(move || store.list(after, limit)).await
    }

    /// Returns up to `runs_max` long freed runs of volumes to the file system; returns their bytes.
    /// If the device is `short` of space, includes shorter runs, and preallocated ones. Blocks.
    pub fn reclaim(&self, runs_max: usize, short: bool) -> Result<u64> {
        self.0.reclaim(runs_max, short)
    }

    /// Returns true if an extent of `length` bytes fits on a full file system: in blocks that
    /// volumes have.
    pub fn has_blocks_for(&self, length: u64) -> bool {
        self.0.volumes.has_blocks_for(length)
    }

    /// Forgets the delete marks of periods that ended before `before_ms`. Blocks.
    pub fn forget_marks(&self, before_ms: u64) -> Result<()> {
        self.0.table.forget_marks(before_ms)
    }

    /// Returns the usage figures.
    pub fn usage(&self) -> ExtentUsage {
        let volume_free_bytes = self.0.volumes.free_bytes();
        let withheld_bytes = self.0.file_leases.as_ref().map_or(0, FileLeases::withheld_bytes);
        ExtentUsage { volume_free_bytes, withheld_bytes, ..self.0.counters.snapshot() }
    }

    /// Returns the reason if the store accepts no more writes, because a write or a sync failed.
    pub fn suspect(&self) -> Option<String> {
        self.0.suspect.why()
    }

    /// Refuses further writes, and fails the writes in progress.
    pub(crate) fn give_up(&self, why: &str) {
        self.0.suspect.set(&Error::unavailable(why));
        self.revoke_leases();
    }

    /// Takes the leases of other processes back.
    fn revoke_leases(&self) {
        if let Some(leases) = &self.0.file_leases {
            leases.revoke_all(Revocation::DeviceClosed);
        }
    }

    /// Ends the threads of the store after their current work. Returns true if everything is in
    /// order, so that the next opening may trust the table. Blocks.
    pub fn close(&self) -> bool {
        self.revoke_leases();
        self.0.count.close();
        self.0.committer.close();
        self.0.folders.close();
        // A file that is still being written will not be removed any more. A record whose removal
        // has begun keeps its header.
        let writing = Arc::strong_count(&self.0.folders) > 1;
        let under_way = writing || self.0.removals.load(Ordering::Acquire) > 0;
        self.suspect().is_none() && !under_way && !self.0.counters.left_behind()
    }

    /// Saves free space and sums of a store that was closed in order, durably; returns the hash of
    /// what was saved. Without it, the next opening reads the places of extents, and counts them
    /// afterwards. Blocks.
    ///
    /// # Errors
    /// `Conflict` if the extents were still being counted.
    pub fn save_space(&self) -> Result<[u8; 32]> {
        self.0.counters.check_counted()?;
        let usage = self.0.counters.snapshot();
        let figures = SavedFigures {
            extents: usage.extents,
            bytes: usage.bytes,
            quarantined: usage.quarantined,
        };
        let sums = self.0.counters.sums.lock().all();
        let closed = saved_space::Closed { volumes: &self.0.volumes, figures, sums: &sums };
        saved_space::save(self.0.disk.as_ref(), &self.0.root, closed)
    }
}

impl StoreState {
    /// Returns the location at which an extent can be read in place.
    fn location(&self, row: &Row) -> Result<ExtentLocation> {
        let length = u64::from(row.record.extent.length);
        match row.place {
            RowLocation::Record(volume, offset) => {
                let run = BlockRun::of_record(SealLocation { volume, offset }, length);
                let path = self.volumes.get(volume)?.path.clone();
                Ok(ExtentLocation { path, offset: run.data_offset(), length })
            }
            RowLocation::File | RowLocation::Quarantined => {
                let path = footer::path(&self.root, row.record.extent.id);
                Ok(ExtentLocation { path, offset: 0, length })
            }
        }
    }
}
