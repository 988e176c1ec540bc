//! Jobs of this process: running ones, and the last ones that have ended. A restart forgets them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{HISTORY_MAX, JobLine, JobProgress};
use martlet_protocol::Clock;
use martlet_protocol::id::random_bytes;
use parking_lot::Mutex;
use serde_json::Value;

use crate::api::ApiError;

/// Outcome of a job: success, or the reason of its failure.
pub(super) type JobOutcome = Result<(), String>;

/// Work of a job.
pub(super) trait JobWork: Send + Sync + 'static {
    /// Kind of the job. One job of each kind runs at a time, since their loads would add up.
    fn kind(&self) -> &'static str;

    /// Item that the job works on; empty if there is only one.
    fn subject(&self) -> String;

    /// Does the work. Called once.
    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome>;

    /// Ends the work soon. `run` returns then.
    fn cancel(&self);

    /// Current progress.
    fn progress(&self) -> JobProgress;

    /// Estimated seconds until the end, if known.
    fn eta_s(&self) -> Option<u64>;

    /// Details of the work, by its outcome.
    fn detail(&self, outcome: Option<&JobOutcome>) -> Option<Value>;
}

/// Jobs of a process.
pub(super) struct Jobs {
    clock: Arc<dyn Clock>,
    /// Jobs in the order of their start.
    known: Mutex<VecDeque<Arc<Job>>>,
}

struct Job {
    id: String,
    started_ms: u64,
    work: Arc<dyn JobWork>,
    is_cancelled: AtomicBool,
    /// Set when the job ends.
    end: OnceLock<JobEnd>,
}

struct JobEnd {
    ended_ms: u64,
    outcome: JobOutcome,
}

impl Job {
    fn is_running(&self) -> bool {
        self.end.get().is_none()
    }

    fn line(&self) -> JobLine {
        let outcome = self.end.get().map(|end| &end.outcome);
        self.line_with(self.work.detail(outcome))
    }

    fn line_with(&self, detail: Option<Value>) -> JobLine {
        let end = self.end.get();
        let outcome = end.map(|end| &end.outcome);
        let state = match outcome {
            None => "running",
            Some(Ok(())) => "done",
            Some(Err(_)) if self.is_cancelled.load(Ordering::Relaxed) => "cancelled",
            Some(Err(_)) => "failed",
        };
        JobLine {
            id: self.id.clone(),
            kind: self.work.kind().to_owned(),
            subject: self.work.subject(),
            state: state.to_owned(),
            started_ms: self.started_ms,
            ended_ms: end.map(|end| end.ended_ms),
            progress: self.work.progress(),
            eta_s: self.work.eta_s().filter(|_| end.is_none()),
            error: outcome.and_then(|outcome| outcome.clone().err()),
            detail,
        }
    }
}

impl Jobs {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, known: Mutex::default() }
    }

    /// Starts a job. Returns the running job of this kind and subject, if there is one.
    ///
    /// # Errors
    /// A job of this kind with another subject is running.
    pub(super) fn start(self: &Arc<Self>, work: Arc<dyn JobWork>) -> Result<JobLine, ApiError> {
        let mut known = self.known.lock();
        let is_like = |job: &&Arc<Job>| job.is_running() && job.work.kind() == work.kind();
        if let Some(other) = known.iter().find(is_like) {
            if other.work.subject() == work.subject() {
                return Ok(other.line());
            }
            let (kind, subject) = (work.kind(), other.work.subject());
            let sentence = format!(
                "a {kind} of {subject} is already running here: wait for its end, cancel the job \
                 {}, or use another proxy",
                other.id
            );
            return Err(ApiError(StatusCode::CONFLICT, sentence));
        }
        let job = Arc::new(Job {
            id: hex::encode(random_bytes::<8>()),
            started_ms: self.clock.now_ms(),
            work,
            is_cancelled: AtomicBool::new(false),
            end: OnceLock::new(),
        });
        known.push_back(job.clone());
        forget_oldest(&mut known);
        let line = job.line();
        tokio::spawn(self.clone().run(job));
        Ok(line)
    }

    async fn run(self: Arc<Self>, job: Arc<Job>) {
        // A panic of the work also counts as its end, so that other jobs may begin.
        let outcome = match tokio::spawn(job.work.clone().run()).await {
            Ok(outcome) => outcome,
            Err(_) => Err("the work failed: see the log of the process".to_owned()),
        };
        let (kind, subject) = (job.work.kind(), job.work.subject());
        let (progress, error) = (job.work.progress().text, outcome.as_ref().err());
        tracing::info!(job = job.id, kind, subject, progress, error, "ended a job");
        // The end is set only here.
        let _ = job.end.set(JobEnd { ended_ms: self.clock.now_ms(), outcome });
    }

    /// Returns all known jobs without their details, the last one first.
    pub(super) fn list(&self) -> Vec<JobLine> {
        let known: Vec<Arc<Job>> = self.known.lock().iter().rev().cloned().collect();
        known.iter().map(|job| job.line_with(None)).collect()
    }

    /// Returns a job.
    ///
    /// # Errors
    /// The process doesn't know the job.
    pub(super) fn get(&self, id: &str) -> Result<JobLine, ApiError> {
        Ok(self.find(id)?.line())
    }

    /// Cancels a job. One that has ended stays as it is.
    ///
    /// # Errors
    /// The process doesn't know the job.
    pub(super) fn cancel(&self, id: &str) -> Result<JobLine, ApiError> {
        let job = self.find(id)?;
        if job.is_running() {
            job.is_cancelled.store(true, Ordering::Relaxed);
            job.work.cancel();
        }
        Ok(job.line())
    }

    fn find(&self, id: &str) -> Result<Arc<Job>, ApiError> {
        let known = self.known.lock();
        known.iter().find(|job| job.id == id).cloned().ok_or_else(|| {
            ApiError::missing(format!(
                "this process has no job {id}: the process was started anew since, the job is not \
                 among the last {HISTORY_MAX}, or another process runs it"
            ))
        })
    }
}

/// Forgets the oldest ended jobs beyond the limit.
fn forget_oldest(known: &mut VecDeque<Arc<Job>>) {
    while known.len() > HISTORY_MAX {
        let oldest = known.iter().position(|job| !job.is_running());
        // At most one job of each kind runs, so an ended one is always there.
        let Some(oldest) = oldest else { return };
        known.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use martlet_protocol::SystemClock;
    use tokio::sync::Notify;

    use super::*;

    /// Work that ends when it is cancelled or released.
    struct FixedWork {
        subject: &'static str,
        released: Notify,
        is_cancelled: AtomicBool,
        panics: bool,
    }

    impl FixedWork {
        fn new(subject: &'static str, panics: bool) -> Arc<Self> {
            let (released, is_cancelled) = (Notify::new(), AtomicBool::new(false));
            Arc::new(Self { subject, released, is_cancelled, panics })
        }
    }

    impl JobWork for FixedWork {
        fn kind(&self) -> &'static str {
            "test"
        }

        fn subject(&self) -> String {
            self.subject.to_owned()
        }

        fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
            async move {
                self.released.notified().await;
                assert!(!self.panics, "a planned panic");
                if self.is_cancelled.load(Ordering::Relaxed) {
                    Err("stopped".into())
                } else {
                    Ok(())
                }
            }
            .boxed()
        }

        fn cancel(&self) {
            self.is_cancelled.store(true, Ordering::Relaxed);
            self.released.notify_one();
        }

        fn progress(&self) -> JobProgress {
            JobProgress::default()
        }

        fn eta_s(&self) -> Option<u64> {
            Some(7)
        }

        fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
            None
        }
    }

    fn jobs() -> Arc<Jobs> {
        Arc::new(Jobs::new(Arc::new(SystemClock)))
    }

    async fn ended(jobs: &Jobs, id: &str) -> JobLine {
        loop {
            let line = jobs.get(id).unwrap();
            if !line.is_running() {
                return line;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_job_of_a_kind_runs_at_a_time() {
        let jobs = jobs();
        let work = FixedWork::new("a", false);
        let first = jobs.start(work.clone()).unwrap();
        assert_eq!((first.state.as_str(), first.eta_s), ("running", Some(7)));
        let again = jobs.start(FixedWork::new("a", false)).unwrap();
        assert_eq!(again.id, first.id);
        let ApiError(status, sentence) = jobs.start(FixedWork::new("b", false)).unwrap_err();
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(sentence.contains("a test of a is already running"), "{sentence}");
        work.released.notify_one();
        let done = ended(&jobs, &first.id).await;
        assert_eq!((done.state.as_str(), done.eta_s, done.error), ("done", None, None));
        assert!(done.ended_ms >= Some(done.started_ms));
        let other = jobs.start(FixedWork::new("b", false)).unwrap();
        let ids: Vec<String> = jobs.list().into_iter().map(|line| line.id).collect();
        assert_eq!(ids, [other.id, first.id]);
    }

    #[tokio::test]
    async fn jobs_are_cancelled_and_panics_end_them() {
        let jobs = jobs();
        let cancelled = jobs.start(FixedWork::new("a", false)).unwrap().id;
        jobs.cancel(&cancelled).unwrap();
        let line = ended(&jobs, &cancelled).await;
        assert_eq!((line.state.as_str(), line.error.as_deref()), ("cancelled", Some("stopped")));
        assert_eq!(jobs.cancel(&cancelled).unwrap(), line, "an ended job stays as it is");
        let work = FixedWork::new("b", true);
        let failed = jobs.start(work.clone()).unwrap().id;
        work.released.notify_one();
        let line = ended(&jobs, &failed).await;
        assert_eq!(line.state, "failed");
        assert!(line.error.unwrap().contains("see the log"));
        let ApiError(status, _) = jobs.get("0000").unwrap_err();
        assert_eq!(status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn the_history_is_bounded_and_keeps_what_runs() {
        let jobs = jobs();
        for _ in 0..HISTORY_MAX + 5 {
            let work = FixedWork::new("a", false);
            let id = jobs.start(work.clone()).unwrap().id;
            work.released.notify_one();
            ended(&jobs, &id).await;
        }
        let last = jobs.start(FixedWork::new("a", false)).unwrap();
        let all = jobs.list();
        assert_eq!((all.len(), &all[0].id), (HISTORY_MAX, &last.id));
    }
}
