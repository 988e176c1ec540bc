//! Metrics of the direct socket.

use std::fmt;

use martlet_storage_node::DirectFigures;
use martlet_storage_node::direct::{REFUSALS, REVOCATIONS};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::process::direct::DirectSource;

/// Name, help text and getter of a figure.
type DirectFigure = (&'static str, &'static str, fn(&DirectFigures) -> u64);

const GAUGES: [DirectFigure; 3] = [
    ("direct_connections", "Connections to the direct socket", |it| it.connections),
    ("direct_leases", "Leases of extents whose descriptors clients hold", |it| it.leases),
    ("direct_leased_bytes", "Bytes of these leases", |it| it.leased_bytes),
];
const COUNTERS: [DirectFigure; 2] = [
    ("direct_granted", "Leases granted", |it| it.granted),
    ("direct_granted_bytes", "Bytes of granted leases", |it| it.granted_bytes),
];

/// Collector of the metrics of a process that may have a direct socket.
pub(crate) struct DirectCollector(pub(crate) Option<DirectSource>);

impl Collector for DirectCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(source) = &self.0 else { return Ok(()) };
        let figures = source();
        for (name, help, get) in GAUGES {
            let gauge = ConstGauge::new(i64::try_from(get(&figures)).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        for (name, help, get) in COUNTERS {
            let counter = ConstCounter::new(get(&figures));
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let refused = REFUSALS.into_iter().zip(figures.refused);
        by_reason(&mut encoder, "direct_refused", "Refused requests for leases", refused)?;
        let revoked = REVOCATIONS.into_iter().zip(figures.revoked);
        by_reason(&mut encoder, "direct_revoked", "Leases taken back", revoked)
    }
}

fn by_reason(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (reason, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
    }
    Ok(())
}

impl fmt::Debug for DirectCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectCollector")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use martlet_serving::metrics::Metrics;

    use super::*;

    #[test]
    fn figures_of_the_direct_socket_are_reported() {
        let mut figures =
            DirectFigures { leases: 2, leased_bytes: 7, granted: 3, ..DirectFigures::default() };
        (figures.refused[7], figures.revoked[3]) = (4, 1);
        let collector = DirectCollector(Some(Arc::new(move || figures)));
        let text = Metrics::default().with(collector).text();
        for line in [
            "martlet_direct_leases 2",
            "martlet_direct_leased_bytes 7",
            "martlet_direct_granted_total 3",
            "martlet_direct_refused_total{reason=\"packed\"} 4",
            "martlet_direct_revoked_total{reason=\"space\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let text = Metrics::default().with(DirectCollector(None)).text();
        assert!(!text.contains("direct"), "{text}");
    }
}
