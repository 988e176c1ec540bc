//! Counts of a run: latencies, bytes, errors by code.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Maximum latency in microseconds: ten minutes. Latencies are kept to three digits.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Counts of one worker, or of several.
#[derive(Clone, Debug)]
pub(super) struct BenchTally {
    latencies_us: Histogram<u64>,
    pub(super) bytes: u64,
    pub(super) errors: BTreeMap<String, u64>,
}

impl Default for BenchTally {
    fn default() -> Self {
        let latencies_us =
            Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are in order");
        Self { latencies_us, bytes: 0, errors: BTreeMap::new() }
    }
}

impl BenchTally {
    /// Counts an answered request.
    pub(super) fn answered(&mut self, took: Duration, bytes: u64) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latencies_us.saturating_record(micros.max(1));
        self.bytes += bytes;
    }

    /// Counts a failed request.
    pub(super) fn failed(&mut self, code: &str) {
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }

    /// Adds another worker's counts.
    pub(super) fn merge(&mut self, other: &Self) {
        self.latencies_us.add(&other.latencies_us).expect("all histograms have the same bounds");
        self.bytes += other.bytes;
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }

    /// Returns the number of answered requests.
    pub(super) fn requests(&self) -> u64 {
        self.latencies_us.len()
    }

    /// Returns the latency in milliseconds that this share of the requests does not exceed.
    pub(super) fn quantile_ms(&self, share: f64) -> f64 {
        to_ms(self.latencies_us.value_at_quantile(share))
    }

    /// Returns the longest latency in milliseconds.
    pub(super) fn max_ms(&self) -> f64 {
        to_ms(self.latencies_us.max())
    }
}

#[expect(clippy::cast_precision_loss, reason = "ten minutes of microseconds fit a float")]
fn to_ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected * 0.001
    }

    #[test]
    fn quantiles() {
        let mut tally = BenchTally::default();
        for millis in 1..=1000 {
            tally.answered(Duration::from_millis(millis), 10);
        }
        assert_eq!(tally.requests(), 1000);
        assert_eq!(tally.bytes, 10_000);
        assert!(near(tally.quantile_ms(0.5), 500.0), "{}", tally.quantile_ms(0.5));
        assert!(near(tally.quantile_ms(0.99), 990.0), "{}", tally.quantile_ms(0.99));
        assert!(near(tally.max_ms(), 1000.0), "{}", tally.max_ms());
    }

    #[test]
    fn merging_is_the_same_as_counting_together() {
        let (mut left, mut right, mut both) =
            (BenchTally::default(), BenchTally::default(), BenchTally::default());
        for (index, millis) in [3u64, 1, 4, 1, 5, 9, 2, 6].into_iter().enumerate() {
            let side = if index % 2 == 0 { &mut left } else { &mut right };
            side.answered(Duration::from_millis(millis), millis);
            both.answered(Duration::from_millis(millis), millis);
        }
        left.failed("SlowDown");
        right.failed("SlowDown");
        right.failed("connection");
        left.merge(&right);
        assert_eq!(left.requests(), both.requests());
        assert_eq!(left.bytes, both.bytes);
        assert!(near(left.quantile_ms(0.5), both.quantile_ms(0.5)));
        assert_eq!(left.errors, BTreeMap::from([("SlowDown".into(), 2), ("connection".into(), 1)]));
    }

    #[test]
    fn extremes_are_kept_in_bounds() {
        let mut tally = BenchTally::default();
        tally.answered(Duration::ZERO, 0);
        tally.answered(Duration::from_secs(10_000), 0);
        assert_eq!(tally.requests(), 2);
    }
}
