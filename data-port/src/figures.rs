//! Counters of a data port, by tenant.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::head::Verifier;

/// Most tenants with counters of their own. Further ones are counted together.
const TENANTS_MAX: usize = 1000;
/// Label of further tenants. No account has this name, for it is no name.
const OTHERS: &str = "(others)";
/// Label of requests without a valid token.
const NOBODY: &str = "";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    tenant: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByteLabels {
    tenant: String,
    verified: &'static str,
}

/// Counters of a data port.
#[derive(Debug, Default)]
pub struct DataPortFigures {
    requests: Family<RequestLabels, Counter>,
    bytes: Family<ByteLabels, Counter>,
    cut: Counter,
    in_flight: Gauge,
    tenants: Mutex<BTreeSet<String>>,
}

impl DataPortFigures {
    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let requests = self.requests.clone();
        registry.register("data_port_requests", "Requests at the data port", requests);
        let bytes = self.bytes.clone();
        registry.register("data_port_bytes", "Bytes of extents sent by the data port", bytes);
        let cut = self.cut.clone();
        registry.register("data_port_cut", "Replies of the data port that ended early", cut);
        let in_flight = self.in_flight.clone();
        let help = "Requests at the data port whose reply is not fully sent";
        registry.register("data_port_in_flight", help, in_flight);
    }

    /// Counts a request as under way until the returned guard is dropped.
    pub(crate) fn begin(&self) -> UnderWay {
        self.in_flight.inc();
        UnderWay(self.in_flight.clone())
    }

    /// Counts an answer. Requests without a valid token have no tenant.
    pub(crate) fn answered(&self, tenant: Option<&str>, status: u16) {
        let tenant = tenant.map_or_else(|| NOBODY.to_owned(), |tenant| self.label(tenant));
        self.requests.get_or_create(&RequestLabels { tenant, status }).inc();
    }

    /// Counts bytes that were sent.
    pub(crate) fn sent(&self, tenant: &str, verifier: Verifier, bytes: u64) {
        let labels = ByteLabels { tenant: self.label(tenant), verified: verifier.name() };
        self.bytes.get_or_create(&labels).inc_by(bytes);
    }

    /// Counts a reply that ended before its announced length.
    pub(crate) fn cut(&self) {
        self.cut.inc();
    }

    fn label(&self, tenant: &str) -> String {
        let mut tenants = self.tenants.lock();
        if !tenants.contains(tenant) {
            if tenants.len() >= TENANTS_MAX {
                return OTHERS.to_owned();
            }
            tenants.insert(tenant.to_owned());
        }
        tenant.to_owned()
    }
}

/// A request under way, in the figures.
pub(crate) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn counters_are_kept_by_tenant_and_bounded() {
        let figures = DataPortFigures::default();
        figures.answered(None, 403);
        figures.sent("one", Verifier::Client, 7);
        for tenant in 0..TENANTS_MAX + 10 {
            figures.answered(Some(&tenant.to_string()), 200);
        }
        let mut registry = Registry::default();
        figures.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"data_port_requests_total{tenant="",status="403"} 1"#), "{text}");
        assert!(text.contains(r#"data_port_bytes_total{tenant="one",verified="client"} 7"#));
        let others = r#"data_port_requests_total{tenant="(others)",status="200"} 11"#;
        assert!(text.contains(others), "one of the thousand has read before");
    }
}
