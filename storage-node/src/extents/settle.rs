//! Applies recovery's verdicts on files and records without a row.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use martlet_protocol::Result;
use martlet_protocol::extent::ExtentRecord;

use super::buffer::ALIGN;
use super::classify::{Found, Verdict, classify};
use super::footer;
use super::record::Run;
use super::recover::{Recovery, Site};
use super::row::{Place, Row};

/// A file or record without a row.
pub(super) struct Thing {
    pub(super) found: Found,
    pub(super) place: Lies,
    pub(super) record: Option<ExtentRecord>,
}

/// Location of a thing.
#[derive(Clone)]
pub(super) enum Lies {
    File(PathBuf),
    Record(Run),
    /// At the location in its row: a known rival of a thing without a row.
    Row(Row),
}

impl Recovery<'_> {
    /// Classifies all things, and applies the verdict on each.
    pub(super) fn settle(&mut self, things: Vec<Thing>) -> Result<()> {
        let found: Vec<Found> = things.iter().map(|thing| thing.found.clone()).collect();
        let mut rows = Vec::new();
        let mut changed = Changed::default();
        for (thing, verdict) in things.into_iter().zip(classify(&found)) {
            match verdict {
                Verdict::Keep => rows.extend(self.keep(thing)),
                Verdict::Quarantine => self.quarantine(thing)?,
                Verdict::RemoveUnfinished => {
                    self.report.unfinished += 1;
                    self.remove(&thing.place, &mut changed)?;
                }
                Verdict::RemoveDeleted => {
                    self.report.deleted += 1;
                    self.remove(&thing.place, &mut changed)?;
                }
                Verdict::RemoveDuplicate => {
                    self.report.duplicates += 1;
                    self.remove(&thing.place, &mut changed)?;
                }
            }
        }
        changed.sync(self.site)?;
        self.site.table.put_many(&rows)
    }

    fn keep(&mut self, thing: Thing) -> Option<Row> {
        let place = match thing.place {
            Lies::File(_) => Place::File,
            Lies::Record(run) => {
                self.take(run);
                Place::Record(run.volume, run.offset)
            }
            // The thing has a row already.
            Lies::Row(_) => return None,
        };
        let record = thing.record.expect("only items with a description are whole");
        self.report.rediscovered += 1;
        self.counters.added(u64::from(record.extent.length));
        Some(Row { place, record })
    }

    fn remove(&mut self, place: &Lies, changed: &mut Changed) -> Result<()> {
        match place {
            Lies::File(path) => {
                self.site.disk.unlink(path)?;
                changed.folders.extend(path.parent().map(Path::to_path_buf));
            }
            Lies::Record(run) => {
                let volume = self.site.volumes.get(run.volume)?;
                volume.file.write_at(&[IoSlice::new(&[0; ALIGN])], run.offset)?;
                changed.volumes.insert(run.volume);
            }
            Lies::Row(_) => unreachable!("items with a row are kept or quarantined"),
        }
        Ok(())
    }

    fn quarantine(&mut self, thing: Thing) -> Result<()> {
        match thing.place {
            Lies::File(path) => self.set_aside(&path),
            Lies::Record(run) => self.set_run_aside(run),
            Lies::Row(row) => {
                let length = u64::from(row.record.extent.length);
                self.counters.removed(length);
                match row.place {
                    Place::Record(volume, offset) => {
                        self.set_run_aside(Run::of_record((volume, offset), length))?;
                    }
                    Place::File | Place::Quarantined => {
                        self.set_aside(&footer::path(self.site.root, thing.found.id))?;
                    }
                }
                self.site.table.put(&Row { place: Place::Quarantined, ..row })
            }
        }
    }
}

/// Folders and volumes to sync before the table changes.
#[derive(Default)]
struct Changed {
    folders: BTreeSet<PathBuf>,
    volumes: BTreeSet<u32>,
}

impl Changed {
    fn sync(self, site: Site<'_>) -> Result<()> {
        for number in self.volumes {
            site.volumes.get(number)?.file.sync()?;
        }
        self.folders.iter().try_for_each(|folder| site.disk.sync_dir(folder))
    }
}
