//! Metrics of devices and workers.

use std::fmt;

use martlet_protocol::backend::DeviceHealth;
use martlet_replicator::WorkerStatus;
use martlet_storage_node::DeviceMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::figures::Kind::{Rises, RisesAndFalls};
use super::figures::{Figure, encode_figures};
use super::{AskDevices, AskWorkers};
use crate::process::tell::eta_s;

const DEVICE_FIGURES: [Figure<DeviceMetrics>; 26] = [
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
    Figure("device_voting", "Whether it has its votes", RisesAndFalls, |device| {
        u64::from(device.status.voting)
    }),
    Figure(
        "device_term",
        "The highest term of ring changes that it knows",
        RisesAndFalls,
        |device| device.status.term.0,
    ),
    Figure("device_joined", "The last ring change that brought it all", RisesAndFalls, |device| {
        device.status.joined
    }),
    Figure("device_hints", "Writes kept for other devices", RisesAndFalls, |device| {
        device.status.hints
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

const WORKER_FIGURES: [Figure<WorkerStatus>; 17] = [
    Figure("worker_steps", "Steps taken", Rises, |worker| worker.steps),
    Figure("worker_failures", "Steps that failed", Rises, |worker| worker.failures),
    Figure("worker_panics", "Times it panicked and was made anew", Rises, |worker| worker.panics),
    Figure("worker_yields", "Times it stepped back for clients", Rises, |worker| worker.yields),
    Figure("worker_items", "Things looked at", Rises, |worker| worker.totals.items),
    Figure("worker_done", "Things brought to their end", Rises, |worker| worker.totals.done),
    Figure("worker_idle", "Whether it has nothing to do for now", RisesAndFalls, |worker| {
        u64::from(worker.totals.idle)
    }),
    Figure("worker_copied_extents", "Copies of extents written", Rises, |worker| {
        worker.totals.copied
    }),
    Figure("worker_copied_bytes", "Bytes of copies of extents", Rises, |worker| {
        worker.totals.copied_bytes
    }),
    Figure("worker_read_bytes", "Bytes read to make lost fragments again", Rises, |worker| {
        worker.totals.read_bytes
    }),
    Figure("worker_repaired", "Registers brought to replicas that lacked them", Rises, |worker| {
        worker.totals.repaired
    }),
    Figure("worker_ahead", "Things of this pass still to be looked at", RisesAndFalls, |worker| {
        worker.totals.ahead
    }),
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

pub(super) struct Devices(pub(super) AskDevices);

pub(super) struct Workers(pub(super) AskWorkers);

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
        let mut etas = encoder.encode_descriptor(
            "worker_eta_seconds",
            "Until what waits is gone at the rate of late; left out where that can't be said",
            None,
            MetricType::Gauge,
        )?;
        for worker in &workers {
            let Some(eta_s) = eta_s(worker) else { continue };
            let eta_s = i64::try_from(eta_s).unwrap_or(i64::MAX);
            ConstGauge::new(eta_s).encode(etas.encode_family(&label(worker))?)?;
        }
        encode_figures(encoder, &WORKER_FIGURES, &workers, label)
    }
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
