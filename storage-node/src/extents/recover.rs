//! Recovery at opening: reconciles the disk with the table.
//!
//! A row in the table proves that its extent was durable once and that no delete was acknowledged.
//! So extents with a row are kept without reading their bytes: reads and audits verify those bytes.
//! Only files and records without a row are inspected, and [`classify`](super::classify) judges
//! them. After an orderly closing everything has a row, and nothing is inspected. After a crash,
//! records without a row lie in places that the table names as unsettled
//! ([`settle_records`](super::settle_records)). The space in use is that of the rows' places, which
//! are short; without complete places all rows are read ([`believe`](super::believe)).
//!
//! Only what survives a power cut gets a row: things are synced, and read from the disk, before they
//! are judged ([`from_disk`]).
//!
//! Things without a row are judged [`THINGS_MAX`] at a time, folder by folder and volume by volume.
//! What was judged before has a row by then, and is a rival of a later thing with its id.

use std::collections::{BTreeSet, HashSet};
use std::io::IoSlice;
use std::path::Path;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{Error, ExtentId, Result};

use super::believe::Basis;
use super::buffer::ALIGN;
use super::classify::{DiscoveredExtent, Evidence};
use super::footer::{self, Footer};
use super::record::{BlockRun, VolumeHead};
use super::recovery_report::RecoveryReport;
use super::row::RowLocation;
use super::saved_space::{self, SavedFigures, SavedSpace, SavedVolume};
use super::state::Counters;
use super::table::Table;
use super::unknown_extent::{UnknownExtent, UnknownLocation};
use super::unreadable::{FINDINGS_MAX, tried_twice};
use super::used::UsedSpace;
use super::volumes::{Volume, Volumes};
use super::{heads, quarantine, scan};
use crate::disk::{Caching, Disk, DiskFile};

/// Maximum number of things without a row in memory: some hundred bytes each.
pub(super) const THINGS_MAX: usize = 4096;

/// Sources that an opening may believe.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust {
    /// The table, because the store was closed in good order; and the free space that was saved
    /// then, by its hash.
    Table {
        /// Hash of the saved space, if any was saved.
        saved_space: Option<[u8; 32]>,
    },
    /// Only the bytes of the extents.
    Disk,
}

/// Inputs of recovery.
#[derive(Clone, Copy)]
pub(super) struct RecoveryInputs<'a> {
    pub(super) root: &'a Path,
    pub(super) disk: &'a dyn Disk,
    pub(super) table: &'a Table,
    pub(super) volumes: &'a Volumes,
}

/// State of a volume's head.
enum VolumeHeadState {
    Is(VolumeHead),
    /// The creation of the volume never ended.
    NeverWritten,
    /// Head and copy are both damaged.
    Lost,
}

/// Contents of the quarantine.
#[derive(Default)]
struct Quarantined {
    /// Ids of files.
    ids: HashSet<ExtentId>,
    /// Runs of volumes.
    runs: Vec<BlockRun>,
}

/// Prepares a file of `length` bytes for inspection: what its next read returns survives a power cut.
///
/// A process that died may have left bytes in the page cache only, and a failed sync leaves pages
/// that count as clean and never reached the disk. The former are written, the latter dropped.
pub(super) fn from_disk(file: &dyn DiskFile, length: u64) -> Result<()> {
    file.sync()?;
    file.drop_cached(0, length)
}

/// Makes the missing folders of a store, durably.
pub(super) fn make_folders(disk: &dyn Disk, root: &Path) -> Result<()> {
    let extents = root.join("extents");
    // Stores of earlier versions lack the folder for copies of heads.
    if disk.list(&heads::folder(root)).is_err() {
        disk.create_dir(&heads::folder(root))?;
        disk.sync_dir(root)?;
    }
    let there = disk.list(&extents).map(|names| names.len()).unwrap_or_default();
    if there >= 256 {
        return Ok(());
    }
    for folder in [&root.join("volumes"), &quarantine::folder(root), &extents] {
        disk.create_dir(folder)?;
    }
    for first in 0..=u8::MAX {
        disk.create_dir(&extents.join(format!("{first:02x}")))?;
    }
    disk.sync_dir(&extents)?;
    disk.sync_dir(root)
}

/// Reconciles table, disk and free space.
pub(super) fn recover(
    site: RecoveryInputs<'_>,
    counters: &Counters,
    trust: Trust,
) -> Result<RecoveryReport> {
    let mut recovery =
        Recovery { site, counters, used: UsedSpace::default(), report: RecoveryReport::default() };
    let quarantined = recovery.open_quarantine()?;
    let is_known = match trust {
        // Without places the rows are read once, so that the next crash finds places.
        Trust::Table { saved_space: Some(hash) } if site.table.keeps_places() => {
            recovery.believe_saved_space(&hash)
        }
        Trust::Table { .. } | Trust::Disk => false,
    };
    let mut basis = Basis::Places;
    if !is_known {
        recovery.open_volumes()?;
        basis = recovery.map_volumes(&quarantined.runs)?;
        match trust {
            Trust::Table { .. } if basis == Basis::Places => {}
            Trust::Table { .. } => recovery.believe_rows(None, None, &quarantined.ids)?,
            Trust::Disk => {
                recovery.settle_files(basis, &quarantined.ids)?;
                recovery.settle_records()?;
            }
        }
        recovery.free_the_rest();
    }
    if site.table.unsettled()?.is_none_or(|places| !places.is_empty()) {
        site.table.settle_all()?;
    }
    if basis == Basis::Rows {
        recovery.complete_places()?;
    }
    if is_known || basis == Basis::Rows {
        recovery.report.extents = Some(counters.snapshot().extents);
    } else {
        counters.begin_count();
    }
    Ok(recovery.report)
}

/// State of a running recovery.
pub(super) struct Recovery<'a> {
    pub(super) site: RecoveryInputs<'a>,
    pub(super) counters: &'a Counters,
    pub(super) used: UsedSpace,
    pub(super) report: RecoveryReport,
}

impl Recovery<'_> {
    fn open_quarantine(&self) -> Result<Quarantined> {
        let mut quarantined = Quarantined::default();
        for name in self.site.disk.list(&quarantine::folder(self.site.root))? {
            self.counters.set_aside();
            match quarantine::named_run(&name) {
                Some(run) => quarantined.runs.push(run),
                None => quarantined.ids.extend(quarantine::named_extent(&name)),
            }
        }
        Ok(quarantined)
    }

    fn open_volumes(&mut self) -> Result<()> {
        let folder = self.site.root.join("volumes");
        for name in self.site.disk.list(&folder)? {
            let path = folder.join(&name);
            let number = name.strip_suffix(".vol").and_then(|number| number.parse().ok());
            let Some(number) = number.filter(|number| name == format!("{number}.vol")) else {
                self.set_aside(&path)?;
                continue;
            };
            match self.head(&path, number)? {
                VolumeHeadState::Is(head) => {
                    self.site.volumes.add(Volume::open(self.site.disk, &head, path)?);
                }
                VolumeHeadState::NeverWritten => {
                    self.site.disk.unlink(&path)?;
                    self.site.disk.sync_dir(&folder)?;
                }
                VolumeHeadState::Lost => self.set_aside(&path)?,
            }
        }
        Ok(())
    }

    /// Returns the head of a volume, from its file or from its copy, and repairs the damaged one.
    fn head(&self, path: &Path, number: u32) -> Result<VolumeHeadState> {
        let file = self.site.disk.open(path, Caching::Cached)?;
        let bytes = file.length()? / ALIGN_BYTES * ALIGN_BYTES;
        let mut first = vec![0; ALIGN];
        let read = if bytes > 0 { file.read_at(&mut first, 0) } else { Ok(()) };
        let heads = &self.site.volumes.heads;
        let own = VolumeHead::decode(&first).filter(|_| read.is_ok());
        if own.is_some_and(|head| head.number != number) {
            // The file belongs to another volume.
            return Ok(VolumeHeadState::Lost);
        }
        let copy = heads.copy(number);
        let mended = match (own, copy) {
            (Some(own), copy) if copy != Some(own) => heads.keep(&own),
            (Some(_), _) => Ok(()),
            (None, _) if read.is_ok() && bytes <= ALIGN_BYTES && first.iter().all(|b| *b == 0) => {
                return Ok(VolumeHeadState::NeverWritten);
            }
            (None, Some(copy)) => {
                tracing::error!(path = %path.display(), "a volume's head was lost, using its copy");
                file.write_at(&[IoSlice::new(&copy.encode())], 0).and_then(|()| file.sync())
            }
            (None, None) => return read.map(|()| VolumeHeadState::Lost),
        };
        if let Err(error) = mended {
            tracing::warn!(%error, volume = number, "could not repair a volume's head or its copy");
        }
        Ok(own.or(copy).map_or(VolumeHeadState::Lost, VolumeHeadState::Is))
    }

    /// Takes volumes, free space and counts from the last closing. False if they may not be those
    /// of the disk, so that the rows have to tell.
    fn believe_saved_space(&self, hash: &[u8; 32]) -> bool {
        let saved = saved_space::load(self.site.disk, self.site.root, hash);
        let opened = saved.and_then(|saved| Ok((self.open_saved(&saved)?, saved)));
        match opened {
            Ok((Some(volumes), saved)) => {
                for volume in volumes {
                    self.site.volumes.add(volume);
                }
                self.site.volumes.set_space(saved.space);
                let SavedFigures { extents, bytes, .. } = saved.figures;
                self.counters.restore(extents, bytes, saved.sums);
                true
            }
            Ok((None, _)) => {
                tracing::warn!("volumes or the quarantine were changed, so all rows are read");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "can't use the saved free space, so all rows are read");
                false
            }
        }
    }

    /// Opens the volumes of a saved map; none if the disk has others, or another quarantine.
    fn open_saved(&self, saved: &SavedSpace) -> Result<Option<Vec<Volume>>> {
        let folder = self.site.root.join("volumes");
        let name = |volume: &SavedVolume| format!("{}.vol", volume.head.number);
        let names: BTreeSet<String> = self.site.disk.list(&folder)?.into_iter().collect();
        let quarantined = self.counters.snapshot().quarantined;
        let is_same = names == saved.volumes.iter().map(name).collect::<BTreeSet<_>>();
        if !is_same || saved.figures.quarantined != quarantined {
            return Ok(None);
        }
        let mut volumes = Vec::with_capacity(saved.volumes.len());
        for about in &saved.volumes {
            let volume = Volume::open(self.site.disk, &about.head, folder.join(name(about)))?;
            if volume.bytes() != about.bytes {
                return Ok(None);
            }
            volumes.push(volume);
        }
        Ok(Some(volumes))
    }

    pub(super) fn take(&mut self, run: BlockRun) {
        self.used.mark(run);
    }

    /// Judges things without a row, and acts on the verdicts.
    pub(super) fn settle(&mut self, mut things: Vec<UnknownExtent>) -> Result<()> {
        if things.is_empty() {
            return Ok(());
        }
        self.add_rivals(&mut things)?;
        self.apply_actions(things)
    }

    pub(super) fn inspect_file(&mut self, id: ExtentId) -> Result<UnknownExtent> {
        let path = footer::path(self.site.root, id);
        let file = self.site.disk.open(&path, Caching::Cached)?;
        from_disk(file.as_ref(), file.length()?)?;
        let inspected = tried_twice(|| inspected(file.as_ref(), id))?;
        let (evidence, record) = inspected.unwrap_or((Evidence::Unreadable, None));
        self.thing(id, evidence, UnknownLocation::File(path), record)
    }

    /// Returns true if an extent has a row with this location. Its place was not kept then, and is
    /// written again: the extent must not be judged as a second copy of itself.
    pub(super) fn has_row_at(&self, id: ExtentId, location: RowLocation) -> Result<bool> {
        let row = self.site.table.get(id)?.filter(|row| row.place == location);
        let Some(row) = row else { return Ok(false) };
        tracing::error!(extent = %id, "the place of an extent was missing: writing it again");
        self.counters.added(row.record.extent, row.record.layout);
        self.site.table.put(&[row])?;
        Ok(true)
    }

    pub(super) fn thing(
        &mut self,
        id: ExtentId,
        evidence: Evidence,
        place: UnknownLocation,
        record: Option<ExtentRecord>,
    ) -> Result<UnknownExtent> {
        if evidence == Evidence::Unreadable {
            self.report.unreadable += 1;
            if self.report.unreadable > FINDINGS_MAX {
                return Err(Error::unavailable("the disk can't read too many files and runs"));
            }
        }
        let marked = self.site.table.is_marked(id)?;
        let found = DiscoveredExtent { id, evidence, known: false, marked };
        Ok(UnknownExtent { found, place, record })
    }
    /// Prepends the table's extents with the ids of things that have no row.
    fn add_rivals(&self, things: &mut Vec<UnknownExtent>) -> Result<()> {
        let ids: BTreeSet<ExtentId> = things.iter().map(|thing| thing.found.id).collect();
        for id in ids {
            let row = self.site.table.get(id)?;
            if let Some(row) = row.filter(|row| row.place != RowLocation::Quarantined) {
                let extent = row.record.extent;
                let evidence = Evidence::Whole(extent.length, extent.blake3);
                let found = DiscoveredExtent { id, evidence, known: true, marked: false };
                things.insert(
                    0,
                    UnknownExtent { found, place: UnknownLocation::Row(row), record: None },
                );
            }
        }
        Ok(())
    }

    pub(super) fn set_aside(&mut self, path: &Path) -> Result<()> {
        tracing::error!(path = %path.display(), "moving an inconsistent file into quarantine");
        quarantine::file(self.site.disk, self.site.root, path)?;
        self.report.quarantined += 1;
        self.counters.set_aside();
        Ok(())
    }

    pub(super) fn set_run_aside(&mut self, run: BlockRun) -> Result<()> {
        tracing::error!(?run, "moving an inconsistent record into quarantine");
        if quarantine::run(self.site.disk, self.site.root, run)? {
            self.report.quarantined += 1;
            self.counters.set_aside();
        }
        self.take(run);
        Ok(())
    }
}

/// Returns the evidence in a file of an extent without a row, and its record if it is whole.
fn inspected(file: &dyn DiskFile, id: ExtentId) -> Result<(Evidence, Option<ExtentRecord>)> {
    Ok(match footer::inspect(file)? {
        Footer::Unfinished | Footer::Torn => (Evidence::Unfinished, None),
        Footer::Rotten => (Evidence::Contradiction, None),
        Footer::Good(description) if description.record.extent.id != id => {
            (Evidence::Contradiction, None)
        }
        Footer::Good(description) => {
            let extent = description.record.extent;
            if scan::matches(file, 0, &description)? {
                let whole = Evidence::Whole(extent.length, extent.blake3);
                (whole, Some(description.record))
            } else {
                // The footer reached the disk before the bytes did.
                (Evidence::Unfinished, None)
            }
        }
    })
}
