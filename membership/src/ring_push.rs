//! Push of rings to the nodes of a cluster, and the answer of each node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use martlet_admin_api::ring_push::{PushOutcome, RingPushLine, push_summary};
use martlet_protocol::http::HttpBackend;
use martlet_ring::Ring;
use parking_lot::Mutex;

use crate::rings::RingName;
use crate::routes::{self, OfferAnswer};

/// Most nodes that receive rings at a time.
const PUSHES_AT_ONCE: usize = 16;
/// Bytes that are on their way at a time, about: half a second at 1 Gbit/s.
const BYTES_AT_ONCE: usize = 64 << 20;
/// Bytes of a hash in the subject.
const SHORT_HASH_BYTES: usize = 4;

/// Ring with its name.
pub type NamedRing = (RingName, Arc<Ring>);

/// Push of rings to all nodes of a cluster, with its progress.
pub struct RingPush {
    /// Names, epochs and short hashes of the rings.
    subject: String,
    /// Rings with their files, until the push runs.
    rings: Mutex<Vec<(NamedRing, Bytes)>>,
    nodes_at_once: usize,
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
        let rings: Vec<_> = rings.into_iter().map(encoded).collect();
        let bytes: usize = rings.iter().map(|(_, file)| file.len()).sum();
        Self {
            subject: subject(&rings),
            rings: Mutex::new(rings),
            nodes_at_once: (BYTES_AT_ONCE / bytes.max(1)).clamp(1, PUSHES_AT_ONCE),
            nodes,
            progress: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
        }
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns names, epochs and short hashes of the rings, such as
    /// `index-7-09ab12cd`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the progress so far.
    pub fn progress(&self) -> PushProgress {
        self.progress.lock().clone()
    }

    /// Returns the number of nodes that have answered or failed to answer.
    pub fn nodes_done(&self) -> usize {
        self.progress.lock().nodes_done
    }

    /// Returns the number of answers of each outcome.
    pub fn summary(&self) -> String {
        push_summary(&self.progress.lock().answers)
    }

    /// Ends the push after the requests that are under way.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns true if the push was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Sends the rings to each node, and forgets the rings: runs once. `client` makes the client of
    /// an address, `on_answer` receives each answer after the progress that counts it.
    ///
    /// A node receives the rings in their order, up to the first request that fails.
    pub async fn run(
        &self,
        client: impl Fn(&str) -> HttpBackend + Sync,
        on_answer: impl Fn(&RingPushLine) + Sync,
    ) {
        let rings = std::mem::take(&mut *self.rings.lock());
        let pushes = self.nodes.iter().map(|(node, address)| {
            let (rings, client, on_answer) = (&rings, &client, &on_answer);
            async move {
                if self.is_cancelled() {
                    return;
                }
                let client = client(address);
                for (at, (named, file)) in rings.iter().enumerate() {
                    let line = offer(&client, node, address, named, file.clone()).await;
                    let is_out = line.outcome == PushOutcome::Unreachable;
                    self.note(line.clone(), is_out || at + 1 == rings.len());
                    on_answer(&line);
                    if is_out {
                        break;
                    }
                }
            }
        });
        // The futures are boxed, since their type would name the lifetime of each node.
        let pushes: Vec<_> = pushes.map(futures::FutureExt::boxed).collect();
        stream::iter(pushes).buffer_unordered(self.nodes_at_once).for_each(|()| async {}).await;
    }

    /// Adds an answer to the progress, and its node if the answer is the node's last one.
    fn note(&self, line: RingPushLine, is_last: bool) {
        let mut progress = self.progress.lock();
        progress.answers.push(line);
        progress.nodes_done += usize::from(is_last);
    }
}

fn subject(rings: &[(NamedRing, Bytes)]) -> String {
    let name = |((name, ring), _): &(NamedRing, Bytes)| {
        let hash = hex::encode(&ring.hash()[..SHORT_HASH_BYTES]);
        format!("{name}-{}-{hash}", ring.epoch())
    };
    rings.iter().map(name).collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
mod tests {
    use martlet_protocol::http::ClusterKey;
    use martlet_protocol::{PolicyId, SystemClock};

    use super::*;
    use crate::push_options;
    use crate::testing::ring;

    /// A node that is out is answered for once, whatever the number of rings.
    #[tokio::test]
    async fn each_answer_is_counted_before_it_is_shown() {
        let rings = vec![(RingName::Index, ring(0, 3)), (RingName::Data(PolicyId(0)), ring(0, 3))];
        let push = RingPush::new(rings, BTreeMap::new());
        let key: ClusterKey = "ab".repeat(32).parse().expect("64 hexadecimal digits");
        let client = |_: &str| {
            let options = push_options(Arc::new(SystemClock), None);
            HttpBackend::new("127.0.0.1:1", key.clone(), options, Arc::new(|_| ()))
        };
        let shown = Mutex::new(Vec::new());
        push.run(client, |line| shown.lock().push((push.nodes_done(), line.outcome))).await;
        let shown = shown.into_inner();
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert!(shown.iter().all(|(_, outcome)| *outcome == PushOutcome::Unreachable));
        let mut done: Vec<usize> = shown.iter().map(|(done, _)| *done).collect();
        done.sort_unstable();
        assert_eq!((done, push.node_count()), (vec![1, 2, 3], 3));
    }
}
