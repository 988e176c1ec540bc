//! Recovery of packed records without a row, and the free space of volumes.
//!
//! The table names the volumes into which records were written, and the headers of records that
//! were deleted. No other place has a record without a row. A table that doesn't know lets recovery
//! inspect the free space of all volumes: the table of a new index, or of an earlier version.

use std::collections::BTreeSet;

use martlet_protocol::{ExtentId, Result};

use super::record::BlockRun;
use super::recover::{Recovery, THINGS_MAX, from_disk};
use super::row::RowLocation;
use super::scan::{self, RowlessRun, ScanPage};
use super::space::Backing;
use super::unknown_extent::UnknownLocation;
use super::volumes::Volume;
use crate::index::RecordPlace;

impl Recovery<'_> {
    /// Settles the records without a row, in all places that may have one.
    pub(super) fn settle_records(&mut self) -> Result<()> {
        let places = self.site.table.unsettled()?;
        let headers = places.iter().flat_map(|places| &places.headers);
        let with_headers: BTreeSet<u32> = headers.map(|place| place.volume).collect();
        for volume in self.site.volumes.all() {
            let is_settled =
                places.as_ref().is_some_and(|places| !places.volumes.contains(&volume.number));
            if !is_settled || with_headers.contains(&volume.number) {
                from_disk(volume.file.as_ref(), volume.bytes())?;
            }
            if !is_settled {
                self.settle_volume(&volume)?;
            }
        }
        for place in places.map(|places| places.headers).unwrap_or_default() {
            self.settle_header(place)?;
        }
        Ok(())
    }

    fn settle_volume(&mut self, volume: &Volume) -> Result<()> {
        let mut from = Some(0);
        while let Some(at) = from {
            let Some(used) = self.used.volume(volume.number) else { break };
            let ScanPage { strays, next } = scan::volume(volume, used, at, THINGS_MAX)?;
            self.settle_strays(strays)?;
            from = next;
        }
        Ok(())
    }

    /// Settles the record of a header that should be zero, unless another record has its block.
    fn settle_header(&mut self, place: RecordPlace) -> Result<()> {
        let Ok(volume) = self.site.volumes.get(place.volume) else { return Ok(()) };
        let Some(used) = self.used.volume(place.volume) else { return Ok(()) };
        let stray = scan::header(&volume, used, place.offset)?;
        self.settle_strays(stray.into_iter().collect())
    }

    fn settle_strays(&mut self, strays: Vec<RowlessRun>) -> Result<()> {
        let mut things = Vec::with_capacity(strays.len());
        for stray in strays {
            let id = stray.record.as_ref().map_or(ExtentId([0; 16]), |record| record.extent.id);
            let location = RowLocation::Record(stray.run.volume, stray.run.offset);
            if stray.record.is_some() && self.has_row_at(id, location)? {
                self.take(stray.run);
                continue;
            }
            let place = UnknownLocation::Record(stray.run);
            things.push(self.thing(id, stray.evidence, place, stray.record)?);
        }
        self.settle(things)
    }

    /// Frees the unused space of volumes. Between records, space may hold bytes of deleted records,
    /// or may have been returned to the file system. So may a long run behind the last record; a
    /// short one was preallocated.
    pub(super) fn free_the_rest(&self) {
        let volumes = self.site.volumes;
        for volume in volumes.all() {
            let (number, bytes, mut at) = (volume.number, volume.bytes(), 0);
            let used = self.used.volume(number);
            while let Some(unused) = used.and_then(|used| used.next_unused(at)) {
                at = unused.end;
                let free = unused.end - unused.start;
                let is_tail = unused.end == bytes && volumes.is_one_step(free);
                let backing = if is_tail { Backing::Fresh } else { Backing::Unknown };
                volumes
                    .free(BlockRun { volume: number, offset: unused.start, bytes: free }, backing);
            }
        }
    }
}
