//! A table of extents in memory, for tests that cut the power of a simulated disk.
#![expect(clippy::unnecessary_wraps, reason = "it stands in for a table that can fail")]

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ExtentId, RecordPlace, Result, UnsettledPlaces};
use crate::disk::FaultyDisk;

type Rows = BTreeMap<ExtentId, Vec<u8>>;

/// A table that loses its unflushed rows at a power cut and keeps its marks. Setting marks is a
/// step of the faulty disk, so power can be cut before the step.
#[derive(Clone, Default)]
pub(in super::super) struct MemoryTable {
    rows: Arc<Mutex<Rows>>,
    /// Rows at the last flush.
    flushed: Arc<Mutex<Rows>>,
    unsettled: Arc<Mutex<Option<UnsettledPlaces>>>,
    /// Places whose names a power cut would bring back.
    unsynced: Arc<Mutex<UnsettledPlaces>>,
    marks: Arc<Mutex<BTreeMap<ExtentId, u64>>>,
    power: Option<FaultyDisk>,
}

impl MemoryTable {
    pub(in super::super) fn powered_by(&self, disk: &FaultyDisk, keep_rows: bool) -> Self {
        let rows = if keep_rows { self.rows.lock().clone() } else { self.flushed.lock().clone() };
        let marks = self.marks.lock().clone();
        let mut unsettled = self.unsettled.lock().clone();
        if let Some(places) = unsettled.as_mut().filter(|_| !keep_rows) {
            let UnsettledPlaces { volumes, headers } = self.unsynced.lock().clone();
            places.volumes.extend(volumes);
            places.headers.extend(headers);
        }
        Self {
            flushed: Arc::new(Mutex::new(rows.clone())),
            rows: Arc::new(Mutex::new(rows)),
            unsettled: Arc::new(Mutex::new(unsettled)),
            unsynced: Arc::default(),
            marks: Arc::new(Mutex::new(marks)),
            power: Some(disk.clone()),
        }
    }

    fn step(&self) -> Result<()> {
        self.power.as_ref().map_or(Ok(()), FaultyDisk::step)
    }

    pub(super) fn get(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.lock().get(id).cloned())
    }

    pub(super) fn get_now(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        self.get(id)
    }

    #[expect(clippy::unused_self, reason = "both tables have these functions")]
    pub(super) fn is_cached(&self, _: &ExtentId) -> Result<bool> {
        Ok(true)
    }

    pub(super) fn put(&self, id: &ExtentId, row: &[u8]) -> Result<()> {
        self.step()?;
        self.rows.lock().insert(*id, row.to_vec());
        Ok(())
    }

    pub(super) fn put_many(&self, rows: &[(ExtentId, Vec<u8>)]) -> Result<()> {
        self.step()?;
        self.rows.lock().extend(rows.iter().cloned());
        Ok(())
    }

    /// Returns a copy whose rows are kept, and which knows of no unsettled places.
    pub(in super::super) fn without_places(&self) -> Self {
        let copy = self.clone();
        Self { unsettled: Arc::default(), unsynced: Arc::default(), ..copy }
    }

    pub(super) fn remove_marked(
        &self,
        ids: &[ExtentId],
        headers: &[RecordPlace],
        at_ms: u64,
    ) -> Result<()> {
        self.remove(ids, headers)?;
        self.marks.lock().extend(ids.iter().map(|id| (*id, at_ms)));
        Ok(())
    }

    pub(super) fn remove(&self, ids: &[ExtentId], headers: &[RecordPlace]) -> Result<()> {
        self.step()?;
        for rows in [&self.rows, &self.flushed] {
            rows.lock().retain(|id, _| !ids.contains(id));
        }
        if let Some(places) = &mut *self.unsettled.lock() {
            places.headers.extend(headers);
        }
        Ok(())
    }

    pub(super) fn unsettled(&self) -> Result<Option<UnsettledPlaces>> {
        Ok(self.unsettled.lock().clone())
    }

    pub(super) fn settle_all(&self) -> Result<()> {
        self.flush_rows()?;
        self.step()?;
        *self.unsettled.lock() = Some(UnsettledPlaces::default());
        *self.unsynced.lock() = UnsettledPlaces::default();
        Ok(())
    }

    pub(super) fn open_volume(&self, volume: u32) -> Result<()> {
        self.step()?;
        if let Some(places) = &mut *self.unsettled.lock() {
            places.volumes.insert(volume);
        }
        Ok(())
    }

    pub(super) fn close_volumes(&self, volumes: &[u32]) -> Result<()> {
        if let Some(places) = &mut *self.unsettled.lock() {
            places.volumes.retain(|volume| !volumes.contains(volume));
        }
        self.unsynced.lock().volumes.extend(volumes);
        Ok(())
    }

    pub(super) fn forget_headers(&self, headers: &[RecordPlace]) -> Result<()> {
        if let Some(places) = &mut *self.unsettled.lock() {
            places.headers.retain(|place| !headers.contains(place));
        }
        self.unsynced.lock().headers.extend(headers);
        Ok(())
    }

    pub(super) fn flush_rows(&self) -> Result<()> {
        self.step()?;
        let rows = self.rows.lock().clone();
        *self.flushed.lock() = rows;
        Ok(())
    }

    pub(super) fn is_marked(&self, id: &ExtentId) -> Result<bool> {
        Ok(self.marks.lock().contains_key(id))
    }

    pub(super) fn forget_marks(&self, before_ms: u64) -> Result<()> {
        self.marks.lock().retain(|_, at_ms| *at_ms >= before_ms);
        Ok(())
    }

    pub(super) fn forget(&self, ids: &[ExtentId]) -> Result<()> {
        self.rows.lock().retain(|id, _| !ids.contains(id));
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<()> {
        let _ = self;
        Ok(())
    }

    pub(super) fn list(
        &self,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<(ExtentId, Vec<u8>)>> {
        let rows = self.rows.lock();
        let above = rows.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        Ok(above.take(limit).map(|(id, row)| (*id, row.clone())).collect())
    }

    pub(super) fn each(
        &self,
        first: Option<u8>,
        visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let rows = self.rows.lock().clone();
        let of_first = rows.iter().filter(|(id, _)| first.is_none_or(|first| id.0[0] == first));
        of_first.map(|(_, row)| row.as_slice()).try_for_each(visit)
    }
}
