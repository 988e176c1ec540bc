//! Figures of those who are told of requests.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::AskHearers;
use super::figures::Kind::{Rises, RisesAndFalls};
use super::figures::{Figure, encode_figures};

/// What became of the messages of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetFigures {
    pub(crate) name: String,
    /// Messages that were taken on their way.
    pub(crate) taken: u64,
    /// Those that were acknowledged.
    pub(crate) delivered: u64,
    /// Those that there was no room for, or that were found damaged.
    pub(crate) lost: u64,
    /// Attempts that failed.
    pub(crate) failures: u64,
    /// Bytes in its spool.
    pub(crate) waiting_bytes: u64,
    /// Messages that it did not take, and that were put aside.
    pub(crate) refused: u64,
    /// Bytes of them that are there still.
    pub(crate) refused_bytes: u64,
}

/// How all of them fare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HearerFigures {
    pub(crate) targets: Vec<TargetFigures>,
    /// Lines of the process's access log that were lost.
    pub(crate) lost_lines: u64,
    /// Lines of access logs of buckets that were lost.
    pub(crate) lost_bucket_lines: u64,
}

const TARGET_FIGURES: [Figure<TargetFigures>; 7] = [
    Figure("event_messages_taken", "Messages on their way to a target", Rises, |it| it.taken),
    Figure("event_messages_delivered", "Messages that a target took", Rises, |it| it.delivered),
    Figure("event_messages_lost", "Messages that were lost", Rises, |it| it.lost),
    Figure("event_failures", "Attempts to deliver that failed", Rises, |it| it.failures),
    Figure("event_waiting_bytes", "Bytes in a target's spool", RisesAndFalls, |it| {
        it.waiting_bytes
    }),
    Figure("event_messages_refused", "Messages that were put aside", Rises, |it| it.refused),
    Figure("event_refused_bytes", "Bytes of messages that were put aside", RisesAndFalls, |it| {
        it.refused_bytes
    }),
];

/// Lines of one kind of log that were lost.
struct LostLines(&'static str, u64);

const LOG_FIGURES: [Figure<LostLines>; 1] =
    [Figure("access_log_lines_lost", "Lines of access logs that were lost", Rises, |log| log.1)];

/// Tells of targets.
pub(super) struct Targets(pub(super) AskHearers);

impl Collector for Targets {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |target: &TargetFigures| [("target", target.name.clone())];
        encode_figures(encoder, &TARGET_FIGURES, &(self.0)().targets, label)
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Targets")
    }
}

/// Tells of access logs.
pub(super) struct Logs(pub(super) AskHearers);

impl Collector for Logs {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let HearerFigures { lost_lines, lost_bucket_lines, .. } = (self.0)();
        let logs = [LostLines("own", lost_lines), LostLines("buckets", lost_bucket_lines)];
        encode_figures(encoder, &LOG_FIGURES, &logs, |log| [("log", log.0.to_owned())])
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logs")
    }
}
