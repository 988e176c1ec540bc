//! What the processes of a cluster say of themselves.
//!
//! ```text
//! proxies, replicators ─ POST /v1/report, each round ─▶ storage nodes: remembered for a while
//! whoever an operator asks ─ GET /v1/status ─▶ storage nodes: their own word, and what they heard
//! ```
//!
//! Rings name storage nodes only. So everybody else tells every node of itself, and whoever is asked
//! how the cluster is learns from any node who there is. It is for people to look at: nothing is
//! decided by it, nothing of it is kept on disk, and who falls silent is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::admin::wire::{MemberLine, ProcessReport};

/// How long a process that says nothing more is remembered.
const MEMORY: Duration = Duration::from_mins(10);
/// Processes that are remembered at a time.
const PROCESSES_MAX: usize = 4096;
/// The longest report that is taken.
pub(crate) const REPORT_BYTES_MAX: usize = 1 << 20;

/// Asks this process what it says of itself.
pub(crate) type AskReport = Arc<dyn Fn() -> BoxFuture<'static, ProcessReport> + Send + Sync>;

/// What a storage node says of itself and of those who told it of themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatusAnswer {
    pub(crate) own: ProcessReport,
    pub(crate) heard: Vec<MemberLine>,
}

/// What a process heard of others that are no storage nodes.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<BTreeMap<String, (Instant, ProcessReport)>>);

impl Reports {
    /// Takes note of what a process says of itself.
    pub(crate) fn hear(&self, report: ProcessReport) {
        let now = Instant::now();
        let mut known = self.0.lock();
        known.retain(|_, (at, _)| now.duration_since(*at) < MEMORY);
        if known.len() < PROCESSES_MAX || known.contains_key(&report.role) {
            known.insert(report.role.clone(), (now, report));
        }
    }

    /// Who was heard of lately, and when.
    pub(crate) fn heard(&self) -> Vec<MemberLine> {
        let known = self.0.lock();
        let lately = known.values().filter(|(at, _)| at.elapsed() < MEMORY);
        let line = |(at, report): &(Instant, ProcessReport)| MemberLine {
            heard_ms_ago: u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX),
            report: report.clone(),
        };
        lately.map(line).collect()
    }
}

/// The freshest word of each process, by role and name.
pub(crate) fn freshest(heard: impl IntoIterator<Item = MemberLine>) -> Vec<MemberLine> {
    let mut known: BTreeMap<String, MemberLine> = BTreeMap::new();
    for line in heard {
        let older = known.get(&line.report.role).map(|other| other.heard_ms_ago);
        if older.is_none_or(|older| line.heard_ms_ago < older) {
            known.insert(line.report.role.clone(), line);
        }
    }
    known.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(role: &str, ready: bool) -> ProcessReport {
        ProcessReport { ready, ..ProcessReport::of(role) }
    }

    #[test]
    fn the_last_word_of_each_process_is_remembered() {
        let reports = Reports::default();
        assert!(reports.heard().is_empty());
        reports.hear(report("proxy p1", false));
        reports.hear(report("replicator r1", true));
        reports.hear(report("proxy p1", true));
        let heard = reports.heard();
        let roles: Vec<_> = heard.iter().map(|line| line.report.role.as_str()).collect();
        assert_eq!(roles, ["proxy p1", "replicator r1"]);
        assert!(heard[0].report.ready && heard[0].heard_ms_ago < 60_000);
    }

    #[test]
    fn of_several_words_the_freshest_counts() {
        let line = |role: &str, heard_ms_ago, ready| MemberLine {
            heard_ms_ago,
            report: report(role, ready),
        };
        let told = [
            line("proxy p1", 900, false),
            line("proxy p2", 5, true),
            line("proxy p1", 40, true),
            line("proxy p1", 41, false),
        ];
        let merged = freshest(told.clone());
        assert_eq!(merged, [told[2].clone(), told[1].clone()]);
    }
}
