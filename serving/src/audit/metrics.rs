//! Metrics of the audit log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::AuditLog;

/// Collector of the metrics of a process's audit logs together. Without logs there are none.
#[derive(Debug)]
pub struct AuditCollector(pub Vec<Arc<AuditLog>>);

impl Collector for AuditCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let sum = |count: fn(&AuditLog) -> &AtomicU64| {
            self.0.iter().map(|log| count(log).load(Ordering::Relaxed)).sum::<u64>()
        };
        let records = sum(|log| &log.records);
        let failures = sum(|log| &log.failures);
        for (name, help, count) in [
            ("audit_records", "Changes recorded in the audit log", records),
            ("audit_failures", "Lines that the audit log could not store", failures),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        let help = "1 if the audit log can be written, 0 if changes are refused";
        let metric = encoder.encode_descriptor("audit_writable", help, None, MetricType::Gauge)?;
        let is_writable = self.0.iter().all(|log| log.problem().is_none());
        ConstGauge::new(i64::from(is_writable)).encode(metric)
    }
}
