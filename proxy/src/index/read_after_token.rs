//! Reads that return no state older than their token (rule A3).

use std::time::Duration;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::{AchievedLevel, Error, Level, RegisterKey, Result};
use tokio::time::{Instant, sleep};

use super::calls::Calls;
use super::client::RegisterClient;
use super::replica_set::{RegisterQuery, Role};
use super::views::{ReplicaView, newest, order};
use crate::consistency::ReadAfter;
use crate::context::RequestContext;

/// Waits before each attempt, in milliseconds: the awaited write is under way.
const WAITS_MS: [u64; 4] = [0, 30, 150, 600];

impl RegisterClient {
    /// Reads a register at least as new as `token`.
    pub(crate) async fn read_after(
        &self,
        context: &RequestContext,
        key: &RegisterKey,
        want: Want,
        level: Level,
        token: ReadAfter,
    ) -> Result<RegisterView> {
        let mut failure = None;
        for (attempt, wait) in WAITS_MS.into_iter().enumerate() {
            sleep(Duration::from_millis(wait)).await;
            let level = match level {
                Level::Any if attempt > 0 => Level::Available,
                level => level,
            };
            match self.read_given(key, want, level).await {
                Ok((view, given)) if order(&view) >= token.stamp => {
                    context.note(given);
                    return Ok(view);
                }
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
            if let Some((view, given)) = self.read_everyone(key, want, level, token).await {
                context.note(given);
                return Ok(view);
            }
        }
        let older =
            || Error::unavailable("no reachable replica has the write of the read-after token");
        Err(failure.unwrap_or_else(older))
    }

    /// Reads all primaries and all devices that may keep a hint. None if a device doesn't reply, or
    /// if the result doesn't satisfy the token.
    ///
    /// A hint is deleted only once all primaries hold it or a newer write. So without hints, all
    /// primaries know of every write that was acknowledged without a quorum. A write of a quorum is
    /// unknown everywhere only if it was an expired tombstone.
    async fn read_everyone(
        &self,
        key: &RegisterKey,
        want: Want,
        level: Level,
        token: ReadAfter,
    ) -> Option<(RegisterView, AchievedLevel)> {
        let cluster = self.replicas.topology.cluster();
        let everyone: Vec<_> = cluster.index().devices().iter().map(|device| device.id).collect();
        let replica_set = self.replicas.replica_set_of(key).ok()?;
        let mut calls = Calls::new();
        let query = RegisterQuery { key, want };
        for device in replica_set.members() {
            self.replicas.query(&mut calls, &replica_set, device, Role::Member, query);
        }
        for device in everyone {
            self.replicas.query(&mut calls, &replica_set, device, Role::Handoff, query);
        }
        let views = self.all(&mut calls, Instant::now() + self.replicas.patience()).await?;
        let best = newest(&views)?;
        if order(&best.view) >= token.stamp {
            // The view may lack a quorum, which a strict read needs.
            return (level != Level::Strict).then(|| (best.view.clone(), AchievedLevel::Degraded));
        }
        let hinted =
            |reply: &ReplicaView| reply.role == Role::Handoff && reply.view.entry.is_some();
        if views.iter().any(hinted) || (token.quorum && best.view.entry.is_some()) {
            return None;
        }
        self.read_given(key, want, Level::Strict).await.ok()
    }

    /// Replies of all devices; none if any fails.
    async fn all(
        &self,
        calls: &mut Calls<RegisterView>,
        deadline: Instant,
    ) -> Option<Vec<ReplicaView>> {
        let mut views = Vec::with_capacity(calls.waiting().len());
        loop {
            match self.replicas.reply(calls, deadline).await {
                Ok(Some((device, role, Ok(view)))) => {
                    views.push(ReplicaView { device, role, view });
                }
                Ok(None) => return Some(views),
                Ok(Some((_, _, Err(_)))) | Err(_) => return None,
            }
        }
    }
}
