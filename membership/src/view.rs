//! View of the cluster: the reports of all nodes, and the reports that they have received, shared by
//! requests for display and collected anew for decisions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use martlet_admin_api::forecast::{Capacity, RingSpread};
use martlet_admin_api::{MemberLine, MovesLine, NodeLine, ProcessReport, ProcessWorkers, RingLine};
use martlet_protocol::DeviceId;
use martlet_protocol::http::RingTags;
use martlet_ring::Ring;
use tokio::time::timeout;

use super::Member;
use super::collected_reports::{
    CollectedReports, LISTENERS, NodeRequest, ReportScope, collect, ms,
};
use super::nodes::PeerNode;
use super::report::{StatusAnswer, freshest};
use super::rings::RingName;
use super::routes::{self, line};
use crate::forecast;
use crate::forecast::capacity::DeviceReport;

/// Timeout for a node's report.
const PATIENCE: Duration = Duration::from_secs(3);

/// All processes of the cluster, as this process sees them.
pub(crate) struct ClusterView {
    /// Storage nodes, by name.
    pub(crate) nodes: Vec<NodeLine>,
    /// Other processes, by role and name.
    pub(crate) members: Vec<MemberLine>,
}

impl Member {
    /// Returns a view for display. Requests share the reports of other processes, which are up to
    /// [`LIFETIME`](super::shared_view::LIFETIME) old and carry their age. `own` is this process's
    /// report, of now.
    pub(crate) async fn shared_view(&self, own: &ProcessReport) -> ClusterView {
        // A storage node listens itself.
        let listeners = LISTENERS - usize::from(self.nodes.own().is_some());
        let reports = self.views.get(|| self.collect(ReportScope::Listeners(listeners))).await;
        self.view_of(&reports, own)
    }

    /// Collects a view for a decision: all reports are requested after this call, from all nodes.
    pub(crate) async fn fresh_view(&self, own: &ProcessReport) -> ClusterView {
        let reports = self.collect(ReportScope::Everything).await;
        self.view_of(&reports, own)
    }

    async fn collect(&self, scope: ReportScope) -> CollectedReports {
        let mut nodes = self.nodes.all();
        nodes.sort_by_key(|node| !node.history.answers());
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        let by_name: HashMap<String, Arc<PeerNode>> =
            nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        let ask = |name: String, request| {
            let node = by_name.get(&name).cloned();
            async move {
                let node = node?;
                let mut answer = query_node(&node, request).await?;
                let host = host_of(node.backend.address());
                answer.heard.iter_mut().for_each(|line| line.sender = seen(line.sender, host));
                Some(answer)
            }
        };
        collect(names, scope, ask).await
    }

    /// Makes the view of some reports. Figures of calls, rings and clocks are those of now.
    fn view_of(&self, reports: &CollectedReports, own: &ProcessReport) -> ClusterView {
        let mut heard = self.reports.received();
        heard.extend(reports.members());
        let all = self.nodes.all();
        let mut lines: Vec<NodeLine> = all
            .iter()
            .map(|node| with_report(self.node_line(node), reports.node(&node.name)))
            .collect();
        match self.nodes.own() {
            Some(name) => lines.push(self.own_line(name, own)),
            None => {
                heard.push(MemberLine { heard_ms_ago: 0, sender: None, report: own.clone() });
            }
        }
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        ClusterView { nodes: lines, members: freshest(heard) }
    }

    /// Returns the tags of this process's rings.
    pub fn ring_lines(&self) -> Vec<RingLine> {
        self.keeper.rings().tags().into_iter().map(line).collect()
    }

    /// Returns the moves of each ring, and the progress of the index's change.
    pub(crate) fn moves(&self, view: &ClusterView) -> Vec<MovesLine> {
        let (rings, term) = (self.keeper.rings(), self.keeper.term());
        let devices = view.nodes.iter().filter_map(|node| node.report.as_ref());
        let devices = devices.flat_map(|report| &report.devices);
        let joined = devices.map(|it| (DeviceId(it.device), it.joined)).collect();
        let line = |(name, ring): (RingName, &Arc<Ring>)| {
            let line = forecast::moves(&name.to_string(), ring)?;
            let is_index = name == RingName::Index;
            let change = is_index.then(|| forecast::change(ring, term, &joined));
            Some(MovesLine { change, ..line })
        };
        rings.named().filter_map(line).collect()
    }

    /// Returns the balance and dispersion of each ring.
    pub(crate) fn spread(&self) -> Vec<RingSpread> {
        let rings = self.keeper.rings();
        rings.named().map(|(name, ring)| forecast::spread::of(&name.to_string(), ring)).collect()
    }

    /// Returns the capacity forecast of the cluster.
    pub(crate) fn capacity(&self, view: &ClusterView) -> Capacity {
        let rings = self.keeper.rings();
        let data: Vec<Arc<_>> = rings.data().map(|(_, ring)| ring.clone()).collect();
        forecast::capacity::project(&data, &view.device_reports(), view.silent())
    }

    fn node_line(&self, node: &PeerNode) -> NodeLine {
        let history = &node.history;
        let figures = history.figures();
        let rings = history.rings();
        NodeLine {
            name: node.name.clone(),
            address: node.backend.address().to_owned(),
            answers: history.answers(),
            heard_ms_ago: history.silent_for().map(ms),
            replies: figures.replies,
            silences: figures.silences,
            latency_us: figures.latency_us,
            clock_ahead_ms: self.clock.ahead_ms(&node.name),
            rings: rings.iter().flat_map(RingTags::iter).map(line).collect(),
            report: None,
        }
    }

    /// Returns the line of this process, which is a storage node.
    fn own_line(&self, name: &str, own: &ProcessReport) -> NodeLine {
        let rings = self.keeper.rings();
        NodeLine {
            name: name.to_owned(),
            address: rings.addresses().get(name).cloned().unwrap_or_default(),
            answers: true,
            heard_ms_ago: Some(0),
            clock_ahead_ms: Some(own.clock_ahead_ms),
            rings: own.rings.clone(),
            report: Some(own.clone()),
            ..NodeLine::default()
        }
    }
}

impl ClusterView {
    /// Returns the workers of each process that runs any.
    pub(crate) fn workers(&self) -> Vec<ProcessWorkers> {
        let with = self.members.iter().filter(|member| !member.report.workers.is_empty());
        with.map(|MemberLine { heard_ms_ago, report, .. }| ProcessWorkers {
            process: report.role.clone(),
            heard_ms_ago: Some(*heard_ms_ago),
            workers: report.workers.clone(),
        })
        .collect()
    }

    fn device_reports(&self) -> Vec<DeviceReport> {
        let reports = |node: &NodeLine| {
            let name = node.name.clone();
            let devices = node.report.as_ref().map(|report| report.devices.clone());
            devices
                .into_iter()
                .flatten()
                .map(move |device| DeviceReport { node: name.clone(), device })
        };
        self.nodes.iter().flat_map(reports).collect()
    }

    fn silent(&self) -> Vec<String> {
        let silent = self.nodes.iter().filter(|node| node.report.is_none());
        silent.map(|node| node.name.clone()).collect()
    }
}

/// Adds a node's report to its line. The line is as old as the report.
fn with_report(line: NodeLine, report: Option<(&ProcessReport, Duration)>) -> NodeLine {
    let Some((report, age)) = report else { return line };
    let heard_ms_ago = line.heard_ms_ago.max(Some(ms(age)));
    NodeLine { heard_ms_ago, report: Some(report.clone()), ..line }
}

/// Returns the address of a node; none for a name.
fn host_of(address: &str) -> Option<IpAddr> {
    let (host, _) = address.rsplit_once(':')?;
    host.trim_matches(['[', ']']).parse().ok()
}

/// Returns the sender of a report that a node at `host` received. A sender at the loopback interface of
/// the node is on the machine of the node.
fn seen(sender: Option<IpAddr>, host: Option<IpAddr>) -> Option<IpAddr> {
    let sender = sender?.to_canonical();
    if sender.is_loopback() { host } else { Some(sender) }
}

async fn query_node(node: &PeerNode, request: NodeRequest) -> Option<StatusAnswer> {
    let path = match request {
        NodeRequest::Own => routes::OWN_STATUS,
        NodeRequest::OwnAndReceived => routes::STATUS,
    };
    let report = match timeout(PATIENCE, node.backend.get(path)).await {
        Ok(Ok(bytes)) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    };
    report
        .inspect_err(|error| {
            tracing::debug!(node = node.name, error, "could not get a node's status");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::{DeviceLine, WorkerLine};

    use super::*;

    fn view() -> ClusterView {
        let device = DeviceLine { device: 7, ..DeviceLine::default() };
        let report =
            ProcessReport { devices: vec![device], ..ProcessReport::of("storage node n1") };
        let node =
            |name: &str, report| NodeLine { name: name.into(), report, ..NodeLine::default() };
        let busy = ProcessReport {
            workers: vec![WorkerLine { worker: "sync".into(), ..WorkerLine::default() }],
            ..ProcessReport::of("replicator r1")
        };
        let member = |report| MemberLine { heard_ms_ago: 4, sender: None, report };
        ClusterView {
            nodes: vec![node("n1", Some(report)), node("n2", None)],
            members: vec![member(ProcessReport::of("proxy p1")), member(busy)],
        }
    }

    #[test]
    fn a_line_is_as_old_as_its_report() {
        let line = |heard_ms_ago| NodeLine { heard_ms_ago, ..NodeLine::default() };
        let report = ProcessReport::of("storage node n1");
        let age = |heard, ms| {
            let with = Some((&report, Duration::from_millis(ms)));
            let line = with_report(line(heard), with);
            assert_eq!(line.report.as_ref(), Some(&report));
            line.heard_ms_ago
        };
        assert_eq!(age(Some(7), 4000), Some(4000), "a later reply was none about the report");
        assert_eq!(age(Some(90_000), 4000), Some(90_000));
        assert_eq!(age(None, 0), Some(0));
        let silent = with_report(line(Some(7)), None);
        assert!(silent.report.is_none() && silent.heard_ms_ago == Some(7));
    }

    #[test]
    fn a_loopback_sender_is_on_the_machine_of_the_receiving_node() {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        for (sender, node, expected) in [
            ("10.0.0.2", "10.0.0.1:6200", "10.0.0.2"),
            ("127.0.0.1", "10.0.0.1:6200", "10.0.0.1"),
            ("::ffff:10.0.0.2", "n1:6200", "10.0.0.2"),
            ("::1", "[fd00::1]:6200", "fd00::1"),
            ("127.0.0.1", "127.0.0.1:6200", "127.0.0.1"),
            ("127.0.0.1", "n1:6200", ""),
            ("", "10.0.0.1:6200", ""),
        ] {
            assert_eq!(seen(ip(sender), host_of(node)), ip(expected), "{sender} {node}");
        }
    }

    #[test]
    fn nodes_without_a_device_report_are_named() {
        let view = view();
        let reports = view.device_reports();
        assert_eq!(
            (reports.len(), reports[0].node.as_str(), reports[0].device.device),
            (1, "n1", 7)
        );
        assert_eq!(view.silent(), ["n2"]);
    }

    #[test]
    fn workers_come_with_the_process_that_runs_them() {
        let workers = view().workers();
        assert_eq!(workers.len(), 1);
        assert_eq!(
            (workers[0].process.as_str(), workers[0].heard_ms_ago),
            ("replicator r1", Some(4))
        );
    }
}
