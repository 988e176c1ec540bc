//! Acceptance of a lost part of the index as a job.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use martlet_admin_api::index::AcceptLine;
use martlet_admin_api::jobs::{self, JobProgress};
use martlet_protocol::{Clock, DeviceId};
use martlet_replicator::{AcceptStage, AcceptedLoss, accept_loss};
use martlet_topology::Topology;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::table::{JobOutcome, JobWork};

/// Return of votes to devices that lost their registers.
pub(super) struct AcceptWork {
    topology: Topology,
    clock: Arc<dyn Clock>,
    /// Devices that the operator gives up.
    devices: BTreeSet<DeviceId>,
    stage: Mutex<AcceptStage>,
    accepted: OnceLock<AcceptedLoss>,
    cancelled: watch::Sender<bool>,
}

impl AcceptWork {
    pub(super) fn new(
        topology: Topology,
        clock: Arc<dyn Clock>,
        devices: BTreeSet<DeviceId>,
    ) -> Self {
        let (stage, accepted) = (Mutex::default(), OnceLock::new());
        Self { topology, clock, devices, stage, accepted, cancelled: watch::Sender::new(false) }
    }

    async fn accept(&self) -> JobOutcome {
        let mut cancelled = self.cancelled.subscribe();
        let mut observe = |stage: AcceptStage| *self.stage.lock() = stage;
        let accepting =
            accept_loss(&self.topology, self.clock.clone(), &self.devices, &mut observe);
        let accepted = tokio::select! {
            accepted = accepting => accepted.map_err(|error| error.to_string())?,
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                return Err("cancelled: the hold on collection stays".to_owned());
            }
        };
        let text = format!(
            "{} devices have votes again; {} partitions lost registers; collection is held",
            accepted.devices.len(),
            accepted.partitions.count()
        );
        *self.stage.lock() = AcceptStage { text, done: accepted.devices.len() as u64 };
        // The outcome is set only here.
        let _ = self.accepted.set(accepted);
        Ok(())
    }
}

impl JobWork for AcceptWork {
    fn kind(&self) -> &'static str {
        jobs::ACCEPT_LOSS
    }

    fn subject(&self) -> String {
        String::new()
    }

    fn run(self: Arc<Self>) -> BoxFuture<'static, JobOutcome> {
        async move { self.accept().await }.boxed()
    }

    fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn progress(&self) -> JobProgress {
        let AcceptStage { text, done } = self.stage.lock().clone();
        let total = Some(self.devices.len() as u64);
        JobProgress { done, total, unit: "devices".to_owned(), text }
    }

    fn eta_s(&self) -> Option<u64> {
        None
    }

    fn detail(&self, _: Option<&JobOutcome>) -> Option<Value> {
        let accepted = self.accepted.get()?;
        let devices = accepted.devices.iter().map(|device| device.0).collect();
        let line = AcceptLine { devices, partitions: accepted.partitions.count() };
        serde_json::to_value(line).ok()
    }
}
