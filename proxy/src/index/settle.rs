//! Replies that differ, settled before anyone is told of them (rules R5, R6).

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{Backend, EntryWrite, RegisterView, Want, WriteReply};
use martlet_protocol::entry::Entry;
use martlet_protocol::register::WriteMode;
use martlet_protocol::{Error, Level, RegisterKey, Result, WriteId};
use tokio::time::Instant;

use super::place::{Calls, Place, Role};
use super::read::{Seen, identity, lacks_bytes, newest};
use super::{Failed, Intent, Landed, Step};
use crate::quorum::QuorumTally;
use crate::store::Inner;

impl Inner {
    /// Brings the newest of replies that differ to a quorum: to those who lack it, as it is, and
    /// where one of them has promised otherwise, by a ballot (rules R5, R6).
    pub(super) async fn settle(
        &self,
        place: &Place,
        key: &RegisterKey,
        want: Want,
        seen: &[Seen],
    ) -> Result<RegisterView> {
        let best = newest(seen).map(|seen| &seen.view);
        let full = match best {
            Some(view) if lacks_bytes(view, Want::EntryAndInline) => {
                self.fetch_bytes(place, key, seen).await
            }
            best => best.cloned(),
        };
        if let Some(RegisterView { entry: Some(entry), inline, .. }) = &full
            && self.repair(place, key, seen, entry, inline.clone()).await
        {
            return Ok(full.unwrap_or_default());
        }
        let view = self.settle_by_ballot(key).await?;
        if lacks_bytes(&view, want) {
            return Err(Error::unavailable("replicas differ, and the bytes are gone"));
        }
        Ok(view)
    }

    /// Sends an entry that some hold to all who were seen without it. Whether a quorum has it then.
    async fn repair(
        &self,
        place: &Place,
        key: &RegisterKey,
        seen: &[Seen],
        entry: &Entry,
        inline: Option<Bytes>,
    ) -> bool {
        let mut calls = Calls::new();
        let mut holders = QuorumTally::new(&place.sets);
        for seen in seen {
            if identity(&seen.view) == Some((entry.order, entry.write_id)) {
                holders.push(seen.device, true);
                continue;
            }
            let write = EntryWrite {
                key: key.clone(),
                entry: entry.clone(),
                inline: inline.clone(),
                mode: WriteMode::Repair,
                generation: u64::MAX,
                commit_by_ms: u64::MAX,
                // Who took it first-hand knows what it left behind.
                keep_body: true,
                term: place.term,
            };
            let device = seen.device;
            let call = move |node: Arc<dyn Backend>| async move { node.write(device, write).await };
            calls.push(device, Role::Member, place.call(device, self.call_time(), call));
        }
        let deadline = Instant::now() + self.patience();
        while !holders.is_met() {
            match self.reply(&mut calls, deadline).await {
                Ok(Some((device, _, reply))) => {
                    holders.push(device, matches!(reply, Ok(WriteReply::Stored)));
                }
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    async fn settle_by_ballot(&self, key: &RegisterKey) -> Result<RegisterView> {
        let intent = Intent {
            key,
            write_id: WriteId::random(),
            generation: u64::MAX,
            commit_by_ms: u64::MAX,
            level: Level::Strict,
            claim: None,
        };
        match self.decide(intent, &mut |_| Ok(Step::Keep)).await {
            Ok(Landed::Kept(view)) => Ok(view),
            Ok(_) => Err(Error::unavailable("replicas differ, and could not be settled")),
            Err(Failed { error: crate::Error::Backend(error), .. }) => Err(error),
            Err(failed) => Err(Error::unavailable(failed.error.to_string())),
        }
    }
}
