//! Appends of whole lines to a file of JSON lines.
//!
//! Invariants:
//! * Appended lines are synced, and so is the name of a new file.
//! * A write that was cut off leaves a line of its own: later lines stay whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// File of lines, opened for one append.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    folder: PathBuf,
    length: u64,
}

impl LineFile {
    /// Opens a file, or makes one that its owner alone reads. The folder must exist.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).read(true).mode(0o600).open(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        let length = file.metadata()?.len();
        Ok(Self { file, folder, length })
    }

    /// Length of the file in bytes, when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Appends messages, one on each line, and syncs them. Returns false, and appends nothing, if the
    /// file would hold more than `bytes_max`.
    pub(super) fn append<T: AsRef<[u8]>>(
        mut self,
        messages: &[T],
        bytes_max: u64,
    ) -> io::Result<bool> {
        let bytes: usize = messages.iter().map(|message| message.as_ref().len() + 1).sum();
        let mut lines = Vec::with_capacity(bytes + 1);
        if self.length > 0 && self.last_byte()? != b'\n' {
            lines.push(b'\n');
        }
        for message in messages {
            lines.extend_from_slice(message.as_ref());
            lines.push(b'\n');
        }
        if self.length.saturating_add(lines.len() as u64) > bytes_max {
            return Ok(false);
        }
        if self.length == 0 {
            // Before the first byte: a retry after a cut write finds a longer file.
            File::open(&self.folder)?.sync_all()?;
        }
        self.file.write_all(&lines)?;
        self.file.sync_data()?;
        Ok(true)
    }

    fn last_byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_that_was_cut_off_spoils_no_later_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lines");
        for torn in ["{\"torn", "{}\n{\"torn", "{}\n", ""] {
            fs::write(&path, torn).unwrap();
            let file = LineFile::open(&path).unwrap();
            assert_eq!(file.length(), torn.len() as u64);
            assert!(file.append(&["{\"a\":1}", "{\"b\":2}"], u64::MAX).unwrap());
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.ends_with("{\"a\":1}\n{\"b\":2}\n"), "{text}");
            let whole = text.lines().filter(|line| line.ends_with('}')).count();
            assert_eq!(whole, 2 + usize::from(torn.starts_with("{}")), "{text}");
            assert!(text.lines().all(|line| !line.is_empty()), "{text}");
        }
    }

    #[test]
    fn a_full_file_takes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lines");
        assert!(LineFile::open(&path).unwrap().append(&["123"], 8).unwrap());
        assert!(LineFile::open(&path).unwrap().append(&["567"], 8).unwrap());
        assert!(!LineFile::open(&path).unwrap().append(&[""], 8).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "123\n567\n");
    }
}
