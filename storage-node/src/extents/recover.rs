//! Recovery at opening: reconciles the disk with the table.
//!
//! A row in the table proves that its extent was durable once and that no delete was acknowledged.
//! So extents with a row are kept without reading their bytes: reads and audits verify those bytes.
//! Only files and records without a row are inspected, and [`classify`](super::classify) judges all
//! of them together. After an orderly closing everything has a row, and nothing is inspected.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::IoSlice;
use std::path::Path;

use martlet_protocol::extent::ExtentRecord;
use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{ExtentId, Result};

use super::buffer::ALIGN;
use super::classify::{DiscoveredExtent, Evidence};
use super::footer::{self, Footer};
use super::record::{BlockRun, VolumeHead};
use super::recovery_report::RecoveryReport;
use super::row::{Row, RowLocation};
use super::seal::SealLocation;
use super::state::Counters;
use super::table::Table;
use super::unknown_extent::{UnknownExtent, UnknownLocation};
use super::volumes::{Volume, Volumes};
use super::{heads, quarantine, scan};
use crate::disk::{Caching, Disk};

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

/// Runs of each volume that are in use: offset → bytes.
type UsedRuns = BTreeMap<u32, BTreeMap<u64, u64>>;

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
    clean: bool,
) -> Result<RecoveryReport> {
    let mut recovery =
        Recovery { site, counters, taken: UsedRuns::new(), report: RecoveryReport::default() };
    let quarantined = recovery.open_quarantine()?;
    recovery.open_volumes()?;
    let mut files = if clean { None } else { Some(recovery.files()?) };
    recovery.believe_rows(files.as_mut(), &quarantined)?;
    if let Some(files) = files {
        let things = recovery.inspect(&files)?;
        recovery.apply_actions(things)?;
    }
    recovery.free_the_rest();
    recovery.report.extents = counters.snapshot().extents;
    Ok(recovery.report)
}

/// State of a running recovery.
pub(super) struct Recovery<'a> {
    pub(super) site: RecoveryInputs<'a>,
    pub(super) counters: &'a Counters,
    taken: UsedRuns,
    pub(super) report: RecoveryReport,
}

impl Recovery<'_> {
    /// Returns ids of files in quarantine; marks quarantined runs of volumes as used.
    fn open_quarantine(&mut self) -> Result<HashSet<ExtentId>> {
        let mut ids = HashSet::new();
        for name in self.site.disk.list(&quarantine::folder(self.site.root))? {
            self.counters.set_aside();
            match quarantine::named_run(&name) {
                Some(run) => self.take(run),
                None => ids.extend(name.parse::<ExtentId>()),
            }
        }
        Ok(ids)
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
                    self.taken.entry(number).or_default();
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

    /// Returns the extents that have a file, by file name. Moves files with other names to
    /// quarantine.
    fn files(&mut self) -> Result<BTreeSet<ExtentId>> {
        let extents = self.site.root.join("extents");
        let mut files = BTreeSet::new();
        for first in self.site.disk.list(&extents)? {
            let folder = extents.join(&first);
            for name in self.site.disk.list(&folder)? {
                match name.parse::<ExtentId>() {
                    Ok(id) if footer::path(self.site.root, id) == folder.join(&name) => {
                        files.insert(id);
                    }
                    _ => self.set_aside(&folder.join(&name))?,
                }
            }
        }
        Ok(files)
    }

    /// Counts the extents in the table, and removes them from `files` if the files were listed.
    fn believe_rows(
        &mut self,
        mut files: Option<&mut BTreeSet<ExtentId>>,
        quarantined: &HashSet<ExtentId>,
    ) -> Result<()> {
        let mut aside = Vec::new();
        self.site.table.clone().each(|row| {
            let extent = row.record.extent;
            let there = match row.place {
                RowLocation::Quarantined => return,
                RowLocation::File => files.as_mut().is_none_or(|files| files.remove(&extent.id)),
                RowLocation::Record(volume, offset) => {
                    let run = BlockRun::of_record(
                        SealLocation { volume, offset },
                        u64::from(extent.length),
                    );
                    self.holds(run)
                }
            };
            if there {
                self.counters.added(u64::from(extent.length));
            } else if quarantined.contains(&extent.id) {
                aside.push(Row { place: RowLocation::Quarantined, ..row });
            } else {
                self.report.missing.push(extent.id);
            }
        })?;
        self.site.table.put_many(&aside)?;
        self.site.table.forget(&self.report.missing)
    }

    /// Marks a record's run as used. False if its volume is shorter or the run is already used.
    fn holds(&mut self, run: BlockRun) -> bool {
        let there =
            self.site.volumes.get(run.volume).is_ok_and(|volume| run.end() <= volume.bytes());
        let Some(taken) = self.taken.get_mut(&run.volume).filter(|_| there) else { return false };
        taken.insert(run.offset, run.bytes).is_none()
    }

    pub(super) fn take(&mut self, run: BlockRun) {
        self.taken.entry(run.volume).or_default().insert(run.offset, run.bytes);
    }

    /// Inspects the files and records that have no row.
    fn inspect(&self, files: &BTreeSet<ExtentId>) -> Result<Vec<UnknownExtent>> {
        let mut things = Vec::new();
        for id in files {
            things.push(self.inspect_file(*id)?);
        }
        let nothing = BTreeMap::new();
        for volume in self.site.volumes.all() {
            let taken = self.taken.get(&volume.number).unwrap_or(&nothing);
            for stray in scan::volume(&volume, taken)? {
                let id = stray.record.as_ref().map_or(ExtentId([0; 16]), |record| record.extent.id);
                let place = UnknownLocation::Record(stray.run);
                things.push(self.thing(id, stray.evidence, place, stray.record)?);
            }
        }
        self.add_rivals(&mut things)?;
        Ok(things)
    }

    fn inspect_file(&self, id: ExtentId) -> Result<UnknownExtent> {
        let path = footer::path(self.site.root, id);
        let file = self.site.disk.open(&path, Caching::Cached)?;
        let (evidence, record) = match footer::inspect(file.as_ref())? {
            Footer::Unfinished | Footer::Torn => (Evidence::Unfinished, None),
            Footer::Rotten => (Evidence::Contradiction, None),
            Footer::Good(description) if description.record.extent.id != id => {
                (Evidence::Contradiction, None)
            }
            Footer::Good(description) => {
                let extent = description.record.extent;
                if scan::matches(file.as_ref(), 0, &description)? {
                    let whole = Evidence::Whole(extent.length, extent.blake3);
                    (whole, Some(description.record))
                } else {
                    // The footer reached the disk before the bytes did.
                    (Evidence::Unfinished, None)
                }
            }
        };
        self.thing(id, evidence, UnknownLocation::File(path), record)
    }

    fn thing(
        &self,
        id: ExtentId,
        evidence: Evidence,
        place: UnknownLocation,
        record: Option<ExtentRecord>,
    ) -> Result<UnknownExtent> {
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

    /// Frees the unused space of volumes. After the last record, space was never written, or was
    /// returned to the file system. Between records, space may hold bytes of deleted records.
    fn free_the_rest(&self) {
        for volume in self.site.volumes.all() {
            let mut at = ALIGN_BYTES;
            for (offset, bytes) in self.taken.get(&volume.number).into_iter().flatten() {
                if *offset > at {
                    let run = BlockRun { volume: volume.number, offset: at, bytes: offset - at };
                    self.site.volumes.release(run);
                }
                at = at.max(offset + bytes);
            }
            let rest = volume.bytes().saturating_sub(at);
            self.site.volumes.free(BlockRun { volume: volume.number, offset: at, bytes: rest });
        }
    }
}
