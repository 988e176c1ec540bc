//! State of an unfinished import: a cursor for each range of keys, and the uploads in flight.
//!
//! All keys of a range up to its cursor are done. A key that failed keeps the cursor before it, so
//! that the next run tries it again. The state is at most 64 ranges with two keys each, and one line
//! for each upload in flight.
//!
//! The file is replaced as a whole: written beside it, synced, and renamed. It is locked, so that a
//! second run with this file is refused.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::listing::KeyRange;

const VERSION: u32 = 1;

/// Content of the file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct StateDocument {
    version: u32,
    /// Identity of the import: both buckets and the selection of keys.
    import: String,
    ranges: Vec<RangeState>,
    uploads: Vec<UploadInFlight>,
}

/// Progress of a range.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct RangeState {
    after: Option<String>,
    until: Option<String>,
    is_done: bool,
}

/// Upload that is neither completed nor aborted.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct UploadInFlight {
    pub(crate) key: String,
    pub(crate) id: String,
}

/// Range of keys that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenRange {
    /// Number of the range.
    pub(crate) number: usize,
    /// Keys that are not known to be done.
    pub(crate) keys: KeyRange,
}

/// State of an import, shared by its tasks.
#[derive(Debug)]
pub(crate) struct ImportState {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The file, which is locked while it is open.
    file: File,
    document: StateDocument,
    frontiers: Vec<Frontier>,
}

/// Keys of a range that are in the hands of tasks.
#[derive(Debug, Default)]
struct Frontier {
    /// Number of the next key.
    next: u64,
    /// Key that was issued before each unfinished one, by number.
    unfinished: BTreeMap<u64, Option<Arc<str>>>,
    /// The first key that failed.
    failed: Option<FailedKey>,
    /// Last key that was issued or needs no copy.
    last: Option<Arc<str>>,
    is_listed: bool,
}

/// Number of a key that failed, and the key that was issued before.
#[derive(Debug)]
struct FailedKey {
    number: u64,
    before: Option<Arc<str>>,
}

impl Frontier {
    fn issue(&mut self, key: &Arc<str>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.unfinished.insert(number, self.last.replace(key.clone()));
        number
    }

    fn finish(&mut self, number: u64, is_done: bool) {
        let before = self.unfinished.remove(&number).flatten();
        if !is_done && self.failed.as_ref().is_none_or(|failed| number < failed.number) {
            self.failed = Some(FailedKey { number, before });
        }
    }

    /// Last key up to which all are done; `None` if that is not known to have moved.
    fn cursor(&self) -> Option<&Arc<str>> {
        match (self.unfinished.first_key_value(), &self.failed) {
            (None, None) => self.last.as_ref(),
            (Some((number, before)), failed) => match failed {
                Some(failed) if failed.number < *number => failed.before.as_ref(),
                _ => before.as_ref(),
            },
            (None, Some(failed)) => failed.before.as_ref(),
        }
    }

    fn is_done(&self) -> bool {
        self.is_listed && self.unfinished.is_empty() && self.failed.is_none()
    }
}

impl ImportState {
    /// Opens the state of an import, which may be new. Returns the uploads that an earlier run left.
    ///
    /// # Errors
    /// Another run uses the file, or the file belongs to another import.
    pub(crate) fn open(path: &Path, import: &str) -> Result<Self> {
        let mut file = locked(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| unusable(path, &error))?;
        let document = if text.is_empty() {
            StateDocument {
                version: VERSION,
                import: import.to_owned(),
                ..StateDocument::default()
            }
        } else {
            serde_json::from_str(&text).map_err(|error| unusable(path, &error))?
        };
        if document.version != VERSION || document.import != import {
            return Err(Error::fatal(format!(
                "{} is the state of another import, of {}: name another file with --state, or \
                 remove this one to begin anew",
                path.display(),
                document.import
            )));
        }
        let frontiers = document.ranges.iter().map(|_| Frontier::default()).collect();
        let inner = Mutex::new(Inner { file, document, frontiers });
        Ok(Self { path: path.to_owned(), inner })
    }

    /// Returns true if no earlier run has divided the keys.
    pub(crate) fn is_new(&self) -> bool {
        self.inner.lock().document.ranges.is_empty()
    }

    /// Sets the ranges of a new import.
    pub(crate) fn divide(&self, ranges: Vec<KeyRange>) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.frontiers = ranges.iter().map(|_| Frontier::default()).collect();
        inner.document.ranges = ranges
            .into_iter()
            .map(|KeyRange { after, until }| RangeState { after, until, is_done: false })
            .collect();
        inner.save(&self.path)
    }

    /// Returns the ranges that are not done.
    pub(crate) fn open_ranges(&self) -> Vec<OpenRange> {
        let inner = self.inner.lock();
        let numbered = inner.document.ranges.iter().enumerate();
        let open = numbered.filter(|(_, range)| !range.is_done);
        open.map(|(number, range)| OpenRange {
            number,
            keys: KeyRange { after: range.after.clone(), until: range.until.clone() },
        })
        .collect()
    }

    /// Takes note of a key that a task is going to copy. Returns its number.
    pub(crate) fn issue(&self, range: usize, key: &Arc<str>) -> u64 {
        self.inner.lock().frontiers[range].issue(key)
    }

    /// Takes note of a key that needs no copy.
    pub(crate) fn pass(&self, range: usize, key: &Arc<str>) {
        self.inner.lock().frontiers[range].last = Some(key.clone());
    }

    /// Takes note of a key that no task copies any more. A key that failed stays behind the cursor.
    pub(crate) fn finish(&self, range: usize, number: u64, is_done: bool) {
        self.inner.lock().frontiers[range].finish(number, is_done);
    }

    /// Takes note of the end of a range's listing.
    pub(crate) fn listed(&self, range: usize) {
        self.inner.lock().frontiers[range].is_listed = true;
    }

    /// Takes note of a begun upload, durably.
    pub(crate) fn begin_upload(&self, key: &str, id: &str) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.document.uploads.push(UploadInFlight { key: key.to_owned(), id: id.to_owned() });
        inner.save(&self.path)
    }

    /// Takes note of the end of an upload. Durable with the next save.
    pub(crate) fn end_upload(&self, id: &str) {
        self.inner.lock().document.uploads.retain(|upload| upload.id != id);
    }

    /// Returns the uploads in flight.
    pub(crate) fn uploads(&self) -> Vec<UploadInFlight> {
        self.inner.lock().document.uploads.clone()
    }

    /// Writes the progress, durably.
    pub(crate) fn save(&self) -> Result<()> {
        self.inner.lock().save(&self.path)
    }

    /// Removes the file: the import is finished.
    pub(crate) fn remove(&self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|error| unusable(&self.path, &error))
    }
}

impl Inner {
    fn save(&mut self, path: &Path) -> Result<()> {
        for (range, frontier) in self.document.ranges.iter_mut().zip(&self.frontiers) {
            if let Some(cursor) = frontier.cursor() {
                range.after = Some(cursor.to_string());
            }
            range.is_done |= frontier.is_done();
        }
        let text = serde_json::to_vec(&self.document).expect("a state is JSON");
        let beside = beside(path);
        let write = || -> std::io::Result<File> {
            let mut file = create(&beside)?;
            file.lock()?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            File::open(folder_of(path))?.sync_all()?;
            Ok(file)
        };
        self.file = write().map_err(|error| unusable(path, &error))?;
        Ok(())
    }
}

fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Opens the file, new or not, and locks it.
fn locked(path: &Path) -> Result<File> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(|error| unusable(path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::fatal(format!(
                    "another import uses {}: wait for its end, or name another file with --state",
                    path.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(unusable(path, &error)),
        }
        // Another run may have replaced the file between the opening and the lock.
        let own = file.metadata().map_err(|error| unusable(path, &error))?;
        if fs::metadata(path).is_ok_and(|it| it.ino() == own.ino() && it.dev() == own.dev()) {
            return Ok(file);
        }
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    let path = path.display();
    Error::fatal(format!("the state file {path} can't be used: {error}: name another with --state"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> ImportState {
        ImportState::open(path, "a to b").unwrap()
    }

    fn ranges() -> Vec<KeyRange> {
        let bound = Some("m".to_owned());
        vec![KeyRange { after: None, until: bound.clone() }, KeyRange { after: bound, until: None }]
    }

    fn cursors(path: &Path) -> Vec<Option<String>> {
        let text = fs::read(path).unwrap();
        let document: StateDocument = serde_json::from_slice(&text).unwrap();
        document.ranges.into_iter().map(|range| range.after).collect()
    }

    #[test]
    fn a_cursor_stays_before_the_first_unfinished_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = open(&path);
        assert!(state.is_new());
        state.divide(ranges()).unwrap();
        let keys = ["a", "b", "c", "d"].map(Arc::<str>::from);
        state.pass(0, &keys[0]);
        let numbers: Vec<_> = keys[1..].iter().map(|key| state.issue(0, key)).collect();
        state.finish(0, numbers[1], true);
        state.save().unwrap();
        assert_eq!(cursors(&path), [Some("a".to_owned()), Some("m".to_owned())]);
        state.finish(0, numbers[0], true);
        state.save().unwrap();
        assert_eq!(cursors(&path)[0].as_deref(), Some("c"));
        state.finish(0, numbers[2], true);
        state.listed(0);
        state.save().unwrap();
        drop(state);
        let left = open(&path).open_ranges();
        let keys = KeyRange { after: Some("m".to_owned()), until: None };
        assert_eq!(left, [OpenRange { number: 1, keys }]);
    }

    #[test]
    fn a_failed_key_is_tried_again_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = open(&path);
        state.divide(ranges()).unwrap();
        let keys = ["a", "b", "c", "d"].map(Arc::<str>::from);
        let numbers: Vec<_> = keys.iter().map(|key| state.issue(0, key)).collect();
        for (at, is_done) in [(3, false), (2, true), (1, false), (0, true)] {
            state.finish(0, numbers[at], is_done);
        }
        state.listed(0);
        state.save().unwrap();
        drop(state);
        let left = open(&path).open_ranges();
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].keys.after.as_deref(), Some("a"));
    }

    #[test]
    fn uploads_in_flight_are_known_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = open(&path);
        state.begin_upload("key", "1").unwrap();
        state.begin_upload("key", "2").unwrap();
        state.end_upload("1");
        // The end of an upload need not be durable: its id is unknown to the target then.
        drop(state);
        let state = open(&path);
        assert_eq!(state.uploads().len(), 2);
        state.end_upload("2");
        state.save().unwrap();
        drop(state);
        assert_eq!(open(&path).uploads(), [UploadInFlight { key: "key".into(), id: "1".into() }]);
    }

    #[test]
    fn a_file_has_one_run_and_one_import() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = open(&path);
        state.save().unwrap();
        let error = ImportState::open(&path, "a to b").unwrap_err().to_string();
        assert!(error.starts_with("another import uses"), "{error}");
        drop(state);
        let error = ImportState::open(&path, "a to c").unwrap_err().to_string();
        assert!(error.contains("of a to b"), "{error}");
        fs::write(&path, "{").unwrap();
        assert!(ImportState::open(&path, "a to b").unwrap_err().to_string().contains("--state"));
        fs::remove_file(&path).unwrap();
        let state = open(&path);
        state.remove().unwrap();
        assert!(!path.exists());
    }
}
