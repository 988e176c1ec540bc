//! Target that is a file of JSON lines, for local readers.
//!
//! Invariants:
//! * Messages are synced before they are acknowledged.
//! * The file is opened for each batch. A reader that renames it gets whole batches, and the next
//!   batch makes a new file.
//! * A long file is renamed to `NAME.1`, and that to `NAME.2` in turn. The oldest file is dropped.

use std::path::{Path, PathBuf};
use std::{fs, io};

use bytes::Bytes;
use martlet_serving::folder::make_folder;

use super::lines::LineFile;

/// Size in bytes at which a file is renamed.
const FILE_BYTES: u64 = 64 << 20;
/// Size in bytes at which a tenant's file is renamed.
const TENANT_FILE_BYTES: u64 = 16 << 20;
/// Number of renamed files that are kept.
const KEPT: u32 = 9;

/// File of messages, with its maximum size.
#[derive(Clone, Debug)]
pub(super) struct QueueFile {
    path: PathBuf,
    file_bytes: u64,
}

impl QueueFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file_bytes: FILE_BYTES }
    }

    /// Returns the file of a tenant's messages, beside this file: `events-TENANT.jsonl`.
    pub(super) fn of_tenant(&self, tenant: &str) -> Self {
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{tenant}"));
        if let Some(end) = self.path.extension() {
            name.push(".");
            name.push(end);
        }
        let file_bytes = self.file_bytes.min(TENANT_FILE_BYTES);
        Self { path: self.path.with_file_name(name), file_bytes }
    }

    /// Appends messages, one on each line, and syncs them.
    pub(super) fn append(&self, messages: &[Bytes]) -> io::Result<()> {
        let mut file = self.open()?;
        if file.length() >= self.file_bytes {
            drop(file);
            self.rotate()?;
            file = self.open()?;
        }
        file.append(messages, u64::MAX).map(drop)
    }

    fn open(&self) -> io::Result<LineFile> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_folder(folder)?;
        }
        LineFile::open(&self.path)
    }

    fn rotate(&self) -> io::Result<()> {
        for number in (1..KEPT).rev() {
            rename_if_there(&self.numbered(number), &self.numbered(number + 1))?;
        }
        rename_if_there(&self.path, &self.numbered(1))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn long_files_are_put_aside_and_the_oldest_goes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sub").join("events");
        let file = QueueFile { path: path.clone(), file_bytes: 10 };
        let message = |at: u32| Bytes::from(format!("message {at:02}"));
        for at in 0..12 {
            file.append(&[message(at)]).unwrap();
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "message 11\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&path), mode(&file.numbered(1))], [0o600, 0o600]);
        assert_eq!(read(&file.numbered(1)), "message 10\n");
        assert_eq!(read(&file.numbered(9)), "message 02\n");
        assert!(!file.numbered(10).exists());
    }

    #[test]
    fn messages_of_a_tenant_rotate_no_file_of_others() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.jsonl");
        let file = QueueFile { path: path.clone(), file_bytes: 10 };
        let read = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        file.append(&[Bytes::from_static(b"of root's")]).unwrap();
        for _ in 0..20 {
            file.of_tenant("one").append(&[Bytes::from_static(b"of a flood")]).unwrap();
        }
        file.of_tenant("two").append(&[Bytes::from_static(b"of two's")]).unwrap();
        assert_eq!(read("events.jsonl"), "of root's\n");
        assert_eq!(read("events-two.jsonl"), "of two's\n");
        assert_eq!(read("events-one.jsonl.9"), "of a flood\n");
        assert!(!place.path().join("events.jsonl.1").exists());
        let plain = QueueFile::new(place.path().join("events")).of_tenant("one");
        assert_eq!(plain.path, place.path().join("events-one"));
    }

    #[test]
    fn a_batch_after_one_that_was_cut_off_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events");
        fs::write(&path, "{\"key\":\"a").unwrap();
        let file = QueueFile::new(path.clone());
        file.append(&[Bytes::from_static(b"{\"key\":\"a\"}"), Bytes::from_static(b"{}")]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"key\":\"a\n{\"key\":\"a\"}\n{}\n");
    }

    #[test]
    fn a_renamed_file_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events");
        let file = QueueFile::new(path.clone());
        file.append(&[Bytes::from_static(b"{}"), Bytes::from_static(b"{}")]).unwrap();
        let aside = place.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        file.append(&[Bytes::from_static(b"[]")]).unwrap();
        assert_eq!(fs::read_to_string(aside).unwrap(), "{}\n{}\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "[]\n");
    }
}
