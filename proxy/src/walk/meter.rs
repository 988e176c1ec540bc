//! Counts of the rows that a walk looks at, and bounds on them.
//!
//! A run of tombstones may have any length, and no request reads it to its end. A page of a listing
//! is returned short, or even empty, with a position from which the next request continues. Clients
//! of S3 go on after an empty page that is truncated, but some take a first page without keys for
//! an absence. So a page that has something to return ends early, and an empty one late.

use std::time::Duration;

use tokio::time::Instant;

/// Rows that a call looks at before it returns a page that isn't empty.
pub(crate) const SEEN_MAX: usize = 50_000;
/// Rows that a call looks at before it returns an empty page.
const SEEN_EMPTY_MAX: usize = 1_000_000;
/// Time after which a call that has seen [`SEEN_MAX`] rows returns an empty page.
const EMPTY_TIME: Duration = Duration::from_millis(500);

/// Bound on the rows that a walk looks at before it pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// None: the walk reads to its end.
    Unbounded,
    /// This number of rows.
    Rows(usize),
    /// A page that has nothing to return yet.
    Empty { until: Instant },
}

/// Rows that a walk has seen, and their bound.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Entries received, plus rows that devices passed over where they were many.
    pub(crate) seen: usize,
    bound: Bound,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { seen: 0, bound: Bound::Unbounded }
    }

    /// Makes the walk pause at a bound.
    pub(crate) fn pause_at(&mut self, bound: Bound) {
        self.bound = bound;
    }

    /// Makes the walk pause as a page of a listing that begins now.
    pub(crate) fn pause_as_page(&mut self) {
        self.bound = Bound::Empty { until: Instant::now() + EMPTY_TIME };
    }

    /// Shortens a page that has something to return.
    pub(crate) fn has_found(&mut self) {
        if let Bound::Empty { .. } = self.bound {
            self.bound = Bound::Rows(SEEN_MAX);
        }
    }

    /// Begins to count anew.
    pub(crate) fn go_on(&mut self) {
        self.seen = 0;
    }

    /// Returns true if the walk may pause.
    pub(super) fn is_full(&self) -> bool {
        match self.bound {
            Bound::Unbounded => false,
            Bound::Rows(most) => self.seen >= most,
            Bound::Empty { until } => {
                let is_late = || Instant::now() >= until;
                self.seen >= SEEN_EMPTY_MAX || self.seen >= SEEN_MAX && is_late()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_full(meter: &mut Meter, seen: usize) -> bool {
        meter.seen = seen;
        meter.is_full()
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_page_ends_later_than_one_with_something_to_return() {
        let mut meter = Meter::new();
        assert!(!is_full(&mut meter, usize::MAX));
        meter.pause_as_page();
        assert!(!is_full(&mut meter, SEEN_EMPTY_MAX - 1) && is_full(&mut meter, SEEN_EMPTY_MAX));
        tokio::time::advance(EMPTY_TIME).await;
        assert!(!is_full(&mut meter, SEEN_MAX - 1) && is_full(&mut meter, SEEN_MAX));
        meter.pause_as_page();
        assert!(!is_full(&mut meter, SEEN_MAX));
        meter.has_found();
        assert!(is_full(&mut meter, SEEN_MAX) && !is_full(&mut meter, SEEN_MAX - 1));
        meter.pause_at(Bound::Rows(7));
        meter.has_found();
        assert!(is_full(&mut meter, 7) && !is_full(&mut meter, 6));
        meter.go_on();
        assert_eq!(meter.seen, 0);
    }
}
