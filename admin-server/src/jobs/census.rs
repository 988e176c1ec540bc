//! Census as a job.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_replicator::{CensusOptions, CensusProgress, CensusReport, census};
use martlet_topology::Topology;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::table::{JobOutcome, JobWork};

/// Comparison of all devices with the rings.
pub(super) struct CensusWork {
    topology: Topology,
    options: CensusOptions,
    progress: Mutex<CensusProgress>,
    report: OnceLock<CensusReport>,
    cancelled: watch::Sender<bool>,
}

impl CensusWork {
    pub(super) fn new(topology: Topology, options: CensusOptions) -> Self {
        let (progress, report) = (Mutex::default(), OnceLock::new());
        Self { topology, options, progress, report, cancelled: watch::Sender::new(false) }
    }

    async fn count(&self) -> JobOutcome {
        let mut cancelled = self.cancelled.subscribe();
        let mut observe = |progress: &CensusProgress| *self.progress.lock() = *progress;
        let report = tokio::select! {
            report = census(&self.topology, self.options, &mut observe) => report,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                return Err("the census was cancelled".to_owned());
            }
        };
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
        let CensusProgress { registers, extents, extent_copies, faults } = *self.progress.lock();
        JobProgress {
            done: registers + extents,
            total: None,
            unit: "items".to_owned(),
            text: format!(
                "{registers} registers and {extents} extents (of {extent_copies} copies) counted, \
                 {faults} faults"
            ),
        }
    }

    fn eta_s(&self) -> Option<u64> {
        None
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        self.report.get().and_then(|report| serde_json::to_value(report).ok())
    }
}
