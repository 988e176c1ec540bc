//! Registers, over their primaries: quorum reads, plain writes and ballots (rules R3, R4, R5, R7).
//!
//! With one replica a quorum is that replica's word, and every shortcut below comes to a single
//! call. With more, replies that agree need no second round; replies that differ are settled by a
//! ballot that leaves the winner on a quorum before anyone is told of it.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use martlet_protocol::backend::{
    Backend, EntryWrite, PromiseReply, RegisterView, Want, WriteReply,
};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::id::random_bytes;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{DeviceId, Error, ErrorKind, RegisterKey, Result, Stamp, WriteId};

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
}

/// What a ballot proposes.
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

/// The replies of all primaries to one write.
#[derive(Default)]
struct Verdicts {
    stored: usize,
    superseded: usize,
    behind: Option<Stamp>,
    fenced: bool,
    out_of_time: bool,
    unknown: Option<Error>,
    refused: Option<Error>,
    replicas: usize,
}

impl Verdicts {
    fn of(replies: Vec<Result<WriteReply>>) -> Self {
        let mut verdicts = Self { replicas: replies.len(), ..Self::default() };
        for reply in replies {
            match reply {
                Ok(WriteReply::Stored) => verdicts.stored += 1,
                Ok(WriteReply::Superseded) => verdicts.superseded += 1,
                Ok(WriteReply::Behind(floor)) => {
                    verdicts.behind = Some(verdicts.behind.unwrap_or(floor).max(floor));
                }
                Ok(WriteReply::Fenced) => verdicts.fenced = true,
                Ok(WriteReply::OutOfTime) => verdicts.out_of_time = true,
                Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Invalid) => {
                    verdicts.refused = Some(error);
                }
                Err(error) => verdicts.unknown = Some(error),
            }
        }
        verdicts
    }

    fn is_met_by(&self, yes: usize) -> bool {
        let mut tally = QuorumTally::majority(self.replicas);
        for _ in 0..yes {
            tally.push(true);
        }
        tally.progress() == Progress::Met
    }

    /// Whether no replica can hold the write.
    fn untouched(&self) -> bool {
        self.stored == 0 && self.superseded == 0 && self.unknown.is_none()
    }

    fn into_error(self) -> Error {
        if let Some(error) = self.unknown.or(self.refused) {
            return error;
        }
        if self.out_of_time {
            return Error::unavailable("the write came too late, or the clocks differ too much");
        }
        Error::unavailable("too few replicas took the write")
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
        let intent =
            Intent { key, write_id: WriteId::random(), generation: u64::MAX, commit_by_ms };
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

    /// A plain write (rules R3, R4): the last one wins.
    pub(crate) async fn write(
        &self,
        intent: Intent<'_>,
        value: &Value,
        inline: Option<&Bytes>,
        keep_body: bool,
    ) -> Result<Landed, Failed> {
        for _ in 0..ROUNDS {
            let order = self.stamps.issue();
            let proposal = Proposal { value: value.clone(), inline: inline.cloned(), keep_body };
            let write = entry_write(intent, order, WriteMode::Fresh, proposal);
            let verdicts = self.tell(write).await.map_err(Failed::clean)?;
            if verdicts.is_met_by(verdicts.stored + verdicts.superseded) {
                return Ok(Landed::At(order));
            }
            if !verdicts.untouched() {
                if verdicts.replicas == 1 {
                    return Err(Failed::unknown(verdicts.into_error()));
                }
                return self.settle_plain(intent, order, value, inline, keep_body).await;
            }
            match verdicts {
                Verdicts { fenced: true, .. } => return Ok(Landed::Fenced),
                Verdicts { behind: Some(floor), .. } => self.stamps.observe(floor),
                verdicts => return Err(Failed::clean(verdicts.into_error())),
            }
        }
        Err(Failed::clean(Error::unavailable("too many writes at once to this key")))
    }

    /// A plain write that some replicas may hold and a quorum does not: only a ballot can tell
    /// whether something came between (rule R4).
    async fn settle_plain(
        &self,
        intent: Intent<'_>,
        order: Stamp,
        value: &Value,
        inline: Option<&Bytes>,
        keep_body: bool,
    ) -> Result<Landed, Failed> {
        let landed = self
            .decide(intent, &mut |view| match &view.entry {
                Some(held) if held.order > order => Ok(Step::Keep),
                _ => Ok(Step::Write(Proposal {
                    value: value.clone(),
                    inline: inline.cloned(),
                    keep_body,
                })),
            })
            .await;
        match landed {
            Ok(Landed::Kept(_)) => Ok(Landed::At(order)),
            Ok(Landed::Fenced) => {
                Err(Failed::unknown(Error::unavailable("the bucket changed under the write")))
            }
            Ok(landed) => Ok(landed),
            Err(failed) => Err(Failed { maybe_written: true, ..failed }),
        }
    }

    /// A ballot (rule R7): what is held is read under a promise, `evaluate` decides about it, and
    /// what it proposes is accepted only if nothing came between. Exact among all racers.
    pub(crate) async fn decide(
        &self,
        intent: Intent<'_>,
        evaluate: &mut (dyn FnMut(&RegisterView) -> crate::Result<Step> + Send),
    ) -> Result<Landed, Failed> {
        let _turn = self.ballots.lock(intent.key).await;
        let mut maybe_written = false;
        for round in 0..ROUNDS {
            if round > 0 {
                back_off(round).await;
            }
            let ballot = self.stamps.issue();
            let promised = self.promise(intent.key, ballot).await;
            let Some((view, agree)) =
                promised.map_err(|error| Failed { error: error.into(), maybe_written })?
            else {
                continue;
            };
            let own = view.entry.as_ref().filter(|entry| entry.write_id == intent.write_id);
            let proposal = match (own, agree) {
                (Some(own), true) => return Ok(Landed::At(own.order)),
                (_, true) if maybe_written => break,
                (_, true) => match evaluate(&view).map_err(Failed::clean)? {
                    Step::Keep => return Ok(Landed::Kept(view)),
                    Step::Write(proposal) => proposal,
                },
                (_, false) => {
                    self.finish(intent, ballot, view).await;
                    continue;
                }
            };
            let write = entry_write(intent, ballot, WriteMode::Accept, proposal);
            let verdicts = self.tell(write).await.map_err(Failed::clean)?;
            if verdicts.is_met_by(verdicts.stored) {
                return Ok(Landed::At(ballot));
            }
            if !verdicts.untouched() {
                maybe_written = true;
                continue;
            }
            match verdicts {
                Verdicts { fenced: true, .. } => return Ok(Landed::Fenced),
                Verdicts { behind: Some(floor), .. } => self.stamps.observe(floor),
                verdicts => return Err(Failed::clean(verdicts.into_error())),
            }
        }
        if maybe_written {
            return Err(Failed::unknown(Error::unavailable("nobody can tell who won")));
        }
        Err(Failed::clean(crate::Error::ConditionalConflict))
    }

    /// Promises of a quorum, or none if a higher ballot is about.
    async fn promise(
        &self,
        key: &RegisterKey,
        ballot: Stamp,
    ) -> Result<Option<(RegisterView, bool)>> {
        let replies = self
            .gather(key, |device, node| async move { node.promise(device, key, ballot).await })
            .await?;
        let mut views = Vec::with_capacity(replies.len());
        for reply in replies {
            match reply {
                PromiseReply::Promised(view) => views.push(view),
                PromiseReply::Behind(floor) => {
                    self.stamps.observe(floor);
                    return Ok(None);
                }
            }
        }
        Ok(Some(winner(views)))
    }

    /// Gives what was found the ballot, under its own write id. Whether that worked, the next round
    /// finds out.
    async fn finish(&self, intent: Intent<'_>, ballot: Stamp, found: RegisterView) {
        let Some(Entry { write_id, value, .. }) = found.entry else { return };
        let proposal = Proposal { value, inline: found.inline, keep_body: false };
        let theirs = Intent { write_id, ..intent };
        if let Err(error) =
            self.tell(entry_write(theirs, ballot, WriteMode::Accept, proposal)).await
        {
            tracing::debug!(%error, "a write of another could not be finished");
        }
    }
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

/// Waits a random while that grows with the rounds lost: up to a second in the end.
async fn back_off(round: u32) {
    let most_us = 250u64 << round.min(12);
    let chance = u64::from(u16::from_be_bytes(random_bytes()));
    tokio::time::sleep(Duration::from_micros(most_us * chance / u64::from(u16::MAX))).await;
}
