//! Rewrites of buckets that run in this process, one at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use martlet_admin_api::rewrite::RewriteLine;
use martlet_proxy::{ObjectStore, Rewrite, RewriteOptions, RewriteProgress};
use parking_lot::Mutex;

/// Last rewrite of each bucket since the process started.
#[derive(Default)]
pub(super) struct Rewrites {
    known: Mutex<BTreeMap<String, Arc<RewriteRun>>>,
}

struct RewriteRun {
    rewrite: Rewrite,
    /// Result, set when the rewrite ends.
    outcome: OnceLock<Result<(), String>>,
}

impl RewriteRun {
    fn line(&self) -> RewriteLine {
        line(self.rewrite.bucket(), &self.rewrite.progress(), self.outcome.get())
    }

    fn is_running(&self) -> bool {
        self.outcome.get().is_none()
    }
}

impl Rewrites {
    /// Returns the state of a bucket's last rewrite.
    pub(super) fn of(&self, bucket: &str) -> Option<RewriteLine> {
        self.known.lock().get(bucket).map(|run| run.line())
    }

    /// Begins a rewrite of a bucket, or returns its running rewrite.
    ///
    /// # Errors
    /// A sentence, if another bucket's rewrite is running: their rates would add up.
    pub(super) fn begin(
        &self,
        store: ObjectStore,
        bucket: &str,
        options: RewriteOptions,
    ) -> Result<RewriteLine, String> {
        let mut known = self.known.lock();
        if let Some(other) = known.values().find(|run| run.is_running()) {
            if other.rewrite.bucket() == bucket {
                return Ok(other.line());
            }
            return Err(format!(
                "the bucket {} is already being rewritten here: wait for the end, or use another \
                 proxy",
                other.rewrite.bucket()
            ));
        }
        let rewrite = Rewrite::new(bucket, options);
        let run = Arc::new(RewriteRun { rewrite, outcome: OnceLock::new() });
        known.insert(bucket.to_owned(), run.clone());
        let line = run.line();
        tokio::spawn(async move {
            let own = run.clone();
            let work = tokio::spawn(async move { store.rewrite(&own.rewrite).await });
            // A panic of the rewrite also counts as its end, so that other rewrites may begin.
            let outcome = match work.await {
                Ok(outcome) => outcome.map_err(|error| error.to_string()),
                Err(error) => Err(format!("the rewrite failed: {error}")),
            };
            let RewriteProgress { moved, moved_bytes, failed, .. } = run.rewrite.progress();
            let (bucket, error) = (run.rewrite.bucket(), outcome.as_ref().err());
            tracing::info!(bucket, moved, moved_bytes, failed, error, "ended a rewrite");
            // The outcome is set only here.
            let _ = run.outcome.set(outcome);
        });
        Ok(line)
    }

    /// Stops the running rewrite of a bucket. Returns its progress.
    pub(super) fn stop(&self, bucket: &str) -> Option<RewriteLine> {
        let known = self.known.lock();
        let run = known.get(bucket)?;
        run.rewrite.stop();
        Some(run.line())
    }
}

fn line(
    bucket: &str,
    progress: &RewriteProgress,
    outcome: Option<&Result<(), String>>,
) -> RewriteLine {
    let state = match (outcome, progress.looked) {
        (None, false) => "looking",
        (None, true) => "moving",
        (Some(Ok(())), _) => "done",
        (Some(Err(_)), _) => "ended",
    };
    let is_done = matches!(outcome, Some(Ok(())));
    let left = |all: u64, moved: u64| if is_done { 0 } else { all.saturating_sub(moved) };
    RewriteLine {
        bucket: bucket.to_owned(),
        state: state.to_owned(),
        objects_to_move: progress.objects_to_move,
        bytes_to_move: progress.bytes_to_move,
        seen: progress.seen,
        moved: progress.moved,
        moved_bytes: progress.moved_bytes,
        left: left(progress.objects_to_move, progress.moved).max(progress.failed),
        left_bytes: left(progress.bytes_to_move, progress.moved_bytes),
        failed: progress.failed,
        failure: progress.failure.clone(),
        eta_s: eta(progress).filter(|_| outcome.is_none()).map(|eta| eta.as_secs()),
        error: outcome.and_then(|outcome| outcome.clone().err()),
    }
}

/// Estimated time to copy the remaining bytes, at the average rate so far.
fn eta(progress: &RewriteProgress) -> Option<Duration> {
    let RewriteProgress { copied_bytes: copied, moving_for, .. } = progress;
    let left = progress.bytes_to_move.saturating_sub(*copied);
    let left_ms = moving_for.as_millis() * u128::from(left);
    let ms = left_ms.checked_div(u128::from(*copied))?;
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_way() -> RewriteProgress {
        RewriteProgress {
            looked: true,
            objects_to_move: 10,
            bytes_to_move: 1000,
            seen: 7,
            moved: 4,
            moved_bytes: 400,
            copied_bytes: 500,
            failed: 1,
            failure: Some("k: no".into()),
            moving_for: Duration::from_secs(30),
        }
    }

    #[test]
    fn a_running_rewrite_shows_what_is_left_and_for_how_long() {
        let progress = line("b", &half_way(), None);
        assert_eq!(
            (progress.state.as_str(), progress.left, progress.left_bytes),
            ("moving", 6, 600)
        );
        assert_eq!(progress.eta_s, Some(30));
        assert!(progress.is_running());
        let early = line("b", &RewriteProgress::default(), None);
        assert_eq!((early.state.as_str(), early.eta_s), ("looking", None));
    }

    #[test]
    fn what_failed_is_left_when_it_is_done() {
        let done = line("b", &half_way(), Some(&Ok(())));
        assert_eq!((done.state.as_str(), done.left, done.eta_s), ("done", 1, None));
        let ended = line("b", &half_way(), Some(&Err("why".into())));
        assert_eq!((ended.state.as_str(), ended.left), ("ended", 6));
        assert_eq!(ended.error.as_deref(), Some("why"));
        assert!(!ended.is_running() && !done.is_running());
    }
}
