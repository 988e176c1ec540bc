//! Calls that decide registers, with the effects of planted bugs.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{
    Call, DeviceStatus, EntryWrite, Holding, Presence, PromiseReply, Reply, Want, WriteReply,
};
use martlet_protocol::tree::Sum;
use martlet_protocol::{
    Backend, BackendExt, DeviceId, Error, RegisterKey, RegisterKind, Result, Term,
};

use tokio::time::sleep;

use super::Link;
use crate::network::{Caller, LinkDirection};
use crate::node::{NodeCondition, SimulatedNode};
use crate::planted::{self, Bug};

/// Effect of a call that arrives.
#[derive(Clone)]
pub(super) enum Effect {
    /// The node executes the call.
    Executed,
    /// Another node executes the call.
    ExecutedBy(Arc<SimulatedNode>),
    /// A write is acknowledged but not stored.
    ForgottenWrite,
    /// A promise is given but not stored.
    ForgottenPromise,
    /// An object is stored without its pins.
    UnpinnedWrite,
}

impl Effect {
    /// Executes a call that has arrived at `node`.
    pub(super) async fn of(
        self,
        node: &dyn Backend,
        device: DeviceId,
        call: Call<'static>,
    ) -> Result<Reply> {
        match (self, call) {
            (Self::ExecutedBy(other), call) => other.backend().call(other.device, call).await,
            (Self::UnpinnedWrite, Call::Write(write)) => {
                node.call(device, Call::Write(planted::unpinned(write))).await
            }
            (Self::ForgottenWrite, _) => Ok(WriteReply::Stored.into()),
            (Self::ForgottenPromise, Call::Promise { key, term, .. }) => {
                let view = node.read(device, &key, Want::EntryAndInline, term).await?;
                Ok(PromiseReply::Promised(view).into())
            }
            (_, call) => node.call(device, call).await,
        }
    }
}

impl Link {
    /// Returns the effect of a call, without or with a planted bug.
    pub(super) fn effect(&self, call: &Call<'_>) -> Effect {
        let instead = match call {
            Call::Read { .. } if self.has(Bug::ReadsOneReplica) => Some(self.others[0].clone()),
            Call::List(_) | Call::ListRows { .. } if self.has(Bug::ListsOneReplica) => {
                Some(self.others[0].clone())
            }
            Call::Write(write) if self.forgets(write) => return Effect::ForgottenWrite,
            Call::Write(_) if self.has(Bug::PublishesUnpinned) => return Effect::UnpinnedWrite,
            Call::Write(write) => self.instead(&write.key, write.term),
            Call::Read { key, term, .. } | Call::Promise { key, term, .. } => {
                self.instead(key, *term)
            }
            _ => None,
        };
        match (instead, call) {
            (Some(other), _) => Effect::ExecutedBy(other),
            (None, Call::Promise { .. }) if self.has(Bug::ForgetsPromises) => {
                Effect::ForgottenPromise
            }
            (None, _) => Effect::Executed,
        }
    }

    fn forgets(&self, write: &EntryWrite) -> bool {
        let is_version = write.key.kind == RegisterKind::Version;
        (self.has(Bug::ForgetsDeletes) && write.entry.value.is_tombstone())
            || (self.has(Bug::OverwritesVersions) && is_version)
    }

    /// Returns the node that decides about a register in place of this one, if a planted bug
    /// requires it.
    fn instead(&self, key: &RegisterKey, term: Term) -> Option<Arc<SimulatedNode>> {
        if !self.has(Bug::CountsOneSet) || !matches!(self.caller, Caller::Proxy(_)) {
            return None;
        }
        let ring = self.member.rings().index;
        let sets = ring.sets(ring.partition(key.placement()), term);
        let is_new = sets.is_joint() && !sets.is_of(0, self.node.device);
        let mut old = sets.set(0).filter(|device| !sets.is_of(1, *device));
        let old = old.next().filter(|_| is_new)?;
        self.others.iter().find(|node| node.device == old).cloned()
    }

    /// Returns the reply to a call that a planted bug never sends.
    pub(super) fn unasked(&self, call: &Call<'_>) -> Option<Reply> {
        match call {
            Call::Presence(ids) | Call::PresenceBy { ids, .. }
                if self.has(Bug::ReleasesUnverified) =>
            {
                Some(vec![Presence::Here; ids.len()].into())
            }
            _ => None,
        }
    }

    /// Releases the pins of a set, and waits, before a worker writes that a generation of it is
    /// withdrawn.
    pub(super) async fn unpin_early(&self, call: &Call<'_>) {
        let Call::Write(write) = call else { return };
        if !self.has(Bug::UnpinsBeforeHiding) || !matches!(self.caller, Caller::Worker(_)) {
            return;
        }
        let Some(set) = planted::withdrawn_set(write) else { return };
        for node in self.others.iter() {
            planted::unpin(&node.memory(), node.device, set).await;
        }
        sleep(Duration::from_secs(10)).await;
    }

    /// Turns a failed call into a reply if a planted bug requires it.
    pub(super) async fn in_spite(&self, error: Error, call: &Call<'_>) -> Result<Reply> {
        match call {
            Call::Write(_) if self.has(Bug::AcknowledgesAlone) => Ok(WriteReply::Stored.into()),
            Call::Holdings(keys) if self.has(Bug::CollectsInSilence) => {
                self.reported_holdings(keys).await.map(Reply::from)
            }
            Call::Sums(spans) if self.has(Bug::CollectsInSilence) => {
                Ok(Reply::Sums(vec![Sum::default(); spans.len()]))
            }
            Call::MarkCollectable(_) | Call::DropStrays { .. }
                if self.has(Bug::CollectsInSilence) =>
            {
                Ok(Reply::Done(()))
            }
            _ => Err(error),
        }
    }

    /// Workers call all nodes at once, in an order that does not repeat, so this call stays out of
    /// the trace.
    pub(super) async fn statuses(&self) -> Result<Vec<DeviceStatus>> {
        let passes = |way| self.network.passes(self.caller, self.number, way);
        let answers = self.node.standing() == NodeCondition::Up
            && passes(LinkDirection::There)
            && passes(LinkDirection::Back);
        if !answers && !self.has(Bug::CollectsInSilence) {
            return Err(Error::unavailable("the connection is refused"));
        }
        let mut all = self.node.backend().devices().await?;
        for status in &mut all {
            status.identity = self.node.identity();
            if self.has(Bug::BeginsUnjoined) {
                status.joined = u64::MAX;
            }
        }
        Ok(all)
    }

    /// Returns the newest state of all nodes in the name of this node.
    async fn reported_holdings(&self, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        let mut best = vec![Holding::default(); keys.len()];
        for other in self.others.iter() {
            let held = other.memory().holdings(other.device, keys).await?;
            for (best, held) in best.iter_mut().zip(held) {
                best.held = best.held.max(held.held);
                best.collectable |= held.collectable;
            }
        }
        Ok(best)
    }
}
