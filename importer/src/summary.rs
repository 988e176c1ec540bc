//! Summary of a run, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::plan::Passes;
use crate::progress::{Amount, Counters};

/// Summary of a run.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub struct Summary {
    /// True if the run only counted what it would copy.
    pub dry_run: bool,
    /// True if the run was stopped before its end.
    pub interrupted: bool,
    /// True if the run compared both buckets.
    pub verified: bool,
    /// True if the run copied, or counted for a copy.
    #[serde(skip)]
    pub has_copied: bool,
    /// Objects that were copied; of a dry run, that would be copied.
    pub copied: Amount,
    /// Objects that the target had already.
    pub present: Amount,
    /// Other objects at the target, which stayed.
    pub kept: Amount,
    /// Objects that the source deleted during the run.
    pub vanished: Amount,
    /// Objects that could not be copied.
    pub failed: Amount,
    /// Copies whose ETag is not the source's.
    pub other_etags: u64,
    /// Copies about whose bytes the source claims nothing.
    pub unclaimed: u64,
    /// Copies of objects of other storage classes than STANDARD.
    pub other_storage_classes: u64,
    /// Objects that the comparison read.
    pub compared: Amount,
    /// Objects that differ or are missing at the target.
    pub different: Amount,
    /// Objects that were compared by their size alone.
    pub unverified: Amount,
    /// Objects at the target that the source does not have.
    pub only_target: Amount,
    /// Repeated attempts.
    pub retries: u64,
    /// Replies of the source, and of the target, that limited the requests.
    pub throttled: [u64; 2],
    /// Bytes read from the source, repetitions included.
    pub read_bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Facts of a run that no counter has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunFacts {
    pub(crate) passes: Passes,
    pub(crate) is_interrupted: bool,
    pub(crate) throttled: [u64; 2],
    pub(crate) seconds: f64,
}

impl Summary {
    /// Sums up a run.
    pub(crate) fn new(counters: &Counters, run: RunFacts) -> Self {
        let load =
            |it: &std::sync::atomic::AtomicU64| it.load(std::sync::atomic::Ordering::Relaxed);
        Self {
            dry_run: run.passes == Passes::DryRun,
            interrupted: run.is_interrupted,
            verified: matches!(run.passes, Passes::CopyAndVerify | Passes::Verify),
            has_copied: run.passes != Passes::Verify,
            copied: counters.copied.amount(),
            present: counters.present.amount(),
            kept: counters.kept.amount(),
            vanished: counters.vanished.amount(),
            failed: counters.failed.amount(),
            other_etags: load(&counters.other_etags),
            unclaimed: load(&counters.unclaimed),
            other_storage_classes: load(&counters.other_classes),
            compared: counters.compared.amount(),
            different: counters.different.amount(),
            unverified: counters.unverified.amount(),
            only_target: counters.only_target.amount(),
            retries: load(&counters.retries),
            throttled: run.throttled,
            read_bytes: load(&counters.streamed_bytes),
            seconds: run.seconds,
        }
    }

    /// Returns true if the run ended, nothing failed, and no difference is known.
    pub fn is_clean(&self) -> bool {
        let wrong = self.failed.objects + self.kept.objects + self.different.objects;
        !self.interrupted && wrong == 0
    }

    /// Returns the summary as lines of text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |amount: Amount, words: &str| {
            let _ = writeln!(
                text,
                "{:>12} objects  {:>10}  {words}",
                amount.objects,
                size(amount.bytes)
            );
        };
        let mut seen = |amount: Amount, words: &str| {
            if amount.objects > 0 {
                line(amount, words);
            }
        };
        seen(self.present, "were there already");
        seen(self.kept, "differ at the target and were kept: see --overwrite");
        seen(self.vanished, "were deleted at the source meanwhile");
        seen(self.failed, "FAILED: run the same command again");
        seen(self.different, "DIFFER or are missing at the target");
        seen(self.unverified, "have equal sizes, and no checksum in common");
        seen(self.only_target, "are at the target only");
        let mut head = String::new();
        if self.has_copied {
            let verb = if self.dry_run { "would be copied" } else { "copied" };
            let _ = writeln!(
                head,
                "{:>12} objects  {:>10}  {verb}",
                self.copied.objects,
                size(self.copied.bytes)
            );
        }
        if self.verified {
            let _ = writeln!(
                head,
                "{:>12} objects  {:>10}  compared",
                self.compared.objects,
                size(self.compared.bytes)
            );
        }
        head + &text + &self.notes()
    }

    fn notes(&self) -> String {
        let mut notes = String::new();
        let mut note = |count: u64, words: &str| {
            if count > 0 {
                let _ = writeln!(notes, "note: {count} {words}");
            }
        };
        note(self.other_etags, "copies have another ETag than their source");
        note(self.unclaimed, "copies are of objects without an MD5 or a checksum at the source");
        note(self.other_storage_classes, "copies are of other storage classes, which are not kept");
        note(self.retries, "attempts were repeated");
        note(self.throttled[0], "requests were limited by the source");
        note(self.throttled[1], "requests were limited by the target");
        if self.interrupted {
            notes.push_str("interrupted: run the same command again to continue\n");
        }
        notes
    }
}

/// Formats bytes with a unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let unit = (bytes.ilog2() / 10).clamp(1, 6);
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / (1_u64 << (unit * 10)) as f64;
    format!("{value:.1} {}", UNITS[unit as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(counters: &Counters, passes: Passes) -> Summary {
        let run = RunFacts { passes, is_interrupted: false, throttled: [0, 3], seconds: 1.0 };
        Summary::new(counters, run)
    }

    #[test]
    fn sizes_have_units() {
        let sizes = [0, 1023, 1024, 1536, 5 << 40, u64::MAX].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 TiB", "16.0 EiB"]);
    }

    #[test]
    fn failures_and_differences_are_not_clean() {
        let counters = Counters::default();
        counters.copied.add(2048);
        let clean = summary(&counters, Passes::CopyAndVerify);
        assert!(clean.is_clean());
        let text = clean.text();
        assert!(text.contains("1 objects     2.0 KiB  copied\n"), "{text}");
        assert!(text.contains("note: 3 requests were limited by the target"), "{text}");
        for tally in [&counters.failed, &counters.kept, &counters.different] {
            let counters = Counters::default();
            assert!(summary(&counters, Passes::Copy).is_clean());
            tally.add(1);
        }
        assert!(!summary(&counters, Passes::Copy).is_clean());
        let text = summary(&counters, Passes::DryRun).text();
        assert!(text.contains("would be copied") && text.contains("FAILED"), "{text}");
    }
}
