//! A table of extents in memory, for tests that cut the power of a simulated disk.
#![expect(clippy::unnecessary_wraps, reason = "it stands in for a table that can fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ExtentId, RecordPlace, Result, UnsettledPlaces, UsedPlace};
use crate::disk::FaultyDisk;
use crate::index::PlacedRow;

/// Rows and places, which become durable together.
#[derive(Clone, Default)]
struct Rows {
    by_id: BTreeMap<ExtentId, Vec<u8>>,
    places: BTreeSet<UsedPlace>,
}

impl Rows {
    fn remove(&mut self, ids: &[ExtentId], left: &[UsedPlace]) {
        self.by_id.retain(|id, _| !ids.contains(id));
        self.places.retain(|place| !left.contains(place));
    }
}

/// State of the places of a table.
#[derive(Clone, Copy, Default)]
struct Keeping {
    /// True if places change with their rows.
    now: bool,
    /// True if the next opening finds that the places are complete.
    complete: bool,
}

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
    keeping: Arc<Mutex<Keeping>>,
    power: Option<FaultyDisk>,
}

impl MemoryTable {
    pub(in super::super) fn powered_by(&self, disk: &FaultyDisk, keep_rows: bool) -> Self {
        let rows = if keep_rows { self.rows.lock().clone() } else { self.flushed.lock().clone() };
        let marks = self.marks.lock().clone();
        let complete = self.keeping.lock().complete;
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
            keeping: Arc::new(Mutex::new(Keeping { now: complete, complete })),
            power: Some(disk.clone()),
        }
    }

    fn step(&self) -> Result<()> {
        self.power.as_ref().map_or(Ok(()), FaultyDisk::step)
    }

    pub(super) fn get(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.lock().by_id.get(id).cloned())
    }

    pub(super) fn get_now(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        self.get(id)
    }

    #[expect(clippy::unused_self, reason = "both tables have these functions")]
    pub(super) fn is_cached(&self, _: &ExtentId) -> Result<bool> {
        Ok(true)
    }

    pub(super) fn put(&self, added: &[PlacedRow]) -> Result<()> {
        self.step()?;
        let mut rows = self.rows.lock();
        rows.by_id.extend(added.iter().map(|row| (row.id, row.row.clone())));
        if self.keeps_places() {
            rows.places.extend(added.iter().filter_map(|row| row.place));
        }
        Ok(())
    }

    pub(super) fn set_aside(
        &self,
        id: &ExtentId,
        row: &[u8],
        left: Option<UsedPlace>,
    ) -> Result<()> {
        self.step()?;
        for rows in [&self.rows, &self.flushed] {
            let mut rows = rows.lock();
            rows.remove(&[], left.as_slice());
            rows.by_id.insert(*id, row.to_vec());
        }
        Ok(())
    }

    /// Returns a copy whose rows are kept, and which knows of no unsettled places.
    pub(in super::super) fn without_unsettled_places(&self) -> Self {
        let copy = self.clone();
        Self { unsettled: Arc::default(), unsynced: Arc::default(), ..copy }
    }

    /// Returns a copy whose rows are kept without their places.
    pub(in super::super) fn without_places(&self) -> Self {
        let copy = self.clone();
        Self { keeping: Arc::default(), ..copy }
    }

    /// Returns the places.
    fn places(&self) -> BTreeSet<UsedPlace> {
        self.rows.lock().places.clone()
    }

    /// Adds a place, or removes it if it is there, as a fault of the code could.
    pub(in super::super) fn toggle_place(&self, place: UsedPlace) {
        for rows in [&self.rows, &self.flushed] {
            let places = &mut rows.lock().places;
            if !places.remove(&place) {
                places.insert(place);
            }
        }
    }

    pub(super) fn remove_marked(
        &self,
        ids: &[ExtentId],
        left: &[UsedPlace],
        at_ms: u64,
    ) -> Result<()> {
        self.remove(ids, left)?;
        self.marks.lock().extend(ids.iter().map(|id| (*id, at_ms)));
        Ok(())
    }

    pub(super) fn remove(&self, ids: &[ExtentId], left: &[UsedPlace]) -> Result<()> {
        self.step()?;
        for rows in [&self.rows, &self.flushed] {
            rows.lock().remove(ids, left);
        }
        if let Some(places) = &mut *self.unsettled.lock() {
            places.headers.extend(left.iter().filter_map(UsedPlace::header));
        }
        Ok(())
    }

    pub(super) fn keeps_places(&self) -> bool {
        self.keeping.lock().now
    }

    pub(super) fn begin_places(&self) -> Result<()> {
        self.distrust_places()?;
        for rows in [&self.rows, &self.flushed] {
            rows.lock().places.clear();
        }
        self.keeping.lock().now = true;
        Ok(())
    }

    pub(super) fn put_places(&self, added: &[UsedPlace]) -> Result<()> {
        self.step()?;
        self.rows.lock().places.extend(added);
        Ok(())
    }

    pub(super) fn complete_places(&self) -> Result<()> {
        self.flush_rows()?;
        self.step()?;
        self.keeping.lock().complete = true;
        Ok(())
    }

    pub(super) fn distrust_places(&self) -> Result<()> {
        self.step()?;
        self.keeping.lock().complete = false;
        Ok(())
    }

    pub(super) fn each_record(
        &self,
        mut visit: impl FnMut(RecordPlace, u64) -> Result<()>,
    ) -> Result<()> {
        self.places().iter().try_for_each(|place| match place {
            UsedPlace::Record { at, bytes } => visit(*at, *bytes),
            UsedPlace::File(_) => Ok(()),
        })
    }

    pub(super) fn each_file(
        &self,
        first: u8,
        mut visit: impl FnMut(ExtentId) -> Result<()>,
    ) -> Result<()> {
        self.places().iter().try_for_each(|place| match place {
            UsedPlace::File(id) if id.0[0] == first => visit(*id),
            UsedPlace::File(_) | UsedPlace::Record { .. } => Ok(()),
        })
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

    pub(super) fn forget(&self, ids: &[ExtentId], left: &[UsedPlace]) -> Result<()> {
        self.rows.lock().remove(ids, left);
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
        let above = rows.by_id.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        Ok(above.take(limit).map(|(id, row)| (*id, row.clone())).collect())
    }

    pub(super) fn each(
        &self,
        first: Option<u8>,
        begun: impl FnOnce(),
        visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let rows = self.rows.lock().by_id.clone();
        begun();
        let of_first = rows.iter().filter(|(id, _)| first.is_none_or(|first| id.0[0] == first));
        of_first.map(|(_, row)| row.as_slice()).try_for_each(visit)
    }
}
