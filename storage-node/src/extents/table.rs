//! Table of extents: in RocksDB, or in memory for tests that cut the power of a simulated disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
use martlet_protocol::Error;
use martlet_protocol::{ExtentId, Result};

use crate::index::{DiskPlace, ExtentTable, RecordPlace, UnsettledPlaces, UsedPlace};

use super::row::{Row, RowLocation};

#[cfg(test)]
mod memory;
#[cfg(test)]
pub(super) use memory::MemoryTable;

/// Bytes of new extents after which their rows are flushed. After a crash, recovery reads at most
/// this many bytes.
const UNFLUSHED_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The table of extents.
#[derive(Clone)]
pub struct Table {
    kind: TableKind,
    /// Bytes of extents whose rows a crash would lose.
    unflushed_bytes: Arc<AtomicU64>,
}

#[derive(Clone)]
enum TableKind {
    Rocks(ExtentTable),
    #[cfg(test)]
    Memory(MemoryTable),
}

impl From<ExtentTable> for Table {
    fn from(table: ExtentTable) -> Self {
        Self { kind: TableKind::Rocks(table), unflushed_bytes: Arc::default() }
    }
}

#[cfg(test)]
impl From<MemoryTable> for Table {
    fn from(table: MemoryTable) -> Self {
        Self { kind: TableKind::Memory(table), unflushed_bytes: Arc::default() }
    }
}

macro_rules! either {
    ($self:expr, $table:ident => $call:expr) => {
        match &$self.kind {
            TableKind::Rocks($table) => $call,
            #[cfg(test)]
            TableKind::Memory($table) => $call,
        }
    };
}

impl Table {
    pub(super) fn get(&self, id: ExtentId) -> Result<Option<Row>> {
        let row = either!(self, table => table.get(&id))?;
        row.map(|row| Row::decode(&row)).transpose()
    }

    /// Returns a row if it exists and is in memory.
    pub(super) fn get_now(&self, id: ExtentId) -> Result<Option<Row>> {
        let row = either!(self, table => table.get_now(&id))?;
        row.map(|row| Row::decode(&row)).transpose()
    }

    /// Returns true if a look-up of the id, row and mark, needs no disk.
    pub(super) fn is_cached(&self, id: ExtentId) -> Result<bool> {
        either!(self, table => table.is_cached(&id))
    }

    /// Writes rows of extents that have none, or that replace extents in quarantine.
    pub(super) fn put(&self, rows: &[Row]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let bytes = rows.iter().map(|row| u64::from(row.record.extent.length)).sum();
        let rows: Vec<_> = rows.iter().map(Row::placed).collect();
        either!(self, table => table.put(&rows))?;
        self.wrote(bytes)
    }

    /// Replaces a row by that of an extent in quarantine; durably, if it was that of a record.
    pub(super) fn set_aside(&self, row: Row) -> Result<()> {
        let left = row.used_place().map(|used| used.at);
        let aside = Row { place: RowLocation::Quarantined, ..row };
        let id = aside.record.extent.id;
        either!(self, table => table.set_aside(&id, &aside.encode(), left))
    }

    fn wrote(&self, bytes: u64) -> Result<()> {
        let before = self.unflushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes < UNFLUSHED_BYTES_MAX {
            return Ok(());
        }
        self.unflushed_bytes.store(0, Ordering::Relaxed);
        either!(self, table => table.flush())
    }

    /// Removes rows, which leave these places, and marks their extents as deleted, durably. Names the
    /// headers of records.
    pub(super) fn remove_marked(
        &self,
        ids: &[ExtentId],
        left: &[DiskPlace],
        at_ms: u64,
    ) -> Result<()> {
        either!(self, table => table.remove_marked(ids, left, at_ms))
    }

    /// Removes rows, which leave these places, durably, and leaves no marks. Names the headers of
    /// records.
    pub(super) fn remove(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<()> {
        either!(self, table => table.remove(ids, left))
    }

    /// Returns the places that may hold records without a row; none if any place may.
    pub(super) fn unsettled(&self) -> Result<Option<UnsettledPlaces>> {
        either!(self, table => table.unsettled())
    }

    /// Makes all rows durable, then records that no place is unsettled.
    pub(super) fn settle_all(&self) -> Result<()> {
        either!(self, table => table.settle_all())
    }

    /// Names a volume, durably, before a record is written into it.
    pub(super) fn open_volume(&self, volume: u32) -> Result<()> {
        either!(self, table => table.open_volume(volume))
    }

    /// Removes the names of volumes whose records all have a durable row.
    pub(super) fn close_volumes(&self, volumes: &[u32]) -> Result<()> {
        either!(self, table => table.close_volumes(volumes))
    }

    /// Removes the names of headers that are durably zero.
    pub(super) fn forget_headers(&self, headers: &[RecordPlace]) -> Result<()> {
        either!(self, table => table.forget_headers(headers))
    }

    /// Makes all rows durable. Blocks.
    pub(super) fn flush_rows(&self) -> Result<()> {
        either!(self, table => table.flush_rows())
    }

    pub(super) fn is_marked(&self, id: ExtentId) -> Result<bool> {
        either!(self, table => table.is_marked(&id))
    }

    pub(super) fn forget_marks(&self, before_ms: u64) -> Result<()> {
        either!(self, table => table.forget_marks(before_ms))
    }

    /// Removes the rows of extents that the disk doesn't have, and these places.
    pub(super) fn forget(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<()> {
        if ids.is_empty() && left.is_empty() {
            return Ok(());
        }
        either!(self, table => table.forget(ids, left))
    }

    /// Returns true if each row has its place, and changes with its place.
    pub(super) fn keeps_places(&self) -> bool {
        either!(self, table => table.keeps_places())
    }

    /// Forgets all places, durably, and keeps those of rows that change from now on.
    pub(super) fn begin_places(&self) -> Result<()> {
        either!(self, table => table.begin_places())
    }

    /// Keeps no places from now on: the next opening reads all rows.
    pub(super) fn end_places(&self) {
        either!(self, table => table.end_places());
    }

    /// Writes the places of rows that are there.
    pub(super) fn put_places(&self, added: &[UsedPlace]) -> Result<()> {
        either!(self, table => table.put_places(added))
    }

    /// Records, durably, that each row has its place.
    pub(super) fn complete_places(&self) -> Result<()> {
        either!(self, table => table.complete_places())
    }

    /// Records, durably, that the next opening must read all rows.
    pub(super) fn distrust_places(&self) -> Result<()> {
        either!(self, table => table.distrust_places())
    }

    /// Calls `visit` with each place: records in the order of volumes and offsets, then files. `Corrupt`
    /// if a place is malformed.
    pub(super) fn each_place(&self, visit: impl FnMut(UsedPlace) -> Result<()>) -> Result<()> {
        either!(self, table => table.each_place(visit))
    }

    /// Calls `visit` with the id of each file extent that begins with the byte `first`, in the order
    /// of ids.
    pub(super) fn each_file(
        &self,
        first: u8,
        visit: impl FnMut(ExtentId) -> Result<()>,
    ) -> Result<()> {
        either!(self, table => table.each_file(first, visit))
    }

    pub(super) fn list(&self, after: Option<ExtentId>, limit: usize) -> Result<Vec<Row>> {
        let encoded = either!(self, table => table.list(after, limit))?;
        let mut rows = Vec::with_capacity(encoded.len());
        for (_, row) in &encoded {
            rows.push(Row::decode(row)?);
        }
        Ok(rows)
    }

    /// Calls `visit` with every encoded row, or with every one whose id begins with the byte
    /// `first`, in the order of ids. The rows are those at the call of `begun`.
    pub(super) fn each(
        &self,
        first: Option<u8>,
        begun: impl FnOnce(),
        visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        either!(self, table => table.each(first, begun, visit))
    }
}
