//! Reads of registers at a level (rule R5).
//!
//! A quorum of each set is queried, one member for the inline bytes. More are queried after the
//! hedging time, or at once after a failure or a difference. The result is what a quorum holds: a
//! newest entry that no quorum holds is first written to a quorum. After a newer term, the read
//! starts over at that term.
//!
//! Futures of rare steps are boxed, so that the future of a usual read stays small: it is moved
//! several times on its way into the future of its connection.

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::{AchievedLevel, Error, Level, RegisterKey, Result, Stamp};
use tokio::time::Instant;

use super::calls::Calls;
use super::client::RegisterClient;
use super::degraded::FailedRead;
use super::member_queries::MemberQueries;
use super::replica_set::{RegisterQuery, ReplicaSet, Role};
use super::settle::Differing;
use super::views::{ReplicaView, identity, is_absent, lacks_bytes, newest, order, weightier};
use crate::context::RequestContext;

/// Result of querying the members.
pub(super) enum Sight {
    /// A quorum holds this.
    Quorum(RegisterView),
    /// A quorum replied, but too few hold the newest entry.
    Differ(Vec<ReplicaView>),
    /// Too few have replied yet.
    Short(Vec<ReplicaView>, Calls<RegisterView>, Error),
}

/// Returns true if a quorum of each set has replied.
fn enough(replica_set: &ReplicaSet, views: &[ReplicaView]) -> bool {
    replica_set.has_quorum(&views.iter().map(|reply| reply.device))
}

/// Returns true if a quorum of each set agrees on the newest view, or on absence. A tombstone on a
/// minority is settled like any entry: otherwise replicas without it would return the deleted
/// entry.
fn agreed(replica_set: &ReplicaSet, views: &[ReplicaView]) -> bool {
    let Some(ReplicaView { view: newest, .. }) = newest(views) else { return false };
    let holders = views.iter().filter(|reply| identity(&reply.view) == identity(newest));
    replica_set.has_quorum(&holders.map(|reply| reply.device))
}

impl RegisterClient {
    /// Reads a register at a level, and records the consistency of the result.
    pub(crate) async fn read(
        &self,
        context: &RequestContext,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<RegisterView> {
        let (view, given) = self.read_given(key, want, level).await?;
        context.note(given);
        self.follow(order(&view));
        Ok(view)
    }

    /// The view of a register if a quorum agrees that it is absent: neither an entry nor a pending
    /// one on the replicas queried. None if it exists, or if no quorum agrees.
    ///
    /// Operations that absence decides (a write that needs an object, a delete, tags) are answered
    /// by this read and need no ballot. A ballot would leave a row with only a promise on every
    /// replica. The reply is valid at the time of the read (rule R5). A write acknowledged before
    /// is on a quorum, and one of the devices queried holds it. A write accepted by fewer is not
    /// acknowledged yet, and comes after this read.
    pub(crate) async fn absence(
        &self,
        context: &RequestContext,
        key: &RegisterKey,
    ) -> Option<RegisterView> {
        let view = self.read(context, key, Want::Entry, Level::Strict).await.ok()?;
        is_absent(&view).then_some(view)
    }

    /// Stamps later writes above the entry seen, even if this clock is late.
    fn follow(&self, order: Stamp) {
        if order.time_ms() >= self.stamps.now_ms() {
            self.stamps.issue_above(order);
        }
    }

    /// Reads a register; returns the consistency of the result too.
    pub(crate) async fn read_given(
        &self,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<(RegisterView, AchievedLevel)> {
        let deadline = Instant::now() + self.replicas.operation_time();
        loop {
            let replica_set = self.replicas.replica_set_of(key)?;
            let read = self.read_at(&replica_set, key, want, level).await;
            if let Err(error) = &read
                && Instant::now() < deadline
                && Box::pin(self.replicas.has_moved_on_after(&replica_set, Some(error))).await
            {
                tracing::debug!(%error, "retrying a read at a newer term");
                continue;
            }
            return read;
        }
    }

    /// Reads at one term; fails if a newer one is met.
    async fn read_at(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<(RegisterView, AchievedLevel)> {
        if level == Level::Any
            && !replica_set.is_alone()
            && let Some(view) = Box::pin(self.read_any(replica_set, key, want)).await
        {
            return Ok((view, AchievedLevel::Any));
        }
        let read_ms = self.stamps.now_ms();
        let (views, calls, error) = match self.read_members(replica_set, key, want).await {
            Sight::Quorum(view) => return Ok((view, AchievedLevel::Quorum)),
            Sight::Differ(views) => {
                let differing = Differing { key, want, views: &views, read_ms };
                match Box::pin(self.settle(replica_set, &differing)).await {
                    Ok(view) => return Ok((view, AchievedLevel::Quorum)),
                    Err(error) => (views, Calls::new(), error),
                }
            }
            Sight::Short(views, calls, error) => (views, calls, error),
        };
        // Members of a later term are reachable: other devices may not reply in their place.
        if level == Level::Strict
            || error.newer_term().is_some()
            || self.replicas.has_moved_on(replica_set)
        {
            return Err(error);
        }
        let read = FailedRead { views, calls, failure: error };
        Box::pin(self.read_degraded(replica_set, key, want, read)).await
    }

    /// Queries members until a quorum of each set agrees, differs, or is out of reach.
    pub(super) async fn read_members(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        want: Want,
    ) -> Sight {
        let began = Instant::now();
        let mut queries = MemberQueries::new(&self.replicas, replica_set, key);
        queries.query(&[], [want, Want::Entry]);
        let mut wake = began + self.replicas.hedge_time();
        let (mut views, mut failed, mut failure) = (Vec::new(), Vec::new(), None);
        loop {
            match self.replicas.reply(&mut queries.calls, wake).await {
                Ok(Some((device, role, Ok(view)))) => {
                    views.push(ReplicaView { device, role, view });
                    if agreed(replica_set, &views) {
                        self.replicas.note_silence(&queries.calls, began);
                        return self.with_bytes(replica_set, key, want, views).await;
                    }
                    if enough(replica_set, &views) {
                        // Replies differ: the others may decide without a round of writes.
                        queries.query_all(want);
                        wake = Instant::now() + self.replicas.hedge_time();
                    }
                }
                Ok(Some((device, _, Err(error)))) => {
                    let is_over =
                        error.newer_term().is_some() && self.replicas.has_moved_on(replica_set);
                    failure = Some(weightier(failure, error));
                    if is_over {
                        break;
                    }
                    failed.push(device);
                    queries.query(&failed, [want, want]);
                }
                Ok(None) => break,
                Err(_) if enough(replica_set, &views) => break,
                Err(_) => {
                    let silent = [queries.calls.waiting(), &failed].concat();
                    wake = if queries.query(&silent, [want, want]) {
                        Instant::now() + self.replicas.hedge_time()
                    } else {
                        self.replicas.give_up_at(&queries.calls, began)
                    };
                    if wake <= Instant::now() {
                        break;
                    }
                }
            }
        }
        self.replicas.note_silence(&queries.calls, began);
        if enough(replica_set, &views) && !self.replicas.has_moved_on(replica_set) {
            return Sight::Differ(views);
        }
        let none = || Error::unavailable("too few replicas of the register answer");
        Sight::Short(views, queries.calls, failure.unwrap_or_else(none))
    }

    /// The agreed view, with inline bytes fetched from any holder if missing.
    async fn with_bytes(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        want: Want,
        mut views: Vec<ReplicaView>,
    ) -> Sight {
        let at = views.iter().enumerate();
        let best = at.max_by_key(|(_, s)| (identity(&s.view), s.view.inline.is_some()));
        let Some((at, _)) = best else { return Sight::Differ(views) };
        if !lacks_bytes(&views[at].view, want) {
            return Sight::Quorum(views.swap_remove(at).view);
        }
        match Box::pin(self.fetch_bytes(replica_set, key, &views)).await {
            Some(view) => Sight::Quorum(view),
            None => Sight::Differ(views),
        }
    }

    /// The newest view, with inline bytes.
    pub(super) async fn fetch_bytes(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        views: &[ReplicaView],
    ) -> Option<RegisterView> {
        let best = newest(views)?;
        let holders = views.iter().filter(|s| identity(&s.view) == identity(&best.view));
        for holder in holders {
            let mut calls = Calls::new();
            let query = RegisterQuery { key, want: Want::EntryAndInline };
            self.replicas.query(&mut calls, replica_set, holder.device, holder.role, query);
            let reply =
                self.replicas.reply(&mut calls, Instant::now() + self.replicas.patience()).await;
            if let Ok(Some((_, _, Ok(view)))) = reply
                && identity(&view) == identity(&best.view)
            {
                return Some(view);
            }
        }
        None
    }

    /// The first view from any member that has the entry; none if one reports absence, or if all
    /// fail.
    async fn read_any(
        &self,
        replica_set: &ReplicaSet,
        key: &RegisterKey,
        want: Want,
    ) -> Option<RegisterView> {
        let mut left = self.replicas.in_turn(replica_set).into_iter();
        let mut calls = Calls::new();
        let patience = Instant::now() + self.replicas.patience();
        loop {
            if let Some(device) = left.next() {
                let query = RegisterQuery { key, want };
                self.replicas.query(&mut calls, replica_set, device, Role::Member, query);
            }
            let wake = (Instant::now() + self.replicas.hedge_time()).min(patience);
            match self.replicas.reply(&mut calls, wake).await {
                Ok(Some((_, _, Ok(view)))) => return Some(view).filter(|view| !is_absent(view)),
                Ok(None) => return None,
                Err(_) if Instant::now() >= patience => return None,
                Ok(Some((_, _, Err(_)))) | Err(_) => {}
            }
        }
    }
}
