//! Collection of the reports of all nodes, and of those that nodes received from other processes.
//!
//! Every node is asked for its own report. Every other process sends its first report to all nodes,
//! and later ones to the nodes of each round, thus to each node once in a turn. So a few nodes know
//! them all: only [`LISTENERS`] nodes are asked for what they received, and the others for their own
//! report alone. A decision about all processes asks all nodes for both, and so finds reports of the
//! last round: see [`ReportScope::Everything`].
//!
//! Nodes are asked [`NODES_AT_ONCE`] at a time, in no order: a node that hangs delays no other. After
//! [`DEADLINE`], the rest counts as silent. A decision has no deadline: a process may hide behind a node
//! that was never asked.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use martlet_admin_api::{MemberLine, ProcessReport};
use tokio::time::{Instant, timeout_at};

use super::report::{StatusAnswer, freshest};

/// Nodes that are asked at a time.
pub(crate) const NODES_AT_ONCE: usize = 64;
/// Nodes whose received reports are collected.
pub(crate) const LISTENERS: usize = 3;
/// Longest time of a collection for display.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Reports that a collection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportScope {
    /// All nodes' own reports, and the reports that this number of nodes received.
    Listeners(usize),
    /// All nodes' own reports, and the reports that any of them received: for decisions that no
    /// process may escape.
    Everything,
}

/// Reports that one node is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRequest {
    /// Its own report.
    Own,
    /// Its own report, and those that it received.
    OwnAndReceived,
}

/// Reports of nodes and of other processes, with the times of their arrival.
#[derive(Debug)]
pub(crate) struct CollectedReports {
    nodes: HashMap<String, NodeReport>,
    members: Vec<MemberLine>,
    /// End of the collection, to which the ages of `members` refer.
    ended: Instant,
}

#[derive(Debug)]
struct NodeReport {
    report: ProcessReport,
    arrived: Instant,
}

impl CollectedReports {
    /// Returns a node's report, and its age.
    pub(crate) fn node(&self, name: &str) -> Option<(&ProcessReport, Duration)> {
        self.nodes.get(name).map(|it| (&it.report, it.arrived.elapsed()))
    }

    /// Returns the latest reports of other processes, with their ages, which include the time since
    /// the collection.
    pub(crate) fn members(&self) -> impl Iterator<Item = MemberLine> + '_ {
        let since = self.ended.elapsed();
        self.members.iter().map(move |line| aged(line.clone(), since))
    }
}

/// Adds time to the age of a line.
fn aged(mut line: MemberLine, by: Duration) -> MemberLine {
    line.heard_ms_ago = line.heard_ms_ago.saturating_add(ms(by));
    line
}

/// Returns a span in milliseconds.
pub(crate) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Collects the reports of `nodes`, the nodes most likely to answer first. `ask` sends a request to
/// a node, and returns `None` if it does not answer.
pub(crate) async fn collect<F>(
    nodes: Vec<String>,
    scope: ReportScope,
    ask: impl Fn(String, NodeRequest) -> F,
) -> CollectedReports
where
    F: Future<Output = Option<StatusAnswer>>,
{
    let (wanted, deadline) = match scope {
        ReportScope::Everything => (nodes.len(), None),
        ReportScope::Listeners(count) => (count.min(nodes.len()), Some(Instant::now() + DEADLINE)),
    };
    let mut collection = Collection { deadline, answers: HashMap::new(), listeners: 0 };
    let mut others: VecDeque<String> = nodes[wanted..].iter().cloned().collect();
    let request = |(at, node): (usize, String)| {
        let what = if at < wanted { NodeRequest::OwnAndReceived } else { NodeRequest::Own };
        (node, what)
    };
    collection.ask_all(nodes.into_iter().enumerate().map(request), &ask).await;
    // Listeners that did not answer are replaced by other nodes.
    while collection.listeners < wanted && !others.is_empty() && !collection.is_late() {
        let more = others.len().min(wanted - collection.listeners);
        let more = others.drain(..more).map(|node| (node, NodeRequest::OwnAndReceived));
        collection.ask_all(more.collect::<Vec<_>>(), &ask).await;
    }
    collection.end()
}

/// A collection that is under way.
struct Collection {
    /// End of a collection for display.
    deadline: Option<Instant>,
    /// Answer of each node, with the time of its arrival.
    answers: HashMap<String, (Instant, StatusAnswer)>,
    /// Nodes that answered with the reports that they received.
    listeners: usize,
}

impl Collection {
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Asks nodes, until the deadline if there is one.
    async fn ask_all<F>(
        &mut self,
        requests: impl IntoIterator<Item = (String, NodeRequest)>,
        ask: &impl Fn(String, NodeRequest) -> F,
    ) where
        F: Future<Output = Option<StatusAnswer>>,
    {
        let calls = requests.into_iter().map(|(node, what)| {
            let answer = ask(node.clone(), what);
            async move { (node, what, answer.await) }
        });
        let mut calls = std::pin::pin!(stream::iter(calls).buffer_unordered(NODES_AT_ONCE));
        loop {
            let next = match self.deadline {
                Some(deadline) => timeout_at(deadline, calls.next()).await.unwrap_or_default(),
                None => calls.next().await,
            };
            let Some((node, what, answer)) = next else { break };
            let Some(answer) = answer else { continue };
            self.listeners += usize::from(what == NodeRequest::OwnAndReceived);
            self.answers.insert(node, (Instant::now(), answer));
        }
    }

    fn end(self) -> CollectedReports {
        let ended = Instant::now();
        let (mut nodes, mut received) = (HashMap::new(), Vec::new());
        for (node, (arrived, answer)) in self.answers {
            let since = ended.duration_since(arrived);
            received.extend(answer.heard.into_iter().map(|line| aged(line, since)));
            nodes.insert(node, NodeReport { report: answer.own, arrived });
        }
        CollectedReports { nodes, members: freshest(received), ended }
    }
}

#[cfg(test)]
mod tests;
