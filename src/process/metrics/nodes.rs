//! Figures of the calls of other nodes.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::AskNodes;
use super::figures::Kind::{Rises, RisesAndFalls};
use super::figures::{Figure, encode_figures};

/// How calls of one node went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFigures {
    /// The node.
    pub(crate) name: String,
    /// Replies that came.
    pub(crate) replies: u64,
    /// Questions of the rounds between calls that nobody answered.
    pub(crate) silences: u64,
    /// From request to reply, of all replies together.
    pub(crate) waited_us: u64,
    /// From request to reply, lately.
    pub(crate) latency_us: u64,
    /// Whether it answered when it was last asked.
    pub(crate) answers: bool,
    /// How far its clock is ahead of the cluster's; zero when it is behind.
    pub(crate) ahead_ms: u64,
    /// How far its clock is behind the cluster's; zero when it is ahead.
    pub(crate) behind_ms: u64,
}

const NODE_FIGURES: [Figure<NodeFigures>; 7] = [
    Figure("node_up", "Whether it answered when it was last asked", RisesAndFalls, |node| {
        u64::from(node.answers)
    }),
    Figure("node_replies", "Replies that came from it", Rises, |node| node.replies),
    Figure(
        "node_silences",
        "Times that it was asked how it is and did not answer",
        Rises,
        |node| node.silences,
    ),
    Figure("node_wait_us", "Microseconds until replies, of all together", Rises, |node| {
        node.waited_us
    }),
    Figure("node_latency_us", "Microseconds until a reply, lately", RisesAndFalls, |node| {
        node.latency_us
    }),
    Figure("node_clock_ahead_ms", "Its clock before the cluster's", RisesAndFalls, |node| {
        node.ahead_ms
    }),
    Figure("node_clock_behind_ms", "Its clock behind the cluster's", RisesAndFalls, |node| {
        node.behind_ms
    }),
];

pub(super) struct Nodes(pub(super) AskNodes);

impl Collector for Nodes {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |node: &NodeFigures| [("node", node.name.clone())];
        encode_figures(encoder, &NODE_FIGURES, &(self.0)(), label)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nodes")
    }
}
