//! Progress of a rebuild, and the estimate of its end.
//!
//! ```text
//! pass: copies are listed ──▶ its keys are rebuilt ──▶ next pass, if one is left
//! ```
//!
//! Devices store how many copies they have, so the work of a pass is known. The number of passes grows
//! while more extents without an entry are found than fit in memory. The number of keys is known after
//! each pass: until the first pass ends, the estimate is that of the listing alone. Passes that are left
//! are taken to find as many keys as those that have ended.

use std::time::{Duration, Instant};

use martlet_admin_api::jobs::JobProgress;
use martlet_replicator::ScanFigures;

use super::census_pace::scaled;

/// Work of a rebuild at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The rebuild waits for the hold.
    #[default]
    Waiting,
    /// Copies are listed, since this time.
    Listing(Instant),
    /// Keys are rebuilt, since this time.
    Keys(Instant),
}

/// Amounts and times of a running rebuild.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RebuildPace {
    stage: Stage,
    /// Time of the stages that have ended.
    listing_took: Duration,
    keys_took: Duration,
    listed: u64,
    /// Copies of a pass, if all devices answer.
    stored: Option<u64>,
    passes: u64,
    passes_left: u64,
    /// Keys of all passes that have ended.
    keys: u64,
    keys_done: u64,
    /// Keys of the last of these passes.
    pass_keys: u64,
    pass_keys_done: u64,
}

impl RebuildPace {
    /// Begins to list copies.
    pub(super) fn begin_listing(&mut self, now: Instant) {
        self.enter(Stage::Listing(now), now);
    }

    /// Begins to rebuild the keys of a pass.
    pub(super) fn begin_keys(&mut self, keys: usize, now: Instant) {
        self.enter(Stage::Keys(now), now);
        (self.pass_keys, self.pass_keys_done) = (keys as u64, 0);
        self.keys += self.pass_keys;
    }

    fn enter(&mut self, stage: Stage, now: Instant) {
        match self.stage {
            Stage::Waiting => {}
            Stage::Listing(since) => self.listing_took += now.saturating_duration_since(since),
            Stage::Keys(since) => self.keys_took += now.saturating_duration_since(since),
        }
        self.stage = stage;
    }

    /// Notes the figures of the scan.
    pub(super) fn note_scan(&mut self, figures: &ScanFigures) {
        (self.listed, self.stored) = (figures.listed, figures.stored);
        (self.passes, self.passes_left) = (figures.passes, figures.passes_left);
    }

    /// Notes a key whose rebuild has ended.
    pub(super) fn note_key(&mut self) {
        self.keys_done += 1;
        self.pass_keys_done += 1;
    }

    /// Returns the progress of the stage. `rest` are its words after the number of listed copies.
    pub(super) fn progress(&self, rest: &str) -> JobProgress {
        let Self { listed, passes, passes_left, .. } = *self;
        let all = self.copies();
        let lists = matches!(self.stage, Stage::Listing(_)) && passes_left > 0;
        let number = passes + u64::from(lists);
        let of_all = all.map(|all| format!(" of about {all}")).unwrap_or_default();
        let text = format!(
            "pass {} of at least {}: {listed}{of_all} copies listed, {rest}",
            number.max(1),
            (passes + passes_left).max(1)
        );
        match self.stage {
            Stage::Keys(_) => JobProgress {
                done: self.pass_keys_done,
                total: Some(self.pass_keys),
                unit: "keys".to_owned(),
                text,
            },
            _ => JobProgress { done: listed, total: all, unit: "copies".to_owned(), text },
        }
    }

    /// Returns the copies of all known passes, and at least those that were listed.
    fn copies(&self) -> Option<u64> {
        let passes = self.passes + self.passes_left;
        self.stored.map(|stored| stored.saturating_mul(passes).max(self.listed))
    }

    /// Returns the estimated time until the end; none if too little is known.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let (mut listing, mut keys) = (self.listing_took, self.keys_took);
        match self.stage {
            Stage::Waiting => return None,
            Stage::Listing(since) => listing += now.saturating_duration_since(since),
            Stage::Keys(since) => keys += now.saturating_duration_since(since),
        }
        let copies = self.copies()?.saturating_sub(self.listed);
        let expected = (self.keys * self.passes_left).checked_div(self.passes).unwrap_or_default();
        let keys_left = self.pass_keys.saturating_sub(self.pass_keys_done) + expected;
        Some(rest(listing, copies, self.listed)? + rest(keys, keys_left, self.keys_done)?)
    }
}

/// Time for `left` items, if `done` items took this long; none if neither is known.
fn rest(took: Duration, left: u64, done: u64) -> Option<Duration> {
    if left == 0 { Some(Duration::ZERO) } else { scaled(took, left, done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn figures(listed: u64, passes: u64, passes_left: u64) -> ScanFigures {
        ScanFigures { listed, stored: Some(600), passes, passes_left, ..ScanFigures::default() }
    }

    #[test]
    fn a_pass_has_a_known_end_and_then_its_keys_have_one() {
        let began = Instant::now();
        let at = |seconds: u32| began + SECOND * seconds;
        let mut pace = RebuildPace::default();
        assert_eq!((pace.left(began), pace.progress("").total), (None, None));
        pace.begin_listing(began);
        pace.note_scan(&figures(0, 0, 1));
        assert_eq!((pace.left(began), pace.progress("").total), (None, Some(600)));
        pace.note_scan(&figures(200, 0, 1));
        assert_eq!(pace.left(at(10)), Some(SECOND * 20));
        let progress = pace.progress("no more");
        assert_eq!((progress.done, progress.total, &*progress.unit), (200, Some(600), "copies"));
        assert_eq!(progress.text, "pass 1 of at least 1: 200 of about 600 copies listed, no more");
        pace.note_scan(&figures(600, 1, 0));
        pace.begin_keys(40, at(30));
        assert_eq!(pace.left(at(31)), None, "no key has ended");
        for _ in 0..10 {
            pace.note_key();
        }
        assert_eq!(pace.left(at(35)), Some(SECOND * 15));
        let progress = pace.progress("");
        assert_eq!((progress.done, progress.total, &*progress.unit), (10, Some(40), "keys"));
        assert!(progress.text.starts_with("pass 1 of at least 1: 600 of about 600"));
        for _ in 0..30 {
            pace.note_key();
        }
        assert_eq!(pace.left(at(60)), Some(Duration::ZERO));
        // The rebuild looks for another pass, and finds none.
        pace.begin_listing(at(60));
        assert!(pace.progress("").text.starts_with("pass 1 of at least 1"));
    }

    #[test]
    fn passes_that_are_left_count_with_as_many_keys() {
        let began = Instant::now();
        let at = |seconds: u32| began + SECOND * seconds;
        let mut pace = RebuildPace::default();
        pace.begin_listing(began);
        pace.note_scan(&figures(300, 0, 2));
        assert_eq!(pace.left(at(10)), Some(SECOND * 30), "two passes");
        pace.note_scan(&figures(600, 1, 1));
        pace.begin_keys(20, at(20));
        for _ in 0..20 {
            pace.note_key();
        }
        // 20 s for the copies of the other pass, and 10 s for its keys.
        pace.begin_listing(at(30));
        assert_eq!(pace.left(at(30)), Some(SECOND * 30));
        assert!(pace.progress("").text.starts_with("pass 2 of at least 2: 600 of about 1200"));
        pace.note_scan(&figures(900, 1, 1));
        assert_eq!(pace.left(at(40)), Some(SECOND * 20));
    }

    #[test]
    fn a_silent_device_leaves_the_end_unknown() {
        let began = Instant::now();
        let mut pace = RebuildPace::default();
        pace.begin_listing(began);
        pace.note_scan(&ScanFigures { stored: None, ..figures(200, 0, 1) });
        assert_eq!((pace.left(began + SECOND), pace.progress("").total), (None, None));
        // More copies than at the begin of the pass.
        pace.note_scan(&figures(700, 0, 1));
        assert_eq!(pace.progress("").total, Some(700));
    }
}
