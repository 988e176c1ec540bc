//! Reads of registers at a level (rule R5).
//!
//! As many primaries are asked as make a quorum, one of them for the bytes; one more after a while
//! that most replies don't take, or at once where a reply fails or differs. The answer is what a
//! quorum holds: where the newest entry isn't on one yet, it is brought there first.

use std::sync::atomic::Ordering;

use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::Body;
use martlet_protocol::{DeviceId, Error, Given, Level, RegisterKey, Result, Stamp, WriteId};
use tokio::time::Instant;

use super::place::{Calls, Place, Role, place_of};
use crate::store::Inner;

/// What one device said.
pub(super) struct Seen {
    pub(super) device: DeviceId,
    pub(super) role: Role,
    pub(super) view: RegisterView,
}

/// What came of asking the primaries.
pub(super) enum Sight {
    /// A quorum holds this.
    Quorum(RegisterView),
    /// A quorum answered, and the newest that they know is on too few.
    Differ(Vec<Seen>),
    /// Too few answered so far.
    Short(Vec<Seen>, Calls<RegisterView>, Error),
}

pub(super) fn order(view: &RegisterView) -> Stamp {
    view.entry.as_ref().map_or(Stamp::ZERO, |entry| entry.order)
}

/// Whether nothing is there that a client could see.
pub(super) fn is_absent(view: &RegisterView) -> bool {
    view.entry.as_ref().is_none_or(|entry| entry.value.is_tombstone())
}

pub(super) fn identity(view: &RegisterView) -> Option<(Stamp, WriteId)> {
    view.entry.as_ref().map(|entry| (entry.order, entry.write_id))
}

/// The newest of what was seen, with its bytes where anyone sent them.
pub(super) fn newest(seen: &[Seen]) -> Option<&Seen> {
    seen.iter().max_by_key(|seen| (identity(&seen.view), seen.view.inline.is_some()))
}

/// What `needed` devices agree on: the newest of all. A key that is absent for all is absent,
/// whether there are tombstones or not.
fn agreed(seen: &[Seen], needed: usize) -> Option<&RegisterView> {
    if seen.len() < needed {
        return None;
    }
    let newest = &newest(seen)?.view;
    let holders = seen.iter().filter(|seen| identity(&seen.view) == identity(newest)).count();
    let all_absent = || seen.iter().all(|seen| is_absent(&seen.view));
    (holders >= needed || all_absent()).then_some(newest)
}

/// Whether bytes that were asked for are missing from a view.
pub(super) fn lacks_bytes(view: &RegisterView, want: Want) -> bool {
    let body = view.entry.as_ref().and_then(|entry| entry.value.body());
    want == Want::EntryAndInline
        && view.inline.is_none()
        && matches!(body, Some(Body::Inline { .. }))
}

impl Inner {
    /// What a register holds, at a level; what that rests on is noted.
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

    /// Writes that come after a read are stamped above what it saw, also by a clock that is late.
    fn follow(&self, seen: Stamp) {
        if seen.time_ms() >= self.stamps.now_ms() {
            self.stamps.issue_above(seen);
        }
    }

    /// The same, with what it rests on.
    pub(crate) async fn read_given(
        &self,
        key: &RegisterKey,
        want: Want,
        level: Level,
    ) -> Result<(RegisterView, Given)> {
        let place = place_of(self.cluster(), key);
        if level == Level::Any
            && place.primaries.len() > 1
            && let Some(view) = self.read_any(&place, key, want).await
        {
            return Ok((view, Given::Any));
        }
        match self.read_primaries(&place, key, want).await {
            Sight::Quorum(view) => Ok((view, Given::Quorum)),
            Sight::Differ(seen) => match self.settle(&place, key, want, &seen).await {
                Ok(view) => Ok((view, Given::Quorum)),
                Err(error) if level == Level::Strict => Err(error),
                Err(error) => {
                    self.read_degraded(&place, key, want, (seen, Calls::new(), error)).await
                }
            },
            Sight::Short(_, _, error) if level == Level::Strict => Err(error),
            Sight::Short(seen, calls, error) => {
                self.read_degraded(&place, key, want, (seen, calls, error)).await
            }
        }
    }

    pub(super) fn ask(
        &self,
        calls: &mut Calls<RegisterView>,
        place: &Place,
        (device, role): (DeviceId, Role),
        key: &RegisterKey,
        want: Want,
    ) {
        let key = key.clone();
        let call = place.call(device, self.call_time(), move |node| async move {
            match role {
                Role::Primary | Role::Previous => node.read(device, &key, want).await,
                Role::Handoff => node.read_hint(device, &key, want).await,
            }
        });
        calls.push(device, role, call);
    }

    /// The primaries in the order in which this read asks them: each is the first in its turn, and
    /// those who failed lately are the last.
    fn in_turn(&self, place: &Place) -> impl Iterator<Item = DeviceId> + use<> {
        let mut primaries = place.primaries.clone();
        if primaries.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % primaries.len();
            primaries.rotate_left(turn);
            let shunned: Vec<_> = primaries.iter().map(|d| self.silent.shuns(*d)).collect();
            if shunned.contains(&true) {
                let mut shunned = shunned.into_iter();
                let (last, first): (Vec<_>, _) =
                    primaries.into_iter().partition(|_| shunned.next() == Some(true));
                primaries = first;
                primaries.extend(last);
            }
        }
        primaries.into_iter()
    }

    /// Asks the primaries until a quorum agrees, differs, or can't be had soon.
    pub(super) async fn read_primaries(
        &self,
        place: &Place,
        key: &RegisterKey,
        want: Want,
    ) -> Sight {
        let needed = place.needed();
        let began = Instant::now();
        let mut left = self.in_turn(place);
        let mut calls = Calls::new();
        let mut ask = |calls: &mut Calls<RegisterView>, want| {
            let Some(device) = left.next() else { return false };
            self.ask(calls, place, (device, Role::Primary), key, want);
            true
        };
        for at in 0..needed {
            ask(&mut calls, if at == 0 { want } else { Want::Entry });
        }
        let mut wake = began + self.hedge_time();
        let (mut seen, mut failure) = (Vec::with_capacity(needed), None);
        loop {
            match self.reply(&mut calls, wake).await {
                Ok(Some((device, role, Ok(view)))) => {
                    seen.push(Seen { device, role, view });
                    if agreed(&seen, needed).is_some() {
                        self.note_silence(&calls, began);
                        return self.with_bytes(place, key, want, seen).await;
                    }
                    if seen.len() >= needed {
                        // They differ: the others may tell without a round of writes.
                        while ask(&mut calls, want) {}
                        wake = Instant::now() + self.hedge_time();
                    }
                }
                Ok(Some((_, _, Err(error)))) => {
                    failure = Some(error);
                    ask(&mut calls, want);
                }
                Ok(None) => break,
                Err(_) if seen.len() >= needed => break,
                Err(_) if ask(&mut calls, want) => wake = Instant::now() + self.hedge_time(),
                Err(_) => {
                    wake = self.give_up_at(&calls, began);
                    if wake <= Instant::now() {
                        break;
                    }
                }
            }
        }
        self.note_silence(&calls, began);
        if seen.len() >= needed {
            return Sight::Differ(seen);
        }
        let none = || Error::unavailable("too few replicas of the register answer");
        Sight::Short(seen, calls, failure.unwrap_or_else(none))
    }

    /// What was agreed on, with bytes from whoever has them if those who agreed were not asked.
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

    /// The newest that was seen, with its bytes.
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
            let reply = calls.next(Instant::now() + self.patience()).await;
            if let Ok(Some((_, _, Ok(view)))) = reply
                && identity(&view) == identity(&best.view)
            {
                return Some(view);
            }
        }
        None
    }

    /// The first good replica that has it; none where one says that it isn't there, or all fail.
    async fn read_any(&self, place: &Place, key: &RegisterKey, want: Want) -> Option<RegisterView> {
        let mut left = self.in_turn(place);
        let mut calls = Calls::new();
        let patience = Instant::now() + self.patience();
        loop {
            if let Some(device) = left.next() {
                self.ask(&mut calls, place, (device, Role::Primary), key, want);
            }
            let wake = (Instant::now() + self.hedge_time()).min(patience);
            match calls.next(wake).await {
                Ok(Some((_, _, Ok(view)))) => return Some(view).filter(|view| !is_absent(view)),
                Ok(None) => return None,
                Err(_) if Instant::now() >= patience => return None,
                Ok(Some((_, _, Err(_)))) | Err(_) => {}
            }
        }
    }
}
