//! Reports of a cluster's processes about themselves.
//!
//! ```text
//! proxies, replicators ─ POST /v1/report, each round ─▶ storage nodes: kept for ten minutes
//! process that an operator queries ─ GET /v1/status ─▶ storage nodes: own report and those received
//! ```
//!
//! Rings name storage nodes only. So all other processes send their reports to every storage node,
//! of a large cluster in [turns](super::visits), and any member can collect them for an operator.
//! Reports are informational: no decision depends on them, they are not stored on disk, and those of
//! silent processes expire.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use martlet_admin_api::{MemberLine, ProcessReport};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Lifetime of a report, far longer than a turn of visits: 32 s for 1,000 nodes.
const MEMORY: Duration = Duration::from_mins(10);
/// Maximum number of reports.
const PROCESSES_MAX: usize = 4096;
/// Maximum bytes of a report.
pub(crate) const REPORT_BYTES_MAX: usize = 1 << 20;

/// Source of this process's own report.
pub type ReportSource = Arc<dyn Fn() -> BoxFuture<'static, ProcessReport> + Send + Sync>;

/// Own report of a storage node, and the reports that it has received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatusAnswer {
    pub(crate) own: ProcessReport,
    pub(crate) heard: Vec<MemberLine>,
}

/// Reports received from processes other than storage nodes.
#[derive(Debug, Default)]
pub(crate) struct ReceivedReports(Mutex<BTreeMap<String, ReceivedReport>>);

#[derive(Debug)]
struct ReceivedReport {
    at: Instant,
    sender: Option<IpAddr>,
    report: ProcessReport,
}

impl ReceivedReports {
    /// Stores the report of a process, which came from `sender`. At [`PROCESSES_MAX`] reports a new process is
    /// ignored.
    pub(crate) fn record(&self, report: ProcessReport, sender: Option<IpAddr>) {
        let now = Instant::now();
        let mut known = self.0.lock();
        known.retain(|_, it| now.duration_since(it.at) < MEMORY);
        if known.len() < PROCESSES_MAX || known.contains_key(&report.role) {
            known.insert(report.role.clone(), ReceivedReport { at: now, sender, report });
        }
    }

    /// Returns the unexpired reports, with their ages.
    pub(crate) fn received(&self) -> Vec<MemberLine> {
        let known = self.0.lock();
        let lately = known.values().filter(|it| it.at.elapsed() < MEMORY);
        let line = |ReceivedReport { at, sender, report }: &ReceivedReport| MemberLine {
            heard_ms_ago: u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX),
            sender: *sender,
            report: report.clone(),
        };
        lately.map(line).collect()
    }
}

/// Returns the latest report of each process, by role and name. A report without a sender gets that of an
/// older one.
pub(crate) fn freshest(heard: impl IntoIterator<Item = MemberLine>) -> Vec<MemberLine> {
    let mut known: BTreeMap<String, MemberLine> = BTreeMap::new();
    for mut line in heard {
        match known.get_mut(&line.report.role) {
            Some(other) if line.heard_ms_ago >= other.heard_ms_ago => {
                other.sender = other.sender.or(line.sender);
            }
            Some(other) => {
                line.sender = line.sender.or(other.sender);
                *other = line;
            }
            None => {
                known.insert(line.report.role.clone(), line);
            }
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
        let reports = ReceivedReports::default();
        assert!(reports.received().is_empty());
        let sender = "10.0.0.7".parse().ok();
        reports.record(report("proxy p1", false), None);
        reports.record(report("replicator r1", true), None);
        reports.record(report("proxy p1", true), sender);
        let heard = reports.received();
        let roles: Vec<_> = heard.iter().map(|line| line.report.role.as_str()).collect();
        assert_eq!(roles, ["proxy p1", "replicator r1"]);
        assert!(heard[0].report.ready && heard[0].heard_ms_ago < 60_000);
        assert_eq!((heard[0].sender, heard[1].sender), (sender, None));
    }

    #[test]
    fn of_several_words_the_freshest_counts() {
        let line = |role: &str, heard_ms_ago, ready| MemberLine {
            heard_ms_ago,
            sender: None,
            report: report(role, ready),
        };
        let reports = [
            line("proxy p1", 900, false),
            line("proxy p2", 5, true),
            line("proxy p1", 40, true),
            line("proxy p1", 41, false),
        ];
        let merged = freshest(reports.clone());
        assert_eq!(merged, [reports[2].clone(), reports[1].clone()]);
    }

    #[test]
    fn the_sender_of_an_older_report_is_kept() {
        let sender: Option<IpAddr> = "10.0.0.7".parse().ok();
        let line = |heard_ms_ago, sender| MemberLine {
            heard_ms_ago,
            sender,
            report: report("proxy p1", true),
        };
        for lines in [[line(5, None), line(9, sender)], [line(9, sender), line(5, None)]] {
            assert_eq!(freshest(lines), [line(5, sender)]);
        }
    }
}
