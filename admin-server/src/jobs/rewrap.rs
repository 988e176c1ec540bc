//! Rewrap of a bucket's data keys as a job.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_admin_api::rewrap::RewrapLine;
use martlet_proxy::{ObjectStore, Rewrap, RewrapOptions, RewrapProgress};
use serde_json::Value;

use super::table::{JobOutcome, JobWork};

/// Time before which a pass has no rate.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// Wrapping of a bucket's data keys by the first master key.
pub(super) struct RewrapWork {
    store: ObjectStore,
    rewrap: Rewrap,
}

impl RewrapWork {
    pub(super) fn new(store: ObjectStore, bucket: &str, options: RewrapOptions) -> Self {
        Self { store, rewrap: Rewrap::new(bucket, options) }
    }
}

impl JobWork for RewrapWork {
    fn kind(&self) -> &'static str {
        jobs::REWRAP
    }

    fn subject(&self) -> String {
        self.rewrap.bucket().to_owned()
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        let rewrapping = async move {
            let outcome = self.store.data_keys().rewrap(&self.rewrap).await;
            outcome.map_err(|error| error.to_string())
        };
        rewrapping.boxed()
    }

    fn cancel(&self) {
        // Versions under way are ended in good order.
        self.rewrap.stop();
    }

    fn progress(&self) -> JobProgress {
        let progress = self.rewrap.progress();
        let RewrapProgress { expected, seen, .. } = progress;
        JobProgress {
            done: seen,
            total: expected.map(|expected| expected.max(seen)),
            unit: "versions".to_owned(),
            text: text(&progress),
        }
    }

    fn eta_s(&self) -> Option<u64> {
        eta(&self.rewrap.progress()).map(|eta| eta.as_secs())
    }

    fn detail(&self, outcome: Option<&JobOutcome>) -> Option<Value> {
        let line = line(self.rewrap.bucket(), &self.rewrap.progress(), outcome);
        serde_json::to_value(line).ok()
    }
}

/// Progress as a sentence. The number of all versions is an estimate, and named as one.
fn text(progress: &RewrapProgress) -> String {
    let RewrapProgress { expected, pass, seen, rewrapped, failed, .. } = progress;
    let pass = if *pass > 1 { format!("pass {pass}: ") } else { String::new() };
    let of = match expected {
        Some(expected) => format!(" of about {} versions (by the last count)", expected.max(seen)),
        None => " versions".to_owned(),
    };
    let rate = rate(progress).map(|rate| format!(", {rate} versions/s")).unwrap_or_default();
    format!("{pass}{seen}{of} examined, {rewrapped} rewrapped, {failed} failed{rate}")
}

/// Average number of versions examined in a second.
fn rate(progress: &RewrapProgress) -> Option<u64> {
    let RewrapProgress { seen, running_for, .. } = progress;
    let ms = u64::try_from(running_for.as_millis()).unwrap_or(u64::MAX);
    (*running_for >= RATE_AFTER).then(|| seen.saturating_mul(1000) / ms)
}

/// Estimated time to examine the remaining versions, at the average rate of this pass. None without
/// a rate, and once more versions were examined than expected.
fn eta(progress: &RewrapProgress) -> Option<Duration> {
    let RewrapProgress { expected, seen, running_for, .. } = progress;
    rate(progress)?;
    let left = (*expected)?.checked_sub(*seen)?;
    let ms = (running_for.as_millis() * u128::from(left)).checked_div(u128::from(*seen))?;
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

fn line(bucket: &str, progress: &RewrapProgress, outcome: Option<&JobOutcome>) -> RewrapLine {
    let state = match outcome {
        None => "running",
        Some(Ok(())) => "done",
        Some(Err(_)) => "ended",
    };
    RewrapLine {
        bucket: bucket.to_owned(),
        state: state.to_owned(),
        expected: progress.expected,
        pass: progress.pass,
        seen: progress.seen,
        rewrapped: progress.rewrapped,
        failed: progress.failed,
        failure: progress.failure.clone(),
        uploads: progress.uploads,
        versions_per_s: rate(progress),
        eta_s: eta(progress).filter(|_| outcome.is_none()).map(|eta| eta.as_secs()),
        error: outcome.and_then(|outcome| outcome.clone().err()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_way() -> RewrapProgress {
        RewrapProgress {
            expected: Some(1000),
            pass: 1,
            seen: 400,
            rewrapped: 300,
            failed: 2,
            failure: Some("k: no".into()),
            uploads: 0,
            running_for: Duration::from_secs(20),
        }
    }

    #[test]
    fn a_running_rewrap_has_a_rate_and_an_estimated_end() {
        let running = line("b", &half_way(), None);
        assert_eq!((running.state.as_str(), running.versions_per_s), ("running", Some(20)));
        assert_eq!((running.eta_s, running.error), (Some(30), None));
        assert_eq!(
            text(&half_way()),
            "400 of about 1000 versions (by the last count) examined, 300 rewrapped, 2 failed, 20 \
             versions/s"
        );
        let second = RewrapProgress { pass: 2, expected: None, ..half_way() };
        assert_eq!(
            text(&second),
            "pass 2: 400 versions examined, 300 rewrapped, 2 failed, 20 versions/s"
        );
    }

    #[test]
    fn there_is_no_estimate_without_a_basis() {
        for progress in [
            RewrapProgress::default(),
            RewrapProgress { expected: None, ..half_way() },
            RewrapProgress { seen: 0, ..half_way() },
            RewrapProgress { seen: 1001, ..half_way() },
            RewrapProgress { running_for: Duration::from_millis(900), ..half_way() },
        ] {
            assert_eq!(eta(&progress), None, "{progress:?}");
        }
        let more = RewrapProgress { seen: 1001, ..half_way() };
        assert!(text(&more).starts_with("1001 of about 1001 versions"), "{}", text(&more));
    }

    #[test]
    fn an_ended_rewrap_has_its_reason_and_no_estimate() {
        let ended = line("b", &half_way(), Some(&Err("why".into())));
        assert_eq!((ended.state.as_str(), ended.eta_s), ("ended", None));
        assert_eq!(
            (ended.error.as_deref(), ended.failure.as_deref()),
            (Some("why"), Some("k: no"))
        );
        let done = line("b", &half_way(), Some(&Ok(())));
        assert_eq!((done.state.as_str(), done.eta_s, done.error), ("done", None, None));
    }
}
