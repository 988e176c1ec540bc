//! Metrics of devices and workers.

use std::fmt;

use martlet_protocol::backend::DeviceHealth;
use martlet_replicator::WorkerStatus;
use martlet_serving::metrics::MetricKind::{Rises, RisesAndFalls, SpanOfMilliseconds};
use martlet_serving::metrics::{Figure, encode_figures};
use martlet_storage_node::DeviceMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::process::sources::{DeviceSource, WorkerSource, eta_s};

const DEVICE_FIGURES: [Figure<DeviceMetrics>; 29] = [
    Figure("device_up", "1 if the device serves reads and writes", RisesAndFalls, |device| {
        u64::from(matches!(device.status.health, DeviceHealth::Ready))
    }),
    Figure("device_full", "1 if the device is full", RisesAndFalls, |device| {
        u64::from(matches!(device.status.health, DeviceHealth::Full))
    }),
    Figure("device_size_bytes", "Size of the device's file system", RisesAndFalls, |device| {
        device.status.total_bytes
    }),
    Figure(
        "device_free_bytes",
        "Free bytes of the device's file system",
        RisesAndFalls,
        |device| device.status.free_bytes,
    ),
    Figure("device_extents", "Extents on the device", RisesAndFalls, |device| {
        device.status.extents
    }),
    Figure("device_extent_bytes", "Bytes of extents on the device", RisesAndFalls, |device| {
        device.status.extent_bytes
    }),
    Figure(
        "device_counting",
        "1 while the device counts its extents after a crash",
        RisesAndFalls,
        |device| u64::from(device.extents.is_counting),
    ),
    Figure("device_quarantined", "Quarantined files and records", RisesAndFalls, |device| {
        device.status.quarantined
    }),
    Figure("device_voting", "1 if the device has votes", RisesAndFalls, |device| {
        u64::from(device.status.voting)
    }),
    Figure("device_term", "Highest known term of ring changes", RisesAndFalls, |device| {
        device.status.term.0
    }),
    Figure(
        "device_joined",
        "Last ring change whose data the device holds completely",
        RisesAndFalls,
        |device| device.status.joined,
    ),
    Figure("device_hints", "Writes kept for other devices", RisesAndFalls, |device| {
        device.status.hints
    }),
    Figure("device_volume_free_bytes", "Free bytes within volumes", RisesAndFalls, |device| {
        device.extents.volume_free_bytes
    }),
    Figure(
        "device_withheld_bytes",
        "Bytes of deleted extents that leases of other processes keep",
        RisesAndFalls,
        |device| device.extents.withheld_bytes,
    ),
    Figure("device_reopened", "Reopenings of the device", Rises, |device| device.reopened),
    Figure("device_index_writes", "Operations committed by the index", Rises, |device| {
        device.index.writes
    }),
    Figure("device_index_syncs", "Synced batches of index operations", Rises, |device| {
        device.index.syncs
    }),
    Figure("device_index_group_max", "Operations in the largest batch", RisesAndFalls, |device| {
        device.index.group_ops_max
    }),
    Figure("device_index_bytes", "Bytes of index batches", Rises, |device| device.index.bytes),
    Figure("device_index_reads", "Registers read", Rises, |device| device.index.reads),
    Figure(
        "device_index_blocking_reads",
        "Register reads that missed the cache",
        Rises,
        |device| device.index.blocking_reads,
    ),
    Figure("device_index_lists", "Listings", Rises, |device| device.index.lists),
    Figure("device_extent_writes", "Extents written", Rises, |device| device.extents.writes),
    Figure("device_extent_syncs", "Syncs of extent data", Rises, |device| device.extents.syncs),
    Figure("device_folder_syncs", "Syncs of folders", Rises, |device| device.extents.folder_syncs),
    Figure("device_inline_reads", "Chunks read without a thread hop", Rises, |device| {
        device.extents.inline_reads
    }),
    Figure("device_blocking_reads", "Chunks read on a blocking thread", Rises, |device| {
        device.extents.blocking_reads
    }),
    Figure("device_corrupt_reads", "Reads that found corrupt bytes", Rises, |device| {
        device.index.corrupt_reads + device.extents.corrupt_reads
    }),
    Figure(
        "device_usage_corrections",
        "Rows of usage that differed from their registers",
        Rises,
        |device| device.index.usage_corrections,
    ),
];

const WORKER_FIGURES: [Figure<WorkerStatus>; 18] = [
    Figure("worker_steps", "Steps of the worker", Rises, |worker| worker.steps),
    Figure("worker_failures", "Failed steps", Rises, |worker| worker.failures),
    Figure("worker_panics", "Panics, after which the worker was restarted", Rises, |worker| {
        worker.panics
    }),
    Figure("worker_yields", "Pauses in favour of client requests", Rises, |worker| worker.yields),
    Figure("worker_items", "Items examined", Rises, |worker| worker.totals.items),
    Figure("worker_done", "Items completed", Rises, |worker| worker.totals.done),
    Figure("worker_idle", "1 if the worker is idle", RisesAndFalls, |worker| {
        u64::from(worker.totals.idle)
    }),
    Figure("worker_copied_extents", "Extent copies written", Rises, |worker| worker.totals.copied),
    Figure("worker_copied_bytes", "Bytes of extent copies written", Rises, |worker| {
        worker.totals.copied_bytes
    }),
    Figure("worker_read_bytes", "Bytes read to reconstruct fragments", Rises, |worker| {
        worker.totals.read_bytes
    }),
    Figure("worker_repaired", "Registers repaired on replicas", Rises, |worker| {
        worker.totals.repaired
    }),
    Figure("worker_ahead", "Items left in this pass", RisesAndFalls, |worker| worker.totals.ahead),
    Figure("worker_freed_extents", "Extents deleted", Rises, |worker| worker.totals.freed),
    Figure("worker_freed_bytes", "Bytes of deleted extents", Rises, |worker| {
        worker.totals.freed_bytes
    }),
    Figure("worker_kept", "Items kept because a required reply was missing", Rises, |worker| {
        worker.totals.kept
    }),
    Figure("worker_backlog", "Items waiting", RisesAndFalls, |worker| worker.totals.backlog),
    Figure(
        "worker_differing_extents",
        "Extents with different bytes on two primaries",
        RisesAndFalls,
        |worker| worker.totals.differing,
    ),
    Figure(
        "worker_oldest_age_seconds",
        "Age of the oldest waiting item",
        SpanOfMilliseconds,
        |worker| worker.totals.oldest_age_ms,
    ),
];

/// Collector of the devices' metrics.
pub(crate) struct DeviceCollector(pub(crate) DeviceSource);

/// Collector of the workers' metrics.
pub(crate) struct WorkerCollector(pub(crate) WorkerSource);

impl Collector for DeviceCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |device: &DeviceMetrics| [("device", device.status.device.to_string())];
        encode_figures(encoder, &DEVICE_FIGURES, &(self.0)(), label)
    }
}

impl Collector for WorkerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let workers = (self.0)();
        let label = |worker: &WorkerStatus| [("worker", worker.name.to_owned())];
        let mut rates = encoder.encode_descriptor(
            "worker_rate",
            "Items examined per second, recently",
            None,
            MetricType::Gauge,
        )?;
        for worker in &workers {
            let labels = label(worker);
            ConstGauge::new(worker.rate).encode(rates.encode_family(&labels)?)?;
        }
        let mut etas = encoder.encode_descriptor(
            "worker_eta_seconds",
            "Seconds until the backlog is done at the recent rate; absent if unknown",
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

impl fmt::Debug for DeviceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceCollector")
    }
}

impl fmt::Debug for WorkerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerCollector")
    }
}
