//! Reads of registers at a level (rule R5).
//!
//! A quorum of each set is queried, one member for the inline bytes. More are queried after the
//! hedging time, or at once after a failure or a difference. The result is what a quorum holds: a
//! newest entry that no quorum holds is first written to a quorum. After a newer term, the read
//! starts over at that term.

use std::time::Duration;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::Body;
use martlet_protocol::{DeviceId, Error, Given, Level, RegisterKey, Result, Stamp, WriteId};
use tokio::time::Instant;

use super::asking::Asking;
use super::place::{Calls, Place, Role};
use super::settle::Differing;
use crate::store::Inner;

/// Reply of one device.
pub(super) struct Seen {
    pub(super) device: DeviceId,
    pub(super) role: Role,
    pub(super) view: RegisterView,
}

/// Result of querying the members.
pub(super) enum Sight {
    /// A quorum holds this.
    Quorum(RegisterView),
    /// A quorum replied, but too few hold the newest entry.
    Differ(Vec<Seen>),
    /// Too few have replied yet.
    Short(Vec<Seen>, Calls<RegisterView>, Error),
}

pub(super) fn order(view: &RegisterView) -> Stamp {
    view.entry.as_ref().map_or(Stamp::ZERO, |entry| entry.order)
}

/// Returns true if no client-visible entry exists.
pub(super) fn is_absent(view: &RegisterView) -> bool {
    view.entry.as_ref().is_none_or(|entry| entry.value.is_tombstone())
}

pub(super) fn identity(view: &RegisterView) -> Option<(Stamp, WriteId)> {
    view.entry.as_ref().map(|entry| (entry.order, entry.write_id))
}

/// The newest view, preferably with inline bytes.
pub(super) fn newest(seen: &[Seen]) -> Option<&Seen> {
    seen.iter().max_by_key(|seen| (identity(&seen.view), seen.view.inline.is_some()))
}

/// Returns true if a quorum of each set has replied.
fn enough(place: &Place, seen: &[Seen]) -> bool {
    place.has_quorum(seen.iter().map(|seen| seen.device))
}

/// Returns true if a quorum of each set agrees on the newest view, or on absence. A tombstone on a
/// minority is settled like any entry: otherwise replicas without it would return the deleted
/// entry.
fn agreed(place: &Place, seen: &[Seen]) -> bool {
    let Some(Seen { view: newest, .. }) = newest(seen) else { return false };
    let holders = seen.iter().filter(|seen| identity(&seen.view) == identity(newest));
    place.has_quorum(holders.map(|seen| seen.device))
}

/// Of two errors, the more informative one: a device at a later term.
pub(crate) fn weightier(held: Option<Error>, error: Error) -> Error {
    held.filter(|held| held.newer_term().is_some()).unwrap_or(error)
}

/// Returns true if requested inline bytes are missing from a view.
pub(super) fn lacks_bytes(view: &RegisterView, want: Want) -> bool {
    let body = view.entry.as_ref().and_then(|entry| entry.value.body());
    want == Want::EntryAndInline
        && view.inline.is_none()
        && matches!(body, Some(Body::Inline { .. }))
}

impl Inner {
    /// Reads a register at a level, and records the consistency of the result.
    pub(crate) async fn read(
        &self,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<RegisterView> {
        let (view, given) = self.read_given(key, want, level).await?;
        self.note(given);
        self.follow(order(&view));
        Ok(view)
    }

    /// Stamps later writes above the entry seen, even if this clock is late.
    fn follow(&self, seen: Stamp) {
        if seen.time_ms() >= self.stamps.now_ms() {
            self.stamps.issue_above(seen);
        }
    }

    /// Reads a register; returns the consistency of the result too.
    pub(crate) async fn read_given(
        &self,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<(RegisterView, Given)> {
        let deadline = Instant::now() + Duration::from_millis(self.options.index_operation_ms);
        loop {
            let place = self.place_of(key)?;
            let read = self.read_at(&place, key, want, level).await;
            if let Err(error) = &read
                && Instant::now() < deadline
                && self.has_moved_on_after(&place, Some(error)).await
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
        place: &Place,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<(RegisterView, Given)> {
        if level == Level::Any
            && !place.is_alone()
            && let Some(view) = self.read_any(place, key, want).await
        {
            return Ok((view, Given::Any));
        }
        let read_ms = self.stamps.now_ms();
        let (seen, calls, error) = match self.read_members(place, key, want).await {
            Sight::Quorum(view) => return Ok((view, Given::Quorum)),
            Sight::Differ(seen) => {
                let differing = Differing { key, want, seen: &seen, read_ms };
                match self.settle(place, &differing).await {
                    Ok(view) => return Ok((view, Given::Quorum)),
                    Err(error) => (seen, Calls::new(), error),
                }
            }
            Sight::Short(seen, calls, error) => (seen, calls, error),
        };
        // Members of a later term are reachable: other devices may not reply in their place.
        if level == Level::Strict || error.newer_term().is_some() || self.has_moved_on(place) {
            return Err(error);
        }
        self.read_degraded(place, key, want, (seen, calls, error)).await
    }

    pub(super) fn ask(
        &self,
        calls: &mut Calls<RegisterView>,
        place: &Place,
        (device, role): (DeviceId, Role),
        key: &RegisterKey,
        want: Want,
    ) {
        let (key, term) = (key.clone(), place.term);
        let call = place.call(device, self.call_time(), move |node| async move {
            match role {
                Role::Member | Role::Previous => node.read(device, &key, want, term).await,
                Role::Handoff => node.read_hint(device, &key, want).await,
            }
        });
        calls.push(device, role, call);
    }

    /// Queries members until a quorum of each set agrees, differs, or is out of reach.
    pub(super) async fn read_members(&self, place: &Place, key: &RegisterKey, want: Want) -> Sight {
        let began = Instant::now();
        let mut asking = Asking::new(self, place, key);
        asking.ask(&[], [want, Want::Entry]);
        let mut wake = began + self.hedge_time();
        let (mut seen, mut failed, mut failure) = (Vec::new(), Vec::new(), None);
        loop {
            match self.reply(&mut asking.calls, wake).await {
                Ok(Some((device, role, Ok(view)))) => {
                    seen.push(Seen { device, role, view });
                    if agreed(place, &seen) {
                        self.note_silence(&asking.calls, began);
                        return self.with_bytes(place, key, want, seen).await;
                    }
                    if enough(place, &seen) {
                        // Replies differ: the others may decide without a round of writes.
                        asking.ask_all(want);
                        wake = Instant::now() + self.hedge_time();
                    }
                }
                Ok(Some((device, _, Err(error)))) => {
                    let is_over = error.newer_term().is_some() && self.has_moved_on(place);
                    failure = Some(weightier(failure, error));
                    if is_over {
                        break;
                    }
                    failed.push(device);
                    asking.ask(&failed, [want, want]);
                }
                Ok(None) => break,
                Err(_) if enough(place, &seen) => break,
                Err(_) => {
                    let silent = [asking.calls.waiting(), &failed].concat();
                    wake = if asking.ask(&silent, [want, want]) {
                        Instant::now() + self.hedge_time()
                    } else {
                        self.give_up_at(&asking.calls, began)
                    };
                    if wake <= Instant::now() {
                        break;
                    }
                }
            }
        }
        self.note_silence(&asking.calls, began);
        if enough(place, &seen) && !self.has_moved_on(place) {
            return Sight::Differ(seen);
        }
        let none = || Error::unavailable("too few replicas of the register answer");
        Sight::Short(seen, asking.calls, failure.unwrap_or_else(none))
    }

    /// The agreed view, with inline bytes fetched from any holder if missing.
    async fn with_bytes(
        &self,
        place: &Place,
        key: &RegisterKey,
        want: Want,
        mut seen: Vec<Seen>,
    ) -> Sight {
        let at = seen.iter().enumerate();
        let best = at.max_by_key(|(_, s)| (identity(&s.view), s.view.inline.is_some()));
        let Some((at, _)) = best else { return Sight::Differ(seen) };
        if !lacks_bytes(&seen[at].view, want) {
            return Sight::Quorum(seen.swap_remove(at).view);
        }
        match self.fetch_bytes(place, key, &seen).await {
            Some(view) => Sight::Quorum(view),
            None => Sight::Differ(seen),
        }
    }

    /// The newest view, with inline bytes.
    pub(super) async fn fetch_bytes(
        &self,
        place: &Place,
        key: &RegisterKey,
        seen: &[Seen],
    ) -> Option<RegisterView> {
        let best = newest(seen)?;
        let holders = seen.iter().filter(|s| identity(&s.view) == identity(&best.view));
        for holder in holders {
            let mut calls = Calls::new();
            self.ask(&mut calls, place, (holder.device, holder.role), key, Want::EntryAndInline);
            let reply = self.reply(&mut calls, Instant::now() + self.patience()).await;
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
    async fn read_any(&self, place: &Place, key: &RegisterKey, want: Want) -> Option<RegisterView> {
        let mut left = self.in_turn(place).into_iter();
        let mut calls = Calls::new();
        let patience = Instant::now() + self.patience();
        loop {
            if let Some(device) = left.next() {
                self.ask(&mut calls, place, (device, Role::Member), key, want);
            }
            let wake = (Instant::now() + self.hedge_time()).min(patience);
            match self.reply(&mut calls, wake).await {
                Ok(Some((_, _, Ok(view)))) => return Some(view).filter(|view| !is_absent(view)),
                Ok(None) => return None,
                Err(_) if Instant::now() >= patience => return None,
                Ok(Some((_, _, Err(_)))) | Err(_) => {}
            }
        }
    }
}
