//! Short texts of replies and keys, for traces.

use bytes::Bytes;
use martlet_protocol::backend::{
    AuditResult, BucketFence, Call, DeviceStatus, EntryWrite, ExtentStat, Garbage, Hint, Holding,
    ListReply, Presence, PromiseReply, RegisterView, Reply, WriteReply,
};
use martlet_protocol::extent::{ExtentRecord, ExtentRef};
use martlet_protocol::tree::{BinKey, Sum};
use martlet_protocol::{Entry, RegisterKey, Stamp};

/// A value with a short text for traces.
pub(crate) trait TraceText {
    fn shown(&self) -> String;
}

/// Text of a register: kind and name.
pub(crate) fn key(key: &RegisterKey) -> String {
    format!("{:?} {}", key.kind, key.name.escape_ascii())
}

/// Text of a call about several registers.
pub(crate) fn keys<'a>(what: &str, keys: impl IntoIterator<Item = &'a RegisterKey>) -> String {
    keys.into_iter().fold(what.to_owned(), |what, one| format!("{what} {}", key(one)))
}

/// Text of an order, without the part that all orders of a run share.
pub(crate) fn order(order: Stamp) -> String {
    let (time, writer) = (order.time & 0xff_ffff_ffff, order.writer.0 >> 48);
    format!("{time:010x}-{writer:04x}")
}

/// Text of an entry: order and write id.
pub(crate) fn entry(entry: &Entry) -> String {
    let id = &entry.write_id.to_string()[..8];
    let gone = if entry.value.is_tombstone() { " gone" } else { "" };
    format!("{}/{id}{gone}", order(entry.order))
}

/// Text of a write: register, mode and entry.
pub(crate) fn write(write: &EntryWrite) -> String {
    format!("{} {:?} {}", key(&write.key), write.mode, entry(&write.entry))
}

/// Text of a call: its name, and the arguments that decide its effect.
pub(crate) fn call(call: &Call<'_>) -> String {
    match call {
        Call::Read { key: of, term, .. } => format!("read {} at {term}", key(of)),
        Call::Write(of) => format!("write {} at {}", write(of), of.term),
        Call::Promise { key: of, ballot, term } => {
            format!("promise {} {} at {term}", key(of), order(*ballot))
        }
        Call::List(of) => format!("list {:?} {:?} at {}", of.kind, of.start, of.term),
        Call::ListRows { request: of, .. } => {
            format!("list {:?} {:?} at {}", of.kind, of.start, of.term)
        }
        Call::Fence(fence) => format!("fence {} open {}", fence.generation, fence.open),
        Call::PurgeBucket(bucket) => format!("purge {bucket}"),
        Call::StatExtent(id) => format!("stat extent {id}"),
        Call::DeleteExtents(ids) | Call::DeleteUnneeded { ids, .. } => {
            format!("delete extents {ids:?}")
        }
        Call::ReleaseExtents(ids) => format!("release extents {ids:?}"),
        Call::Presence(ids) | Call::PresenceBy { ids, .. } => format!("presence of {ids:?}"),
        Call::ReleaseCopies { extents, .. } => {
            format!("release copies {:?}", extents.iter().map(|it| it.id).collect::<Vec<_>>())
        }
        Call::KeepHint(of) => format!("keep hint {}", write(of)),
        Call::ReadHint { key: of, .. } => format!("read hint {}", key(of)),
        Call::ForgetHint { key: of, order: up_to } => {
            format!("forget hint {} {}", key(of), order(*up_to))
        }
        Call::RaiseFloor(floor) | Call::RaiseFloorOf { floor, .. } => {
            format!("raise floor {}", order(*floor))
        }
        Call::SetVoting(voting) | Call::SetVotingOf { voting, .. } => {
            format!("set voting {voting}")
        }
        Call::Holdings(of) => keys("holdings of", &**of),
        Call::MarkCollectable(of) => keys("mark collectable", of.iter().map(|(key, _)| key)),
        Call::DropRegisters(of) | Call::DropStrays { drops: of, .. } => {
            keys("drop", of.iter().map(|drop| &drop.key))
        }
        Call::RaiseTerm(term) => format!("raise term {term}"),
        Call::SetJoined(change) | Call::SetJoinedOf { change, .. } => {
            format!("set joined {change}")
        }
        Call::SeekExtents(ids) => format!("seek extents {ids:?}"),
        other => other.kind().name().replace('-', " "),
    }
}

impl TraceText for Reply {
    fn shown(&self) -> String {
        match self {
            Self::Done(reply) => reply.shown(),
            Self::View(reply) => reply.shown(),
            Self::Write(reply) => reply.shown(),
            Self::Promise(reply) => reply.shown(),
            Self::List(reply) => reply.shown(),
            Self::Registers(reply) => reply.shown(),
            Self::Hints(reply) => reply.shown(),
            Self::Fences(reply) => reply.shown(),
            Self::Stat(reply) => reply.shown(),
            Self::Extents(reply) => reply.shown(),
            Self::Presence(reply) => reply.shown(),
            Self::ExtentAudit(reply) => reply.shown(),
            Self::Garbage(reply) => reply.shown(),
            Self::Sums(reply) => reply.shown(),
            Self::Bins(reply) => reply.shown(),
            Self::Holdings(reply) => reply.shown(),
            Self::RegisterAudit(reply) => reply.shown(),
            Self::Claims(reply) => format!("claims at {} devices", reply.len()),
            Self::Sought(reply) => format!("{} extents sought", reply.len()),
            Self::Aged(reply) => format!("{} aged of {}", reply.aged.len(), reply.visited),
            Self::ExtentSums(reply) => {
                let bins = reply.iter().map(|of| of.sums.len()).sum::<usize>();
                format!("{bins} sums of extents")
            }
            Self::Usage(reply) => format!("usage of {} runs", reply.len()),
            Self::OldRegisters(reply) => format!("{} old registers", reply.registers.len()),
            Self::Quarantine(reply) => format!("{} items in quarantine", reply.items.len()),
            Self::HeldBuckets(reply) => format!("{} held buckets", reply.buckets.len()),
            Self::HintArrivals(reply) => format!("{} hints came", reply.hints.len()),
        }
    }
}

impl TraceText for RegisterView {
    fn shown(&self) -> String {
        let held = self.entry.as_ref().map_or_else(|| "nothing".to_owned(), entry);
        format!("{held} promised {}", order(self.promise))
    }
}

impl TraceText for WriteReply {
    fn shown(&self) -> String {
        match self {
            Self::Behind(above) => format!("behind {}", order(*above)),
            other => format!("{other:?}"),
        }
    }
}

impl TraceText for PromiseReply {
    fn shown(&self) -> String {
        match self {
            Self::Promised(view) => view.shown(),
            Self::Behind(above) => format!("behind {}", order(*above)),
        }
    }
}

impl TraceText for ListReply {
    fn shown(&self) -> String {
        let names = self.entries.iter().map(|(name, held)| {
            let gone = if held.value.is_tombstone() { "-" } else { "" };
            format!("{gone}{}", name.escape_ascii())
        });
        let more = if self.truncated { " …" } else { "" };
        format!("{}{more}", names.collect::<Vec<_>>().join(" "))
    }
}

impl TraceText for () {
    fn shown(&self) -> String {
        "done".into()
    }
}

impl TraceText for Bytes {
    fn shown(&self) -> String {
        format!("{} bytes", self.len())
    }
}

impl TraceText for ExtentRef {
    fn shown(&self) -> String {
        format!("{} bytes", self.length)
    }
}

impl TraceText for ExtentStat {
    fn shown(&self) -> String {
        self.record.extent.shown()
    }
}

impl TraceText for Vec<Holding> {
    fn shown(&self) -> String {
        let all = self.iter().map(|holding| {
            let held = holding.held.map_or_else(|| "nothing".into(), |(held, _)| order(held));
            let hint =
                holding.hint.map_or_else(String::new, |hint| format!(" hint {}", order(hint)));
            let collectable = if holding.collectable { " collectable" } else { "" };
            format!("{held}{hint}{collectable}")
        });
        all.collect::<Vec<_>>().join(", ")
    }
}

impl TraceText for Vec<Presence> {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl<T> TraceText for AuditResult<T> {
    fn shown(&self) -> String {
        format!("{} audited, {} corrupt", self.items, self.corrupt.len())
    }
}

/// Texts of lists: only the number of items.
macro_rules! counted {
    ($($of:ty),*) => {
        $(impl TraceText for Vec<$of> {
            fn shown(&self) -> String {
                format!("{} of them", self.len())
            }
        })*
    };
}

counted!(
    BucketFence,
    DeviceStatus,
    ExtentRecord,
    Garbage,
    Hint,
    Sum,
    (BinKey, Sum),
    (RegisterKey, RegisterView)
);
