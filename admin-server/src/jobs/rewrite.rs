//! Rewrite of a bucket as a job.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_admin_api::rewrite::RewriteLine;
use martlet_proxy::{ObjectStore, Rewrite, RewriteOptions, RewriteProgress};
use serde_json::Value;

use super::table::{JobOutcome, JobWork};

/// Move of a bucket's objects to its storage policy.
pub(super) struct RewriteWork {
    store: ObjectStore,
    rewrite: Rewrite,
}

impl RewriteWork {
    pub(super) fn new(store: ObjectStore, bucket: &str, options: RewriteOptions) -> Self {
        Self { store, rewrite: Rewrite::new(bucket, options) }
    }
}

impl JobWork for RewriteWork {
    fn kind(&self) -> &'static str {
        jobs::REWRITE
    }

    fn subject(&self) -> String {
        self.rewrite.bucket().to_owned()
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        let rewriting = async move {
            self.store.rewrite(&self.rewrite).await.map_err(|error| error.to_string())
        };
        rewriting.boxed()
    }

    fn cancel(&self) {
        // Objects under way are undone in good order.
        self.rewrite.stop();
    }

    fn progress(&self) -> JobProgress {
        let progress = self.rewrite.progress();
        let RewriteProgress { objects_to_move, bytes_to_move, seen, moved, failed, .. } = progress;
        let total = progress.looked.then_some(bytes_to_move);
        let text = if progress.looked {
            format!("{moved} of {objects_to_move} objects moved, {seen} seen, {failed} failed")
        } else {
            format!("scanning: {objects_to_move} objects to move")
        };
        JobProgress { done: progress.moved_bytes, total, unit: "bytes".to_owned(), text }
    }

    fn eta_s(&self) -> Option<u64> {
        eta(&self.rewrite.progress()).map(|eta| eta.as_secs())
    }

    fn detail(&self, outcome: Option<&JobOutcome>) -> Option<Value> {
        let line = line(self.rewrite.bucket(), &self.rewrite.progress(), outcome);
        serde_json::to_value(line).ok()
    }
}

fn line(bucket: &str, progress: &RewriteProgress, outcome: Option<&JobOutcome>) -> RewriteLine {
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
    fn failed_objects_count_as_left_when_a_rewrite_is_done() {
        let done = line("b", &half_way(), Some(&Ok(())));
        assert_eq!((done.state.as_str(), done.left, done.eta_s), ("done", 1, None));
        let ended = line("b", &half_way(), Some(&Err("why".into())));
        assert_eq!((ended.state.as_str(), ended.left), ("ended", 6));
        assert_eq!(ended.error.as_deref(), Some("why"));
        assert!(!ended.is_running() && !done.is_running());
    }
}
