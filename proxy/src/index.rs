//! Registers, over their primaries: quorum reads, plain writes and ballots (rules R3, R4, R5, R7).
//!
//! With one replica a quorum is that replica's word, and every shortcut below comes to a single
//! call. With more, replies that agree need no second round; replies that differ are settled by a
//! ballot that leaves the winner on a quorum before anyone is told of it.
//!
//! * [`plain`]: plain writes; [`ballot`]: conditional ones, and whatever replicas differ on.
//! * [`verdicts`]: what came of one write on each replica, counted.

mod ballot;
mod plain;
mod verdicts;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_protocol::backend::{Backend, EntryWrite, RegisterView, Want};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{DeviceId, Error, RegisterKey, Result, Stamp, WriteId};

use self::verdicts::Verdicts;
use crate::quorum::{Progress, QuorumTally};
use crate::store::Inner;

/// Rounds that one write may take before it gives way.
const ROUNDS: u32 = 12;

/// A write of one register.
#[derive(Clone, Copy)]
pub(crate) struct Intent<'a> {
    pub(crate) key: &'a RegisterKey,
    pub(crate) write_id: WriteId,
    /// The bucket's generation (rule M2).
    pub(crate) generation: u64,
    /// Refused past this time (rule X2).
    pub(crate) commit_by_ms: u64,
    /// Set before the first replica is told.
    pub(crate) claim: Option<&'a AtomicBool>,
}

impl Intent<'_> {
    fn claim(&self) {
        if let Some(claim) = self.claim {
            claim.store(true, Ordering::Release);
        }
    }
}

/// What a ballot proposes.
#[derive(Clone)]
pub(crate) struct Proposal {
    pub(crate) value: Value,
    pub(crate) inline: Option<Bytes>,
    pub(crate) keep_body: bool,
}

impl Proposal {
    /// A value without inline bytes.
    pub(crate) fn of(value: Value) -> Self {
        Self { value, inline: None, keep_body: false }
    }
}

/// What to do about what a ballot found.
pub(crate) enum Step {
    Write(Proposal),
    Keep,
}

/// Where a write ended up.
#[derive(Debug)]
pub(crate) enum Landed {
    /// It is written, at this order.
    At(Stamp),
    /// Nothing was written: this is what is there.
    Kept(RegisterView),
    /// The bucket has moved on.
    Fenced,
}

/// A write that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: crate::Error,
    /// Some replica may hold it all the same.
    pub(crate) maybe_written: bool,
}

impl Failed {
    fn clean(error: impl Into<crate::Error>) -> Self {
        Self { error: error.into(), maybe_written: false }
    }

    fn unknown(error: impl Into<crate::Error>) -> Self {
        Self { error: error.into(), maybe_written: true }
    }
}

impl From<Failed> for crate::Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// The view that wins, and whether all agree on it.
fn winner(views: Vec<RegisterView>) -> (RegisterView, bool) {
    let id = |view: &RegisterView| view.entry.as_ref().map(|entry| (entry.order, entry.write_id));
    let agree = views.windows(2).all(|pair| id(&pair[0]) == id(&pair[1]));
    (views.into_iter().max_by_key(id).unwrap_or_default(), agree)
}

impl Inner {
    fn primaries(&self, key: &RegisterKey) -> impl ExactSizeIterator<Item = DeviceId> + '_ {
        let ring = self.cluster.index();
        ring.primaries(ring.partition(key.placement()))
    }

    /// Asks all primaries, until a quorum has answered or can't any more.
    async fn gather<'a, T, F>(
        &'a self,
        key: &RegisterKey,
        ask: impl Fn(DeviceId, &'a dyn Backend) -> F,
    ) -> Result<Vec<T>>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let primaries = self.primaries(key);
        let mut tally = QuorumTally::majority(primaries.len());
        let mut asked = FuturesUnordered::new();
        for device in primaries {
            asked.push(ask(device, &**self.cluster.node(device)?));
        }
        let mut replies = Vec::with_capacity(asked.len());
        let mut failure = None;
        while let Some(reply) = asked.next().await {
            let progress = tally.push(reply.is_ok());
            match reply {
                Ok(reply) => replies.push(reply),
                Err(error) => failure = Some(error),
            }
            match progress {
                Progress::Undecided => {}
                Progress::Met => return Ok(replies),
                Progress::Impossible => break,
            }
        }
        Err(failure.unwrap_or_else(|| Error::unavailable("the register has no primaries")))
    }

    /// What a quorum of primaries holds (rule R5).
    pub(crate) async fn read(&self, key: &RegisterKey, want: Want) -> Result<RegisterView> {
        let mut primaries = self.primaries(key);
        if let (1, Some(device)) = (primaries.len(), primaries.next()) {
            return self.cluster.node(device)?.read(device, key, want).await;
        }
        let views =
            self.gather(key, |device, node| async move { node.read(device, key, want).await });
        match winner(views.await?) {
            (view, true) => Ok(view),
            (_, false) => self.settle(key).await,
        }
    }

    /// Leaves the winner of replies that differ on a quorum.
    async fn settle(&self, key: &RegisterKey) -> Result<RegisterView> {
        let commit_by_ms = u64::MAX;
        let intent = Intent {
            key,
            write_id: WriteId::random(),
            generation: u64::MAX,
            commit_by_ms,
            claim: None,
        };
        match self.decide(intent, &mut |_| Ok(Step::Keep)).await {
            Ok(Landed::Kept(view)) => Ok(view),
            Ok(_) => Err(Error::unavailable("replicas differ, and could not be settled")),
            Err(Failed { error: crate::Error::Backend(error), .. }) => Err(error),
            Err(failed) => Err(Error::unavailable(failed.error.to_string())),
        }
    }

    /// Tells all primaries, and waits for all: a third replica that is merely slow should hold the
    /// write too.
    async fn tell(&self, write: EntryWrite) -> Result<Verdicts> {
        let mut primaries = self.primaries(&write.key);
        if let (1, Some(device)) = (primaries.len(), primaries.next()) {
            let reply = self.cluster.node(device)?.write(device, write).await;
            return Ok(Verdicts::of(vec![reply]));
        }
        let mut told = Vec::new();
        for device in self.primaries(&write.key) {
            told.push(self.cluster.node(device)?.write(device, write.clone()));
        }
        Ok(Verdicts::of(join_all(told).await))
    }
}

fn unknown_outcome() -> Error {
    Error::unavailable("nobody can tell who won")
}

fn entry_write(
    intent: Intent<'_>,
    order: Stamp,
    mode: WriteMode,
    proposal: Proposal,
) -> EntryWrite {
    EntryWrite {
        key: intent.key.clone(),
        entry: Entry { order, write_id: intent.write_id, value: proposal.value },
        inline: proposal.inline,
        mode,
        generation: intent.generation,
        commit_by_ms: intent.commit_by_ms,
        keep_body: proposal.keep_body,
    }
}
