//! Applies recovery's verdicts on files and records without a row.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use martlet_protocol::Result;

use super::buffer::ALIGN;
use super::classify::{DiscoveredExtent, RecoveryAction, classify};
use super::footer;
use super::record::BlockRun;
use super::recover::{Recovery, RecoveryInputs};
use super::row::{Row, RowLocation};
use super::seal::SealLocation;
use super::unknown_extent::{UnknownExtent, UnknownLocation};

impl Recovery<'_> {
    /// Classifies all things, and applies the verdict on each.
    pub(super) fn apply_actions(&mut self, things: Vec<UnknownExtent>) -> Result<()> {
        let found: Vec<DiscoveredExtent> = things.iter().map(|thing| thing.found.clone()).collect();
        let mut rows = Vec::new();
        let mut changed = PendingSyncs::default();
        for (thing, verdict) in things.into_iter().zip(classify(&found)) {
            match verdict {
                RecoveryAction::Keep => rows.extend(self.keep(thing, &mut changed)),
                RecoveryAction::Quarantine => self.quarantine(thing)?,
                RecoveryAction::RemoveUnfinished => {
                    self.report.unfinished += 1;
                    self.remove(&thing.place, &mut changed)?;
                }
                RecoveryAction::RemoveDeleted => {
                    self.report.deleted += 1;
                    self.remove(&thing.place, &mut changed)?;
                }
                RecoveryAction::RemoveDuplicate => {
                    self.report.duplicates += 1;
                    self.remove(&thing.place, &mut changed)?;
                }
            }
        }
        changed.sync(self.site)?;
        self.site.table.put(&rows)
    }

    /// Returns the row of a thing that was read from the disk. The name of its file may not be
    /// durable yet.
    fn keep(&mut self, thing: UnknownExtent, changed: &mut PendingSyncs) -> Option<Row> {
        let place = match thing.place {
            UnknownLocation::File(path) => {
                changed.folders.extend(path.parent().map(Path::to_path_buf));
                RowLocation::File
            }
            UnknownLocation::Record(run) => {
                self.take(run);
                RowLocation::Record(run.volume, run.offset)
            }
            // The thing has a row already.
            UnknownLocation::Row(_) => return None,
        };
        let record = thing.record.expect("only items with a description are whole");
        self.report.rediscovered += 1;
        self.counters.added(record.extent, record.layout);
        Some(Row { place, record })
    }

    fn remove(&mut self, place: &UnknownLocation, changed: &mut PendingSyncs) -> Result<()> {
        match place {
            UnknownLocation::File(path) => {
                self.site.disk.unlink(path)?;
                changed.folders.extend(path.parent().map(Path::to_path_buf));
            }
            UnknownLocation::Record(run) => {
                let volume = self.site.volumes.get(run.volume)?;
                volume.file.write_at(&[IoSlice::new(&[0; ALIGN])], run.offset)?;
                changed.volumes.insert(run.volume);
            }
            UnknownLocation::Row(_) => unreachable!("items with a row are kept or quarantined"),
        }
        Ok(())
    }

    fn quarantine(&mut self, thing: UnknownExtent) -> Result<()> {
        match thing.place {
            UnknownLocation::File(path) => self.set_aside(&path),
            UnknownLocation::Record(run) => self.set_run_aside(run),
            UnknownLocation::Row(row) => {
                let length = u64::from(row.record.extent.length);
                self.counters.removed(row.record.extent, row.record.layout);
                match row.place {
                    RowLocation::Record(volume, offset) => {
                        self.set_run_aside(BlockRun::of_record(
                            SealLocation { volume, offset },
                            length,
                        ))?;
                    }
                    RowLocation::File | RowLocation::Quarantined => {
                        self.set_aside(&footer::path(self.site.root, thing.found.id))?;
                    }
                }
                self.site.table.set_aside(row)
            }
        }
    }
}

/// Folders and volumes to sync before the table changes.
#[derive(Default)]
struct PendingSyncs {
    folders: BTreeSet<PathBuf>,
    volumes: BTreeSet<u32>,
}

impl PendingSyncs {
    fn sync(self, site: RecoveryInputs<'_>) -> Result<()> {
        for number in self.volumes {
            site.volumes.get(number)?.file.sync()?;
        }
        self.folders.iter().try_for_each(|folder| site.disk.sync_dir(folder))
    }
}
