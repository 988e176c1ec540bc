//! Metrics of event targets and access logs.

use std::fmt;
use std::sync::Arc;

use martlet_serving::metrics::MetricKind::{Rises, RisesAndFalls};
use martlet_serving::metrics::{Figure, encode_figures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// Counters of one event target, over all its lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetFigures {
    /// Name of the target.
    pub name: String,
    /// Messages that were accepted into a queue.
    pub taken: u64,
    /// Messages that the target acknowledged.
    pub delivered: u64,
    /// Messages that were dropped for lack of room, or found damaged.
    pub lost: u64,
    /// Failed attempts to deliver.
    pub failures: u64,
    /// Bytes in the spool.
    pub waiting_bytes: u64,
    /// Messages that the target refused and that were set aside.
    pub refused: u64,
    /// Bytes of messages set aside that are still in the file.
    pub refused_bytes: u64,
}

/// Counters of all targets and access logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObserverFigures {
    /// Counters of each target.
    pub targets: Vec<TargetFigures>,
    /// Lost lines of the process's own access log.
    pub lost_lines: u64,
    /// Lost lines of buckets' access logs.
    pub lost_bucket_lines: u64,
}

/// Source of the metrics of event targets and access logs.
pub type ObserverSource = Arc<dyn Fn() -> ObserverFigures + Send + Sync>;

const TARGET_FIGURES: [Figure<TargetFigures>; 7] = [
    Figure("event_messages_taken", "Messages queued for a target", Rises, |it| it.taken),
    Figure("event_messages_delivered", "Messages accepted by a target", Rises, |it| it.delivered),
    Figure("event_messages_lost", "Lost messages", Rises, |it| it.lost),
    Figure("event_failures", "Failed delivery attempts", Rises, |it| it.failures),
    Figure("event_waiting_bytes", "Bytes in a target's spool", RisesAndFalls, |it| {
        it.waiting_bytes
    }),
    Figure("event_messages_refused", "Messages set aside after refusals", Rises, |it| it.refused),
    Figure("event_refused_bytes", "Bytes of messages set aside", RisesAndFalls, |it| {
        it.refused_bytes
    }),
];

/// Name of a kind of log, and the number of its lost lines.
struct LostLines(&'static str, u64);

const LOG_FIGURES: [Figure<LostLines>; 1] =
    [Figure("access_log_lines_lost", "Lost access log lines", Rises, |log| log.1)];

/// Collector of the targets' metrics.
pub struct TargetCollector(pub ObserverSource);

impl Collector for TargetCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |target: &TargetFigures| [("target", target.name.clone())];
        encode_figures(encoder, &TARGET_FIGURES, &(self.0)().targets, label)
    }
}

impl fmt::Debug for TargetCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TargetCollector")
    }
}

/// Collector of the access logs' metrics.
pub struct LogCollector(pub ObserverSource);

impl Collector for LogCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ObserverFigures { lost_lines, lost_bucket_lines, .. } = (self.0)();
        let logs = [LostLines("own", lost_lines), LostLines("buckets", lost_bucket_lines)];
        encode_figures(encoder, &LOG_FIGURES, &logs, |log| [("log", log.0.to_owned())])
    }
}

impl fmt::Debug for LogCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogCollector")
    }
}

#[cfg(test)]
mod tests {
    use martlet_serving::metrics::Metrics;

    use super::*;

    #[test]
    fn targets_and_logs_have_metrics() {
        let target = TargetFigures { name: "hook".into(), lost: 3, ..TargetFigures::default() };
        let figures =
            ObserverFigures { targets: vec![target], lost_lines: 1, lost_bucket_lines: 2 };
        let text = {
            let source: ObserverSource = Arc::new(move || figures.clone());
            let metrics = Metrics::default().with(LogCollector(source.clone()));
            metrics.with(TargetCollector(source)).text()
        };
        for line in [
            "martlet_event_messages_lost_total{target=\"hook\"} 3",
            "martlet_event_waiting_bytes{target=\"hook\"} 0",
            "martlet_access_log_lines_lost_total{log=\"own\"} 1",
            "martlet_access_log_lines_lost_total{log=\"buckets\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
