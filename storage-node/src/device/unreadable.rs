//! Index files that the disk can't read.
//!
//! An I/O error may come from a loose cable, and losing an index is expensive. So an error counts
//! as damage only when one file fails repeatedly, over minutes.

use super::moment::Moment;
use super::repeated_failures::RepeatedFailures;

/// Number of files tracked at most.
const FILES_MAX: usize = 64;

/// Failures of each file.
#[derive(Debug)]
pub(super) struct Unreadable(RepeatedFailures<String>);

impl Default for Unreadable {
    fn default() -> Self {
        Self(RepeatedFailures::new(FILES_MAX))
    }
}

impl Unreadable {
    /// Records an error. Returns the damage if the file named in the error is lost.
    pub(super) fn record(&mut self, message: &str, now: Moment) -> Option<String> {
        let file = file(message)?;
        let is_lost = self.0.record(file.to_owned(), now);
        is_lost.then(|| format!("the disk can't read {file}: {message}"))
    }

    /// Forgets all failures, because the index was replaced.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the name of the unreadable index file in an error message.
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

    const BAD: &str = "the index read failed: IO error: While pread offset 4096 len 8192: \
                       /srv/d0/index/000012.sst: Input/output error";

    #[test]
    fn a_file_is_lost_once_it_failed_three_times_over_minutes() {
        let (mut unreadable, start) = (Unreadable::default(), Moment::now(0));
        let at = |ms| start.later(ms, 0);
        for now_ms in [5, 6, 7, 59_000, 60_005, 60_006, 120_004] {
            assert_eq!(unreadable.record(BAD, at(now_ms)), None, "at {now_ms}");
        }
        let other = BAD.replace("12.sst", "13.sst");
        assert_eq!(unreadable.record(&other, at(120_005)), None, "each file by itself");
        let damage = unreadable.record(BAD, at(120_005)).unwrap();
        assert!(damage.starts_with("the disk can't read 000012.sst"), "{damage}");
        unreadable.clear();
        assert_eq!(unreadable.record(BAD, at(180_005)), None);
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
