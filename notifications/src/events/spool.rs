//! Messages on disk that no target has acknowledged yet.
//!
//! ```text
//! events/NAME/00000000000000000007.spool   lines: checksum (8 hex digits) | space | message
//! events/NAME/position                     file number, space, bytes of that file already passed
//! ```
//!
//! Messages that a target refused are in files beside them (`aside`).
//!
//! Invariants:
//! * One process appends to the file of the highest number only. Each start begins a new file, so
//!   nothing follows a torn line within its file.
//! * A batch is synced before it counts as stored. A file is deleted once all of it is passed.
//! * The stored position may lag behind deliveries, but never leads them. Messages in between are
//!   delivered twice after a crash.
//! * A line with a wrong checksum is skipped, and counted as lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use martlet_serving::folder::make_folder;

use super::counts::Counts;

/// Size in bytes at which a file is closed.
const FILE_BYTES: u64 = 4 << 20;
/// Maximum bytes of one read, and of a line. A key has at most 1024 bytes, so events are shorter.
const READ_BYTES: u64 = 256 << 10;
const CHECKSUM_CHARS: usize = 8;
const POSITION: &str = "position";
const END: &str = ".spool";

/// Writing end of a spool.
#[derive(Debug)]
pub(super) struct SpoolWriter {
    folder: PathBuf,
    counts: Arc<Counts>,
    bytes_max: u64,
    number: u64,
    /// Open file; `None` until the first write to it.
    file: Option<File>,
    bytes: u64,
}

/// Reading end of a spool.
#[derive(Debug)]
pub(super) struct SpoolReader {
    folder: PathBuf,
    counts: Arc<Counts>,
    number: u64,
    offset: u64,
    /// True if the stored position lags behind.
    is_unsaved: bool,
}

/// Position of a message in a spool: file number, and offset in bytes within that file.
///
/// Invariant: positions rise in the order of messages, and no two messages of a spool share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpoolPosition {
    number: u64,
    offset: u64,
}

/// Message, and the bytes of the spool that its acknowledgement passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpooledMessage {
    pub(super) message: Bytes,
    pub(super) position: SpoolPosition,
    line_bytes: u64,
}

/// Opens a spool of at most `bytes_max` bytes, with the messages already in it.
pub(super) fn open(
    folder: &Path,
    bytes_max: u64,
    counts: &Arc<Counts>,
) -> io::Result<(SpoolWriter, SpoolReader)> {
    make_folder(folder)?;
    let numbers = numbers(folder)?;
    let first = numbers.first().copied().unwrap_or(1);
    let next = numbers.last().map_or(1, |last| last + 1);
    let (number, offset) = match position(folder) {
        Some((number, offset)) if numbers.contains(&number) => (number, offset),
        _ => (first, 0),
    };
    let mut waiting = 0;
    for it in numbers {
        let path = path_of(folder, it);
        if it < number {
            fs::remove_file(path)?;
        } else {
            waiting += fs::metadata(path)?.len();
        }
    }
    counts.waiting_bytes.store(waiting.saturating_sub(offset), Ordering::Relaxed);
    let (folder, counts) = (folder.to_owned(), counts.clone());
    let (of, counted) = (folder.clone(), counts.clone());
    let head = SpoolReader { folder: of, counts: counted, number, offset, is_unsaved: false };
    Ok((SpoolWriter { folder, counts, bytes_max, number: next, file: None, bytes: 0 }, head))
}

fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}{END}"))
}

/// Returns the numbers of the spool's files, in order.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(END));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn position(folder: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(folder.join(POSITION)).ok()?;
    let (number, offset) = text.trim_end().split_once(' ')?;
    Some((number.parse().ok()?, offset.parse().ok()?))
}

fn checksum(message: &[u8]) -> String {
    let mut hash = blake3::hash(message).to_hex().to_string();
    hash.truncate(CHECKSUM_CHARS);
    hash
}

impl SpoolWriter {
    /// Returns the free bytes of the spool.
    pub(super) fn room(&self) -> u64 {
        self.bytes_max.saturating_sub(self.counts.waiting_bytes.load(Ordering::Relaxed))
    }

    /// Returns the bytes of a message in the spool.
    pub(super) fn bytes_of(message: &[u8]) -> u64 {
        (CHECKSUM_CHARS + 1 + message.len() + 1) as u64
    }

    /// Stores messages, and syncs them. Messages without room are counted as lost.
    pub(super) fn append(&mut self, messages: &[Bytes]) -> io::Result<()> {
        let mut lines = Vec::new();
        let room = self.room();
        for message in messages {
            let line_bytes = Self::bytes_of(message);
            let is_full = lines.len() as u64 + line_bytes > room;
            // A newline in a message would split its line.
            if is_full || line_bytes > READ_BYTES || message.contains(&b'\n') {
                self.counts.lose(1);
                continue;
            }
            lines.extend_from_slice(checksum(message).as_bytes());
            lines.push(b' ');
            lines.extend_from_slice(message);
            lines.push(b'\n');
        }
        if lines.is_empty() {
            return Ok(());
        }
        let bytes = lines.len() as u64;
        // A reader may pass messages before they are synced, so they are counted before.
        self.counts.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Err(error) = self.write(&lines) {
            self.counts.leave(bytes);
            return Err(error);
        }
        self.bytes += bytes;
        if self.bytes >= FILE_BYTES {
            self.begin_another();
        }
        Ok(())
    }

    /// Closes the current file as it is, torn or not.
    pub(super) fn begin_another(&mut self) {
        if self.file.take().is_some() {
            self.number += 1;
            self.bytes = 0;
        }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let file = self.file()?;
        file.write_all(lines)?;
        file.sync_data()
    }

    fn file(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let path = path_of(&self.folder, self.number);
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            File::open(&self.folder)?.sync_all()?;
            self.file = Some(file);
        }
        Ok(self.file.as_mut().expect("the file was opened above"))
    }
}

impl SpoolReader {
    /// Returns the next messages, in order. Empty if all messages are passed.
    pub(super) fn read(&mut self) -> io::Result<Vec<SpooledMessage>> {
        loop {
            // The files are listed before the read: a file is complete once a later one exists.
            let later = numbers(&self.folder)?.into_iter().find(|number| *number > self.number);
            let bytes = match File::open(path_of(&self.folder, self.number)) {
                Ok(mut file) => {
                    file.seek(SeekFrom::Start(self.offset))?;
                    let mut bytes = Vec::new();
                    file.take(READ_BYTES).read_to_end(&mut bytes)?;
                    bytes
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            let messages = self.messages(&bytes);
            if !messages.is_empty() {
                return Ok(messages);
            }
            // All whole lines were damaged, and were skipped.
            if bytes.contains(&b'\n') {
                continue;
            }
            let Some(later) = later else { return Ok(Vec::new()) };
            self.leave(bytes.len() as u64, later);
        }
    }

    /// Returns the messages of whole lines. Damaged lines at the beginning are passed at once.
    fn messages(&mut self, bytes: &[u8]) -> Vec<SpooledMessage> {
        let mut messages: Vec<SpooledMessage> = Vec::new();
        let (number, mut next) = (self.number, self.offset);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(text) = line.strip_suffix(b"\n") else { break };
            let line_bytes = line.len() as u64;
            let position = SpoolPosition { number, offset: next };
            next += line_bytes;
            let (sum, message) = text.split_at(text.len().min(CHECKSUM_CHARS));
            let message = message.strip_prefix(b" ");
            if let Some(message) = message.filter(|it| checksum(it).as_bytes() == sum) {
                let message = Bytes::copy_from_slice(message);
                messages.push(SpooledMessage { message, position, line_bytes });
                continue;
            }
            self.counts.lose(1);
            match messages.last_mut() {
                Some(before) => before.line_bytes += line_bytes,
                None => self.pass(line_bytes),
            }
        }
        messages
    }

    fn pass(&mut self, bytes: u64) {
        self.offset += bytes;
        self.counts.leave(bytes);
    }

    /// Continues in a later file. The rest of this file is a torn line.
    fn leave(&mut self, torn_bytes: u64, later: u64) {
        if torn_bytes > 0 {
            self.counts.lose(1);
            self.pass(torn_bytes);
        }
        let path = path_of(&self.folder, self.number);
        (self.number, self.offset) = (later, 0);
        // The file goes first: the position needs a block, which a full disk has only afterwards. A
        // position in a file that is gone means the first file.
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a passed file of events stays until the \
                                                            next start");
        }
        self.is_unsaved = true;
    }

    /// Passes messages, in their order. They are not read again before the next start, even if the
    /// position can't be saved afterwards.
    pub(super) fn acknowledge(&mut self, messages: &[SpooledMessage]) {
        let bytes = messages.iter().map(|message| message.line_bytes).sum();
        self.pass(bytes);
        self.is_unsaved = true;
    }

    /// Saves the position, if it has changed since it was saved last. After an error the position stays
    /// unsaved, and messages since then are delivered again after a restart.
    pub(super) fn save(&mut self) -> io::Result<()> {
        if self.is_unsaved {
            let fresh = self.folder.join(format!("{POSITION}.new"));
            fs::write(&fresh, format!("{} {}\n", self.number, self.offset))?;
            fs::rename(fresh, self.folder.join(POSITION))?;
            self.is_unsaved = false;
        }
        Ok(())
    }

    /// Returns true if the stored position lags behind.
    pub(super) fn is_unsaved(&self) -> bool {
        self.is_unsaved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1 << 20;

    struct SpoolFixture {
        folder: tempfile::TempDir,
        counts: Arc<Counts>,
    }

    impl SpoolFixture {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), counts: Arc::default() }
        }

        fn open(&self, bytes_max: u64) -> (SpoolWriter, SpoolReader) {
            open(self.folder.path(), bytes_max, &self.counts).unwrap()
        }

        fn lost(&self) -> u64 {
            self.counts.lost.load(Ordering::Relaxed)
        }

        fn waiting(&self) -> u64 {
            self.counts.waiting_bytes.load(Ordering::Relaxed)
        }
    }

    fn batch(texts: &[&str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
    }

    fn texts(messages: &[SpooledMessage]) -> Vec<String> {
        messages.iter().map(|it| String::from_utf8(it.message.to_vec()).unwrap()).collect()
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let place = SpoolFixture::new();
        let (mut tail, mut head) = place.open(ROOM);
        assert!(head.read().unwrap().is_empty());
        tail.append(&batch(&["one", "two"])).unwrap();
        tail.append(&batch(&["three"])).unwrap();
        let messages = head.read().unwrap();
        assert_eq!(texts(&messages), ["one", "two", "three"]);
        assert!(messages.is_sorted_by(|before, after| before.position < after.position));
        assert_eq!(head.read().unwrap(), messages, "positions stay");
        head.acknowledge(&messages[..2]);
        assert_eq!(texts(&head.read().unwrap()), ["three"]);
        head.acknowledge(&messages[2..]);
        assert!(head.read().unwrap().is_empty());
        assert_eq!((place.waiting(), place.lost()), (0, 0));
    }

    #[test]
    fn a_restart_resumes_with_unacknowledged_messages() {
        let place = SpoolFixture::new();
        let (mut tail, mut head) = place.open(ROOM);
        tail.append(&batch(&["one", "two"])).unwrap();
        head.read().unwrap();
        let done = head.read().unwrap();
        head.acknowledge(&done[..1]);
        head.save().unwrap();
        drop((tail, head));
        let (mut tail, mut head) = place.open(ROOM);
        tail.append(&batch(&["three"])).unwrap();
        let rest = head.read().unwrap();
        assert_eq!(texts(&rest), ["two"]);
        head.acknowledge(&rest);
        assert_eq!(texts(&head.read().unwrap()), ["three"]);
        assert_eq!(numbers(place.folder.path()).unwrap(), [2], "the first file is done with");
        drop((tail, head));
        fs::remove_file(place.folder.path().join(POSITION)).unwrap();
        let (_, mut head) = place.open(ROOM);
        assert_eq!(texts(&head.read().unwrap()), ["three"], "without a position all comes again");
    }

    /// On a full disk the position can't be stored before a file is removed.
    #[test]
    fn a_passed_file_goes_though_the_position_cannot_be_stored() {
        let place = SpoolFixture::new();
        let (mut tail, mut head) = place.open(ROOM);
        tail.append(&batch(&["one"])).unwrap();
        let passed = head.read().unwrap();
        head.acknowledge(&passed);
        head.save().unwrap();
        drop((tail, head));
        let (mut tail, mut head) = place.open(ROOM);
        tail.append(&batch(&["two"])).unwrap();
        fs::create_dir(place.folder.path().join(format!("{POSITION}.new"))).unwrap();
        assert_eq!(texts(&head.read().unwrap()), ["two"]);
        assert_eq!(numbers(place.folder.path()).unwrap(), [2], "the first file is gone");
        head.save().unwrap_err();
        assert!(head.is_unsaved());
        assert_eq!(texts(&head.read().unwrap()), ["two"]);
        drop((tail, head));
        let (_, mut head) = place.open(ROOM);
        assert_eq!(
            texts(&head.read().unwrap()),
            ["two"],
            "the old position names a file that is gone"
        );
    }

    /// A reader passes messages while the writer syncs them, and the count returns to zero.
    #[test]
    fn messages_that_are_passed_before_their_sync_are_counted_once() {
        let place = SpoolFixture::new();
        let (mut tail, mut head) = place.open(ROOM);
        let reader = std::thread::spawn(move || {
            let mut count = 0;
            while count < 200 {
                let messages = head.read().unwrap();
                head.acknowledge(&messages);
                count += messages.len();
            }
        });
        for _ in 0..200 {
            tail.append(&batch(&["message"])).unwrap();
        }
        reader.join().unwrap();
        assert_eq!((place.waiting(), place.lost()), (0, 0));
    }

    #[test]
    fn torn_and_damaged_lines_are_passed_over() {
        let place = SpoolFixture::new();
        let (mut tail, _) = place.open(ROOM);
        tail.append(&batch(&["one", "two", "three"])).unwrap();
        let path = path_of(place.folder.path(), 1);
        let mut bytes = fs::read(&path).unwrap();
        let torn = bytes.len() - 3;
        bytes[CHECKSUM_CHARS + 1] ^= 1;
        fs::write(&path, &bytes[..torn]).unwrap();
        drop(tail);
        let (mut tail, mut head) = place.open(ROOM);
        assert_eq!(texts(&head.read().unwrap()), ["two"]);
        tail.append(&batch(&["four"])).unwrap();
        let messages = head.read().unwrap();
        head.acknowledge(&messages);
        let messages = head.read().unwrap();
        assert_eq!(texts(&messages), ["four"]);
        assert_eq!(place.lost(), 2);
        head.acknowledge(&messages);
        assert!(head.read().unwrap().is_empty());
        assert_eq!(place.waiting(), 0);
    }

    #[test]
    fn the_oldest_stay_when_there_is_no_room() {
        let place = SpoolFixture::new();
        let (mut tail, mut head) = place.open(40);
        tail.append(&batch(&["0123456789", "0123456789", "x"])).unwrap();
        assert_eq!(place.lost(), 1, "twenty bytes a line, and forty in all");
        tail.append(&batch(&["y"])).unwrap();
        assert_eq!(place.lost(), 2);
        let messages = head.read().unwrap();
        assert_eq!(messages.len(), 2);
        head.acknowledge(&messages);
        tail.append(&batch(&["z", "a\nb"])).unwrap();
        assert_eq!(texts(&head.read().unwrap()), ["z"]);
        assert_eq!(place.lost(), 3);
    }

    #[test]
    fn long_spools_are_several_files() {
        let place = SpoolFixture::new();
        let (mut tail, mut head) = place.open(64 << 20);
        let long = "x".repeat(100_000);
        for _ in 0..50 {
            tail.append(&batch(&[&long])).unwrap();
        }
        assert_eq!(numbers(place.folder.path()).unwrap(), [1, 2]);
        let mut count = 0;
        loop {
            let messages = head.read().unwrap();
            if messages.is_empty() {
                break;
            }
            count += messages.len();
            head.acknowledge(&messages);
        }
        assert_eq!((count, place.waiting()), (50, 0));
        assert_eq!(numbers(place.folder.path()).unwrap(), [2]);
    }
}
