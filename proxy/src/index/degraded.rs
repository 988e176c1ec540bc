//! Reads and writes of registers while primaries are out: any device may reply, and handoffs keep
//! the writes (rules A1, A2).

use std::sync::Arc;

use martlet_protocol::backend::{EntryWrite, RegisterView, Want, WriteReply};
use martlet_protocol::{AchievedLevel, Backend, BackendExt, DeviceId, Error, RegisterKey, Result};
use tokio::time::Instant;

use super::calls::{Calls, call_in_time};
use super::client::RegisterClient;
use super::replica_set::{RegisterQuery, ReplicaSet, Role};
use super::views::{ReplicaView, is_absent, lacks_bytes, newest};

/// A read without a quorum of primaries.
pub(super) struct FailedRead {
    pub(super) views: Vec<ReplicaView>,
    /// Calls that have not ended.
    pub(super) calls: Calls<RegisterView>,
    pub(super) failure: Error,
}

impl RegisterClient {
    /// The newest view of primaries, previous holders and handoffs, after too few primaries have
    /// replied. Absence needs replies from as many nodes as a write, none of which holds the entry.
    /// A handoff without a hint doesn't count.
    pub(super) async fn read_degraded(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        want: Want,
        read: FailedRead,
    ) -> Result<(RegisterView, AchievedLevel)> {
        let FailedRead { mut views, mut calls, failure } = read;
        let query = RegisterQuery { key, want };
        for device in replica_set.previous() {
            self.replicas.query(&mut calls, replica_set, device, Role::Previous, query);
        }
        for device in replica_set.handoffs() {
            self.replicas.query(&mut calls, replica_set, device, Role::Handoff, query);
        }
        let began = Instant::now();
        loop {
            let deadline = self.replicas.give_up_at(&calls, began);
            let Ok(Some((device, role, reply))) = self.replicas.reply(&mut calls, deadline).await
            else {
                break;
            };
            if let Ok(view) = reply {
                views.push(ReplicaView { device, role, view });
            }
        }
        self.replicas.note_silence(&calls, began);
        let Some(best) = newest(&views) else { return Err(failure) };
        if is_absent(&best.view) {
            // A previous holder may have dropped what it held, and a handoff never had it.
            let counts =
                |reply: &&ReplicaView| reply.role == Role::Member || reply.view.entry.is_some();
            if !replica_set.has_nodes(&views.iter().filter(counts).map(|reply| reply.device)) {
                return Err(failure);
            }
        }
        if !lacks_bytes(&best.view, want) {
            return Ok((best.view.clone(), AchievedLevel::Degraded));
        }
        match self.fetch_bytes(replica_set, key, &views).await {
            Some(view) => Ok((view, AchievedLevel::Degraded)),
            None => Err(failure),
        }
    }

    /// Stores a write on handoffs until as many nodes hold it as form a quorum of each set.
    /// `holders` have it already.
    pub(super) async fn hand_off(
        &self,
        replica_set: &ReplicaSet,
        write: &EntryWrite,
        mut holders: Vec<DeviceId>,
    ) -> Result<()> {
        let (last, first): (Vec<_>, Vec<_>) =
            replica_set.handoffs().partition(|device| self.replicas.health.is_shunned(*device));
        let mut left = first.into_iter().chain(last);
        let mut pending: Vec<DeviceId> = Vec::new();
        let mut calls = Calls::new();
        let mut failure = None;
        while !replica_set.has_nodes(&holders.iter().copied()) {
            while !replica_set.has_nodes(&holders.iter().chain(&pending).copied())
                && let Some(device) = left.next()
            {
                let with = holders.iter().chain(&pending).copied();
                if replica_set.lacking_nodes(&with)
                    == replica_set.lacking_nodes(&with.clone().chain([device]))
                {
                    continue;
                }
                pending.push(device);
                let write = write.clone();
                let call = move |node: Arc<dyn Backend>| async move {
                    node.keep_hint(device, write).await
                };
                calls.push(
                    device,
                    Role::Handoff,
                    call_in_time(&replica_set.cluster, device, self.replicas.call_time(), call),
                );
            }
            match self.replicas.reply(&mut calls, Instant::now() + self.replicas.patience()).await {
                Ok(Some((device, _, reply))) => {
                    pending.retain(|pending| *pending != device);
                    match reply {
                        Ok(WriteReply::Stored | WriteReply::Superseded) => holders.push(device),
                        Ok(reply) => tracing::debug!(%device, ?reply, "a handoff refused a hint"),
                        Err(error) => failure = Some(error),
                    }
                }
                Ok(None) => {
                    let none = || Error::unavailable("too few nodes can store the write");
                    return Err(failure.unwrap_or_else(none));
                }
                // Slow devices may still reply; more are queried meanwhile.
                Err(_) if pending.is_empty() => {
                    return Err(Error::unavailable("no node stored the write"));
                }
                Err(_) => pending.clear(),
            }
        }
        Ok(())
    }
}
