//! Devices introduce themselves to the other nodes, and new ones get their votes, or don't
//! (rule G1).
//!
//! ```text
//!                     has votes ──▶ introduced: the others remember it as it is
//!                   ▲
//!  new, no votes ───┤ first ring, a majority of the other nodes asked, none remembers another
//!                   └ else: it has to sync first
//! ```
//!
//! Two majorities of the other nodes meet: whoever got votes here was remembered by one of those who
//! are asked when the device comes back wiped. The own memory is asked too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use martlet_protocol::backend::{DeviceHealth, DeviceStatus};
use martlet_protocol::{Backend, DeviceId};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::nodes::Node;
use super::peers::{Identity, Introduction, Remembered};
use super::rings::Rings;
use super::routes::{self, Host};
use crate::process::listen::told;

/// Between two rounds of introductions, while there is somebody to meet.
const EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of a device that has no votes.
#[derive(Clone, Copy, Debug)]
struct Inquiry<'a> {
    identity: Identity,
    /// Whether the index ring follows no other.
    is_first_ring: bool,
    /// Whether there is nobody from whom the device could learn anything.
    is_alone: bool,
    /// The other nodes of the index ring.
    others: usize,
    /// What those of them that answered remembered.
    answers: &'a [Remembered],
    /// What this node remembered.
    own: Remembered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is new, and there was nobody in its place.
    Votes,
    /// It stands where another stood, or others may have come to know what it doesn't.
    HasToSync,
    /// Too few have answered.
    Wait,
}

fn judge(inquiry: Inquiry<'_>) -> Verdict {
    if inquiry.is_alone {
        return Verdict::Votes;
    }
    let another = |it: &Remembered| it.before.is_some_and(|before| before != inquiry.identity);
    if !inquiry.is_first_ring || another(&inquiry.own) || inquiry.answers.iter().any(another) {
        return Verdict::HasToSync;
    }
    let is_majority = inquiry.others == 0 || inquiry.answers.len() * 2 > inquiry.others;
    if is_majority { Verdict::Votes } else { Verdict::Wait }
}

/// Introduces the devices of a node.
pub(crate) struct Introducer {
    host: Host,
    backend: Arc<dyn Backend>,
    /// Who has met which device, as what.
    met: BTreeMap<(String, DeviceId), (Identity, bool)>,
    told_to_sync: BTreeSet<DeviceId>,
}

impl Introducer {
    /// For the devices of `backend`.
    pub(crate) fn new(host: Host, backend: Arc<dyn Backend>) -> Self {
        Self { host, backend, met: BTreeMap::new(), told_to_sync: BTreeSet::new() }
    }

    /// Introduces devices, and looks after new ones, until `stop`.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut rounds = interval(EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let introduce = async {
            loop {
                rounds.tick().await;
                self.round().await;
            }
        };
        tokio::select! {
            () = told(&mut stop) => {}
            () = introduce => {}
        }
    }

    /// Looks at each device once.
    pub(crate) async fn round(&mut self) {
        let rings = self.host.member.keeper.rings();
        let Ok(devices) = self.backend.devices().await else { return };
        for device in devices {
            // What the own devices were told is told to others in every reply (rule P3).
            self.host.member.keeper.hear_term(device.term);
            let is_open = !matches!(device.health, DeviceHealth::Offline(_));
            let holds_entries =
                rings.index().is_some_and(|ring| ring.device(device.device).is_some());
            if is_open && holds_entries && (device.voting || !self.is_told_to_sync(&device)) {
                self.look_after(&rings, &device).await;
            }
        }
    }

    fn is_told_to_sync(&self, device: &DeviceStatus) -> bool {
        self.told_to_sync.contains(&device.device)
    }

    async fn look_after(&mut self, rings: &Rings, device: &DeviceStatus) {
        let introduction = Introduction {
            device: device.device,
            identity: Identity(device.identity),
            voting: device.voting,
        };
        let (peers, folder) = (self.host.peers.clone(), self.host.folder.clone());
        let own = tokio::task::block_in_place(|| peers.meet(&folder, introduction));
        let own = match own {
            Ok(own) => own,
            Err(error) => return tracing::error!(%error, "own devices can't be remembered"),
        };
        let others: Vec<Arc<Node>> = rings
            .index_nodes()
            .iter()
            .filter_map(|name| self.host.member.nodes.get(name))
            .collect();
        let mut answers = Vec::new();
        for node in &others {
            answers.extend(self.introduce(node, introduction).await);
        }
        if device.voting {
            self.told_to_sync.remove(&device.device);
            return;
        }
        let index = rings.index().expect("a device of the index ring was looked at");
        let verdict = judge(Inquiry {
            identity: introduction.identity,
            is_first_ring: index.identity().parent == [0; 32],
            is_alone: others.is_empty() && index.replicas() == 1,
            others: others.len(),
            answers: &answers,
            own,
        });
        self.carry_out(verdict, device.device).await;
    }

    /// Introduces a device to a node that has not met it as it is; what the node remembered.
    async fn introduce(&mut self, node: &Node, who: Introduction) -> Option<Remembered> {
        let key = (node.name.clone(), who.device);
        if who.voting && self.met.get(&key) == Some(&(who.identity, true)) {
            return None;
        }
        let body = serde_json::to_vec(&who).expect("plain data can be encoded");
        let asked = node.backend.post(routes::INTRODUCE, Bytes::from(body));
        let answer = match timeout(PATIENCE, asked).await {
            Ok(Ok(bytes)) => serde_json::from_slice(&bytes).ok(),
            Ok(Err(error)) => {
                tracing::debug!(node = node.name, %error, "a node was not introduced to a device");
                None
            }
            Err(_) => None,
        };
        if answer.is_some() {
            self.met.insert(key, (who.identity, who.voting));
        }
        answer
    }

    async fn carry_out(&mut self, verdict: Verdict, device: DeviceId) {
        match verdict {
            Verdict::Wait => {}
            Verdict::HasToSync => {
                self.told_to_sync.insert(device);
                tracing::warn!(
                    %device,
                    "the device stands in for one that others remember: it has no votes until it has \
                     synced"
                );
            }
            Verdict::Votes => match self.backend.set_voting(device, true).await {
                Ok(()) => tracing::info!(%device, "a new device of a new cluster has its votes"),
                Err(error) => tracing::warn!(%device, %error, "a device can't be given its votes"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::DeviceIdentity;

    use super::*;

    const A: Identity = Identity(DeviceIdentity([1; 16]));
    const B: Identity = Identity(DeviceIdentity([2; 16]));
    const NOBODY: Remembered = Remembered { before: None };
    const SAME: Remembered = Remembered { before: Some(A) };
    const ANOTHER: Remembered = Remembered { before: Some(B) };

    fn new(others: usize, answers: &[Remembered]) -> Inquiry<'_> {
        Inquiry { identity: A, is_first_ring: true, is_alone: false, others, answers, own: NOBODY }
    }

    #[test]
    fn g1_a_new_device_of_a_new_cluster_votes_once_a_majority_of_the_others_was_asked() {
        assert_eq!(judge(new(0, &[])), Verdict::Votes);
        assert_eq!(judge(new(1, &[])), Verdict::Wait);
        assert_eq!(judge(new(1, &[NOBODY])), Verdict::Votes);
        assert_eq!(judge(new(2, &[NOBODY])), Verdict::Wait);
        assert_eq!(judge(new(2, &[NOBODY, SAME])), Verdict::Votes);
        assert_eq!(judge(new(3, &[NOBODY, SAME])), Verdict::Votes);
    }

    #[test]
    fn g1_a_device_in_the_place_of_another_has_to_sync() {
        assert_eq!(judge(new(2, &[ANOTHER])), Verdict::HasToSync);
        assert_eq!(judge(new(3, &[NOBODY, NOBODY, ANOTHER])), Verdict::HasToSync);
        let wiped = Inquiry { own: ANOTHER, ..new(2, &[NOBODY, NOBODY]) };
        assert_eq!(judge(wiped), Verdict::HasToSync);
        let wiped = Inquiry { own: ANOTHER, ..new(0, &[]) };
        assert_eq!(judge(wiped), Verdict::HasToSync);
    }

    #[test]
    fn g1_a_device_of_a_later_ring_has_to_sync() {
        let late = Inquiry { is_first_ring: false, ..new(2, &[NOBODY, NOBODY]) };
        assert_eq!(judge(late), Verdict::HasToSync);
        let alone = Inquiry { is_first_ring: false, own: ANOTHER, is_alone: true, ..new(0, &[]) };
        assert_eq!(judge(alone), Verdict::Votes);
    }
}
