//! A table of extents in memory, for tests that cut the power of a simulated disk.
#![expect(clippy::unnecessary_wraps, reason = "it stands in for a table that can fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{DiskPlace, Error, ExtentId, RecordPlace, Result, UnsettledPlaces, UsedPlace};
use crate::disk::FaultyDisk;
use crate::index::PlacedRow;

/// Rows and places, which become durable together.
#[derive(Clone, Default)]
struct Rows {
    by_id: BTreeMap<ExtentId, Vec<u8>>,
    /// Bytes by place.
    places: BTreeMap<DiskPlace, u64>,
}

impl Rows {
    fn add(&mut self, places: impl Iterator<Item = UsedPlace>) {
        self.places.extend(places.map(|place| (place.at, place.bytes)));
    }

    fn remove(&mut self, ids: &[ExtentId], left: &[DiskPlace]) {
        self.by_id.retain(|id, _| !ids.contains(id));
        self.places.retain(|place, _| !left.contains(place));
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
    /// Writes of places that fit on the disk.
    room: Arc<AtomicU64>,
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
            room: Arc::new(AtomicU64::new(u64::MAX)),
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
            rows.add(added.iter().filter_map(|row| row.place));
        }
        Ok(())
    }

    pub(super) fn set_aside(
        &self,
        id: &ExtentId,
        row: &[u8],
        left: Option<DiskPlace>,
    ) -> Result<()> {
        self.step()?;
        let is_durable = matches!(left, Some(DiskPlace::Record(_)));
        for rows in [&self.rows, &self.flushed].iter().take(1 + usize::from(is_durable)) {
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

    /// Adds a place, or removes it if it is there, as a fault of the code could.
    pub(in super::super) fn toggle_place(&self, place: UsedPlace) {
        for rows in [&self.rows, &self.flushed] {
            let mut rows = rows.lock();
            if rows.places.remove(&place.at).is_none() {
                rows.add([place].into_iter());
            }
        }
    }

    pub(super) fn remove_marked(
        &self,
        ids: &[ExtentId],
        left: &[DiskPlace],
        at_ms: u64,
    ) -> Result<()> {
        self.remove(ids, left)?;
        self.marks.lock().extend(ids.iter().map(|id| (*id, at_ms)));
        Ok(())
    }

    pub(super) fn remove(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<()> {
        self.step()?;
        for rows in [&self.rows, &self.flushed] {
            rows.lock().remove(ids, left);
        }
        if let Some(places) = &mut *self.unsettled.lock() {
            places.headers.extend(left.iter().filter_map(DiskPlace::header));
        }
        Ok(())
    }

    pub(super) fn keeps_places(&self) -> bool {
        self.keeping.lock().now
    }

    /// Lets the disk be full after so many further writes of places.
    pub(in super::super) fn fill_up_after(&self, writes: u64) {
        self.room.store(writes, Ordering::Relaxed);
    }

    fn take_room(&self) -> Result<()> {
        let take = |room: u64| if room == u64::MAX { Some(room) } else { room.checked_sub(1) };
        match self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => self.step(),
            Err(_) => Err(Error::full("the disk is full")),
        }
    }

    pub(super) fn begin_places(&self) -> Result<()> {
        self.take_room()?;
        self.distrust_places()?;
        for rows in [&self.rows, &self.flushed] {
            rows.lock().places.clear();
        }
        self.keeping.lock().now = true;
        Ok(())
    }

    pub(super) fn put_places(&self, added: &[UsedPlace]) -> Result<()> {
        self.take_room()?;
        self.rows.lock().add(added.iter().copied());
        Ok(())
    }

    pub(super) fn complete_places(&self) -> Result<()> {
        self.flush_rows()?;
        self.take_room()?;
        self.keeping.lock().complete = true;
        Ok(())
    }

    pub(super) fn distrust_places(&self) -> Result<()> {
        self.step()?;
        self.keeping.lock().complete = false;
        Ok(())
    }

    pub(super) fn end_places(&self) {
        self.keeping.lock().now = false;
    }

    pub(super) fn each_place(&self, visit: impl FnMut(UsedPlace) -> Result<()>) -> Result<()> {
        let places = self.rows.lock().places.clone();
        places.into_iter().map(|(at, bytes)| UsedPlace { at, bytes }).try_for_each(visit)
    }

    pub(super) fn each_file(
        &self,
        first: u8,
        mut visit: impl FnMut(ExtentId) -> Result<()>,
    ) -> Result<()> {
        self.each_place(|place| match place.at {
            DiskPlace::File(id) if id.0[0] == first => visit(id),
            DiskPlace::File(_) | DiskPlace::Record(_) => Ok(()),
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

    pub(super) fn forget(&self, ids: &[ExtentId], left: &[DiskPlace]) -> Result<()> {
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
