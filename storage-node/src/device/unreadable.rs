//! Files of an index that the disk doesn't give back.
//!
//! An error of input or output may be a cable that was loose, and an index is a lot to lose. So it
//! counts as damage only when the same file fails again and again, over minutes.

use std::collections::BTreeMap;

/// How often a file fails before it counts as lost.
const TIMES: u32 = 3;
/// Failures of a file that follow one another faster than this count as one.
const APART_MS: u64 = 60_000;
/// Files that are counted at a time.
const FILES_MAX: usize = 64;

/// How often each file failed.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<String, Failures>);

#[derive(Clone, Copy, Debug)]
struct Failures {
    times: u32,
    last_ms: u64,
}

impl Unreadable {
    /// Notes an error at `now_ms`; returns the damage if the file that the error names is lost.
    pub(super) fn note(&mut self, message: &str, now_ms: u64) -> Option<String> {
        let file = file(message)?;
        if !self.0.contains_key(file) && self.0.len() >= FILES_MAX {
            return None;
        }
        let failures = self.0.entry(file.to_owned()).or_insert(Failures { times: 0, last_ms: 0 });
        if failures.times == 0 || now_ms >= failures.last_ms.saturating_add(APART_MS) {
            *failures = Failures { times: failures.times + 1, last_ms: now_ms };
        }
        (failures.times >= TIMES).then(|| format!("the disk does not give back {file}: {message}"))
    }

    /// Forgets all failures: the index is another one.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The file of an index that could not be read or written, as an error names it.
pub(super) fn file(message: &str) -> Option<&str> {
    let unreadable = ["Input/output error", "Is a directory"];
    unreadable.iter().find(|what| message.contains(**what))?;
    let (_, rest) = message.split_once("/index/")?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-_".contains(c)));
    let name = &rest[..end.unwrap_or(rest.len())];
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "the index does not read: IO error: While pread offset 4096 len 8192: \
                       /srv/d0/index/000012.sst: Input/output error";

    #[test]
    fn a_file_is_lost_once_it_failed_three_times_over_minutes() {
        let mut unreadable = Unreadable::default();
        for now_ms in [5, 6, 7, 59_000, 60_005, 60_006, 120_004] {
            assert_eq!(unreadable.note(BAD, now_ms), None, "at {now_ms}");
        }
        let other = BAD.replace("12.sst", "13.sst");
        assert_eq!(unreadable.note(&other, 120_005), None, "each file by itself");
        let damage = unreadable.note(BAD, 120_005).unwrap();
        assert!(damage.starts_with("the disk does not give back 000012.sst"), "{damage}");
        unreadable.clear();
        assert_eq!(unreadable.note(BAD, 180_005), None);
    }

    #[test]
    fn only_files_of_an_index_count() {
        assert_eq!(file(BAD), Some("000012.sst"));
        let log = "/d/index/000004.log can't be looked at: Input/output error (os error 5)";
        assert_eq!(file(log), Some("000004.log"));
        for other in [
            "can't read /srv/d0/volumes/0.vol: Input/output error (os error 5)",
            "IO error: While appending to file: /d/index/000004.log: No space left on device",
            "the committer of the index panicked",
        ] {
            assert_eq!(file(other), None, "{other}");
        }
    }
}
