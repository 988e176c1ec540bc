//! Space in use at an opening: by the places of rows, or by the rows themselves.
//!
//! Places are short, and lie in the order of volumes: 10⁸ of them are 1 GB, and their rows
//! 16 GB. A table without complete places, or whose places don't fit the volumes, has its rows read;
//! the places are then written anew.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;

use martlet_protocol::extent_sums::ExtentSums;
use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{ErrorKind, ExtentId, Result};

use super::footer;
use super::record::BlockRun;
use super::recover::{Recovery, THINGS_MAX};
use super::row::{Row, RowHead, RowLocation};
use super::seal::SealLocation;
use super::used::UsedSpace;
use crate::index::{DiskPlace, RecordPlace, UsedPlace};

/// Places that are written in one batch.
const PLACES_AT_ONCE: usize = 4096;

/// Source of the space in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The places of rows. The rows are counted after the opening.
    Places,
    /// All rows.
    Rows,
}

impl Recovery<'_> {
    /// Begins the map of used blocks: by places if they are complete, else with heads and quarantined
    /// runs alone, so that [`Self::believe_rows`] adds the rest. Counts the extents by their places.
    pub(super) fn map_volumes(&mut self, quarantined: &[BlockRun]) -> Result<Basis> {
        self.map_heads(quarantined);
        if self.site.table.keeps_places() {
            match self.believe_places() {
                Ok(true) => return Ok(Basis::Places),
                Ok(false) => tracing::error!("places of extents don't fit, so all rows are read"),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::error!(%error, "can't use places of extents, so all rows are read");
                }
                Err(error) => return Err(error),
            }
            self.counters.restore(0, 0, ExtentSums::default());
            self.map_heads(quarantined);
        }
        let begun = self.site.table.begin_places();
        self.unless_full(begun)?;
        Ok(Basis::Rows)
    }

    fn map_heads(&mut self, quarantined: &[BlockRun]) {
        self.used = UsedSpace::default();
        for volume in self.site.volumes.all() {
            self.used.add(volume.number, volume.bytes());
        }
        for run in quarantined {
            self.used.mark(*run);
        }
    }

    /// Marks the blocks of all records as used, and counts extents and bytes. False if two records
    /// overlap, or if one lies in no volume.
    fn believe_places(&mut self) -> Result<bool> {
        let (mut fits, mut extents, mut bytes) = (true, 0, 0);
        self.site.table.each_place(|place| {
            extents += 1;
            bytes += place.bytes;
            if let DiskPlace::Record(RecordPlace { volume, offset }) = place.at {
                fits &= self.used.mark_record(BlockRun { volume, offset, bytes: place.bytes });
                bytes -= ALIGN_BYTES.min(place.bytes);
            }
            Ok(())
        })?;
        self.counters.restore(extents, bytes, ExtentSums::default());
        Ok(fits)
    }

    /// Goes on without places on a full disk: the device can be read, and extents be deleted.
    fn unless_full(&self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if error.kind() == ErrorKind::Full => {
                tracing::warn!(%error, "no space for places of extents: the next opening reads all rows");
                self.site.table.end_places();
                Ok(())
            }
            written => written,
        }
    }

    /// Records that the places of all rows were written.
    pub(super) fn complete_places(&self) -> Result<()> {
        if !self.site.table.keeps_places() {
            return Ok(());
        }
        self.unless_full(self.site.table.complete_places())
    }

    fn put_places(&self, places: &mut Vec<UsedPlace>) -> Result<()> {
        let places = std::mem::take(places);
        if places.is_empty() || !self.site.table.keeps_places() {
            return Ok(());
        }
        self.unless_full(self.site.table.put_places(&places))
    }

    /// Believes all rows or places, and settles the files without a row. Those of ids with the same
    /// first byte are compared at a time: a 256th of all.
    pub(super) fn settle_files(
        &mut self,
        basis: Basis,
        quarantined: &HashSet<ExtentId>,
    ) -> Result<()> {
        let extents = self.site.root.join("extents");
        let mut folders: BTreeSet<String> = self.site.disk.list(&extents)?.into_iter().collect();
        for first in 0..=u8::MAX {
            let name = format!("{first:02x}");
            let is_there = folders.remove(&name);
            let mut files =
                if is_there { self.files(&extents.join(&name))? } else { BTreeSet::new() };
            match basis {
                Basis::Places => self.believe_files(first, &mut files, quarantined)?,
                Basis::Rows => self.believe_rows(Some(first), Some(&mut files), quarantined)?,
            }
            let files: Vec<ExtentId> = files.into_iter().collect();
            for ids in files.chunks(THINGS_MAX) {
                let mut things = Vec::new();
                for id in ids {
                    if !self.has_row_at(*id, RowLocation::File)? {
                        things.push(self.inspect_file(*id)?);
                    }
                }
                self.settle(things)?;
            }
        }
        // No extent belongs in a folder of another name.
        folders.iter().try_for_each(|name| self.files(&extents.join(name)).map(drop))
    }

    /// Returns the extents that have a file in a folder. Moves files with other names to
    /// quarantine.
    fn files(&mut self, folder: &Path) -> Result<BTreeSet<ExtentId>> {
        let mut files = BTreeSet::new();
        for name in self.site.disk.list(folder)? {
            match name.parse::<ExtentId>() {
                Ok(id) if footer::path(self.site.root, id) == folder.join(&name) => {
                    files.insert(id);
                }
                _ => self.set_aside(&folder.join(&name))?,
            }
        }
        Ok(files)
    }

    /// Removes the extents with a row from `files`, by the places with this first byte. Only rows of
    /// files that are missing or in quarantine are read.
    fn believe_files(
        &mut self,
        first: u8,
        files: &mut BTreeSet<ExtentId>,
        quarantined: &HashSet<ExtentId>,
    ) -> Result<()> {
        let mut doubtful = Vec::new();
        self.site.table.each_file(first, |id| {
            // The place may be that of the file in quarantine, and the file a repair that was cut off:
            // the file is judged like one without a row.
            if quarantined.contains(&id) || !files.remove(&id) {
                doubtful.push(id);
            }
            Ok(())
        })?;
        let mut missing = Vec::new();
        for id in doubtful {
            let row = self.site.table.get(id)?.filter(|row| row.place == RowLocation::File);
            let Some(row) = row else {
                self.counters.extents.fetch_sub(1, Ordering::Relaxed);
                self.site.table.forget(&[], &[DiskPlace::File(id)])?;
                continue;
            };
            self.counters.removed(row.record.extent, row.record.layout);
            if quarantined.contains(&id) {
                self.site.table.set_aside(row)?;
            } else {
                missing.push(id);
            }
        }
        let left: Vec<DiskPlace> = missing.iter().copied().map(DiskPlace::File).collect();
        self.site.table.forget(&missing, &left)?;
        self.report.missing.extend(missing);
        Ok(())
    }

    /// Counts the extents in the table, or those with this first byte, and removes them from
    /// `files` if the files were listed. Writes the places of the rows.
    pub(super) fn believe_rows(
        &mut self,
        first: Option<u8>,
        mut files: Option<&mut BTreeSet<ExtentId>>,
        quarantined: &HashSet<ExtentId>,
    ) -> Result<()> {
        let (mut aside, mut missing, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let table = self.site.table;
        table.each(
            first,
            || {},
            |bytes| {
                let RowHead { place, extent, layout } = RowHead::decode(bytes)?;
                let there = match place {
                    RowLocation::Quarantined => return Ok(()),
                    // The row may be that of the file in quarantine, and the file a repair that was
                    // cut off: the file is judged like one without a row.
                    RowLocation::File if files.is_some() && quarantined.contains(&extent.id) => {
                        false
                    }
                    RowLocation::File => {
                        files.as_mut().is_none_or(|files| files.remove(&extent.id))
                    }
                    RowLocation::Record(volume, offset) => {
                        let spot = SealLocation { volume, offset };
                        self.used.mark_record(BlockRun::of_record(spot, extent.length.into()))
                    }
                };
                if there {
                    self.counters.added(extent, layout);
                    places.extend(place.used_by(extent));
                } else if quarantined.contains(&extent.id) {
                    aside.push(Row { place: RowLocation::Quarantined, ..Row::decode(bytes)? });
                } else {
                    missing.push(extent.id);
                }
                if places.len() >= PLACES_AT_ONCE {
                    self.put_places(&mut places)?;
                }
                Ok(())
            },
        )?;
        self.put_places(&mut places)?;
        table.put(&aside)?;
        // The places were written anew, without those of missing extents.
        table.forget(&missing, &[])?;
        self.report.missing.extend(missing);
        Ok(())
    }
}
