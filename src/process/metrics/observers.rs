//! Metrics of event targets and access logs.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::ObserverSource;
use super::figures::MetricKind::{Rises, RisesAndFalls};
use super::figures::{Figure, encode_figures};

/// Counters of one event target, over all its lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetFigures {
    pub(crate) name: String,
    /// Messages that were accepted into a queue.
    pub(crate) taken: u64,
    /// Messages that the target acknowledged.
    pub(crate) delivered: u64,
    /// Messages that were dropped for lack of room, or found damaged.
    pub(crate) lost: u64,
    /// Failed attempts to deliver.
    pub(crate) failures: u64,
    /// Bytes in the spool.
    pub(crate) waiting_bytes: u64,
    /// Messages that the target refused and that were set aside.
    pub(crate) refused: u64,
    /// Bytes of messages set aside that are still in the file.
    pub(crate) refused_bytes: u64,
}

/// Counters of all targets and access logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObserverFigures {
    pub(crate) targets: Vec<TargetFigures>,
    /// Lost lines of the process's own access log.
    pub(crate) lost_lines: u64,
    /// Lost lines of buckets' access logs.
    pub(crate) lost_bucket_lines: u64,
}

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
pub(super) struct TargetCollector(pub(super) ObserverSource);

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
pub(super) struct LogCollector(pub(super) ObserverSource);

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
