//! Metrics of a process at `/metrics`, in Prometheus' text format.
//!
//! Metrics of requests are updated as requests happen. Metrics of devices, workers and nodes are
//! collected on each scrape.

mod devices;
mod figures;
mod nodes;
mod observers;
mod requests;

use std::sync::Arc;

use martlet_replicator::WorkerStatus;
use martlet_storage_node::DeviceMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::devices::{DeviceCollector, WorkerCollector};
use self::nodes::NodeCollector;
pub(crate) use self::nodes::NodeFigures;
pub(crate) use self::observers::{ObserverFigures, TargetFigures};
pub(crate) use self::requests::{Labels, Requests};

/// Source of the devices' metrics.
pub(crate) type DeviceSource = Arc<dyn Fn() -> Vec<DeviceMetrics> + Send + Sync>;
/// Source of the workers' metrics.
pub(crate) type WorkerSource = Arc<dyn Fn() -> Vec<WorkerStatus> + Send + Sync>;
/// Source of the metrics of calls to other nodes.
pub(crate) type NodeSource = Arc<dyn Fn() -> Vec<NodeFigures> + Send + Sync>;
/// Source of the metrics of event targets and access logs.
pub(crate) type ObserverSource = Arc<dyn Fn() -> ObserverFigures + Send + Sync>;

/// Registry of all metrics of a process.
pub(crate) struct Metrics(Registry);

impl Default for Metrics {
    /// Makes an empty registry.
    fn default() -> Self {
        Self(Registry::with_prefix("martlet"))
    }
}

impl Metrics {
    /// Adds metrics of the requests of S3 clients.
    pub(crate) fn with_requests(mut self, requests: &Requests) -> Self {
        requests.register(&mut self.0);
        self
    }

    /// Adds metrics of devices.
    pub(crate) fn with_devices(mut self, devices: DeviceSource) -> Self {
        self.0.register_collector(Box::new(DeviceCollector(devices)));
        self
    }

    /// Adds metrics of workers.
    pub(crate) fn with_workers(mut self, workers: WorkerSource) -> Self {
        self.0.register_collector(Box::new(WorkerCollector(workers)));
        self
    }

    /// Adds metrics of calls to other nodes.
    pub(crate) fn with_nodes(mut self, nodes: NodeSource) -> Self {
        self.0.register_collector(Box::new(NodeCollector(nodes)));
        self
    }

    /// Adds metrics of event targets and access logs.
    pub(crate) fn with_observers(mut self, observers: ObserverSource) -> Self {
        self.0.register_collector(Box::new(observers::LogCollector(observers.clone())));
        self.0.register_collector(Box::new(observers::TargetCollector(observers)));
        self
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("writing to a String can't fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::{Method, Response};
    use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
    use martlet_protocol::{DeviceId, DeviceIdentity, Term};
    use martlet_replicator::StepProgress;
    use martlet_storage_node::IndexMetrics;

    use super::*;

    fn worker() -> WorkerStatus {
        let totals = StepProgress { items: 9, done: 4, backlog: 6, ..StepProgress::default() };
        let eta = Some(Duration::from_secs(4));
        WorkerStatus { name: "sweep", steps: 3, rate: 1.5, eta, totals, ..WorkerStatus::default() }
    }

    #[expect(clippy::default_trait_access, reason = "the type's name is the node's own")]
    fn device() -> DeviceMetrics {
        let status = DeviceStatus {
            device: DeviceId(3),
            identity: DeviceIdentity([0; 16]),
            voting: true,
            path: "/x".into(),
            health: DeviceHealth::Ready,
            total_bytes: 9,
            free_bytes: 5,
            extent_bytes: 2,
            extents: 1,
            quarantined: 0,
            hints: 7,
            term: Term(14),
            joined: 6,
        };
        DeviceMetrics {
            status,
            index: IndexMetrics::default(),
            extents: Default::default(),
            reopened: 0,
        }
    }

    #[test]
    fn votes_hints_and_terms_of_devices_are_told() {
        let text = Metrics::default().with_devices(Arc::new(|| vec![device()])).text();
        for line in [
            "martlet_device_voting{device=\"d3\"} 1",
            "martlet_device_hints{device=\"d3\"} 7",
            "martlet_device_term{device=\"d3\"} 14",
            "martlet_device_joined{device=\"d3\"} 6",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }

    #[test]
    fn figures_of_those_who_are_told_of_requests_are_told() {
        let target = TargetFigures { name: "hook".into(), lost: 3, ..TargetFigures::default() };
        let figures =
            ObserverFigures { targets: vec![target], lost_lines: 1, lost_bucket_lines: 2 };
        let text = Metrics::default().with_observers(Arc::new(move || figures.clone())).text();
        for line in [
            "martlet_event_messages_lost_total{target=\"hook\"} 3",
            "martlet_event_waiting_bytes{target=\"hook\"} 0",
            "martlet_access_log_lines_lost_total{log=\"own\"} 1",
            "martlet_access_log_lines_lost_total{log=\"buckets\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }

    #[test]
    fn figures_of_requests_and_workers_are_told() {
        let requests = Requests::new();
        let metrics =
            Metrics::default().with_requests(&requests).with_workers(Arc::new(|| vec![worker()]));
        let response = Response::builder().status(403).body(()).unwrap();
        let labels = Labels::of(&Method::PUT, &response);
        requests.answered(labels, Duration::from_millis(3));
        requests.answered(labels, Duration::from_millis(3));
        requests.bytes_in.inc_by(7);
        requests.limited(martlet_s3compat::LimitReason::Share);
        let text = metrics.text();
        for line in [
            "martlet_requests_total{operation=\"refused PUT\",status=\"403\"} 2",
            "martlet_request_first_byte_seconds_bucket{le=\"0.005\",operation=\"refused PUT\"} 2",
            "martlet_request_body_bytes_total 7",
            "martlet_requests_limited_total{limit=\"share\"} 1",
            "martlet_requests_in_flight 0",
            "martlet_worker_steps_total{worker=\"sweep\"} 3",
            "martlet_worker_rate{worker=\"sweep\"} 1.5",
            "martlet_worker_eta_seconds{worker=\"sweep\"} 4",
            "martlet_worker_done_total{worker=\"sweep\"} 4",
            "martlet_worker_backlog{worker=\"sweep\"} 6",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
