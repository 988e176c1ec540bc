//! Reads and writes of registers while primaries are out: any device may reply, and handoffs keep
//! the writes (rules A1, A2).

use std::sync::Arc;

use martlet_protocol::backend::{EntryWrite, RegisterView, Want, WriteReply};
use martlet_protocol::{Backend, BackendExt, DeviceId, Error, Given, RegisterKey, Result};
use tokio::time::Instant;

use super::client::RegisterClient;
use super::place::{Calls, Place, Role};
use super::views::{Seen, is_absent, lacks_bytes, newest};

impl RegisterClient {
    /// The newest view of primaries, previous holders and handoffs, after too few primaries have
    /// replied. Absence needs replies from as many nodes as a write, none of which holds the entry.
    /// A handoff without a hint doesn't count.
    pub(super) async fn read_degraded(
        &self,
        place: &Place,
        key: &RegisterKey,
        want: Want,
        (mut seen, mut calls, failure): (Vec<Seen>, Calls<RegisterView>, Error),
    ) -> Result<(RegisterView, Given)> {
        for device in place.previous() {
            self.replicas.ask(&mut calls, place, (device, Role::Previous), key, want);
        }
        for device in place.handoffs() {
            self.replicas.ask(&mut calls, place, (device, Role::Handoff), key, want);
        }
        let began = Instant::now();
        loop {
            let deadline = self.replicas.give_up_at(&calls, began);
            let Ok(Some((device, role, reply))) = self.replicas.reply(&mut calls, deadline).await
            else {
                break;
            };
            if let Ok(view) = reply {
                seen.push(Seen { device, role, view });
            }
        }
        self.replicas.note_silence(&calls, began);
        let Some(best) = newest(&seen) else { return Err(failure) };
        if is_absent(&best.view) {
            let knows = |seen: &&Seen| seen.role != Role::Handoff || seen.view.entry.is_some();
            if !place.has_nodes(&seen.iter().filter(knows).map(|seen| seen.device)) {
                return Err(failure);
            }
        }
        if !lacks_bytes(&best.view, want) {
            return Ok((best.view.clone(), Given::Degraded));
        }
        match self.fetch_bytes(place, key, &seen).await {
            Some(view) => Ok((view, Given::Degraded)),
            None => Err(failure),
        }
    }

    /// Stores a write on handoffs until as many nodes hold it as form a quorum of each set.
    /// `holders` have it already.
    pub(super) async fn hand_off(
        &self,
        place: &Place,
        write: &EntryWrite,
        mut holders: Vec<DeviceId>,
    ) -> Result<()> {
        let (last, first): (Vec<_>, Vec<_>) =
            place.handoffs().partition(|device| self.replicas.health.is_shunned(*device));
        let mut left = first.into_iter().chain(last);
        let mut asked: Vec<DeviceId> = Vec::new();
        let mut calls = Calls::new();
        let mut failure = None;
        while !place.has_nodes(&holders.iter().copied()) {
            while !place.has_nodes(&holders.iter().chain(&asked).copied())
                && let Some(device) = left.next()
            {
                let with = holders.iter().chain(&asked).copied();
                if place.lacking_nodes(&with) == place.lacking_nodes(&with.clone().chain([device]))
                {
                    continue;
                }
                asked.push(device);
                let write = write.clone();
                let call = move |node: Arc<dyn Backend>| async move {
                    node.keep_hint(device, write).await
                };
                calls.push(
                    device,
                    Role::Handoff,
                    place.call(device, self.replicas.call_time(), call),
                );
            }
            match self.replicas.reply(&mut calls, Instant::now() + self.replicas.patience()).await {
                Ok(Some((device, _, reply))) => {
                    asked.retain(|asked| *asked != device);
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
                Err(_) if asked.is_empty() => {
                    return Err(Error::unavailable("no node stored the write"));
                }
                Err(_) => asked.clear(),
            }
        }
        Ok(())
    }
}
