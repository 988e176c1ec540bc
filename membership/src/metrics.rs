//! Metrics of calls to other nodes, and of rings.

use std::fmt;
use std::sync::Arc;

use martlet_admin_api::RingLine;
use martlet_serving::metrics::MetricKind::{
    Rises, RisesAndFalls, RisesByMicroseconds, SpanOfMicroseconds, SpanOfMilliseconds,
};
use martlet_serving::metrics::{Figure, encode_figures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

/// Metrics of calls to one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// Name of the node.
    pub name: String,
    /// Replies received.
    pub replies: u64,
    /// Requests of the two-second rounds that the node did not answer.
    pub silences: u64,
    /// Microseconds from request to reply, summed over all replies.
    pub waited_us: u64,
    /// Microseconds from request to reply, recent average.
    pub latency_us: u64,
    /// True if the node answered the last round, or has replied since.
    pub answers: bool,
    /// Milliseconds by which the node's clock leads the cluster's; zero if it lags.
    pub ahead_ms: u64,
    /// Milliseconds by which the node's clock lags the cluster's; zero if it leads.
    pub behind_ms: u64,
}

const NODE_FIGURES: [Figure<NodeFigures>; 7] = [
    Figure("node_up", "1 if the node answered the last request", RisesAndFalls, |node| {
        u64::from(node.answers)
    }),
    Figure("node_replies", "Replies from the node", Rises, |node| node.replies),
    Figure("node_silences", "Status requests without an answer", Rises, |node| node.silences),
    Figure("node_wait_seconds", "Time until replies, added up", RisesByMicroseconds, |node| {
        node.waited_us
    }),
    Figure("node_latency_seconds", "Recent time until a reply", SpanOfMicroseconds, |node| {
        node.latency_us
    }),
    Figure(
        "node_clock_ahead_seconds",
        "Time by which the node's clock is ahead of the cluster's",
        SpanOfMilliseconds,
        |node| node.ahead_ms,
    ),
    Figure(
        "node_clock_behind_seconds",
        "Time by which the node's clock is behind the cluster's",
        SpanOfMilliseconds,
        |node| node.behind_ms,
    ),
];

const RING_FIGURES: [Figure<RingLine>; 1] =
    [Figure("ring_epoch", "Epoch of the ring that the process uses", RisesAndFalls, |ring| {
        ring.epoch
    })];

/// Source of the rings of a process.
pub type RingSource = Arc<dyn Fn() -> Vec<RingLine> + Send + Sync>;

/// Collector of the metrics of a process's rings.
pub struct RingCollector(pub RingSource);

impl Collector for RingCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |ring: &RingLine| [("ring", ring.name.clone())];
        encode_figures(encoder, &RING_FIGURES, &(self.0)(), label)
    }
}

impl fmt::Debug for RingCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingCollector")
    }
}

/// Source of the metrics of calls to other nodes.
pub type NodeSource = Arc<dyn Fn() -> Vec<NodeFigures> + Send + Sync>;

/// Collector of the metrics of calls to all nodes of a member.
pub struct NodeCollector(pub NodeSource);

impl Collector for NodeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let label = |node: &NodeFigures| [("node", node.name.clone())];
        encode_figures(encoder, &NODE_FIGURES, &(self.0)(), label)
    }
}

impl fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeCollector")
    }
}
