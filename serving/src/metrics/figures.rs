//! Metrics that are collected on each scrape: a fixed set for every item of a kind.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
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

/// Type of a metric, and the unit of its getter. Metrics of time are in seconds.
#[derive(Clone, Copy)]
pub enum MetricKind {
    /// Counter.
    Rises,
    /// Gauge.
    RisesAndFalls,
    /// Counter of time. The getter returns microseconds.
    RisesByMicroseconds,
    /// Gauge of a time span. The getter returns microseconds.
    SpanOfMicroseconds,
    /// Gauge of a time span. The getter returns milliseconds.
    SpanOfMilliseconds,
}

use MetricKind::{
    Rises, RisesAndFalls, RisesByMicroseconds, SpanOfMicroseconds, SpanOfMilliseconds,
};

impl MetricKind {
    fn metric_type(self) -> MetricType {
        match self {
            Rises | RisesByMicroseconds => MetricType::Counter,
            RisesAndFalls | SpanOfMicroseconds | SpanOfMilliseconds => MetricType::Gauge,
        }
    }

    fn encode(self, value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
        let micros = Duration::from_micros(value).as_secs_f64();
        match self {
            Rises => ConstCounter::new(value).encode(encoder),
            RisesByMicroseconds => ConstCounter::new(micros).encode(encoder),
            RisesAndFalls => {
                ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)
            }
            SpanOfMicroseconds => ConstGauge::new(micros).encode(encoder),
            SpanOfMilliseconds => {
                ConstGauge::new(Duration::from_millis(value).as_secs_f64()).encode(encoder)
            }
        }
    }
}

/// Encodes all metrics of all items, each with a label that names the item.
pub fn encode_figures<T>(
    mut encoder: DescriptorEncoder<'_>,
    figures: &[Figure<T>],
    things: &[T],
    label: impl Fn(&T) -> [(&'static str, String); 1],
) -> fmt::Result {
    for Figure(name, help, kind, get) in figures {
        let mut family = encoder.encode_descriptor(name, help, None, kind.metric_type())?;
        for thing in things {
            let labels = label(thing);
            kind.encode(get(thing), family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;

    use super::*;
    use crate::metrics::Metrics;

    const FIGURES: [Figure<u64>; 4] = [
        Figure("waits", "Waits", Rises, |it| *it),
        Figure("wait_seconds", "Time of waits", RisesByMicroseconds, |it| *it),
        Figure("latency_seconds", "Latency", SpanOfMicroseconds, |it| *it),
        Figure("age_seconds", "Age", SpanOfMilliseconds, |it| *it),
    ];

    #[derive(Debug)]
    struct FixedFigures;

    impl Collector for FixedFigures {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            encode_figures(encoder, &FIGURES, &[2500], |_| [("of", "x".to_owned())])
        }
    }

    #[test]
    fn time_is_shown_in_seconds() {
        let text = Metrics::default().with(FixedFigures).text();
        for line in [
            "martlet_waits_total{of=\"x\"} 2500",
            "martlet_wait_seconds_total{of=\"x\"} 0.0025",
            "martlet_latency_seconds{of=\"x\"} 0.0025",
            "martlet_age_seconds{of=\"x\"} 2.5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
