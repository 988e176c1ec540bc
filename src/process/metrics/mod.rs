//! Metrics of S3 requests, of shared reads and the queue, of checkpoint sets, of devices, of the direct
//! socket and of workers.

mod checkpoints;
mod devices;
mod direct;
mod herd;
mod requests;

pub(crate) use self::checkpoints::CheckpointCollector;
pub(crate) use self::devices::{DeviceCollector, WorkerCollector};
pub(crate) use self::direct::DirectCollector;
pub(crate) use self::herd::{QueueCollector, WindowCollector};
pub(crate) use self::requests::{Labels, Requests};

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use hyper::{Method, Response};
    use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
    use martlet_protocol::{DeviceId, DeviceIdentity, Term};
    use martlet_replicator::{StepProgress, WorkerStatus};
    use martlet_serving::metrics::Metrics;
    use martlet_storage_node::{DeviceMetrics, IndexMetrics};

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
    fn votes_hints_and_terms_of_devices_have_metrics() {
        let text = Metrics::default().with(DeviceCollector(Arc::new(|| vec![device()]))).text();
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
    fn requests_and_workers_have_metrics() {
        let requests = Requests::new();
        let metrics = Metrics::default()
            .with_registered(|registry| requests.register(registry))
            .with(WorkerCollector(Arc::new(|| vec![worker()])));
        let response = Response::builder().status(403).body(()).unwrap();
        let labels = Labels::of(&Method::PUT, &response);
        requests.answered(labels, Duration::from_millis(3));
        requests.answered(labels, Duration::from_millis(3));
        requests.bytes_in.inc_by(7);
        requests.limited(martlet_s3compat::LimitReason::Share);
        let text = metrics.text();
        for line in [
            "martlet_requests_total{operation=\"refused_put\",status=\"403\"} 2",
            "martlet_request_first_byte_seconds_bucket{le=\"0.005\",operation=\"refused_put\"} 2",
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
