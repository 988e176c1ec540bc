//! A storage node: a device in memory that may be down, and what a crash does to it.
//!
//! Fault model: a node that crashes keeps everything that it had acknowledged, and whatever it was
//! about to answer stays unsaid. A node that is wiped comes back with an empty device, which has no
//! votes (rule G1).

use std::sync::Arc;

use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::clock::SimulatedClock;
use super::planted::{self, Bug};

/// A node with one device.
pub(crate) struct Node {
    pub(crate) device: DeviceId,
    pub(crate) clock: Arc<SimulatedClock>,
    bug: Bug,
    state: Mutex<State>,
}

struct State {
    memory: Arc<MemoryBackend>,
    standing: Standing,
    /// How often it went down.
    life: u64,
}

/// Whether a node serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Up,
    /// Its process is gone, and its host says so at once.
    Refusing,
    /// Its host is gone: nobody answers.
    Silent,
}

impl Node {
    pub(crate) fn new(device: DeviceId, begun: Instant, bug: Bug) -> Self {
        let clock = Arc::new(SimulatedClock::new(begun));
        let memory = Arc::new(MemoryBackend::new(clock.clone(), [device]));
        let state = State { memory, standing: Standing::Up, life: 0 };
        Self { device, clock, bug, state: Mutex::new(state) }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Which life it lives: what was begun in another is lost.
    pub(crate) fn life(&self) -> u64 {
        self.state.lock().life
    }

    /// What answers calls.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.state.lock().memory.clone()
    }

    /// Its device, past all faults.
    pub(crate) fn memory(&self) -> Arc<MemoryBackend> {
        self.state.lock().memory.clone()
    }

    /// Takes it down.
    pub(crate) async fn crash(&self, standing: Standing) {
        let before = {
            let mut state = self.state.lock();
            state.standing = standing;
            state.life += 1;
            state.memory.clone()
        };
        if self.bug == Bug::LosesWritesAtCrash {
            let kept = planted::without_latest(&before, self.device, self.clock.clone()).await;
            self.state.lock().memory = Arc::new(kept);
        }
    }

    /// Brings it back with what it had.
    pub(crate) fn restart(&self) {
        self.state.lock().standing = Standing::Up;
    }

    /// Takes everything from it. It comes back without votes.
    pub(crate) async fn wipe(&self) {
        let empty = MemoryBackend::new(self.clock.clone(), [self.device]);
        empty.set_voting(self.device, false).await.expect("its device is there");
        let mut state = self.state.lock();
        state.memory = Arc::new(empty);
        state.life += 1;
    }
}
