//! Reads of one device's hints: a walk over them, then those that arrive.
//!
//! ```text
//! walk over all ──▶ arrivals alone: the rest waits for silent members ──▶ walk over all
//!                      │ a member returned            ▲           another ring or term, missed
//!                      └──▶ walk over its hints ──────┘           arrivals, refusals, an hour
//! ```
//!
//! Invariant: between two walks each hint was offered to all its receivers. So it waits for devices in
//! `waits_for`, was refused, or comes by the arrivals. A hint is read again only if one of these changes, and
//! after a rest in proportion to the walk.

use std::collections::HashSet;
use std::time::Duration;

use martlet_protocol::backend::{ArrivedHints, Hint};
use martlet_protocol::{DeviceId, RegisterKey, RegisterKind, Shard, Term};
use martlet_ring::RingHash;
use tokio::time::Instant;

/// Rest after a walk before hints that were refused are read again, as a multiple of the walk's duration.
const RESTS: u32 = 9;
/// Age of a walk after which another one begins in any case, and the same as a multiple of its duration.
const REVIEW: Duration = Duration::from_hours(1);
const REVIEW_RESTS: u32 = 99;
/// Errors in reading a page, one after another, after which a walk begins anew.
const FAILURES_MAX: u32 = 30;
/// Refused calls for arrivals after which the device counts as one that knows no such call.
const REFUSALS_MAX: u32 = 30;

/// Ring and term by which receivers are chosen.
pub(super) type ChosenBy = (RingHash, Term);

/// Hints that could not be forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemainingHints {
    pub(super) hints: u64,
    pub(super) oldest_ms: Option<u64>,
}

impl RemainingHints {
    pub(super) fn add(&mut self, more: Self) {
        self.hints += more.hints;
        self.oldest_ms = self.oldest_ms.into_iter().chain(more.oldest_ms).min();
    }
}

/// Outcome of the offer of some hints.
#[derive(Debug, Default)]
pub(super) struct OfferedHints {
    /// Hints that all receivers hold.
    pub(super) done: u64,
    pub(super) left: RemainingHints,
    /// Receivers that did not answer.
    pub(super) silent: HashSet<DeviceId>,
    /// True if a hint stays for another reason than silence.
    pub(super) is_refused: bool,
}

/// A walk over a device's hints, in the order of their registers.
#[derive(Debug)]
struct Walk {
    after: Option<RegisterKey>,
    /// Members for which the walk is; none: for all.
    members: Option<HashSet<DeviceId>>,
    left: RemainingHints,
    took: Duration,
}

/// State of one device's hints.
#[derive(Debug, Default)]
pub(super) struct DeviceHints {
    chosen_by: Option<ChosenBy>,
    /// Number of the last arrival that was offered.
    arrived: Option<u64>,
    /// Refused calls for arrivals, one after another.
    refusals: u32,
    walk: Option<Walk>,
    /// Members that were silent as a hint was offered to them.
    waits_for: HashSet<DeviceId>,
    /// Those of them that answer again.
    returned: HashSet<DeviceId>,
    /// True if a hint may have been refused or missed since the last walk over all of them began.
    is_incomplete: bool,
    /// True if another walk over all hints follows the present one at once.
    walks_again: bool,
    /// Pages of the walk that could not be read, one after another.
    failures: u32,
    /// Times from which an incomplete walk, any walk, and one for returned members is repeated.
    again_at: Option<Instant>,
    review_at: Option<Instant>,
    members_at: Option<Instant>,
    left: RemainingHints,
}

impl DeviceHints {
    /// Begins a walk if one is due. Returns true if a walk over all hints begins because the last one is old.
    pub(super) fn begin(&mut self, chosen_by: ChosenBy, now: Instant) -> bool {
        let is_full = self.walk.as_ref().map(|walk| walk.members.is_none());
        let is_other = self.chosen_by.replace(chosen_by).as_ref() != Some(&chosen_by);
        if is_other && is_full == Some(true) {
            // Its further hints get present receivers. Those before its position follow at its end.
            self.walks_again = true;
            return false;
        }
        let is_over = |rest: Option<Instant>| rest.is_none_or(|until| until <= now);
        let is_blind = self.arrived.is_none() || self.refusals >= REFUSALS_MAX;
        let is_due =
            is_over(self.review_at) || (is_over(self.again_at) && (self.is_incomplete || is_blind));
        // A walk for members may wait for them without end.
        if is_other || (is_due && is_full != Some(true)) {
            self.walk_all();
            return !is_other && self.review_at.is_some_and(|until| until <= now);
        }
        if is_full.is_none() && !self.returned.is_empty() && is_over(self.members_at) {
            let members = std::mem::take(&mut self.returned);
            self.waits_for.retain(|device| !members.contains(device));
            self.walk = Some(Walk::of(Some(members)));
        }
        false
    }

    fn walk_all(&mut self) {
        self.waits_for.clear();
        self.returned.clear();
        (self.is_incomplete, self.walks_again, self.failures) = (false, false, 0);
        self.walk = Some(Walk::of(None));
    }

    /// Records that a page of the walk could not be read. After many such errors the walk begins anew: a
    /// page that can't be read must not keep hints of others.
    pub(super) fn note_failure(&mut self) {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.failures = 0;
            if let Some(walk) = self.walk.take() {
                self.is_incomplete = true;
                self.rest(&walk);
            }
        }
    }

    /// Records that devices answer again.
    pub(super) fn note_returned(&mut self, devices: &HashSet<DeviceId>) {
        let returned: Vec<DeviceId> = self.waits_for.intersection(devices).copied().collect();
        if let Some(Walk { members: Some(members), .. }) = &mut self.walk {
            members.extend(&returned);
        }
        // Hints before the position of a walk are met by the next one.
        self.returned.extend(returned);
    }

    /// Returns the position after which arrivals are read.
    pub(super) fn arrived(&self) -> Option<u64> {
        self.arrived
    }

    /// Records a page of at most `limit` arrivals. Returns true if there may be more.
    pub(super) fn note_arrivals(&mut self, page: &ArrivedHints, limit: usize) -> bool {
        self.refusals = 0;
        let before = self.arrived.replace(page.last);
        if page.missed {
            // A walk over all that has not begun to read meets all hints that were missed.
            let meets = |walk: &Walk| walk.members.is_none() && walk.after.is_none();
            self.is_incomplete |= !self.walk.as_ref().is_some_and(meets);
            return false;
        }
        before.is_some_and(|before| page.last.saturating_sub(before) >= limit as u64)
    }

    /// Records a refused call for arrivals.
    pub(super) fn note_refusal(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Records the offer of arrived hints.
    pub(super) fn offered_arrivals(&mut self, offered: OfferedHints) {
        match &mut self.walk {
            Some(Walk { members: None, left, .. }) => left.add(offered.left),
            _ => self.left.add(offered.left),
        }
        self.apply(offered);
    }

    /// Returns true if a page of the walk is to be read: for a member that isn't silent.
    pub(super) fn walks(&self, silent: &HashSet<DeviceId>) -> bool {
        self.walk.as_ref().is_some_and(|walk| match &walk.members {
            None => true,
            Some(members) => members.iter().any(|member| !silent.contains(member)),
        })
    }

    /// Returns the register after which the walk reads its next page.
    pub(super) fn position(&self) -> Option<&RegisterKey> {
        self.walk.as_ref()?.after.as_ref()
    }

    /// Removes hints from a page that are not for the members of the walk, and moves the position behind the
    /// page. Hints of a bucket's shard have the same receivers, so all of them are passed over at once.
    pub(super) fn advance(
        &mut self,
        page: &mut Vec<Hint>,
        receivers: impl Fn(&RegisterKey) -> Vec<DeviceId>,
    ) {
        let Some(walk) = &mut self.walk else { return };
        let Some(last) = page.last().map(|hint| hint.key.clone()) else { return };
        let Some(members) = &walk.members else {
            walk.after = Some(last);
            return;
        };
        let is_for = |key: &RegisterKey| receivers(key).iter().any(|it| members.contains(it));
        let after = if is_for(&last) { None } else { end_of_run(&last) };
        page.retain(|hint| is_for(&hint.key));
        walk.after = Some(after.unwrap_or(last));
    }

    /// Records the offer of a page of the walk. `is_last` ends the walk.
    pub(super) fn walked(&mut self, offered: OfferedHints, took: Duration, is_last: bool) {
        let Some(mut walk) = self.walk.take() else { return };
        self.failures = 0;
        walk.left.add(offered.left);
        walk.took += took;
        self.apply(offered);
        if is_last {
            self.end(&walk);
        } else {
            self.walk = Some(walk);
        }
    }

    fn apply(&mut self, offered: OfferedHints) {
        self.left.hints = self.left.hints.saturating_sub(offered.done);
        self.is_incomplete |= offered.is_refused;
        self.waits_for.extend(offered.silent);
    }

    fn end(&mut self, walk: &Walk) {
        self.rest(walk);
        if walk.members.is_none() || (self.waits_for.is_empty() && !self.is_incomplete) {
            self.left = walk.left;
        }
        if self.walks_again && walk.members.is_none() {
            self.walk_all();
        }
    }

    /// Sets the times of the next walks. Those for members don't put the others off.
    fn rest(&mut self, walk: &Walk) {
        let now = Instant::now();
        if walk.members.is_some() {
            self.members_at = Some(now + walk.took);
            return;
        }
        self.again_at = Some(now + walk.took * RESTS);
        self.review_at = Some(now + REVIEW.max(walk.took * REVIEW_RESTS));
    }

    /// Returns true if the device is to be visited again in this pass.
    pub(super) fn goes_on(&self) -> bool {
        self.walk.is_some() || !self.returned.is_empty()
    }

    /// Returns the hints that wait, as far as they were read.
    pub(super) fn left(&self) -> RemainingHints {
        match &self.walk {
            Some(Walk { members: None, left, .. }) => *left,
            _ => self.left,
        }
    }
}

impl Walk {
    fn of(members: Option<HashSet<DeviceId>>) -> Self {
        Self { after: None, members, left: RemainingHints::default(), took: Duration::ZERO }
    }
}

/// Returns a key above all registers of a bucket's shard, and below those of the next one. It names none.
fn end_of_run(key: &RegisterKey) -> Option<RegisterKey> {
    let shard = Shard(key.shard.0.checked_add(1)?);
    Some(RegisterKey { bucket: key.bucket, shard, kind: RegisterKind::Object, name: "".into() })
}

#[cfg(test)]
mod tests;
