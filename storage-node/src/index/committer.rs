//! The committer: the one thread of a device that writes its index.

use std::sync::Arc;
use std::thread::JoinHandle;

use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, DeviceIdentity, Error, Result};

use super::counting::Counting;
use super::database::Database;
use super::fences::Fences;
use super::group::{Group, GroupInputs, GroupStatistics};
use super::queue::{IndexOp, Queue};
use super::voting::VotingState;
use crate::device::ballast::Ballast;
use crate::device::pulse::{DevicePart, Pulse};
use crate::metrics::IndexCounters;

/// State that the committer uses.
pub(super) struct Committer {
    pub(super) database: Arc<Database>,
    pub(super) fences: Arc<Fences>,
    pub(super) voting_state: Arc<VotingState>,
    pub(super) counting: Arc<Counting>,
    pub(super) name: String,
    pub(super) identity: DeviceIdentity,
    pub(super) queue: Arc<Queue>,
    pub(super) ballast: Arc<Ballast>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counters: Arc<IndexCounters>,
    pub(super) secret: TreeKey,
    pub(super) peers: bool,
    pub(super) pulse: Arc<Pulse>,
}

/// Ends all waiting operations when the committer's thread ends for any reason. A panic is a fault
/// of the index: memory may differ from disk, so the device is opened again.
struct AbandonOnDrop {
    queue: Arc<Queue>,
    database: Arc<Database>,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.database.note_fault("the committer of the index panicked");
        }
        self.queue.abandon();
    }
}

impl Committer {
    pub(super) fn spawn(self) -> Result<JoinHandle<()>> {
        let abandon = AbandonOnDrop { queue: self.queue.clone(), database: self.database.clone() };
        std::thread::Builder::new()
            .name(format!("commit-{}", self.name))
            .spawn(move || {
                let _abandon = abandon;
                self.run();
            })
            .map_err(|error| {
                Error::internal("the committer's thread can't be started").with_source(error)
            })
    }

    fn run(&self) {
        let mut ops = Vec::new();
        while self.queue.take(&mut ops) {
            let _beat = self.pulse.begin(DevicePart::Index);
            self.commit(&mut ops);
        }
    }

    /// Commits the operations: as one group, or more if an operation must begin or end its group.
    fn commit(&self, ops: &mut Vec<IndexOp>) {
        let mut group = Group::new(self.conditions());
        let mut ops = ops.drain(..).peekable();
        while let Some(op) = ops.next() {
            let continues = op.is_fence() && ops.peek().is_some_and(IndexOp::is_fence);
            let ends = op.ends_group() && !continues;
            if op.begins_group() {
                self.end(group);
                group = Group::new(self.conditions());
            }
            group.stage(op);
            if ends {
                self.end(group);
                group = Group::new(self.conditions());
            }
        }
        self.end(group);
    }

    fn end(&self, group: Group<'_>) {
        let GroupStatistics { ops, bytes, synced } = group.commit();
        self.counters.committed(ops, bytes, synced);
    }

    fn conditions(&self) -> GroupInputs<'_> {
        GroupInputs {
            database: &self.database,
            fences: &self.fences,
            voting_state: &self.voting_state,
            counting: &self.counting,
            name: &self.name,
            identity: self.identity,
            now_ms: self.clock.now_ms(),
            level: self.ballast.before_write(),
            secret: &self.secret,
            peers: self.peers,
        }
    }
}
