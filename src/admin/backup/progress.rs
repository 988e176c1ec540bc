//! Progress of backups and restores.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::admin::print::size;
use crate::progress::CountedWork;

/// Progress of a backup: records of one kind after the other.
pub(super) struct CreateProgress {
    work: CountedWork,
    /// Estimated number of records by kind.
    expected: BTreeMap<String, u64>,
    kinds: usize,
}

impl CreateProgress {
    /// Begins with kinds in so great a number.
    pub(super) fn begin(kinds: usize, expected: BTreeMap<String, u64>, json: bool) -> Self {
        Self { work: CountedWork::begin("backup create", json), expected, kinds }
    }

    /// Shows the number of records of a kind, the kind's number from 1, and all records so far.
    pub(super) fn show(&mut self, kind: &KindProgress<'_>) {
        let total = self.total(kind);
        let text = kind.text(self.kinds, total);
        // Only the records of this kind have a total.
        self.work.show(&text, "records", kind.records, total);
    }

    fn total(&self, kind: &KindProgress<'_>) -> Option<u64> {
        self.expected.get(kind.name).copied().filter(|expected| *expected >= kind.records)
    }
}

/// Records of a kind that a backup has so far.
#[derive(Debug)]
pub(super) struct KindProgress<'a> {
    pub(super) name: &'a str,
    /// Number of the kind, from 1.
    pub(super) number: usize,
    pub(super) records: u64,
}

impl KindProgress<'_> {
    fn text(&self, kinds: usize, total: Option<u64>) -> String {
        let Self { name, number, records } = self;
        let of = total.map(|total| format!(" of about {total}")).unwrap_or_default();
        format!("kind {number} of {kinds}, {name}: {records}{of} records")
    }
}

/// Progress of a command that reads a backup: a check of the whole file, then restored records.
pub(super) struct FileProgress {
    work: CountedWork,
    file_bytes: u64,
    read_bytes: Arc<AtomicU64>,
}

impl FileProgress {
    /// Begins a command with a file of this length.
    pub(super) fn begin(command: &str, file_bytes: u64, json: bool) -> Self {
        let work = CountedWork::begin(command, json);
        Self { work, file_bytes, read_bytes: Arc::default() }
    }

    /// Wraps the file, whose bytes are counted from its begin.
    pub(super) fn counted<R: Read>(&self, from: R) -> CountedFile<R> {
        self.read_bytes.store(0, Ordering::Relaxed);
        CountedFile { from, bytes: self.read_bytes.clone() }
    }

    /// Shows the number of records that were compared.
    pub(super) fn show_check(&mut self, compared: u64) {
        self.show_bytes(&format!("{compared} records compared"));
    }

    /// Shows the number of lines that were read.
    pub(super) fn show_lines(&mut self, lines: u64) {
        self.show_bytes(&format!("{lines} lines read"));
    }

    fn show_bytes(&mut self, done: &str) {
        let read = self.read_bytes.load(Ordering::Relaxed);
        let text = check_text(done, read, self.file_bytes);
        self.work.show(&text, "KiB", read >> 10, Some(self.file_bytes >> 10));
    }

    /// Shows the restored records, and those gone through of all.
    pub(super) fn show_restore(&mut self, restored: RestoredRecords, all: u64) {
        self.work.show(&restored.text(all), "records", restored.seen, Some(all));
    }
}

fn check_text(done: &str, read: u64, all: u64) -> String {
    format!("checking the file: {} of {}, {done}", size(read), size(all))
}

/// Records of a restore.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RestoredRecords {
    /// Records gone through.
    pub(super) seen: u64,
    pub(super) restored: u64,
    pub(super) failed: u64,
}

impl RestoredRecords {
    fn text(self, all: u64) -> String {
        let Self { seen, restored, failed } = self;
        format!("{seen} of {all} records, {restored} restored, {failed} failed")
    }
}

/// File whose bytes are counted as they are read.
pub(super) struct CountedFile<R> {
    from: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedFile<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_an_estimated_number_until_there_are_more() {
        let expected = BTreeMap::from([("bucket".to_owned(), 100)]);
        let progress = CreateProgress::begin(6, expected, true);
        let text = |name, records| {
            let kind = KindProgress { name, number: 6, records };
            kind.text(6, progress.total(&kind))
        };
        assert_eq!(text("bucket", 40), "kind 6 of 6, bucket: 40 of about 100 records");
        assert_eq!(text("bucket", 101), "kind 6 of 6, bucket: 101 records");
        assert_eq!(text("key", 5), "kind 6 of 6, key: 5 records");
    }

    #[test]
    fn bytes_of_a_file_are_counted_from_its_begin() {
        let mut progress = FileProgress::begin("backup restore", 3000, true);
        for _ in 0..2 {
            let mut bytes = Vec::new();
            progress.counted(&[7_u8; 2048][..]).read_to_end(&mut bytes).unwrap();
            assert_eq!(progress.read_bytes.load(Ordering::Relaxed), 2048);
        }
        progress.show_check(5);
        progress.show_lines(6);
        let text = check_text("6 lines read", 2048, 3000);
        assert_eq!(text, "checking the file: 2.0 KiB of 2.9 KiB, 6 lines read");
        let records = RestoredRecords { seen: 7, restored: 4, failed: 1 };
        assert_eq!(records.text(9), "7 of 9 records, 4 restored, 1 failed");
    }
}
