//! A storage node: a device in memory that may be down, and what a crash does to it.
//!
//! Fault model: a node that crashes keeps everything that it had acknowledged, and whatever it was
//! about to answer stays unsaid. A node that is wiped comes back with an empty device, which has no
//! votes (rule G1).

use std::sync::Arc;

use futures::FutureExt;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, DeviceIdentity, Term};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::clock::SimulatedClock;
use super::membership::Member;
use super::planted::{self, Bug};

/// A node with one device.
pub(crate) struct Node {
    pub(crate) device: DeviceId,
    pub(crate) clock: Arc<SimulatedClock>,
    /// The rings that it announces.
    pub(crate) member: Arc<Member>,
    bug: Bug,
    state: Mutex<State>,
}

struct State {
    memory: Arc<MemoryBackend>,
    standing: Standing,
    /// How often it went down.
    life: u64,
    /// Which formatting of its device this is.
    formatting: u8,
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
    pub(crate) fn new(device: DeviceId, member: Arc<Member>, begun: Instant, bug: Bug) -> Self {
        let clock = Arc::new(SimulatedClock::new(begun));
        let memory = Arc::new(MemoryBackend::new(clock.clone(), [device]));
        let state = State { memory, standing: Standing::Up, life: 0, formatting: 1 };
        Self { device, clock, member, bug, state: Mutex::new(state) }
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

    /// Which formatting of its device it is: another one after each wipe.
    pub(crate) fn identity(&self) -> DeviceIdentity {
        DeviceIdentity([self.state.lock().formatting; 16])
    }

    /// The term that its device was told.
    pub(crate) fn term(&self) -> Term {
        let memory = self.memory();
        let status = memory.devices().now_or_never().expect("memory answers at once");
        status.expect("its device is there")[0].term
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

    /// Flips a bit of one of its extents.
    pub(crate) fn flip(&self, which: u64) {
        let memory = self.memory();
        let all = memory.extents(self.device);
        let which = usize::try_from(which).expect("a small number");
        if let Some(id) = all.get(which % all.len().max(1)) {
            memory.corrupt(self.device, *id);
        }
    }

    /// Takes everything from it. It comes back without votes.
    pub(crate) async fn wipe(&self) {
        let empty = MemoryBackend::new(self.clock.clone(), [self.device]);
        empty.set_voting(self.device, false).await.expect("its device is there");
        let mut state = self.state.lock();
        state.memory = Arc::new(empty);
        state.life += 1;
        state.formatting += 1;
    }
}
