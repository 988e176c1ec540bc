//! Calls that decide registers, with the effects of planted bugs.

use std::sync::Arc;

use martlet_protocol::backend::{
    DeviceStatus, EntryWrite, Holding, ListReply, ListRequest, Presence, PromiseReply,
    RegisterView, Want, WriteReply,
};
use martlet_protocol::{
    Backend, DeviceId, Error, ExtentId, RegisterKey, RegisterKind, Result, Stamp, Term,
};

use super::Link;
use crate::network::{Caller, LinkDirection};
use crate::node::{NodeCondition, SimulatedNode};
use crate::planted::Bug;
use crate::shown;

impl Link {
    pub(super) async fn read_entry(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        (want, term): (Want, Term),
    ) -> Result<RegisterView> {
        let what = format!("read {} at {term}", shown::key(key));
        let (key, mut instead) = (key.clone(), self.instead(key, term));
        if self.has(Bug::ReadsOneReplica) {
            instead = Some(self.others[0].clone());
        }
        self.carry(what, move |node| {
            let (key, instead) = (key.clone(), instead.clone());
            async move {
                match instead {
                    Some(first) => first.backend().read(first.device, &key, want, term).await,
                    None => node.read(device, &key, want, term).await,
                }
            }
        })
        .await
    }

    pub(super) async fn write_entry(
        &self,
        device: DeviceId,
        write: EntryWrite,
    ) -> Result<WriteReply> {
        let what = format!("write {} at {}", shown::write(&write), write.term);
        let instead = self.instead(&write.key, write.term);
        let is_version = write.key.kind == RegisterKind::Version;
        let forgets = (self.has(Bug::ForgetsDeletes) && write.entry.value.is_tombstone())
            || (self.has(Bug::OverwritesVersions) && is_version);
        let reply = self.carry(what, move |node| {
            let (write, instead) = (write.clone(), instead.clone());
            async move {
                if forgets {
                    // Acknowledged but not stored.
                    return Ok(WriteReply::Stored);
                }
                match instead {
                    Some(other) => other.backend().write(other.device, write).await,
                    None => node.write(device, write).await,
                }
            }
        });
        match reply.await {
            Err(_) if self.has(Bug::AcknowledgesAlone) => Ok(WriteReply::Stored),
            reply => reply,
        }
    }

    pub(super) async fn promise_ballot(
        &self,
        device: DeviceId,
        key: &RegisterKey,
        (ballot, term): (Stamp, Term),
    ) -> Result<PromiseReply> {
        let what = format!("promise {} {} at {term}", shown::key(key), shown::order(ballot));
        let (key, instead) = (key.clone(), self.instead(key, term));
        let forgets = self.has(Bug::ForgetsPromises);
        self.carry(what, move |node| {
            let (key, instead) = (key.clone(), instead.clone());
            async move {
                if let Some(other) = instead {
                    return other.backend().promise(other.device, &key, ballot, term).await;
                }
                if forgets {
                    let view = node.read(device, &key, Want::EntryAndInline, term).await?;
                    return Ok(PromiseReply::Promised(view));
                }
                node.promise(device, &key, ballot, term).await
            }
        })
        .await
    }

    pub(super) async fn list_entries(
        &self,
        device: DeviceId,
        request: &ListRequest,
    ) -> Result<ListReply> {
        let what = format!("list {:?} {:?} at {}", request.kind, request.start, request.term);
        let request = request.clone();
        let instead = self.has(Bug::ListsOneReplica).then(|| self.others[0].clone());
        self.carry(what, move |node| {
            let (request, instead) = (request.clone(), instead.clone());
            async move {
                match instead {
                    Some(first) => first.backend().list(first.device, &request).await,
                    None => node.list(device, &request).await,
                }
            }
        })
        .await
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

    pub(super) async fn holdings_of(
        &self,
        device: DeviceId,
        keys: &[RegisterKey],
    ) -> Result<Vec<Holding>> {
        let what = shown::keys("holdings of", keys);
        let asked = keys.to_vec();
        let reply = self.carry(what, move |node| {
            let keys = asked.clone();
            async move { node.holdings(device, &keys).await }
        });
        match reply.await {
            Err(_) if self.has(Bug::CollectsInSilence) => self.reported_holdings(keys).await,
            reply => reply,
        }
    }

    /// Turns a failed call into consent if a planted bug requires it.
    pub(super) fn consent(&self, reply: Result<()>) -> Result<()> {
        match reply {
            Err(_) if self.has(Bug::CollectsInSilence) => Ok(()),
            reply => reply,
        }
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

    pub(super) async fn presence_of(
        &self,
        device: DeviceId,
        ids: &[ExtentId],
    ) -> Result<Vec<Presence>> {
        if self.has(Bug::ReleasesUnverified) {
            return Ok(vec![Presence::Here; ids.len()]);
        }
        let (what, ids) = (format!("presence of {ids:?}"), ids.to_vec());
        self.carry(what, move |node| {
            let ids = ids.clone();
            async move { node.presence(device, &ids).await }
        })
        .await
    }
}
