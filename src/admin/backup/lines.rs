//! Contents of a backup: a line of JSON for each record and file, and a last line with their counts
//! and hash. Compressed, then sealed.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use martlet_admin_api::backup::RecordLine;
use martlet_serving::Failure;
use serde::{Deserialize, Serialize};

use super::sealed::{Header, SealReader, SealWriter};
use super::secret::FileKey;

/// Longest line. A ring of a million partitions takes 12 MiB, a bucket 100 KiB.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Line of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    /// Item of the cluster.
    Record(RecordLine),
    /// Ring, or a file that the operator added.
    File(FileLine),
    /// Last line.
    End(EndLine),
}

/// File in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileLine {
    /// Name of the file, without folders.
    pub(super) name: String,
    /// Epoch, if the file is a ring in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
    /// Contents in hexadecimal.
    pub(super) content: String,
}

/// Last line of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndLine {
    /// Number of records by their kind, and of files.
    pub(super) counts: BTreeMap<String, u64>,
    /// BLAKE3 of all lines before this one.
    blake3: String,
}

/// Writer of a backup.
pub(super) struct BackupWriter<W: Write> {
    to: GzEncoder<SealWriter<W>>,
    hasher: blake3::Hasher,
    counts: BTreeMap<String, u64>,
}

impl<W: Write> BackupWriter<W> {
    /// Begins a file.
    pub(super) fn new(to: W, header: &Header, key: &FileKey) -> io::Result<Self> {
        let to = GzEncoder::new(SealWriter::new(to, header, key)?, Compression::default());
        Ok(Self { to, hasher: blake3::Hasher::new(), counts: BTreeMap::new() })
    }

    /// Adds a record or a file.
    pub(super) fn push(&mut self, line: &Line) -> io::Result<()> {
        if let Some(kind) = kind_of(line) {
            *self.counts.entry(kind.to_owned()).or_default() += 1;
        }
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.hasher.update(&bytes);
        self.to.write_all(&bytes)
    }

    /// Writes the last line. Returns the file, and the counts.
    pub(super) fn finish(mut self) -> io::Result<(W, EndLine)> {
        let blake3 = self.hasher.finalize().to_hex().to_string();
        let end = EndLine { counts: std::mem::take(&mut self.counts), blake3 };
        self.push(&Line::End(end.clone()))?;
        Ok((self.to.finish()?.finish()?, end))
    }
}

/// Reader of a backup.
pub(super) struct BackupReader<R> {
    from: BufReader<GzDecoder<SealReader<R>>>,
    hasher: blake3::Hasher,
    counts: BTreeMap<String, u64>,
}

impl<R: Read> BackupReader<R> {
    /// Reads what follows the header.
    pub(super) fn new(from: R, header: &Header, key: &FileKey) -> Self {
        let from = BufReader::new(GzDecoder::new(SealReader::new(from, header, key)));
        Self { from, hasher: blake3::Hasher::new(), counts: BTreeMap::new() }
    }

    /// Returns the next record or file; none after the last line, which is checked.
    ///
    /// # Errors
    /// The file is damaged, cut, or has a line of a later release.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Failure> {
        let mut bytes = Vec::new();
        self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        let malformed = || {
            Failure::refused(
                "the backup has a line that this release can't read: use the \
                                 release that made it, or a later one",
            )
        };
        if !bytes.ends_with(b"\n") {
            return Err(malformed());
        }
        let line: Line = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
        if let Line::End(end) = &line {
            self.check_end(end)?;
            return Ok(None);
        }
        self.hasher.update(&bytes);
        if let Some(kind) = kind_of(&line) {
            *self.counts.entry(kind.to_owned()).or_default() += 1;
        }
        Ok(Some(line))
    }

    fn check_end(&mut self, end: &EndLine) -> Result<(), Failure> {
        let is_all = self.hasher.finalize().to_hex().as_str() == end.blake3;
        if !is_all || self.counts != end.counts || self.from.read(&mut [0])? != 0 {
            return Err(Failure::refused(
                "the backup's lines aren't those that were written: use another copy",
            ));
        }
        // The mark of the last chunk lies behind the end of the compressed bytes.
        let mut behind = Vec::new();
        self.from.get_mut().get_mut().read_to_end(&mut behind)?;
        if behind.is_empty() {
            return Ok(());
        }
        Err(Failure::refused("bytes follow the end of the backup: use another copy"))
    }

    /// Returns the counts of the lines that were read.
    pub(super) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }
}

fn kind_of(line: &Line) -> Option<&str> {
    match line {
        Line::Record(record) => Some(&record.kind),
        Line::File(_) => Some("file"),
        Line::End(_) => None,
    }
}

#[cfg(test)]
mod tests;
