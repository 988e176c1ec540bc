//! Metrics that are collected on each scrape: a fixed set for every item of a kind.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Metric of a kind of item: name, help text, type and getter.
pub struct Figure<T>(
    /// Name without the prefix.
    pub &'static str,
    /// Help text.
    pub &'static str,
    /// Type of the metric.
    pub MetricKind,
    /// Getter.
    pub fn(&T) -> u64,
);

/// Type of a metric.
#[derive(Clone, Copy)]
pub enum MetricKind {
    /// Counter.
    Rises,
    /// Gauge.
    RisesAndFalls,
}

use MetricKind::{Rises, RisesAndFalls};

/// Encodes all metrics of all items, each with a label that names the item.
pub fn encode_figures<T>(
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
