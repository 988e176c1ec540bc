//! Finalization: the decision that the cluster stays with this release, and the rise of the format
//! level that follows.
//!
//! ```text
//! operator ─ POST /admin/v1/cluster/finalize ─▶ any process: do all processes know the level?
//!                                               └─ PUT /v1/format-level ─▶ each storage node
//! ```
//!
//! Each process is asked first: storage nodes by a request of this moment, others by their reports.
//! A node that doesn't answer, or a process of an earlier release, prevents the rise. A node that
//! fails during the rise learns the level from the others later.

use axum::body::Bytes;
use futures::future::join_all;
use martlet_admin_api::{FinalizeReply, MemberLine, NodeLine, ProcessReport, ReleaseLine};
use martlet_protocol::{Release, VersionRange};

use super::Member;
use super::format_level::{LevelAnswer, LevelOrder};
use super::routes;
use super::view::ClusterView;

/// A process and the format levels that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProcessFormats {
    name: String,
    /// Version of the process and its levels; none if the process doesn't answer.
    known: Option<(String, VersionRange)>,
}

/// Returns the line of a release for reports.
pub fn release_line(release: &Release) -> ReleaseLine {
    ReleaseLine {
        wire_oldest: release.wire.oldest,
        wire_newest: release.wire.newest,
        formats_oldest: release.formats.oldest,
        formats_newest: release.formats.newest,
        format_level: release.level,
        knows_holds: true,
    }
}

fn formats_of(report: &ProcessReport) -> (String, VersionRange) {
    let before = Release::unannounced().formats;
    let formats = report.release.as_ref().map_or(before, |line| VersionRange {
        oldest: line.formats_oldest,
        newest: line.formats_newest,
    });
    (report.version.clone(), formats)
}

fn processes(view: &ClusterView) -> Vec<ProcessFormats> {
    let node = |line: &NodeLine| ProcessFormats {
        name: format!("the storage node {}", line.name),
        known: line.report.as_ref().map(formats_of),
    };
    let member = |line: &MemberLine| ProcessFormats {
        name: format!("the {}", line.report.role),
        known: Some(formats_of(&line.report)),
    };
    view.nodes.iter().map(node).chain(view.members.iter().map(member)).collect()
}

/// Returns the processes that prevent a rise to `level`, one sentence each.
fn obstacles(processes: &[ProcessFormats], level: u16) -> Vec<String> {
    let obstacle = |process: &ProcessFormats| match &process.known {
        None => Some(format!("{} does not answer: start it with this release", process.name)),
        Some((_, formats)) if formats.contains(level) => None,
        Some((version, formats)) => Some(format!(
            "{} runs release {version}, which knows format levels up to {}: upgrade it, or stop \
             it and wait for ten minutes",
            process.name, formats.newest
        )),
    };
    processes.iter().filter_map(obstacle).collect()
}

/// Returns the processes that collect under a hold, one sentence each. A process that doesn't answer is
/// not among them: an operator keeps it down, or starts it with this release.
pub(crate) fn collecting_under_a_hold(view: &ClusterView) -> Vec<String> {
    let nodes = view.nodes.iter().filter_map(|line| {
        Some((format!("the storage node {}", line.name), line.report.as_ref()?))
    });
    let members = view.members.iter().map(|it| (format!("the {}", it.report.role), &it.report));
    let collects = |(name, report): (String, &ProcessReport)| {
        let knows = report.release.as_ref().is_some_and(|release| release.knows_holds);
        (!knows).then(|| {
            format!(
                "{name} runs release {}, which deletes under a hold: upgrade it, or stop it and wait \
                 for ten minutes",
                report.version
            )
        })
    };
    nodes.chain(members).filter_map(collects).collect()
}

impl Member {
    /// Raises the format level of the cluster to the newest level of this release.
    ///
    /// # Errors
    /// A sentence for each process that prevents the rise, or failed in it.
    pub(crate) async fn finalize(&self, own: &ProcessReport) -> Result<FinalizeReply, Vec<String>> {
        let newest = self.level.tag().release().formats.newest;
        let before = self.level.get();
        let view = self.fresh_view(own).await;
        let obstacles = obstacles(&processes(&view), newest);
        if !obstacles.is_empty() {
            return Err(obstacles);
        }
        let body = serde_json::to_vec(&LevelOrder { level: newest });
        let body = Bytes::from(body.expect("plain data can be encoded"));
        let mut nodes = self.nodes.all();
        nodes.retain(|node| node.history.release().is_none_or(|release| release.level < newest));
        let orders = nodes.iter().map(|node| async {
            let replied = node.backend.put(routes::FORMAT_LEVEL, body.clone()).await;
            let answer = replied.map_err(|error| error.to_string()).and_then(|bytes| {
                serde_json::from_slice::<LevelAnswer>(&bytes).map_err(|error| error.to_string())
            });
            let failed = answer.map_or_else(Some, |answer| answer.refused);
            failed.map(|reason| format!("the storage node {} stays: {reason}", node.name))
        });
        let mut failed: Vec<String> = join_all(orders).await.into_iter().flatten().collect();
        if let Err(reason) = self.level.raise(newest).await {
            failed.push(format!("this process stays: {reason}"));
        }
        if failed.is_empty() { Ok(FinalizeReply { level: newest, before }) } else { Err(failed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(role: &str, newest: Option<u16>) -> ProcessReport {
        let release = newest.map(|newest| {
            let formats = VersionRange { oldest: 2, newest };
            release_line(&Release { formats, ..Release::own(2) })
        });
        ProcessReport { release, ..ProcessReport::of(role) }
    }

    fn node(name: &str, report: Option<ProcessReport>) -> NodeLine {
        NodeLine { name: name.to_owned(), report, ..NodeLine::default() }
    }

    fn view(nodes: Vec<NodeLine>, proxy: Option<u16>) -> ClusterView {
        let report = report("proxy p1", proxy);
        ClusterView { nodes, members: vec![MemberLine { heard_ms_ago: 5, sender: None, report }] }
    }

    #[test]
    fn a_level_rises_when_all_processes_know_it() {
        let nodes = || vec![node("n1", Some(report("storage node n1", Some(3))))];
        assert!(obstacles(&processes(&view(nodes(), Some(3))), 3).is_empty());
        assert!(
            obstacles(&processes(&view(nodes(), None)), 2).is_empty(),
            "releases before levels"
        );
    }

    #[test]
    fn a_hold_needs_processes_that_know_of_holds() {
        let nodes = || vec![node("n1", Some(report("storage node n1", Some(2)))), node("n2", None)];
        assert!(collecting_under_a_hold(&view(nodes(), Some(2))).is_empty());
        let earlier = collecting_under_a_hold(&view(nodes(), None));
        assert_eq!(earlier.len(), 1, "{earlier:?}");
        assert!(earlier[0].starts_with("the proxy p1 runs release"), "{earlier:?}");
    }

    #[test]
    fn silent_nodes_and_earlier_releases_prevent_the_rise() {
        let nodes = vec![
            node("n1", Some(report("storage node n1", Some(2)))),
            node("n2", None),
            node("n3", Some(report("storage node n3", Some(3)))),
        ];
        let obstacles = obstacles(&processes(&view(nodes, None)), 3);
        assert_eq!(obstacles.len(), 3, "{obstacles:?}");
        assert!(obstacles[0].starts_with("the storage node n1 runs release 0.1.0, which knows"));
        assert!(obstacles[1].starts_with("the storage node n2 does not answer"));
        assert!(obstacles[2].starts_with("the proxy p1 runs release"));
    }
}
