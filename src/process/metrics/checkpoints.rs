//! Metrics of checkpoint sets.

use std::fmt;
use std::time::Duration;

use martlet_protocol::checkpoints::SetCounts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::process::checkpoint_counts::CheckpointCounts;

/// Collector of the counts of checkpoint sets, as of the worker's last whole visit of each bucket.
pub(crate) struct CheckpointCollector(pub(crate) CheckpointCounts);

impl Collector for CheckpointCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_sets(encoder, &self.0.sum())
    }
}

impl fmt::Debug for CheckpointCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckpointCollector")
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

fn encode_sets(mut encoder: DescriptorEncoder<'_>, sets: &SetCounts) -> fmt::Result {
    let mut generations = encoder.encode_descriptor(
        "checkpoint_generations",
        "Generations of checkpoint sets by state",
        None,
        MetricType::Gauge,
    )?;
    let states =
        [("pending", sets.pending), ("committed", sets.committed), ("removing", sets.removing)];
    for (state, count) in states {
        gauge(count).encode(generations.encode_family(&[("state", state)])?)?;
    }
    let age = ConstGauge::new(Duration::from_millis(sets.oldest_pending_ms).as_secs_f64());
    age.encode(encoder.encode_descriptor(
        "checkpoint_oldest_pending_seconds",
        "Age of the oldest pending generation",
        None,
        MetricType::Gauge,
    )?)?;
    gauge(sets.pinned_bytes).encode(encoder.encode_descriptor(
        "checkpoint_pinned_bytes",
        "Bytes of generations whose versions are pinned; shared versions count for each",
        None,
        MetricType::Gauge,
    )?)
}

#[cfg(test)]
mod tests {
    use martlet_serving::metrics::Metrics;

    use super::*;

    #[derive(Debug)]
    struct FixedSets;

    impl Collector for FixedSets {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let counts = SetCounts {
                pending: 1,
                committed: 20,
                removing: 3,
                oldest_pending_ms: 7_000,
                pinned_bytes: 1 << 40,
                ..SetCounts::default()
            };
            encode_sets(encoder, &counts)
        }
    }

    #[test]
    fn generations_have_a_series_for_each_state() {
        let text = Metrics::default().with(FixedSets).text();
        for line in [
            "martlet_checkpoint_generations{state=\"pending\"} 1",
            "martlet_checkpoint_generations{state=\"committed\"} 20",
            "martlet_checkpoint_generations{state=\"removing\"} 3",
            "martlet_checkpoint_oldest_pending_seconds 7.0",
            "martlet_checkpoint_pinned_bytes 1099511627776",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
