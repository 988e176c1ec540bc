//! Rebuilds and the hold on collection, as far as this process knows them. A restart forgets both.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use futures::future::BoxFuture;
use martlet_admin_api::index::RebuildLine;
use martlet_replicator::HOLD_SETTLES_MS;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ApiError;

/// Source of sentences about processes that collect under a hold, one for each.
pub type HoldObstacles = Arc<dyn Fn() -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// Rebuilds of this process, and the hold that it saw last.
#[derive(Default)]
pub(crate) struct RebuildState {
    running: AtomicUsize,
    last: Mutex<Option<RebuildLine>>,
    seen: Mutex<Option<SeenHold>>,
    obstacles: Option<HoldObstacles>,
}

/// A hold, and the local time at which this process saw it first.
#[derive(Clone, Copy, Debug)]
struct SeenHold {
    since_ms: u64,
    at: Instant,
}

/// A rebuild that runs until this is dropped.
pub(crate) struct RunningRebuild(Arc<RebuildState>);

impl Drop for RunningRebuild {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RebuildState {
    pub(crate) fn new(obstacles: Option<HoldObstacles>) -> Self {
        Self { obstacles, ..Self::default() }
    }

    /// Returns an error if a process would collect under a hold: its release knows none.
    pub(crate) async fn check_obstacles(&self) -> Result<(), ApiError> {
        let Some(obstacles) = &self.obstacles else { return Ok(()) };
        let sentences = obstacles().await;
        if sentences.is_empty() {
            return Ok(());
        }
        Err(ApiError(StatusCode::CONFLICT, sentences.join("; ")))
    }

    /// Counts a rebuild as running.
    pub(crate) fn begin(self: &Arc<Self>) -> RunningRebuild {
        self.running.fetch_add(1, Ordering::AcqRel);
        RunningRebuild(self.clone())
    }

    /// Returns true while a rebuild runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Keeps the figures of a rebuild that has ended.
    pub(crate) fn end_with(&self, line: RebuildLine) {
        *self.last.lock() = Some(RebuildLine { findings: Vec::new(), ..line });
    }

    /// Returns the figures of the last rebuild.
    pub(crate) fn last(&self) -> Option<RebuildLine> {
        self.last.lock().clone()
    }

    /// Returns the time at which a hold is in force for all workers. Its start is a time of another
    /// process's clock, so the wait begins when this process sees the hold first.
    pub(crate) fn settles_at(&self, since_ms: u64) -> Instant {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let held = seen.filter(|held| held.since_ms == since_ms);
        let held = *seen.insert(held.unwrap_or(SeenHold { since_ms, at: now }));
        held.at + Duration::from_millis(HOLD_SETTLES_MS)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hold_settles_after_local_time_and_another_hold_begins_anew() {
        let state = RebuildState::default();
        let began = Instant::now();
        let settle = Duration::from_millis(HOLD_SETTLES_MS);
        // The start lies in the future of this clock, or far in its past.
        assert_eq!(state.settles_at(u64::MAX), began + settle);
        tokio::time::advance(settle * 2).await;
        assert_eq!(state.settles_at(u64::MAX), began + settle, "it has settled");
        assert_eq!(state.settles_at(0), Instant::now() + settle);
    }

    #[tokio::test]
    async fn a_process_without_holds_prevents_them() {
        assert!(RebuildState::default().check_obstacles().await.is_ok());
        let none: HoldObstacles = Arc::new(|| async { Vec::<String>::new() }.boxed());
        assert!(RebuildState::new(Some(none)).check_obstacles().await.is_ok());
        let one: HoldObstacles = Arc::new(|| async { vec!["p1 collects".to_owned()] }.boxed());
        let refused = RebuildState::new(Some(one)).check_obstacles().await.err().unwrap();
        assert_eq!((refused.0, refused.1.as_str()), (StatusCode::CONFLICT, "p1 collects"));
    }

    #[test]
    fn a_rebuild_runs_until_it_is_dropped_and_leaves_its_figures() {
        let state = Arc::new(RebuildState::default());
        let running = state.begin();
        assert!(state.is_running());
        drop(running);
        assert!(!state.is_running());
        let findings = vec!["one".to_owned()];
        state.end_with(RebuildLine { uncertain: 3, findings, ..RebuildLine::default() });
        let last = state.last().unwrap();
        assert_eq!((last.uncertain, last.findings.len()), (3, 0));
    }
}
