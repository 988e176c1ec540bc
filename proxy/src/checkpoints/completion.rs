//! Completion of pending generations, and their end if they can't be completed any more.
//!
//! ```text
//! pending ──all is there──▶ pinned ──▶ committed
//!    │ └────something may come──▶ pending, with the reason
//!    └──────a noted object changed, or none was noted──▶ pending, with the reason ──a day──▶ withdrawn
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::{RegisterKind, Version};

use super::commit::{MarkerCheck, settling};
use super::manifest::{Manifest, ManifestEntry};
use super::records::{
    self, Generation, GenerationState, SetRecord, Withdrawal, WithdrawalCause, cut,
};
use super::rules::CheckpointRule;
use super::upkeep::Visit;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::{Error, Result};

/// Time for the pins of one generation; less than the grace time.
pub(super) const PINNING_TIME: Duration = Duration::from_mins(5);
/// Age at which a generation that can't be completed is withdrawn, unless its rule abandons sets.
const STUCK_MS_MAX: u64 = 24 * 3600 * 1000;
/// Longest time between a write and its repetition by a client that had no reply.
const REPEATED_MS_MAX: u64 = 5 * 60_000;

const SUPERSEDED: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Other,
    reason: "a later generation was committed",
    deletes_objects: false,
    waits_for_holds: true,
};
const ABANDONED: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Abandoned,
    reason: records::ABANDONED,
    deletes_objects: true,
    waits_for_holds: true,
};
/// Its objects stay: they may be of a later save.
const STUCK: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Other,
    reason: "it could not be completed any more",
    deletes_objects: false,
    waits_for_holds: true,
};

/// State of a pending generation.
#[derive(Debug)]
pub(super) enum Progress {
    /// All of it is there.
    Ready(Manifest),
    /// Something may still come, for this reason.
    Waits(String),
    /// It can't be completed any more, for this reason.
    Stuck(String),
}

/// State of a pending generation before its marker is read.
struct UnreadMarker {
    /// The manifest as it was noted.
    noted: Arc<Manifest>,
    /// Objects that were noted, and those that came since.
    entries: Vec<ManifestEntry>,
    /// Name of the marker within the set.
    name: String,
    version: Version,
}

/// A pending generation of a set.
#[derive(Clone, Copy)]
pub(super) struct PendingGeneration<'a> {
    pub(super) rule: &'a CheckpointRule,
    pub(super) record: &'a SetRecord,
    pub(super) generation: &'a Generation,
}

impl Visit<'_> {
    /// Completes a pending generation once all that its marker names is there, with the versions
    /// that were noted and what came since. Returns true if that changed its state.
    pub(super) async fn complete(&self, pending: PendingGeneration<'_>) -> Result<bool> {
        let PendingGeneration { rule, record, generation } = pending;
        if record.newest().is_some_and(|newest| newest.order > generation.order) {
            return self.withdraw(generation, SUPERSEDED).await;
        }
        let current = match self.committer.current(self.bucket, self.set.set).await {
            // Objects may be deleted.
            Err(Error::InvalidRequest(reason)) => return self.explain(generation, &reason).await,
            current => current?,
        };
        if self.is_abandoned(rule, generation, &current).await? {
            return self.withdraw(generation, ABANDONED).await;
        }
        match self.progress(pending, current).await? {
            Progress::Ready(manifest) => self.pin_filled(pending, &manifest).await,
            Progress::Waits(reason) => self.explain(generation, &reason).await,
            Progress::Stuck(reason) => {
                if stuck_until_ms(rule, generation).is_some_and(|it| it <= self.now_ms()) {
                    return self.withdraw(generation, STUCK).await;
                }
                self.explain(generation, &reason).await
            }
        }
    }

    /// State of a generation, given what is current in its folder. Changes nothing.
    async fn progress(
        &self,
        pending: PendingGeneration<'_>,
        current: Vec<ManifestEntry>,
    ) -> Result<Progress> {
        let rule = pending.rule;
        let UnreadMarker { noted, entries, name, version } =
            match self.before_marker(pending, current).await? {
                ControlFlow::Break(progress) => return Ok(progress),
                ControlFlow::Continue(unread) => unread,
            };
        let check = MarkerCheck { set: self.set, rule, marker: &name, version };
        let (entries, lacking) = self.committer.lacking(check, entries).await?;
        if let Some(lacking) = lacking {
            return Ok(Progress::Waits(lacking));
        }
        let (of_set, folder) = (noted.set.clone(), noted.folder.clone());
        Ok(Progress::Ready(Manifest { set: of_set, folder, entries }))
    }

    /// State of a generation as far as it shows without its marker. What the marker names may make it
    /// wait, and never makes it stuck.
    async fn before_marker(
        &self,
        pending: PendingGeneration<'_>,
        current: Vec<ManifestEntry>,
    ) -> Result<ControlFlow<Progress, UnreadMarker>> {
        let PendingGeneration { rule, generation, .. } = pending;
        let (sets, set) = (&self.committer.sets, self.set);
        let stuck = |reason: String| Ok(ControlFlow::Break(Progress::Stuck(reason)));
        let (Some(token), Some(marker)) = (&generation.manifest, &generation.marker) else {
            return stuck(generation.reason.clone().unwrap_or_else(|| "unclear".to_owned()));
        };
        let noted = sets.manifest(set, token).await?;
        let is_marker = |it: &ManifestEntry| it.version.name().to_string() == *marker;
        if let Some(changed) = first_changed(&noted.entries, &current, is_marker) {
            return stuck(format!(
                "{} was replaced or deleted after the marker came: write the marker again",
                changed.rest
            ));
        }
        if let Some(reason) = reason_to_wait(pending, self.now_ms()) {
            return Ok(ControlFlow::Break(Progress::Waits(reason)));
        }
        let entries = union(&noted.entries, current);
        let own = entries.iter().find(|it| rule.is_marker(&it.rest) && is_marker(it));
        let Some((name, version)) = own.map(|own| (own.rest.clone(), own.version)) else {
            return stuck("the rule has other markers now: write one of them".to_owned());
        };
        Ok(ControlFlow::Continue(UnreadMarker { noted, entries, name, version }))
    }

    /// Gives a generation its whole manifest, and pins it.
    async fn pin_filled(&self, pending: PendingGeneration<'_>, whole: &Manifest) -> Result<bool> {
        let (committer, set) = (self.committer, self.set);
        let number = pending.generation.number;
        let Some(token) = &pending.generation.manifest else { return Ok(false) };
        let full = committer.noted(set, whole, pending.rule).await?;
        let refill = |record: &mut SetRecord| {
            let is_filled = record.refill(number, token, &full);
            Ok(record.find(number).filter(|_| is_filled).cloned())
        };
        match committer.sets.change(set.bucket, set.set, refill).await? {
            Some(full) => {
                let outcome = committer.pin_all(set, &full, PINNING_TIME).await?;
                Ok(matches!(outcome, CheckpointOutcome::Committed { .. }))
            }
            None => Ok(false),
        }
    }

    /// Records why a generation is pending.
    async fn explain(&self, generation: &Generation, reason: &str) -> Result<bool> {
        if generation.reason.as_deref() != Some(cut(reason).as_str()) {
            let explain = |record: &mut SetRecord| {
                record.explain(generation.number, reason);
                Ok(())
            };
            self.committer.sets.change(self.set.bucket, self.set.set, explain).await?;
        }
        Ok(false)
    }

    /// Returns true if nothing was written to the folder for as long as the rule says, and no upload
    /// is open in it.
    async fn is_abandoned(
        &self,
        rule: &CheckpointRule,
        generation: &Generation,
        current: &[ManifestEntry],
    ) -> Result<bool> {
        let is_due =
            abandoned_at_ms(rule, generation, current).is_some_and(|it| it <= self.now_ms());
        Ok(is_due
            && self.committer.is_empty(self.bucket, self.set.set, RegisterKind::Upload).await?)
    }

    /// Withdrawal of a pending generation that is to come if nothing changes, and its time.
    pub(super) async fn pending_due(
        &self,
        pending: PendingGeneration<'_>,
    ) -> Result<Option<(Withdrawal<'static>, u64)>> {
        let PendingGeneration { rule, record, generation } = pending;
        if record.newest().is_some_and(|newest| newest.order > generation.order) {
            return Ok(Some((SUPERSEDED, 0)));
        }
        let current = match self.committer.current(self.bucket, self.set.set).await {
            Err(Error::InvalidRequest(_)) => return Ok(None),
            current => current?,
        };
        if let Some(due_ms) = abandoned_at_ms(rule, generation, &current) {
            return Ok(Some((ABANDONED, due_ms)));
        }
        let due_ms = stuck_until_ms(rule, generation);
        // Plans read no markers: these may be long.
        let progress = self.before_marker(pending, current).await?;
        let is_stuck = matches!(progress, ControlFlow::Break(Progress::Stuck(_)));
        Ok(due_ms.filter(|_| is_stuck).map(|due_ms| (STUCK, due_ms)))
    }
}

/// Returns true if the present rule still takes a withdrawn generation as abandoned.
pub(super) async fn is_still_abandoned(visit: &Visit<'_>, generation: &Generation) -> Result<bool> {
    let Some(rule) = visit.rule else { return Ok(false) };
    match visit.committer.current(visit.bucket, visit.set.set).await {
        // So many objects are more than were noted.
        Err(Error::InvalidRequest(_)) => Ok(false),
        current => visit.is_abandoned(rule, generation, &current?).await,
    }
}

/// Reason why a generation must wait at `now_ms`, for any objects in its folder.
fn reason_to_wait(pending: PendingGeneration<'_>, now_ms: u64) -> Option<String> {
    let PendingGeneration { rule, record, generation } = pending;
    let number = generation.number;
    if generation.noted_ms + rule.settle_ms > now_ms {
        return Some(settling(rule));
    }
    // A later save may be under way: its objects are not what was missing.
    if record.is_marker_coming(number, now_ms) {
        return Some("the marker is being written again".to_owned());
    }
    let is_later = |it: &&Generation| it.number > number && it.state != GenerationState::Removing;
    if let Some(later) = record.generations.iter().find(is_later) {
        return Some(format!("generation {} was noted later", later.number));
    }
    let is_removing = record.is_removing_above(number);
    is_removing.then(|| "a later generation is being removed".to_owned())
}

/// Time from which a generation that can't be completed is withdrawn; none if its rule abandons sets,
/// which deletes their objects.
fn stuck_until_ms(rule: &CheckpointRule, generation: &Generation) -> Option<u64> {
    rule.abandon_after_ms.is_none().then(|| generation.noted_ms.saturating_add(STUCK_MS_MAX))
}

/// Time at which a pending generation counts as abandoned, if nothing more is written to its folder;
/// none if the rule abandons nothing.
fn abandoned_at_ms(
    rule: &CheckpointRule,
    generation: &Generation,
    current: &[ManifestEntry],
) -> Option<u64> {
    let last = current.iter().map(|entry| entry.modified_ms).max().unwrap_or_default();
    Some(last.max(generation.noted_ms).saturating_add(rule.abandon_after_ms?))
}

/// The first noted object that isn't current any more: the folder was saved again. A repetition of
/// the same bytes is none: clients repeat what they had no reply to. Each version of a marker stands
/// for a save of its own.
fn first_changed<'a>(
    noted: &'a [ManifestEntry],
    current: &[ManifestEntry],
    is_marker: impl Fn(&ManifestEntry) -> bool,
) -> Option<&'a ManifestEntry> {
    noted.iter().find(|entry| {
        let at = current.binary_search_by(|it| it.rest.cmp(&entry.rest));
        !at.is_ok_and(|at| {
            let now = &current[at];
            now.version == entry.version || (!is_marker(entry) && is_repetition(entry, now))
        })
    })
}

fn is_repetition(first: &ManifestEntry, then: &ManifestEntry) -> bool {
    first.size == then.size
        && first.etag == then.etag
        && then.modified_ms.abs_diff(first.modified_ms) <= REPEATED_MS_MAX
}

/// The noted objects, and current ones of other names, in order of name.
fn union(noted: &[ManifestEntry], current: Vec<ManifestEntry>) -> Vec<ManifestEntry> {
    let is_new = |entry: &ManifestEntry| {
        noted.binary_search_by(|it| it.rest.as_str().cmp(&entry.rest)).is_err()
    };
    let mut entries: Vec<ManifestEntry> = noted.to_vec();
    entries.extend(current.into_iter().filter(is_new));
    entries.sort_by(|one, another| one.rest.cmp(&another.rest));
    entries
}

#[cfg(test)]
mod tests {
    use martlet_protocol::Version;
    use martlet_protocol::entry::ETag;

    use super::*;

    fn entry(rest: &str, position: u64) -> ManifestEntry {
        ManifestEntry {
            rest: rest.to_owned(),
            version: Version { position, id: None },
            size: 1,
            etag: ETag::Md5([0; 16]),
            modified_ms: 0,
        }
    }

    #[test]
    fn later_versions_of_noted_objects_are_left_out() {
        let noted = [entry("b", 1), entry("d", 1)];
        let current = vec![entry("a", 2), entry("b", 2), entry("c", 2)];
        let union = union(&noted, current);
        let shown: Vec<_> =
            union.iter().map(|it| (it.rest.as_str(), it.version.position)).collect();
        assert_eq!(shown, [("a", 2), ("b", 1), ("c", 2), ("d", 1)]);
    }

    #[test]
    fn repetitions_of_all_but_the_marker_change_nothing() {
        let noted = [entry("a", 1), entry("marker", 3)];
        let is_marker = |it: &ManifestEntry| it.version.position == 3;
        let changed =
            |now: &[ManifestEntry]| first_changed(&noted, now, is_marker).map(|it| it.rest.clone());
        assert_eq!(changed(&noted), None);
        assert_eq!(changed(&[entry("a", 4), entry("marker", 3)]), None);
        assert_eq!(changed(&[entry("a", 1), entry("marker", 4)]).as_deref(), Some("marker"));
        assert_eq!(changed(&[entry("marker", 3)]).as_deref(), Some("a"), "deleted");
        let other = [
            ManifestEntry { size: 2, ..entry("a", 4) },
            ManifestEntry { etag: ETag::Md5([1; 16]), ..entry("a", 4) },
            ManifestEntry { modified_ms: REPEATED_MS_MAX + 1, ..entry("a", 4) },
        ];
        for other in other {
            assert_eq!(changed(&[other, entry("marker", 3)]).as_deref(), Some("a"));
        }
    }
}
