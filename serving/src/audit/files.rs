//! Files of audit records: appended, synced, rotated by number.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use martlet_admin_api::audit::AuditRecord;

use crate::folder::make_folder;

/// Size in bytes at which a new file begins.
const FILE_BYTES: u64 = 16 << 20;
/// Maximum bytes that are read of a file: its last line may go beyond the limit.
const READ_BYTES_MAX: u64 = 2 * FILE_BYTES;
/// Maximum number of files.
const FILES_MAX: usize = 10;

/// Files of a log, and the one that is appended to.
#[derive(Debug)]
pub(super) struct AuditFiles {
    folder: PathBuf,
    file_bytes: u64,
    open: Option<OpenFile>,
    /// True once the outcomes that a crash left unknown are stored.
    is_recovered: bool,
}

#[derive(Debug)]
struct OpenFile {
    number: u64,
    file: File,
    bytes: u64,
    /// True if the file ends within a line.
    is_torn: bool,
}

/// Numbers of the files in a folder, in order.
pub(super) fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse::<u64>().ok()
        });
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Path of a file.
pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("audit-{number}.jsonl"))
}

impl OpenFile {
    fn open(folder: &Path, number: u64) -> io::Result<Self> {
        let path = path_of(folder, number);
        let mut file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::Start(bytes - 1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self { number, file, bytes, is_torn: last != *b"\n" })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(line).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // A full disk may have taken a part of the line.
            let _ = self.file.set_len(self.bytes);
        }
        written?;
        self.bytes += line.len() as u64;
        self.is_torn = false;
        Ok(())
    }
}

impl AuditFiles {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, file_bytes: FILE_BYTES, open: None, is_recovered: false }
    }

    /// Sets the size at which a new file begins.
    #[cfg(test)]
    pub(super) fn with_file_bytes(self, file_bytes: u64) -> Self {
        Self { file_bytes, ..self }
    }

    /// Closes the file, so that the next line opens it again.
    #[cfg(test)]
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Opens the last file. The first time it stores the outcomes that a crash left unknown.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if self.open.is_none() {
            make_folder(&self.folder)?;
            let number = numbers(&self.folder)?.last().copied().unwrap_or(1);
            self.open = Some(OpenFile::open(&self.folder, number)?);
            File::open(&self.folder)?.sync_all()?;
        }
        if !self.is_recovered {
            for mut record in self.unfinished()?.into_values() {
                record.outcome = Some("unknown".to_owned());
                self.write(&record)?;
            }
            self.is_recovered = true;
        }
        Ok(())
    }

    /// Appends a line and syncs it.
    pub(super) fn append(&mut self, record: &AuditRecord) -> io::Result<()> {
        self.open()?;
        self.write(record)
    }

    fn write(&mut self, record: &AuditRecord) -> io::Result<()> {
        self.rotate()?;
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        let mut line = if open.is_torn { b"\n".to_vec() } else { Vec::new() };
        serde_json::to_writer(&mut line, record)?;
        line.push(b'\n');
        let appended = open.append(&line);
        if appended.is_err() {
            // The next line looks at the file anew.
            self.open = None;
        }
        appended
    }

    /// Begins a new file if the open one is long, and deletes the oldest beyond the limit.
    fn rotate(&mut self) -> io::Result<()> {
        let next = match &self.open {
            Some(open) if open.bytes >= self.file_bytes => open.number + 1,
            _ => return Ok(()),
        };
        self.open = Some(OpenFile::open(&self.folder, next)?);
        let numbers = numbers(&self.folder)?;
        for number in &numbers[..numbers.len().saturating_sub(FILES_MAX)] {
            fs::remove_file(path_of(&self.folder, *number))?;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Changes without an outcome in the last two files. A change outlives no two files.
    fn unfinished(&self) -> io::Result<BTreeMap<String, AuditRecord>> {
        let numbers = numbers(&self.folder)?;
        let mut unfinished = BTreeMap::new();
        for number in &numbers[numbers.len().saturating_sub(2)..] {
            let file = File::open(path_of(&self.folder, *number))?;
            let mut bytes = Vec::new();
            file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
            for line in bytes.split(|byte| *byte == b'\n') {
                let Ok(record) = serde_json::from_slice::<AuditRecord>(line) else { continue };
                if record.outcome.is_none() {
                    unfinished.insert(record.id.clone(), record);
                } else {
                    unfinished.remove(&record.id);
                }
            }
        }
        Ok(unfinished)
    }
}
