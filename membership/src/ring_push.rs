//! Push of rings to the nodes of a cluster, and the answer of each node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use martlet_admin_api::ring_push::{PushOutcome, RingPushLine};
use martlet_protocol::http::HttpBackend;
use martlet_ring::Ring;
use parking_lot::Mutex;

use crate::rings::RingName;
use crate::routes::{self, OfferAnswer};

/// Nodes that receive rings at a time.
const PUSHES_AT_ONCE: usize = 16;

/// Ring with its name.
pub type NamedRing = (RingName, Arc<Ring>);

/// Push of rings to all nodes of a cluster, with its progress.
pub struct RingPush {
    /// Rings with their files.
    rings: Vec<(NamedRing, Bytes)>,
    /// Addresses of the nodes, by name.
    nodes: BTreeMap<String, String>,
    progress: Mutex<PushProgress>,
    is_cancelled: AtomicBool,
}

/// Progress of a push.
#[derive(Clone, Debug, Default)]
pub struct PushProgress {
    /// Nodes that have answered, or failed to answer.
    pub nodes_done: usize,
    /// Answers in the order of their arrival.
    pub answers: Vec<RingPushLine>,
}

impl RingPush {
    /// Makes a push to nodes that are known, and to those of the rings. Where both name a node, the
    /// address of the ring counts.
    pub fn new(rings: Vec<NamedRing>, known: BTreeMap<String, String>) -> Self {
        let mut nodes = known;
        nodes.extend(rings.iter().flat_map(|(_, ring)| node_addresses(ring)));
        let encoded = |named: NamedRing| {
            let file = Bytes::from(named.1.encode());
            (named, file)
        };
        let rings = rings.into_iter().map(encoded).collect();
        Self { rings, nodes, progress: Mutex::default(), is_cancelled: AtomicBool::new(false) }
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns names and epochs of the rings, such as `index-7, data-0-3`.
    pub fn subject(&self) -> String {
        let names: Vec<String> =
            self.rings.iter().map(|((name, ring), _)| format!("{name}-{}", ring.epoch())).collect();
        names.join(", ")
    }

    /// Returns the progress so far.
    pub fn progress(&self) -> PushProgress {
        self.progress.lock().clone()
    }

    /// Ends the push after the requests that are under way.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns true if the push was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Sends the rings to each node. `client` makes the client of an address, `on_answer` receives
    /// each answer.
    ///
    /// A node receives the rings in their order, up to the first request that fails.
    pub async fn run(
        &self,
        client: impl Fn(&str) -> HttpBackend + Sync,
        on_answer: impl Fn(&RingPushLine) + Sync,
    ) {
        let pushes = self.nodes.iter().map(|(node, address)| {
            let (client, on_answer) = (&client, &on_answer);
            async move {
                if self.is_cancelled() {
                    return;
                }
                let client = client(address);
                for (named, file) in &self.rings {
                    let line = offer(&client, node, address, named, file.clone()).await;
                    on_answer(&line);
                    let is_out = line.outcome == PushOutcome::Unreachable;
                    self.progress.lock().answers.push(line);
                    if is_out {
                        break;
                    }
                }
                self.progress.lock().nodes_done += 1;
            }
        });
        // The futures are boxed, since their type would name the lifetime of each node.
        let pushes: Vec<_> = pushes.map(futures::FutureExt::boxed).collect();
        stream::iter(pushes).buffer_unordered(PUSHES_AT_ONCE).for_each(|()| async {}).await;
    }
}

/// Offers a ring to a node.
async fn offer(
    client: &HttpBackend,
    node: &str,
    address: &str,
    (name, ring): &NamedRing,
    file: Bytes,
) -> RingPushLine {
    let (outcome, reason) = match client.put(&routes::ring(*name), file).await {
        Err(error) => (PushOutcome::Unreachable, Some(error.to_string())),
        Ok(reply) => match serde_json::from_slice::<OfferAnswer>(&reply) {
            Err(error) => {
                let reason = format!("it does not answer as a node of this version: {error}");
                (PushOutcome::Refused, Some(reason))
            }
            Ok(OfferAnswer { refused: Some(reason), .. }) => (PushOutcome::Refused, Some(reason)),
            Ok(OfferAnswer { taken: true, .. }) => (PushOutcome::Accepted, None),
            Ok(OfferAnswer { waits: true, .. }) => (PushOutcome::Waits, None),
            Ok(_) => (PushOutcome::Known, None),
        },
    };
    let (node, address) = (node.to_owned(), address.to_owned());
    RingPushLine { node, address, ring: name.to_string(), epoch: ring.epoch(), outcome, reason }
}

/// Returns the address of each node of a ring.
pub fn node_addresses(ring: &Ring) -> BTreeMap<String, String> {
    let node =
        |device: &martlet_ring::Device| (device.node.name.clone(), device.node.address.clone());
    ring.devices().iter().map(node).collect()
}
