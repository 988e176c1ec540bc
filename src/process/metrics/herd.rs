//! Metrics of windows that readers share, and of requests that wait for their turn.

use std::fmt;

use martlet_proxy::{ObjectStore, WindowFigures};
use martlet_s3compat::{QueueFigures, S3Service, WaitingKey};
use martlet_serving::metrics::MetricKind::{Rises, RisesAndFalls, RisesByMicroseconds};
use martlet_serving::metrics::{Figure, encode_figures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

const QUEUE_FIGURES: [Figure<QueueFigures>; 4] = [
    Figure("queue_waiting", "Requests that wait for their turn", RisesAndFalls, |it| it.waiting),
    Figure("queue_waits", "Waits that ended with a turn", Rises, |it| it.waits),
    Figure(
        "queue_wait_seconds",
        "Time of waits that ended with a turn",
        RisesByMicroseconds,
        |it| it.waited_us,
    ),
    Figure("queue_expired", "Waits that ended without a turn", Rises, |it| it.expired),
];

/// A counter of windows: name, help text and getter.
type WindowCounter = (&'static str, &'static str, fn(&WindowFigures) -> u64);

const WINDOW_COUNTERS: [WindowCounter; 4] = [
    ("windows_fetched", "Windows of extents fetched for several readers", |it| it.fetched),
    ("windows_served", "Windows of extents that readers took", |it| it.served),
    ("windows_failed", "Fetches of windows that failed", |it| it.failed),
    ("extent_read_bytes", "Bytes of extents that nodes sent for reads", |it| it.read_bytes),
];

/// Collector of the queue's metrics, by kind of requests.
pub(crate) struct QueueCollector(pub(crate) S3Service);

impl Collector for QueueCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_queue(encoder, &self.0.queue_figures(), &self.0.waiting_keys())
    }
}

fn encode_queue(
    mut encoder: DescriptorEncoder<'_>,
    figures: &[QueueFigures],
    keys: &[WaitingKey],
) -> fmt::Result {
    let help = "Requests that wait for their turn, of the keys with most of them";
    let mut waiting =
        encoder.encode_descriptor("queue_key_waiting", help, None, MetricType::Gauge)?;
    for WaitingKey { access_key, waiting: count } in keys {
        let count = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
        count.encode(waiting.encode_family(&[("key", access_key.as_str())])?)?;
    }
    let kind = |figures: &QueueFigures| [("kind", figures.kind.name().to_owned())];
    encode_figures(encoder, &QUEUE_FIGURES, figures, kind)
}

impl fmt::Debug for QueueCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueCollector")
    }
}

/// Collector of the windows' metrics.
pub(crate) struct WindowCollector(pub(crate) ObjectStore);

impl Collector for WindowCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_windows(encoder, &WindowFigures::of(&self.0))
    }
}

fn encode_windows(mut encoder: DescriptorEncoder<'_>, figures: &WindowFigures) -> fmt::Result {
    for (name, help, get) in WINDOW_COUNTERS {
        let counter = ConstCounter::new(get(figures));
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)?;
    }
    let kept = ConstGauge::new(i64::try_from(figures.kept_bytes).unwrap_or(i64::MAX));
    let help = "Bytes of windows in memory";
    let metric = encoder.encode_descriptor("window_bytes", help, None, kept.metric_type())?;
    kept.encode(metric)
}

impl fmt::Debug for WindowCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WindowCollector")
    }
}

#[cfg(test)]
mod tests {
    use martlet_s3compat::RequestKind;
    use martlet_serving::metrics::Metrics;

    use super::*;

    /// Collectors of fixed figures.
    #[derive(Debug)]
    struct FixedWindows;
    #[derive(Debug)]
    struct FixedQueue;

    impl Collector for FixedWindows {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let figures =
                WindowFigures { fetched: 7, served: 70, failed: 2, kept_bytes: 9, read_bytes: 800 };
            encode_windows(encoder, &figures)
        }
    }

    impl Collector for FixedQueue {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let kind = RequestKind::Part;
            let part = QueueFigures { kind, waiting: 3, waits: 40, waited_us: 5_000, expired: 1 };
            let key = WaitingKey { access_key: "AK1".into(), waiting: 3 };
            encode_queue(encoder, &[part], &[key])
        }
    }

    #[test]
    fn windows_and_the_queue_have_metrics() {
        let text = Metrics::default().with(FixedWindows).with(FixedQueue).text();
        for line in [
            "martlet_windows_fetched_total 7",
            "martlet_windows_served_total 70",
            "martlet_windows_failed_total 2",
            "martlet_window_bytes 9",
            "martlet_extent_read_bytes_total 800",
            "martlet_queue_waiting{kind=\"part\"} 3",
            "martlet_queue_key_waiting{key=\"AK1\"} 3",
            "martlet_queue_waits_total{kind=\"part\"} 40",
            "martlet_queue_wait_seconds_total{kind=\"part\"} 0.005",
            "martlet_queue_expired_total{kind=\"part\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
