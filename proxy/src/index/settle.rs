//! Settlement of differing replies before the caller receives a result (rules R5, R6).

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{Backend, EntryWrite, RegisterView, Want, WriteReply};
use martlet_protocol::entry::Entry;
use martlet_protocol::limits::FIRST_HAND_AGE_MS_MAX;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{BackendExt, Error, Level, RegisterKey, Result, WriteId};
use tokio::time::Instant;

use super::calls::{Calls, call_in_time};
use super::client::RegisterClient;
use super::intent::{Intent, Step, WriteError, WriteOutcome};
use super::replica_set::{ReplicaSet, Role};
use super::views::{ReplicaView, identity, lacks_bytes, newest};
use crate::quorum::QuorumTally;

/// Differing replies to a read.
pub(super) struct Differing<'a> {
    pub(super) key: &'a RegisterKey,
    pub(super) want: Want,
    pub(super) views: &'a [ReplicaView],
    /// A time before the first reply, in milliseconds since 1970. Repairs are refused
    /// [`FIRST_HAND_AGE_MS_MAX`] later: the register may have been deleted and collected by then.
    pub(super) read_ms: u64,
}

impl Differing<'_> {
    fn commit_by_ms(&self) -> u64 {
        self.read_ms.saturating_add(FIRST_HAND_AGE_MS_MAX)
    }
}

impl RegisterClient {
    /// Brings the newest reply to a quorum: copies it to the devices that lack it, or runs a ballot
    /// if a promise prevents that (rules R5, R6, T2).
    pub(super) async fn settle(
        &self,
        replica_set: &ReplicaSet,
        differing: &Differing<'_>,
    ) -> Result<RegisterView> {
        let &Differing { key, want, views, .. } = differing;
        let best = newest(views).map(|reply| &reply.view);
        let full = match best {
            Some(view) if lacks_bytes(view, Want::EntryAndInline) => {
                self.fetch_bytes(replica_set, key, views).await
            }
            best => best.cloned(),
        };
        if let Some(RegisterView { entry: Some(entry), inline, .. }) = &full
            && self.repair(replica_set, differing, entry, inline.clone()).await
        {
            return Ok(full.unwrap_or_default());
        }
        let view = self.settle_by_ballot(differing).await?;
        if lacks_bytes(&view, want) {
            return Err(Error::unavailable("replicas differ, and the inline bytes are gone"));
        }
        Ok(view)
    }

    /// Sends an entry to all devices whose views lack it. Returns true once a quorum holds the
    /// entry.
    async fn repair(
        &self,
        replica_set: &ReplicaSet,
        differing: &Differing<'_>,
        entry: &Entry,
        inline: Option<Bytes>,
    ) -> bool {
        let mut calls = Calls::new();
        let mut holders = QuorumTally::new(&replica_set.sets);
        for reply in differing.views {
            if identity(&reply.view) == Some((entry.order, entry.write_id)) {
                holders.push(reply.device, true);
                continue;
            }
            let write = EntryWrite {
                key: differing.key.clone(),
                entry: entry.clone(),
                inline: inline.clone(),
                mode: WriteMode::Repair,
                generation: u64::MAX,
                commit_by_ms: differing.commit_by_ms(),
                // The device that took it first tracks its garbage.
                keep_body: true,
                term: replica_set.term,
            };
            let device = reply.device;
            let call = move |node: Arc<dyn Backend>| async move { node.write(device, write).await };
            calls.push(
                device,
                Role::Member,
                call_in_time(&replica_set.cluster, device, self.replicas.call_time(), call),
            );
        }
        let deadline = Instant::now() + self.replicas.patience();
        while !holders.is_met() {
            match self.replicas.reply(&mut calls, deadline).await {
                Ok(Some((device, _, reply))) => {
                    holders.push(device, matches!(reply, Ok(WriteReply::Stored)));
                }
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    async fn settle_by_ballot(&self, differing: &Differing<'_>) -> Result<RegisterView> {
        let intent = Intent {
            key: differing.key,
            write_id: WriteId::random(),
            generation: u64::MAX,
            commit_by_ms: differing.commit_by_ms(),
            level: Level::Strict,
            claim: None,
        };
        match self.ballots.decide(intent, &mut |_| Ok(Step::Keep)).await {
            Ok(WriteOutcome::Kept(view)) => Ok(view),
            Ok(_) => Err(Error::unavailable("replicas differ, and could not be settled")),
            Err(WriteError { error: crate::Error::Backend(error), .. }) => Err(error),
            Err(failed) => Err(Error::unavailable(failed.error.to_string())),
        }
    }
}
