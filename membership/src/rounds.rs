//! Rounds: every two seconds a member queries other nodes for their rings, so that rings and time
//! spread without client traffic. A round [visits](super::visits) all nodes of a small cluster, and 64 of a
//! large one, in turns.
//!
//! A member fetches a newer ring as soon as a node announces the ring, in a round or in any other
//! reply. Processes that no ring names send their reports to the nodes of each round.
//!
//! Conclusions from replies and the nodes that they rest on:
//!
//! * *Time*: the last reading of each node, and all nodes where a part does not suffice (rule C1).
//! * *Term, format level*: the highest of all replies. Both only rise, so an older reply shows less.
//! * *Rings that wait* are reconsidered if a visited node answers: the known term is then that of a reply of
//!   this round, or a later one.
//! * *Newer rings* are fetched from visited nodes, and from any node as soon as a reply announces them.
//! * *Nodes that answer*: by the last visit of each.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use martlet_serving::wait_for_stop;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::nodes::{NodeChange, PeerNode};
use super::rings::RingName;
use super::{Member, routes};

/// Interval between two rounds.
const EVERY: Duration = Duration::from_secs(2);
/// Timeout for an answer in a round.
const PATIENCE: Duration = Duration::from_millis(1500);

impl Member {
    /// Visits the nodes of a round, fetches newer rings, and adjusts the cluster time. The first round
    /// visits all nodes.
    pub async fn round(&self) {
        self.visit_nodes().await;
    }

    /// Takes a round, and returns the nodes that it visited.
    async fn visit_nodes(&self) -> Vec<Arc<PeerNode>> {
        let query = |node: Arc<PeerNode>| async move { self.poll_node(&node).await };
        let visited = self.visits.visit(&self.nodes.all(), &self.clock, query).await;
        let visited = self.nodes.current(&visited);
        let nodes = self.nodes.all();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        self.clock.settle(&names);
        for node in &nodes {
            self.keeper.receive_term(node.history.term());
        }
        self.follow_level(&nodes).await;
        // A process that reaches no node can't know which changes are over.
        if nodes.is_empty() || visited.iter().any(|node| node.history.answers()) {
            self.reconsider();
        }
        for node in &visited {
            if let Some(rings) = node.history.rings().filter(|_| node.history.answers()) {
                self.catch_up(node, self.keeper.behind(&rings)).await;
            }
        }
        self.nodes.current(&visited)
    }

    /// Takes the highest format level that nodes announce.
    async fn follow_level(&self, nodes: &[Arc<PeerNode>]) {
        let answering = nodes.iter().filter(|node| node.history.answers());
        let levels = answering.filter_map(|node| Some(node.history.release()?.level));
        let higher = levels.filter(|level| self.level.observe(*level)).max();
        let Some(level) = higher else { return };
        if let Err(error) = self.level.raise(level).await {
            tracing::error!(level, error, "could not raise the format level: trying again");
        }
    }

    /// Sends this process's report to those of `nodes` that answer. Returns false if the process has none yet.
    async fn send_report(&self, nodes: &[Arc<PeerNode>]) -> bool {
        let Some(report) = self.report.get() else { return false };
        let body = serde_json::to_vec(&report().await).expect("plain data can be encoded");
        let body = Bytes::from(body);
        let sent = nodes.iter().filter(|node| node.history.answers()).map(|node| async {
            let reply = node.backend.post(routes::REPORT, body.clone());
            if let Ok(Err(error)) = timeout(PATIENCE, reply).await {
                tracing::debug!(node = node.name, %error, "could not send this process's status to \
                    a node");
            }
        });
        join_all(sent).await;
        true
    }

    async fn poll_node(&self, node: &PeerNode) {
        let answer = timeout(PATIENCE, node.backend.get(routes::RINGS)).await;
        let answered = matches!(answer, Ok(Ok(_)));
        if let Ok(Err(error)) = &answer {
            tracing::debug!(node = node.name, %error, "no answer from a node");
        }
        let before = node.history.answers();
        node.history.note_answer(answered);
        if before != answered {
            let name = &node.name;
            let address = node.backend.address();
            tracing::info!(name, address, answered, "a node's reachability changed");
        }
    }

    /// Fetches these rings from a node that has newer ones.
    async fn catch_up(&self, node: &PeerNode, names: Vec<RingName>) {
        for name in names {
            match node.backend.get(&routes::ring(name)).await {
                Ok(bytes) => {
                    // Checking a ring is quick, but writing it may wait for the disk.
                    let taken = tokio::task::block_in_place(|| self.keeper.offer(name, &bytes));
                    if let Err(error) = taken {
                        tracing::error!(node = node.name, %name, error, "refused a newer ring");
                    }
                    self.nodes.follow(&self.keeper.rings());
                }
                Err(error) => {
                    tracing::debug!(node = node.name, %name, %error, "could not fetch a newer ring");
                }
            }
        }
    }

    /// Runs rounds and handles announcements until `stop`.
    pub async fn keep_up(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = wait_for_stop(&mut stop) => {}
            () = self.keep_up_for_ever() => {}
        }
    }

    async fn handle_change(&self, change: NodeChange) {
        match change {
            NodeChange::Rings { node, rings } => {
                if let Some(node) = self.nodes.get(&node) {
                    self.catch_up(&node, self.keeper.behind(&rings)).await;
                }
            }
            NodeChange::Term(term) => {
                self.keeper.receive_term(term);
                self.reconsider();
            }
        }
    }

    /// Puts waiting rings into use if the changes before them are over.
    fn reconsider(&self) {
        if self.keeper.waiting().is_some() {
            tokio::task::block_in_place(|| self.keeper.reconsider());
            self.nodes.follow(&self.keeper.rings());
        }
    }

    async fn keep_up_for_ever(&self) {
        let mut rounds = interval(EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = self.changes.lock().await;
        let mut has_reported = false;
        loop {
            tokio::select! {
                _ = rounds.tick() => {
                    let visited = self.visit_nodes().await;
                    let receivers = receivers(has_reported, visited, || self.nodes.all());
                    has_reported |= self.send_report(&receivers).await;
                }
                Some(change) = changes.recv() => self.handle_change(change).await,
            }
        }
    }
}

/// Returns the nodes that receive this process's report: those of the round, and all nodes until the
/// first report was sent. So decisions about all processes find a new process at any node.
fn receivers<N>(has_reported: bool, visited: Vec<N>, all: impl FnOnce() -> Vec<N>) -> Vec<N> {
    if has_reported { visited } else { all() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_goes_to_all_nodes_and_later_ones_to_those_of_the_round() {
        let (visited, all) = (vec!["n2"], || vec!["n1", "n2", "n3"]);
        assert_eq!(receivers(false, visited.clone(), all), all());
        assert_eq!(receivers(true, visited.clone(), all), visited);
    }
}
