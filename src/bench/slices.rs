//! Results of a run in time slices, which show the effect of a failure during the run.

use std::time::Duration;

use serde::Serialize;

/// End, duration and outcome of each request.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Time from the start of the run.
    ended: Duration,
    took: Duration,
    is_answered: bool,
}

/// Results of one time slice.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Slice {
    pub(super) from_s: f64,
    pub(super) answered: usize,
    pub(super) failed: usize,
    /// Latencies of all requests that ended in the slice, including failed ones.
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Samples {
    /// Adds a request that ended at this time after the start of the run.
    pub(super) fn push(&mut self, ended: Duration, took: Duration, is_answered: bool) {
        self.0.push(Sample { ended, took, is_answered });
    }

    /// Adds another worker's samples.
    pub(super) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns one slice for each span of `every`, from the start of the run to its last sample.
    pub(super) fn slices(mut self, every: Duration) -> Vec<Slice> {
        let number = |sample: &Sample| sample.ended.as_nanos() / every.as_nanos().max(1);
        self.0.sort_by_key(|sample| (number(sample), sample.took));
        let last = self.0.last().map(&number);
        let mut rest = self.0.as_slice();
        let all = last.map_or(0..0, |last| 0..last + 1);
        all.map(|at| {
            let (here, after) = rest.split_at(rest.partition_point(|it| number(it) <= at));
            rest = after;
            #[expect(clippy::cast_precision_loss, reason = "a run has few slices")]
            Slice::of(at as f64 * every.as_secs_f64(), here)
        })
        .collect()
    }
}

impl Slice {
    /// Makes a slice of samples, which are sorted by duration.
    fn of(from_s: f64, samples: &[Sample]) -> Self {
        let at =
            |position: usize| samples.get(position).map_or(0.0, |it| it.took.as_secs_f64() * 1e3);
        let answered = samples.iter().filter(|sample| sample.is_answered).count();
        Self {
            from_s,
            answered,
            failed: samples.len() - answered,
            p50_ms: at(samples.len() / 2),
            p99_ms: at(samples.len() * 99 / 100),
            max_ms: at(samples.len().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn each_request_counts_where_it_ended() {
        let (mut samples, mut others) = (Samples::default(), Samples::default());
        for took in 1..=100 {
            samples.push(MS(500), MS(took), true);
        }
        others.push(MS(2100), MS(2050), false);
        others.push(MS(2999), MS(50), true);
        samples.merge(others);
        let slices = samples.slices(Duration::from_secs(1));
        assert_eq!(slices.len(), 3);
        assert_eq!((slices[0].answered, slices[0].failed), (100, 0));
        assert!((slices[0].p99_ms - 100.0).abs() < 1e-9 && (slices[0].p50_ms - 51.0).abs() < 1e-9);
        // No request ended in the second slice, which is still listed.
        let silent =
            Slice { from_s: 1.0, answered: 0, failed: 0, p50_ms: 0.0, p99_ms: 0.0, max_ms: 0.0 };
        assert_eq!(slices[1], silent);
        assert_eq!((slices[2].answered, slices[2].failed), (1, 1));
        assert!((slices[2].max_ms - 2050.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_requests_has_no_slices() {
        assert!(Samples::default().slices(MS(1000)).is_empty());
    }
}
