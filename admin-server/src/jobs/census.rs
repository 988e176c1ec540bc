//! Census as a job, with an estimate of its end.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_replicator::{CensusOptions, CensusProgress, CensusReport, census};
use martlet_topology::Topology;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::census_pace::{CensusPace, PastCensus};
use super::table::{JobOutcome, JobWork};

/// Comparison of all devices with the rings.
pub(super) struct CensusWork {
    topology: Topology,
    options: CensusOptions,
    progress: Mutex<CensusProgress>,
    pace: Mutex<CensusPace>,
    /// Last complete census of this process.
    past: Arc<Mutex<Option<PastCensus>>>,
    report: OnceLock<CensusReport>,
    cancelled: watch::Sender<bool>,
}

impl CensusWork {
    /// Makes a census. `past` receives its pace at its end.
    pub(super) fn new(
        topology: Topology,
        options: CensusOptions,
        past: Arc<Mutex<Option<PastCensus>>>,
    ) -> Self {
        let pace = Mutex::new(CensusPace::starting(Instant::now()));
        let (progress, report) = (Mutex::default(), OnceLock::new());
        let cancelled = watch::Sender::new(false);
        Self { topology, options, progress, pace, past, report, cancelled }
    }

    async fn count(&self) -> JobOutcome {
        let mut cancelled = self.cancelled.subscribe();
        let mut observe = |progress: &CensusProgress| {
            *self.progress.lock() = *progress;
            self.pace.lock().note(progress, Instant::now());
        };
        let report = tokio::select! {
            report = census(&self.topology, self.options, &mut observe) => report,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                return Err("the census was cancelled".to_owned());
            }
        };
        *self.past.lock() = Some(self.pace.lock().end(&self.progress.lock(), Instant::now()));
        // The report is set only here.
        let _ = self.report.set(report);
        Ok(())
    }
}

impl JobWork for CensusWork {
    fn kind(&self) -> &'static str {
        jobs::CENSUS
    }

    fn subject(&self) -> String {
        String::new()
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        let runtime = Handle::current();
        // A census counts large pages in one go, so it gets a blocking thread.
        let counting = move || runtime.block_on(self.count());
        let counted = tokio::task::spawn_blocking(counting);
        counted.map(|ended| ended.unwrap_or_else(|error| Err(error.to_string()))).boxed()
    }

    fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn progress(&self) -> JobProgress {
        let progress = *self.progress.lock();
        let CensusProgress { registers, extents, extent_copies, counted_copies, faults } = progress;
        let expected = self.pace.lock().registers(&progress, self.past.lock().as_ref());
        JobProgress {
            done: registers + counted_copies,
            total: expected.map(|registers| registers + extent_copies.max(counted_copies)),
            unit: "items".to_owned(),
            text: format!(
                "{registers} registers and {extents} extents (of {extent_copies} copies) counted, \
                 {faults} faults"
            ),
        }
    }

    fn eta_s(&self) -> Option<u64> {
        let (progress, past) = (*self.progress.lock(), *self.past.lock());
        let left = self.pace.lock().left(&progress, past.as_ref(), Instant::now());
        left.map(|left| left.as_secs())
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        self.report.get().and_then(|report| serde_json::to_value(report).ok())
    }
}
