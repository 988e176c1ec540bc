//! Messages that a target refused, set aside so that later messages can be delivered.
//!
//! ```text
//! events/NAME/refused.jsonl   refused messages as they were sent, one on each line
//! events/NAME/again.jsonl     messages for the target again, from an operator; taken and deleted in 2 s
//! ```
//!
//! Invariants:
//! * No message is dropped here: if the file is full, the message stays at the head of the spool.
//! * A message is in the file, and synced, before the spool passes it.
//! * The gate is held from opening the file until its sync, and while lines are taken back. An
//!   operator may rename the file at any time, and no line goes to a file that was read already.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fs, io};

use bytes::Bytes;
use martlet_serving::folder::replace_file;
use parking_lot::Mutex;
use serde::de::IgnoredAny;

use super::counts::Counts;
use super::lines::LineFile;
use super::spool::SpoolWriter;

const REFUSED: &str = "refused.jsonl";
const AGAIN: &str = "again.jsonl";

/// Files of one target or lane.
#[derive(Debug)]
pub(super) struct DeadLetters {
    folder: PathBuf,
    bytes_max: u64,
    counts: Arc<Counts>,
    gate: Mutex<()>,
}

impl DeadLetters {
    /// Makes the files of a spool's folder. `refused.jsonl` holds at most `bytes_max` bytes.
    pub(super) fn new(folder: &Path, bytes_max: u64, counts: &Arc<Counts>) -> Self {
        let (folder, counts) = (folder.to_owned(), counts.clone());
        let aside = Self { folder, bytes_max, counts, gate: Mutex::new(()) };
        aside.measure();
        aside
    }

    /// Stores a refused message. Returns false if the file has no room for it.
    pub(super) fn put(&self, message: &[u8]) -> io::Result<bool> {
        let _held = self.gate.lock();
        let path = self.folder.join(REFUSED);
        if !LineFile::open(&path)?.append(&[message], self.bytes_max)? {
            return Ok(false);
        }
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        self.measure();
        Ok(true)
    }

    /// Moves messages to resend into the spool, up to its free space. Returns their number.
    pub(super) fn take_back(&self, tail: &mut SpoolWriter) -> io::Result<u64> {
        let _held = self.gate.lock();
        self.measure();
        let path = self.folder.join(AGAIN);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let (mut batch, mut room, mut rest) = (Vec::new(), tail.room(), &text[..]);
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let (line, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
            if serde_json::from_slice::<IgnoredAny>(line).is_ok() {
                let bytes = SpoolWriter::bytes_of(line);
                if bytes > room {
                    break;
                }
                room -= bytes;
                batch.push(Bytes::copy_from_slice(line));
            } else if !line.is_empty() {
                tracing::warn!(path = %path.display(), "skipped a malformed message");
                self.counts.lose(1);
            }
            rest = after;
        }
        tail.append(&batch)?;
        if rest.is_empty() {
            fs::remove_file(&path)?;
        } else if rest.len() < text.len() {
            replace_file(&path, rest)?;
        }
        let count = batch.len() as u64;
        self.counts.taken.fetch_add(count, Ordering::Relaxed);
        Ok(count)
    }

    /// Returns true when no message is set aside and none is to be resent.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.refused_bytes.load(Ordering::Relaxed) == 0 && !self.folder.join(AGAIN).exists()
    }

    /// Updates the size of the file, which an operator may have removed.
    fn measure(&self) {
        let bytes = fs::metadata(self.folder.join(REFUSED)).map_or(0, |found| found.len());
        self.counts.refused_bytes.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::spool;
    use super::*;

    struct DeadLetterFixture {
        folder: tempfile::TempDir,
        counts: Arc<Counts>,
    }

    impl DeadLetterFixture {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), counts: Arc::default() }
        }

        fn aside(&self, bytes_max: u64) -> DeadLetters {
            DeadLetters::new(self.folder.path(), bytes_max, &self.counts)
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.folder.path().join(name)).ok()
        }

        fn again(&self, text: &str) {
            fs::write(self.folder.path().join(AGAIN), text).unwrap();
        }

        /// Messages in the spool after lines were taken back.
        fn taken_back(&self, spool_bytes: u64) -> Vec<String> {
            let (mut tail, mut head) =
                spool::open(self.folder.path(), spool_bytes, &self.counts).unwrap();
            self.aside(100).take_back(&mut tail).unwrap();
            let messages = head.read().unwrap();
            let texts = messages.iter().map(|it| String::from_utf8(it.message.to_vec()).unwrap());
            let texts = texts.collect();
            head.acknowledge(&messages);
            head.save().unwrap();
            texts
        }
    }

    #[test]
    fn a_full_file_takes_no_more() {
        let place = DeadLetterFixture::new();
        let aside = place.aside(9);
        assert!(aside.put(b"{}").unwrap() && aside.put(b"[1]").unwrap());
        assert!(!aside.put(b"{}").unwrap());
        assert_eq!(place.read(REFUSED).unwrap(), "{}\n[1]\n");
        assert_eq!(place.counts.refused.load(Ordering::Relaxed), 2);
        assert_eq!(place.counts.refused_bytes.load(Ordering::Relaxed), 7);
        fs::remove_file(place.folder.path().join(REFUSED)).unwrap();
        assert!(aside.put(b"{}").unwrap());
    }

    #[test]
    fn a_torn_line_stays_a_line_of_its_own() {
        let place = DeadLetterFixture::new();
        fs::write(place.folder.path().join(REFUSED), "{\"a").unwrap();
        place.aside(100).put(b"{}").unwrap();
        assert_eq!(place.read(REFUSED).unwrap(), "{\"a\n{}\n");
    }

    #[test]
    fn messages_to_resend_are_read_once() {
        let place = DeadLetterFixture::new();
        assert_eq!(place.taken_back(1000), [""; 0]);
        place.again("{\"a\":1}\n{\"torn\n\n{\"b\":2}");
        assert_eq!(place.taken_back(1000), ["{\"a\":1}", "{\"b\":2}"]);
        assert_eq!((place.read(AGAIN), place.counts.lost.load(Ordering::Relaxed)), (None, 1));
        assert_eq!(place.taken_back(1000), [""; 0]);
    }

    #[test]
    fn messages_beyond_the_room_wait() {
        let place = DeadLetterFixture::new();
        place.again("1\n2\n3\n");
        // Eleven bytes for each line.
        assert_eq!(place.taken_back(25), ["1", "2"]);
        assert_eq!(place.read(AGAIN).unwrap(), "3\n");
        assert_eq!(place.taken_back(25), ["3"]);
        assert_eq!((place.read(AGAIN), place.counts.lost.load(Ordering::Relaxed)), (None, 0));
    }
}
