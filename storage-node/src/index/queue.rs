//! Queue of operations that wait for the committer.

use martlet_protocol::backend::{
    BucketFence, DeviceCondition, GarbageId, StrayCondition, WriteReply,
};
use martlet_protocol::register::WriteMode;
use martlet_protocol::tree::Sum;
use martlet_protocol::{BucketId, Error, Result, Stamp, Term, WriteId};
use tokio::sync::oneshot;

use super::rows::RegisterRow;
use super::tree::{Leaf, RowKey};
use super::usage::UsageMends;
use crate::sync::{Condvar, Mutex};

/// Maximum bytes that may wait; further writes get `Unavailable`.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum bytes of one group: enough that hundreds of writes share a sync, few enough that the
/// first write doesn't wait for the last.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Weight of an operation in bytes, beside the bytes that it carries.
const OP_BYTES: usize = 256;

pub(super) type ReplySender<T> = oneshot::Sender<Result<T>>;

/// An index operation with its reply channel. Callers encode keys and rows, so that the committer
/// only reads, decides and writes.
pub(super) enum IndexOp {
    Write(WriteOp, ReplySender<WriteReply>),
    Promise(PromiseOp, ReplySender<PromiseOutcome>),
    Fence(BucketFence, ReplySender<()>),
    KeepHint(WriteOp, ReplySender<WriteReply>),
    ForgetHint(Vec<u8>, Stamp, ReplySender<()>),
    RaiseFloor(Stamp, ReplySender<()>),
    SetVoting(bool, ReplySender<()>),
    RaiseTerm(Term, ReplySender<()>),
    SetJoined(u64, ReplySender<()>),
    /// Change of the device that the condition names.
    OfDevice(DeviceCondition, DeviceChange, ReplySender<()>),
    MarkCollectable(Vec<(Vec<u8>, Stamp)>, ReplySender<()>),
    /// Drop of registers; that of strays has a condition.
    Drop(Option<StrayCondition>, Vec<DropOp>, ReplySender<()>),
    MendSums(Vec<(RowKey, Sum)>, ReplySender<()>),
    MendUsage(UsageMends, ReplySender<()>),
    /// Rows of the lists of old registers that may be wrong or missing.
    ListOld(Vec<Vec<u8>>, ReplySender<()>),
    Leave(Vec<(Vec<u8>, Vec<u8>)>, ReplySender<()>),
    Forget(Vec<GarbageId>, ReplySender<()>),
    CheckClosed(BucketId, ReplySender<()>),
    Purge(BucketId, ReplySender<()>),
}

/// Change of a device's voting state under a condition.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeviceChange {
    Floor(Stamp),
    Votes(bool),
    Joined(u64),
    /// The device has received the fences of its peers.
    Fenced,
}

/// A write of an entry.
pub(super) struct WriteOp {
    pub(super) key: Vec<u8>,
    pub(super) row: RegisterRow,
    /// Row of its inline bytes, if it carries any.
    pub(super) inline: Option<Vec<u8>>,
    pub(super) tombstone: bool,
    pub(super) order: Stamp,
    pub(super) write_id: WriteId,
    pub(super) mode: WriteMode,
    pub(super) bucket: BucketId,
    pub(super) generation: u64,
    pub(super) commit_by_ms: u64,
    /// True if the extents of the replaced entry are still needed.
    pub(super) keep_body: bool,
    /// The writer's term.
    pub(super) term: Term,
    /// Leaf that the entry adds to the sums.
    pub(super) leaf: Leaf,
}

/// A ballot: a request for a promise.
pub(super) struct PromiseOp {
    pub(super) key: Vec<u8>,
    pub(super) ballot: Stamp,
    pub(super) term: Term,
}

/// A drop of a register.
pub(super) struct DropOp {
    pub(super) key: Vec<u8>,
    /// The register stays if its order or its promise lies above this.
    pub(super) up_to: Stamp,
    /// True if only a collectable tombstone may be dropped.
    pub(super) collectable: bool,
}

/// Outcome of a ballot.
pub(super) enum PromiseOutcome {
    /// Promised, with the register after the promise.
    Granted(RegisterRow),
    /// Refused: the ballot must lie above this stamp.
    Behind(Stamp),
}

impl IndexOp {
    /// Returns true if the operation must see the effects of earlier ones on disk, so that it begins
    /// a group: a purge reads hints and rows from disk. The time and the term of a condition are read
    /// then too.
    pub(super) fn begins_group(&self) -> bool {
        matches!(self, Self::Purge(..) | Self::OfDevice(..) | Self::Drop(Some(_), ..))
    }

    /// Returns true if the operation sets a fence. Fences that follow each other share a group.
    pub(super) fn is_fence(&self) -> bool {
        matches!(self, Self::Fence(..))
    }

    /// Returns true if later operations must see its effect on disk, so that it ends its group.
    pub(super) fn ends_group(&self) -> bool {
        matches!(
            self,
            Self::Fence(..)
                | Self::Purge(..)
                | Self::RaiseFloor(..)
                | Self::SetVoting(..)
                | Self::RaiseTerm(..)
                | Self::SetJoined(..)
                | Self::OfDevice(..)
                | Self::MendSums(..)
                | Self::MendUsage(..)
        )
    }

    fn weight(&self) -> usize {
        OP_BYTES
            + match self {
                Self::Write(write, _) | Self::KeepHint(write, _) => {
                    write.row.bytes().len() + write.inline.as_ref().map_or(0, Vec::len)
                }
                Self::Leave(rows, _) => rows.iter().map(|(key, row)| key.len() + row.len()).sum(),
                Self::Forget(ids, _) => ids.len() * 24,
                Self::ForgetHint(key, ..) => key.len(),
                Self::MarkCollectable(marks, _) => marks.iter().map(|(key, _)| key.len()).sum(),
                Self::Drop(_, drops, _) => drops.iter().map(|drop| drop.key.len()).sum(),
                Self::MendSums(sums, _) => sums.len() * size_of::<(RowKey, Sum)>(),
                Self::MendUsage(mends, _) => size_of_val(&*mends.mends),
                Self::ListOld(rows, _) => rows.iter().map(Vec::len).sum(),
                Self::Promise(..)
                | Self::Fence(..)
                | Self::RaiseFloor(..)
                | Self::SetVoting(..)
                | Self::RaiseTerm(..)
                | Self::SetJoined(..)
                | Self::OfDevice(..)
                | Self::CheckClosed(..)
                | Self::Purge(..) => 0,
            }
    }
}

/// Queued operations, in order of arrival.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Default)]
struct QueueState {
    ops: Vec<IndexOp>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    /// Adds an operation. `Unavailable` if the queue is closed or full.
    pub(super) fn push(&self, op: IndexOp) -> Result<()> {
        let weight = op.weight();
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err(Error::unavailable("the index is closed"));
        }
        if waiting.bytes + weight > WAITING_BYTES_MAX {
            return Err(Error::unavailable("too many writes wait for the disk"));
        }
        waiting.bytes += weight;
        waiting.ops.push(op);
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for operations and moves a group of them into `group`, which is empty. Returns false
    /// if the queue is closed and empty.
    pub(super) fn take(&self, group: &mut Vec<IndexOp>) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.ops.is_empty() {
            if waiting.closed {
                return false;
            }
            self.arrived.wait(&mut waiting);
        }
        if waiting.bytes <= GROUP_BYTES_MAX {
            std::mem::swap(&mut waiting.ops, group);
            waiting.bytes = 0;
            return true;
        }
        let mut bytes = 0;
        let fits = waiting.ops.iter().take_while(|op| {
            bytes += op.weight();
            bytes <= GROUP_BYTES_MAX
        });
        let count = fits.count().max(1);
        group.extend(waiting.ops.drain(..count));
        waiting.bytes -= group.iter().map(IndexOp::weight).sum::<usize>();
        true
    }

    /// Refuses further operations; waiting operations are still written.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Refuses further operations, and drops waiting operations: their callers receive an error.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.bytes = 0;
        let dropped = std::mem::take(&mut waiting.ops);
        drop(waiting);
        drop(dropped);
    }
}

#[cfg(all(test, feature = "interleavings"))]
mod interleavings;

#[cfg(test)]
mod tests {
    use super::*;

    fn heavy(bytes: usize) -> (IndexOp, oneshot::Receiver<Result<()>>) {
        let (reply, answer) = oneshot::channel();
        (IndexOp::Leave(vec![(vec![], vec![0; bytes])], reply), answer)
    }

    #[test]
    fn a_group_is_bounded_but_never_empty() {
        let queue = Queue::default();
        for bytes in [GROUP_BYTES_MAX, 10, GROUP_BYTES_MAX / 2, GROUP_BYTES_MAX / 2] {
            queue.push(heavy(bytes).0).unwrap();
        }
        let mut sizes = Vec::new();
        queue.close();
        let mut group = Vec::new();
        while queue.take(&mut group) {
            sizes.push(group.len());
            group.clear();
        }
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn a_queue_that_is_too_long_refuses() {
        let queue = Queue::default();
        queue.push(heavy(WAITING_BYTES_MAX - 2 * OP_BYTES).0).unwrap();
        assert!(queue.push(heavy(OP_BYTES).0).is_err());
        queue.push(heavy(0).0).unwrap();
    }

    #[test]
    fn an_abandoned_queue_fails_its_waiting_callers() {
        let queue = Queue::default();
        let (op, mut answer) = heavy(1);
        queue.push(op).unwrap();
        queue.abandon();
        assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(queue.push(heavy(1).0).is_err());
        assert!(!queue.take(&mut Vec::new()));
    }
}
