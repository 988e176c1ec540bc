//! A storage node with a device in memory, and the effects of crashes.
//!
//! Fault model: a node that crashes keeps all acknowledged data, and sends no reply that was under
//! way. A wiped node returns with an empty device without votes (rule G1).

use std::sync::Arc;

use futures::FutureExt;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, BackendExt, DeviceId, DeviceIdentity, Term};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::clock::SimulatedClock;
use super::membership::SimulatedMember;
use super::planted::{self, Bug};

/// A node with one device.
pub(crate) struct SimulatedNode {
    pub(crate) device: DeviceId,
    pub(crate) clock: Arc<SimulatedClock>,
    /// Membership, with the rings that the node announces.
    pub(crate) member: Arc<SimulatedMember>,
    bug: Bug,
    state: Mutex<NodeState>,
}

struct NodeState {
    memory: Arc<MemoryBackend>,
    standing: NodeCondition,
    /// Number of crashes and wipes.
    life: u64,
    /// Number of the device's formatting.
    formatting: u8,
}

/// State of a node's process and host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeCondition {
    Up,
    /// The process has ended, and the host refuses connections at once.
    Refusing,
    /// The host is down: no reply.
    Silent,
}

impl SimulatedNode {
    pub(crate) fn new(
        device: DeviceId,
        member: Arc<SimulatedMember>,
        begun: Instant,
        bug: Bug,
    ) -> Self {
        let clock = Arc::new(SimulatedClock::new(begun));
        let memory = Arc::new(MemoryBackend::new(clock.clone(), [device]));
        memory.set_identity(device, DeviceIdentity([1; 16]));
        let state = NodeState { memory, standing: NodeCondition::Up, life: 0, formatting: 1 };
        Self { device, clock, member, bug, state: Mutex::new(state) }
    }

    pub(crate) fn standing(&self) -> NodeCondition {
        self.state.lock().standing
    }

    /// Number of the run; calls from another run are lost.
    pub(crate) fn life(&self) -> u64 {
        self.state.lock().life
    }

    /// Backend that serves calls.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.state.lock().memory.clone()
    }

    /// Direct access to the device, without faults.
    pub(crate) fn memory(&self) -> Arc<MemoryBackend> {
        self.state.lock().memory.clone()
    }

    /// Identity of the device; each wipe changes it.
    pub(crate) fn identity(&self) -> DeviceIdentity {
        DeviceIdentity([self.state.lock().formatting; 16])
    }

    /// Term of the device.
    pub(crate) fn term(&self) -> Term {
        let memory = self.memory();
        let status = memory.devices().now_or_never().expect("memory answers at once");
        status.expect("its device is there")[0].term
    }

    /// Crashes the node.
    pub(crate) async fn crash(&self, standing: NodeCondition) {
        let before = {
            let mut state = self.state.lock();
            state.standing = standing;
            state.life += 1;
            state.memory.clone()
        };
        if self.bug == Bug::LosesWritesAtCrash {
            let kept = planted::without_latest(&before, self.device, self.clock.clone()).await;
            kept.set_identity(self.device, self.identity());
            self.state.lock().memory = Arc::new(kept);
        }
    }

    /// Restarts the node with its data.
    pub(crate) fn restart(&self) {
        self.state.lock().standing = NodeCondition::Up;
    }

    /// Flips a bit of one of the node's extents.
    pub(crate) fn flip(&self, which: u64) {
        let memory = self.memory();
        let all = memory.extents(self.device);
        let which = usize::try_from(which).expect("a small number");
        if let Some(id) = all.get(which % all.len().max(1)) {
            memory.corrupt(self.device, *id);
        }
    }

    /// Replaces the device by an empty one without votes.
    pub(crate) async fn wipe(&self) {
        let empty = MemoryBackend::new(self.clock.clone(), [self.device]);
        empty.set_voting(self.device, false).await.expect("its device is there");
        empty.forget_fences(self.device);
        let mut state = self.state.lock();
        state.life += 1;
        state.formatting += 1;
        empty.set_identity(self.device, DeviceIdentity([state.formatting; 16]));
        state.memory = Arc::new(empty);
    }
}
