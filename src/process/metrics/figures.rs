//! Figures that are asked for when somebody looks: the same few of many things of a kind.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// One figure of many things of a kind: name, explanation, whether it only rises, and how to get it.
pub(super) struct Figure<T>(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) Kind,
    pub(super) fn(&T) -> u64,
);

/// Whether a figure only rises.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// It does.
    Rises,
    /// It doesn't.
    RisesAndFalls,
}

use Kind::{Rises, RisesAndFalls};

/// Tells all figures of all things, each under a label that names the thing.
pub(super) fn encode_figures<T>(
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
