//! What `/metrics` tells, in Prometheus' words.
//!
//! Figures of requests rise as they happen; those of devices and workers are asked for when somebody
//! looks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, Response};
use martlet_protocol::backend::DeviceHealth;
use martlet_replicator::WorkerStatus;
use martlet_s3compat::door::Operation;
use martlet_storage_node::DeviceMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What a request asked for, and what it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) operation: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

impl Labels {
    /// The labels of an answered request. Those that the door turned away count under their method.
    pub(crate) fn of<B>(method: &Method, response: &Response<B>) -> Self {
        let operation = response.extensions().get::<&'static Operation>();
        let turned_away = match *method {
            Method::GET => "refused GET",
            Method::PUT => "refused PUT",
            Method::POST => "refused POST",
            Method::DELETE => "refused DELETE",
            Method::HEAD => "refused HEAD",
            _ => "refused",
        };
        Self {
            operation: operation.map_or(turned_away, |operation| operation.name),
            status: response.status().as_u16(),
        }
    }
}

/// Figures of all requests.
#[derive(Debug)]
pub(crate) struct Requests {
    answered: Family<Labels, Counter>,
    first_byte: Family<OperationLabel, Histogram, fn() -> Histogram>,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) in_flight: Gauge,
}

/// 100 µs to 30 s, finest where most requests are.
const LATENCIES: [f64; 14] =
    [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 8.0, 30.0];

impl Requests {
    pub(crate) fn new() -> Self {
        let first_byte = Family::new_with_constructor((|| Histogram::new(LATENCIES)) as fn() -> _);
        Self {
            first_byte,
            answered: Family::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            in_flight: Gauge::default(),
        }
    }

    /// Takes note of a reply whose head is on its way.
    pub(crate) fn answered(&self, labels: Labels, latency: Duration) {
        let operation = OperationLabel { operation: labels.operation };
        self.first_byte.get_or_create(&operation).observe(latency.as_secs_f64());
        self.answered.get_or_create(&labels).inc();
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered", self.answered.clone());
        registry.register(
            "request_first_byte_seconds",
            "Time until the head of the reply was on its way",
            self.first_byte.clone(),
        );
        registry.register(
            "request_body_bytes",
            "Bytes of bodies received, as they came over the wire",
            self.bytes_in.clone(),
        );
        registry.register("reply_body_bytes", "Bytes of bodies sent", self.bytes_out.clone());
        registry.register(
            "requests_in_flight",
            "Requests whose reply was not sent completely",
            self.in_flight.clone(),
        );
    }
}

/// Asks for the devices' figures.
pub(crate) type AskDevices = Arc<dyn Fn() -> Vec<DeviceMetrics> + Send + Sync>;
/// Asks after the workers.
pub(crate) type AskWorkers = Arc<dyn Fn() -> Vec<WorkerStatus> + Send + Sync>;

/// Everything that `/metrics` tells.
pub(crate) struct Metrics(Registry);

impl Metrics {
    pub(crate) fn new(requests: &Requests, devices: AskDevices, workers: AskWorkers) -> Self {
        let mut registry = Registry::with_prefix("martlet");
        requests.register(&mut registry);
        registry.register_collector(Box::new(Devices(devices)));
        registry.register_collector(Box::new(Workers(workers)));
        Self(registry)
    }

    /// All figures as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("writing to memory does not fail");
        text
    }
}

/// One figure of many things of a kind: name, explanation, whether it only rises, and how to get it.
struct Figure<T>(&'static str, &'static str, Kind, fn(&T) -> u64);

#[derive(Clone, Copy)]
enum Kind {
    Rises,
    RisesAndFalls,
}

use Kind::{Rises, RisesAndFalls};

const DEVICE_FIGURES: [Figure<DeviceMetrics>; 22] = [
    Figure("device_up", "Whether it serves reads and writes", RisesAndFalls, |device| {
        u64::from(matches!(device.status.health, DeviceHealth::Ready))
    }),
    Figure("device_full", "Whether it takes no new bytes", RisesAndFalls, |device| {
        u64::from(matches!(device.status.health, DeviceHealth::Full))
    }),
    Figure("device_size_bytes", "Bytes of its file system", RisesAndFalls, |device| {
        device.status.total_bytes
    }),
    Figure("device_free_bytes", "Bytes that its file system has free", RisesAndFalls, |device| {
        device.status.free_bytes
    }),
    Figure("device_extents", "Extents on it", RisesAndFalls, |device| device.status.extents),
    Figure("device_extent_bytes", "Bytes in extents", RisesAndFalls, |device| {
        device.status.extent_bytes
    }),
    Figure("device_quarantined", "Things in quarantine", RisesAndFalls, |device| {
        device.status.quarantined
    }),
    Figure("device_volume_free_bytes", "Free bytes within volumes", RisesAndFalls, |device| {
        device.extents.volume_free_bytes
    }),
    Figure("device_reopened", "Times it was closed and opened again", Rises, |device| {
        device.reopened
    }),
    Figure("device_index_writes", "Operations that the committer answered", Rises, |device| {
        device.index.writes
    }),
    Figure("device_index_syncs", "Synced batches that they shared", Rises, |device| {
        device.index.syncs
    }),
    Figure("device_index_group_max", "Operations of the largest batch", RisesAndFalls, |device| {
        device.index.group_ops_max
    }),
    Figure("device_index_bytes", "Bytes of the batches", Rises, |device| device.index.bytes),
    Figure("device_index_reads", "Registers read", Rises, |device| device.index.reads),
    Figure("device_index_blocking_reads", "Of those, reads that left the cache", Rises, |device| {
        device.index.blocking_reads
    }),
    Figure("device_index_lists", "Listings", Rises, |device| device.index.lists),
    Figure("device_extent_writes", "Extents written", Rises, |device| device.extents.writes),
    Figure("device_extent_syncs", "Syncs of extents' data", Rises, |device| device.extents.syncs),
    Figure("device_folder_syncs", "Syncs of folders", Rises, |device| device.extents.folder_syncs),
    Figure("device_inline_reads", "Chunks read without a thread hop", Rises, |device| {
        device.extents.inline_reads
    }),
    Figure("device_blocking_reads", "Chunks read on a thread of their own", Rises, |device| {
        device.extents.blocking_reads
    }),
    Figure("device_corrupt_reads", "Reads that found other bytes than written", Rises, |device| {
        device.index.corrupt_reads + device.extents.corrupt_reads
    }),
];

const WORKER_FIGURES: [Figure<WorkerStatus>; 9] = [
    Figure("worker_steps", "Steps taken", Rises, |worker| worker.steps),
    Figure("worker_failures", "Steps that failed", Rises, |worker| worker.failures),
    Figure("worker_yields", "Times it stepped back for clients", Rises, |worker| worker.yields),
    Figure("worker_items", "Things looked at", Rises, |worker| worker.totals.items),
    Figure("worker_freed_extents", "Extents deleted", Rises, |worker| worker.totals.freed),
    Figure("worker_freed_bytes", "Bytes of deleted extents", Rises, |worker| {
        worker.totals.freed_bytes
    }),
    Figure("worker_kept", "Times something was kept because nobody could tell", Rises, |worker| {
        worker.totals.kept
    }),
    Figure("worker_backlog", "Things known to wait", RisesAndFalls, |worker| worker.totals.backlog),
    Figure("worker_oldest_age_ms", "How long the oldest has waited", RisesAndFalls, |worker| {
        worker.totals.oldest_age_ms
    }),
];

struct Devices(AskDevices);

struct Workers(AskWorkers);

impl Collector for Devices {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |device: &DeviceMetrics| [("device", device.status.device.to_string())];
        encode_figures(encoder, &DEVICE_FIGURES, &(self.0)(), label)
    }
}

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let workers = (self.0)();
        let label = |worker: &WorkerStatus| [("worker", worker.name.to_owned())];
        let mut rates = encoder.encode_descriptor(
            "worker_rate",
            "Things looked at in a second, lately",
            None,
            MetricType::Gauge,
        )?;
        for worker in &workers {
            let labels = label(worker);
            ConstGauge::new(worker.rate).encode(rates.encode_family(&labels)?)?;
        }
        encode_figures(encoder, &WORKER_FIGURES, &workers, label)
    }
}

fn encode_figures<T>(
    mut encoder: DescriptorEncoder<'_>,
    figures: &[Figure<T>],
    things: &[T],
    label: impl Fn(&T) -> [(&'static str, String); 1],
) -> fmt::Result {
    for Figure(name, help, kind, get) in figures {
        let metric_type = match kind {
            Rises => MetricType::Counter,
            RisesAndFalls => MetricType::Gauge,
        };
        let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
        for thing in things {
            let labels = label(thing);
            let one = family.encode_family(&labels)?;
            let value = get(thing);
            match kind {
                Rises => ConstCounter::new(value).encode(one)?,
                RisesAndFalls => {
                    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(one)?;
                }
            }
        }
    }
    Ok(())
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Devices")
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> WorkerStatus {
        WorkerStatus { name: "sweep", steps: 3, rate: 1.5, ..WorkerStatus::default() }
    }

    #[test]
    fn figures_of_requests_and_workers_are_told() {
        let requests = Requests::new();
        let metrics = Metrics::new(&requests, Arc::new(Vec::new), Arc::new(|| vec![worker()]));
        let response = Response::builder().status(403).body(()).unwrap();
        let labels = Labels::of(&Method::PUT, &response);
        requests.answered(labels, Duration::from_millis(3));
        requests.answered(labels, Duration::from_millis(3));
        requests.bytes_in.inc_by(7);
        let text = metrics.text();
        for line in [
            "martlet_requests_total{operation=\"refused PUT\",status=\"403\"} 2",
            "martlet_request_first_byte_seconds_bucket{le=\"0.005\",operation=\"refused PUT\"} 2",
            "martlet_request_body_bytes_total 7",
            "martlet_requests_in_flight 0",
            "martlet_worker_steps_total{worker=\"sweep\"} 3",
            "martlet_worker_rate{worker=\"sweep\"} 1.5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
