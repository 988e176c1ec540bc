//! Archive of a bundle: its parts, their index, and their bounds.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use martlet_protocol::{Clock, SystemClock};
use martlet_serving::Failure;
use serde::Serialize;
use time::OffsetDateTime;

/// Parts of a bundle before they are written.
pub(crate) struct Archive {
    parts: Vec<Part>,
    entries: Vec<IndexEntry>,
    left_bytes: u64,
    end: Instant,
    made: OffsetDateTime,
}

/// Place in an archive, before what is added later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchiveMark {
    parts: usize,
    entries: usize,
}

struct Part {
    name: String,
    bytes: Vec<u8>,
}

/// Line of the index.
#[derive(Debug, Serialize)]
pub(crate) struct IndexEntry {
    /// Name of the part within the archive.
    name: String,
    /// Origin of the part.
    source: String,
    /// Bytes of the part, if it is in the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Reason for the absence of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

#[derive(Serialize)]
struct Index<'a> {
    version: &'static str,
    made: String,
    left_out: [&'static str; 4],
    parts: &'a [IndexEntry],
}

/// Kinds of values that no part has, but for logs.
const LEFT_OUT: [&str; 4] = [
    "secrets and keys",
    "names of tenants, users, buckets, objects and access keys",
    "paths, queries and passwords of URLs",
    "access logs",
];

impl Archive {
    /// Makes an empty archive with room for so many bytes, to be filled in this time.
    pub(crate) fn new(bytes_max: u64, time_max: Duration) -> Self {
        let seconds = i64::try_from(SystemClock.now_ms() / 1000).unwrap_or_default();
        let made =
            OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let end = Instant::now() + time_max;
        Self { parts: Vec::new(), entries: Vec::new(), left_bytes: bytes_max, end, made }
    }

    /// Returns the time that is left, or `None` after the end.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Adds a part, or the reason for its absence. A part that doesn't fit is left out.
    pub(crate) fn add(&mut self, name: &str, source: &str, content: Result<Vec<u8>, String>) {
        let content =
            content.and_then(|bytes| match self.left_bytes.checked_sub(bytes.len() as u64) {
                Some(left) => {
                    self.left_bytes = left;
                    Ok(bytes)
                }
                None => Err(format!("it has {} bytes, which exceed --max-size", bytes.len())),
            });
        let (bytes, missing) = match content {
            Ok(bytes) => {
                let length = bytes.len() as u64;
                self.parts.push(Part { name: name.to_owned(), bytes });
                (Some(length), None)
            }
            Err(reason) => (None, Some(reason)),
        };
        let (name, source) = (name.to_owned(), source.to_owned());
        self.entries.push(IndexEntry { name, source, bytes, missing });
    }

    /// Adds a value as JSON.
    pub(crate) fn add_json<T: Serialize>(
        &mut self,
        name: &str,
        source: &str,
        value: Result<T, String>,
    ) {
        let text = |value| serde_json::to_vec_pretty(&value).map_err(|error| error.to_string());
        self.add(name, source, value.and_then(text));
    }

    /// Returns the number of parts and of lines of the index.
    pub(crate) fn mark(&self) -> ArchiveMark {
        ArchiveMark { parts: self.parts.len(), entries: self.entries.len() }
    }

    /// Sorts what was added after a mark by name: several threads add in any order.
    pub(crate) fn sort_from(&mut self, mark: ArchiveMark) {
        self.parts[mark.parts..].sort_by(|one, other| one.name.cmp(&other.name));
        self.entries[mark.entries..].sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// Returns the names of all lines of the index.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Returns the number of parts.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the number of missing parts.
    pub(crate) fn missing(&self) -> usize {
        self.entries.len() - self.parts.len()
    }

    fn name(&self) -> String {
        let Self { made, .. } = self;
        let (hour, minute, second) = made.to_hms();
        format!("martlet-support-{}T{hour:02}{minute:02}{second:02}Z", made.date())
    }

    /// Returns the archive as the bytes of a file, with the file's name.
    ///
    /// # Errors
    /// A part can't be encoded.
    pub(crate) fn into_file(self) -> io::Result<(String, Vec<u8>)> {
        let (name, mut bytes) = (format!("{}.tar.gz", self.name()), Vec::new());
        self.encode(&mut bytes)?;
        Ok((name, bytes))
    }

    /// Writes the archive to a new file, for its owner alone, and returns its path.
    pub(crate) fn write(self, output: Option<&Path>) -> Result<PathBuf, Failure> {
        let path = output.map_or_else(|| format!("{}.tar.gz", self.name()).into(), Path::to_owned);
        let mut options = OpenOptions::new();
        let file = options.create_new(true).write(true).mode(0o600).open(&path);
        let written = file.and_then(|file| {
            let written = self.encode(file);
            if written.is_err() {
                // Half an archive is of no use.
                let _ = fs::remove_file(&path);
            }
            written
        });
        written.map_err(|error| {
            Failure::refused(format!(
                "{} can't be written: {error}; name another file with --output",
                path.display()
            ))
        })?;
        Ok(path)
    }

    fn encode(self, file: impl Write) -> io::Result<()> {
        let (folder, made) = (self.name(), self.made);
        let index = Index {
            version: env!("CARGO_PKG_VERSION"),
            made: made.to_string(),
            left_out: LEFT_OUT,
            parts: &self.entries,
        };
        let index =
            Part { name: "index.json".to_owned(), bytes: serde_json::to_vec_pretty(&index)? };
        let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for Part { name, bytes } in std::iter::once(&index).chain(&self.parts) {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(u64::try_from(made.unix_timestamp()).unwrap_or_default());
            tar.append_data(&mut header, format!("{folder}/{name}"), bytes.as_slice())?;
        }
        tar.into_inner()?.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use flate2::read::GzDecoder;

    use super::*;

    /// Names and texts of the parts of an archive.
    fn parts(path: &Path) -> Vec<(String, String)> {
        let mut tar = tar::Archive::new(GzDecoder::new(fs::File::open(path).unwrap()));
        let mut parts = Vec::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            parts.push((name.split_once('/').unwrap().1.to_owned(), text));
        }
        parts
    }

    #[test]
    fn parts_and_reasons_are_in_the_archive() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.tar.gz");
        let mut archive = Archive::new(100, Duration::from_mins(1));
        archive.add("a.txt", "here", Ok(b"hello".to_vec()));
        archive.add("b.txt", "there", Err("it does not answer".to_owned()));
        archive.add("c.txt", "here", Ok(vec![b'x'; 96]));
        archive.add_json("d.json", "here", Ok(vec![1]));
        assert_eq!((archive.count(), archive.missing()), (2, 2));
        assert!(archive.left().is_some());
        archive.write(Some(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let parts = parts(&path);
        assert_eq!(
            parts.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(),
            ["index.json", "a.txt", "d.json"]
        );
        assert_eq!(parts[1].1, "hello");
        let index: serde_json::Value = serde_json::from_str(&parts[0].1).unwrap();
        assert_eq!(index["parts"][0]["bytes"], 5);
        assert_eq!(index["parts"][1]["missing"], "it does not answer");
        assert!(index["parts"][2]["missing"].as_str().unwrap().contains("--max-size"));
        let again = Archive::new(1, Duration::ZERO);
        assert!(again.left().is_none());
        let refusal = again.write(Some(&path)).unwrap_err().to_string();
        assert!(refusal.contains("--output"), "an existing file stays: {refusal}");
    }
}
