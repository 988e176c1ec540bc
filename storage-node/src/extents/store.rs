//! Shared state of a store, and the steps that involve several of its parts.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::{DeleteCondition, ReleaseCondition, RingEpochs};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::{Clock, Error, ErrorKind, ExtentId, Result};
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::sync::watch;

use super::buffer::{AlignedBuffer, BufferPool};
use super::committer::{Committer, CommitterState};
use super::count::CountThread;
use super::file_lease::{FileLeases, Revocation};
use super::folders::Folders;
use super::open::{ByFiles, FILE_WEIGHT, OpenExtent, mismatch};
use super::open_volumes::OpenVolumes;
use super::options::ExtentOptions;
use super::record::BlockRun;
use super::recover::Trust;
use super::recovery_report::RecoveryReport;
use super::row::{Row, RowLocation};
use super::seal::SealLocation;
use super::sender::Senders;
use super::state::{Counters, Headroom, Suspect};
use super::table::Table;
use super::unreadable::UnreadableExtents;
use super::volumes::{ReturnedSpace, Volumes};
use super::{footer, quarantine, record, recover, row};
use crate::device::pool::Pool;
use crate::disk::{Caching, Disk};

/// Buffers of 1 MiB that an idle store keeps.
const IDLE_BUFFERS_MAX: usize = 16;

/// Maximum number of runs that one sync returns to the file system. Punching them takes some tens
/// of milliseconds.
const RUNS_IN_A_SYNC_MAX: usize = 1024;

/// State of a store.
pub(super) struct StoreState {
    pub(super) root: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) table: Table,
    pub(super) volumes: Arc<Volumes>,
    pub(super) open_volumes: Arc<OpenVolumes>,
    pub(super) folders: Arc<Folders>,
    pub(super) committer: Committer,
    pub(super) pool: BufferPool,
    /// Threads on which calls wait for the disk.
    pub(super) threads: Arc<Pool>,
    pub(super) senders: Arc<Senders>,
    pub(super) counters: Arc<Counters>,
    pub(super) count: CountThread,
    pub(super) suspect: Arc<Suspect>,
    /// Extents that the audit could not read.
    pub(super) unreadable: UnreadableExtents,
    pub(super) headroom: Arc<Headroom>,
    /// Recently read extents.
    pub(super) opened: Cache<ExtentId, Arc<OpenExtent>, ByFiles>,
    /// Read-locked while rows are put, write-locked while rows are removed. The later of the two sees
    /// the other. Also read-locked while presences are stated by a ring (rule X9).
    pub(super) gate: Arc<RwLock<()>>,
    clock: Arc<dyn Clock>,
    punch_bytes_min: u64,
    punch_bytes_min_if_short: u64,
    writing: Mutex<HashSet<ExtentId>>,
    /// Leases on files, if the store lends them.
    pub(super) file_leases: Option<FileLeases>,
    /// Notified at each reclaim while the device is short of space.
    pub(super) shortages: watch::Sender<()>,
    /// Rings of the node, if others may have other rings (rule X9).
    pub(super) rings: Option<Arc<RingEpochs>>,
    /// Number of removals in progress.
    pub(super) removals: AtomicU64,
}

impl StoreState {
    /// Opens the store in `root`, and recovers its content. Blocks.
    pub(super) fn open(
        root: &Path,
        disk: Arc<dyn Disk>,
        table: Table,
        clock: Arc<dyn Clock>,
        options: &ExtentOptions,
    ) -> Result<(Self, RecoveryReport)> {
        let (counters, suspect, gate) = (Arc::default(), Arc::default(), Arc::default());
        let volumes = Arc::new(Volumes::new(
            disk.clone(),
            root,
            options.volume_bytes,
            options.volume_step_bytes,
        ));
        recover::make_folders(disk.as_ref(), root)?;
        let at =
            recover::RecoveryInputs { root, disk: disk.as_ref(), table: &table, volumes: &volumes };
        let trust = if options.clean {
            Trust::Table { saved_space: options.saved_space }
        } else {
            Trust::Disk
        };
        let report = recover::recover(at, &counters, trust)?;
        let reserve_bytes = options.reserve_bytes;
        let headroom = Arc::new(Headroom::new(disk.clone(), root.to_path_buf(), reserve_bytes));
        let open_volumes = Arc::new(OpenVolumes::new(table.clone()));
        let ledger = CommitterState {
            volumes: volumes.clone(),
            open_volumes: open_volumes.clone(),
            table: table.clone(),
            gate: Arc::clone(&gate),
            counters: Arc::clone(&counters),
            suspect: Arc::clone(&suspect),
            headroom: Arc::clone(&headroom),
            pulse: options.threads.pulse().clone(),
        };
        let count = CountThread::after(&report, &ledger)?;
        let folders = Folders::start(disk.clone(), &ledger)?;
        let weight = options.open_files_max * FILE_WEIGHT;
        let inner = Self {
            root: root.to_path_buf(),
            headroom,
            disk,
            table,
            volumes,
            open_volumes,
            folders: Arc::new(folders),
            committer: Committer::start(ledger)?,
            pool: BufferPool::new(IDLE_BUFFERS_MAX),
            threads: options.threads.clone(),
            senders: Senders::new(options.threads.clone()),
            counters,
            count,
            suspect,
            unreadable: UnreadableExtents::default(),
            opened: Cache::with_weighter(1024, weight, ByFiles),
            gate,
            clock,
            punch_bytes_min: options.punch_bytes_min,
            punch_bytes_min_if_short: options.punch_bytes_min_if_short,
            writing: Mutex::default(),
            file_leases: options.lends.then(|| FileLeases::new(options.threads.clone())),
            shortages: watch::Sender::new(()),
            rings: options.rings.clone(),
            removals: AtomicU64::new(0),
        };
        Ok((inner, report))
    }

    /// Returns cluster time in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Returns the row of a readable extent. `NotFound` without a row, `Corrupt` if quarantined.
    pub(super) fn row(&self, id: ExtentId) -> Result<Row> {
        match self.table.get(id)? {
            None => Err(missing(id)),
            Some(row) if row.place == RowLocation::Quarantined => Err(mismatch(id)),
            Some(row) => Ok(row),
        }
    }

    /// Opens an extent for reading, and caches it for the next reader.
    pub(super) async fn open_extent(store: &Arc<Self>, id: ExtentId) -> Result<Arc<OpenExtent>> {
        let inner = store.clone();
        let outcome = match store.open_now(id) {
            Ok(Some(extent)) => Ok(extent),
            Ok(None) => store.threads.run(move || inner.open_blocking(id)).await,
            Err(error) => Err(error),
        };
        let wrong = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        if wrong && Self::verify_and_quarantine(store, id).await {
            let inner = store.clone();
            return store.threads.run(move || inner.open_blocking(id)).await;
        }
        outcome
    }

    /// Opens a record whose row and header are in memory; returns none in all other cases.
    fn open_now(&self, id: ExtentId) -> Result<Option<Arc<OpenExtent>>> {
        let Some(row) = self.table.get_now(id)? else { return Ok(None) };
        let RowLocation::Record(volume, offset) = row.place else { return Ok(None) };
        let run = BlockRun::of_record(
            SealLocation { volume, offset },
            u64::from(row.record.extent.length),
        );
        let lease = self.volumes.leases.hold(id, run);
        if self.table.get_now(id)?.as_ref() != Some(&row) {
            return Ok(None);
        }
        let volume = self.volumes.get(volume)?;
        let mut header = [0; record::HEADER_BYTES];
        if volume.file.read_nowait(&mut header, offset)? < header.len() {
            return Ok(None);
        }
        let extent = Arc::new(OpenExtent::record(&row, &volume, run, lease, &header)?);
        self.opened.insert(id, extent.clone());
        if self.table.get_now(id)?.as_ref() != Some(&row) {
            self.opened.remove(&id);
            return Ok(None);
        }
        Ok(Some(extent))
    }

    fn open_blocking(&self, id: ExtentId) -> Result<Arc<OpenExtent>> {
        let (row, mut lease) = (self.row(id)?, None);
        let extent = Arc::new(match row.place {
            RowLocation::Record(volume, offset) => {
                self.open_record(&row, SealLocation { volume, offset }, Caching::Cached)?
            }
            RowLocation::File | RowLocation::Quarantined => {
                let bytes = u64::from(row.record.extent.length);
                lease = self.file_leases.as_ref().map(|leases| leases.hold(id, bytes));
                let path = footer::path(&self.root, id);
                OpenExtent::file(&row, self.disk.open(&path, Caching::Cached)?, lease.clone())?
            }
        });
        self.opened.insert(id, extent.clone());
        // A delete that came before the insert has checked the cache already. An extent that was
        // repaired meanwhile has an equal row, and another lease.
        let is_replaced = lease.is_some_and(|lease| !lease.is_current());
        if is_replaced || self.table.get(id)?.as_ref() != Some(&row) {
            self.opened.remove(&id);
            return Err(missing(id));
        }
        Ok(extent)
    }

    pub(super) fn open_record(
        &self,
        row: &Row,
        spot: SealLocation,
        caching: Caching,
    ) -> Result<OpenExtent> {
        let extent = row.record.extent;
        let run = BlockRun::of_record(spot, u64::from(extent.length));
        let lease = self.volumes.leases.hold(extent.id, run);
        if self.table.get(extent.id)?.as_ref() != Some(row) {
            return Err(missing(extent.id));
        }
        let volume = self.volumes.get(spot.volume)?;
        // Aligned, for direct reads.
        let mut header = AlignedBuffer::new(record::HEADER_BYTES);
        volume.through(caching).read_at(header.all_mut(), run.offset)?;
        OpenExtent::record(row, &volume, run, lease, header.all())
    }

    /// Moves a corrupt extent to quarantine. Blocks.
    pub(super) fn set_aside(&self, id: ExtentId) -> Result<()> {
        let _gate = self.gate.write();
        let Some(row) = self.table.get(id)?.filter(|row| row.place != RowLocation::Quarantined)
        else {
            return Ok(());
        };
        let (extent, layout) = (row.record.extent, row.record.layout);
        let length = u64::from(extent.length);
        let disk = self.disk.as_ref();
        let is_new = match row.place {
            RowLocation::Record(volume, offset) => {
                let run = BlockRun::of_record(SealLocation { volume, offset }, length);
                quarantine::run(disk, &self.root, run)?
            }
            RowLocation::File | RowLocation::Quarantined => {
                match quarantine::file(disk, &self.root, &footer::path(&self.root, id)) {
                    // The file is missing: nothing can be kept for inspection.
                    Err(error) if error.kind() == ErrorKind::NotFound => false,
                    moved => moved.map(|()| true)?,
                }
            }
        };
        tracing::error!(extent = %id, place = ?row.place, "moved a corrupt extent into quarantine");
        self.table.set_aside(row)?;
        self.opened.remove(&id);
        if let Some(leases) = &self.file_leases {
            leases.revoke(id, Revocation::Corrupt);
        }
        self.counters.removed(extent, layout);
        // The next opening counts the names in quarantine.
        if is_new {
            self.counters.set_aside();
        }
        Ok(())
    }

    /// Removes extents, except for the headers of records, which are returned. Blocks.
    pub(super) fn remove(
        &self,
        ids: &[ExtentId],
        removal: Removal,
    ) -> Result<Vec<(ExtentId, BlockRun)>> {
        self.suspect.check()?;
        let gate = self.gate.write();
        let mut rows = Vec::new();
        // An id that is named twice counts once.
        for id in ids.iter().collect::<BTreeSet<_>>() {
            rows.extend(self.table.get(*id)?);
        }
        let left = row::places(&rows);
        match removal {
            Removal::Marked(condition) => {
                // After the wait for the lock and the reads: a disk may take minutes for them.
                let now_ms = self.clock.now_ms();
                condition.map_or(Ok(()), |condition| condition.check(now_ms))?;
                self.table.remove_marked(ids, &left, now_ms)?;
            }
            Removal::Unmarked => self.table.remove(ids, &left)?,
        }
        drop(gate);
        Ok(self.leave(rows))
    }

    /// Removes exactly these extents, while the condition holds, as [`Self::remove`] (rule X9). The
    /// bytes of wrong copies are durably gone before their rows. Blocks.
    pub(super) fn release(
        &self,
        extents: &[ExtentRef],
        condition: &ReleaseCondition,
    ) -> Result<Vec<(ExtentId, BlockRun)>> {
        self.suspect.check()?;
        let gate = self.gate.write();
        let named: BTreeMap<ExtentId, &ExtentRef> = extents.iter().map(|it| (it.id, it)).collect();
        let mut rows = Vec::new();
        for (id, extent) in named {
            rows.extend(self.table.get(id)?.filter(|row| row.record.extent == *extent));
        }
        let ids: Vec<ExtentId> = rows.iter().map(|row| row.record.extent.id).collect();
        let left = row::places(&rows);
        // Under the lock: what a node states about its copies follows either the removal, or the ring
        // that forbids the removal. After the reads: a disk may take minutes for them.
        condition.check_time(self.clock.now_ms())?;
        if let Some(rings) = &self.rings {
            rings.check_release(&condition.rings)?;
        }
        if condition.is_of_wrong_copies() {
            self.destroy_bytes(&rows)?;
        }
        if !ids.is_empty() {
            self.table.remove(&ids, &left)?;
        }
        drop(gate);
        Ok(self.leave(rows))
    }

    /// Removes the files of removed rows; returns the records among them.
    fn leave(&self, rows: Vec<Row>) -> Vec<(ExtentId, BlockRun)> {
        let mut records = Vec::new();
        for Row { place, record } in rows {
            let (id, length) = (record.extent.id, u64::from(record.extent.length));
            self.opened.remove(&id);
            match place {
                // Quarantined bytes stay until an operator has inspected them.
                RowLocation::Quarantined => continue,
                RowLocation::Record(volume, offset) => {
                    records
                        .push((id, BlockRun::of_record(SealLocation { volume, offset }, length)));
                }
                RowLocation::File => match self.unlink(id, length) {
                    Ok(()) => {}
                    // The file of a wrong copy is gone before its row.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => {
                        self.counters.leave_behind();
                        tracing::warn!(extent = %id, %error, "could not remove a deleted extent: \
                                                              it stays until the next opening");
                    }
                },
            }
            self.counters.removed(record.extent, record.layout);
        }
        records
    }

    /// Removes the file of an extent; its leases keep the bytes.
    pub(super) fn unlink(&self, id: ExtentId, length: u64) -> Result<()> {
        let path = footer::path(&self.root, id);
        let open = |leases| Some((leases, self.disk.open(&path, Caching::Cached).ok()?));
        let leased = self.file_leases.as_ref().and_then(open);
        self.disk.unlink(&path)?;
        if let Some((leases, file)) = leased {
            leases.delete(id, length, file);
        }
        Ok(())
    }

    pub(super) fn list(&self, after: Option<ExtentId>, limit: usize) -> Result<Vec<ExtentRecord>> {
        let (mut after, mut found) = (after, Vec::new());
        while found.len() < limit {
            let page = self.table.list(after, limit - found.len())?;
            let Some(last) = page.last() else { break };
            after = Some(last.record.extent.id);
            let there = page.into_iter().filter(|row| row.place != RowLocation::Quarantined);
            found.extend(there.map(|row| row.record));
        }
        Ok(found)
    }

    pub(super) fn reclaim(&self, runs_max: usize, short: bool) -> Result<u64> {
        if short {
            self.shortages.send_replace(());
            if let Some(leases) = &self.file_leases {
                leases.revoke_deleted();
            }
        }
        let bytes_min = if short {
            self.punch_bytes_min_if_short.min(self.punch_bytes_min)
        } else {
            self.punch_bytes_min
        };
        let mut total = ReturnedSpace::default();
        while total.runs < runs_max {
            let runs_max = (runs_max - total.runs).min(RUNS_IN_A_SYNC_MAX);
            let returned = self.volumes.reclaim(bytes_min, short, runs_max);
            let ReturnedSpace { runs, bytes } = self.suspect.record_outcome(returned)?;
            if runs == 0 {
                break;
            }
            total = ReturnedSpace { runs: total.runs + runs, bytes: total.bytes + bytes };
        }
        Ok(total.bytes)
    }

    /// Reserves an id for one writer.
    pub(super) fn claim(self: &Arc<Self>, id: ExtentId) -> Result<IdReservation> {
        if !self.writing.lock().insert(id) {
            return Err(Error::conflict(format!("extent {id} is being written")));
        }
        Ok(IdReservation { store: self.clone(), id })
    }
}

/// Kind of removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// No entry needs the extent: copies of it are refused until the mark expires (rule X4). Nothing is
    /// removed if a condition doesn't hold (rule X8).
    Marked(Option<DeleteCondition>),
    /// Other devices hold the extent: it may be written here again.
    Unmarked,
}

/// A removal in progress; until it ends, the store is not in order.
pub(super) struct RemovalGuard(Arc<StoreState>);

impl RemovalGuard {
    pub(super) fn begin(store: &Arc<StoreState>) -> Self {
        store.removals.fetch_add(1, Ordering::AcqRel);
        Self(store.clone())
    }

    /// Removes rows and files, then the headers of records.
    pub(super) async fn both_steps(
        self,
        first: impl FnOnce(&StoreState) -> Result<Vec<(ExtentId, BlockRun)>> + Send + 'static,
    ) -> Result<()> {
        let store = self.0.clone();
        let removed = self.0.threads.start(move || first(&store));
        let records = removed.outcome().await?;
        if !records.is_empty()
            && let Err(error) = self.0.committer.destroy(records).await
        {
            // The marks are durable, so the extents are deleted; their space is freed at the next
            // opening.
            self.0.counters.leave_behind();
            tracing::warn!(%error, "could not free deleted records: they keep their space until \
                                    the next opening");
        }
        Ok(())
    }
}

impl Drop for RemovalGuard {
    fn drop(&mut self) {
        self.0.removals.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reservation of an id by one writer.
pub(super) struct IdReservation {
    store: Arc<StoreState>,
    id: ExtentId,
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        self.store.writing.lock().remove(&self.id);
    }
}

pub(super) fn missing(id: ExtentId) -> Error {
    Error::not_found(format!("extent {id} does not exist"))
}
