//! Upkeep of sets: what a process that died left behind.
//!
//! Each step reads the record, does what is due, and changes the record by compare-and-set. So any
//! number of workers may run at once, and a step that dies is repeated.

use martlet_protocol::backend::ListStart;
use martlet_protocol::checkpoints::SetCounts;
use martlet_protocol::entry::{Bucket, Value};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::{RegisterKind, VersionId};

use super::commit::Committer;
use super::completion::{PINNING_TIME, PendingGeneration};
use super::records::{
    EMPTIED, GENERATIONS_MAX, Generation, GenerationState, INTENT_AGE_MS, Noted, SetRecord,
    Withdrawal, WithdrawalCause,
};
use super::rules::CheckpointRule;
use super::set_store::SetName;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::Result;
use crate::walk::Paths;

/// Age at which a write that was begun can't commit any more.
const INTENT_AGE_MS_MAX: u64 = COMMIT_WINDOW_MS + FIRST_HAND_AGE_MS_MAX;
/// Time without a rule after which a set is withdrawn.
pub(super) const UNCOVERED_MS: u64 = 24 * 3600 * 1000;
/// Age from which a manifest that no record names is deleted.
const ORPHAN_AGE_MS: u64 = 24 * 3600 * 1000;
/// Age at which a generation whose proxy may be at it is continued.
const UNATTENDED_MS: u64 = 60_000;
/// Manifests of a set that one step looks at; more than a record names, so that it meets orphans.
const MANIFESTS_MAX: usize = GENERATIONS_MAX + 100;
pub(super) const UNCOVERED: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Other,
    reason: "no rule covers the set",
    deletes_objects: false,
    waits_for_holds: true,
};
pub(super) const EMPTY: Withdrawal<'_> = Withdrawal {
    cause: WithdrawalCause::Emptied,
    reason: EMPTIED,
    deletes_objects: true,
    waits_for_holds: true,
};

/// A visit of one set.
pub(super) struct Visit<'a> {
    pub(super) committer: &'a Committer,
    pub(super) bucket: &'a Bucket,
    /// Rule that covers the set, if any.
    pub(super) rule: Option<&'a CheckpointRule>,
    pub(super) set: SetName<'a>,
}

impl Visit<'_> {
    /// Does what is due for one set. Its record is deleted once nothing is left of it.
    pub(super) async fn look_after(&self) -> Result<SetCounts> {
        let (sets, set, rule) = (&self.committer.sets, self.set, self.rule);
        self.settle_intents().await?;
        let Some((record, etag)) = sets.record(set.bucket, set.set).await? else {
            return Ok(SetCounts::default());
        };
        let is_uncovered = self.is_uncovered(&record).await?;
        let mut counts = SetCounts { sets: 1, ..SetCounts::default() };
        let is_deleted = self.committer.is_deleted(self.bucket, &record).await?;
        for generation in &record.generations {
            self.count(generation, &mut counts);
            let outcome = match (generation.state, rule) {
                (GenerationState::Removing, _) => self.remove(&record, generation).await,
                (_, None) if is_uncovered => self.withdraw(generation, UNCOVERED).await,
                (_, None) => Ok(false),
                (GenerationState::Committed, _) if is_deleted && !generation.is_published => {
                    self.withdraw(generation, EMPTY).await
                }
                (GenerationState::Committed, _) => Ok(false),
                (GenerationState::Pinning, _) => self.pin_again(generation).await,
                (GenerationState::Pending, Some(rule)) => {
                    self.complete(PendingGeneration { rule, record: &record, generation }).await
                }
            };
            match outcome {
                Ok(is_done) => counts.done += u64::from(is_done),
                Err(error) => {
                    let number = generation.number;
                    tracing::debug!(set = set.set, number, %error, "leaving a generation for later");
                    counts.kept += 1;
                }
            }
        }
        self.delete_orphans(&record).await?;
        // A record that has given numbers stays, so that no number is given twice.
        if record.last == 0 && record.intents.is_empty() {
            sets.delete_record(set.bucket, set.set, etag).await?;
        }
        Ok(counts)
    }

    /// Returns true if no rule has covered the set for so long that its generations go: rules may be
    /// edited.
    async fn is_uncovered(&self, record: &SetRecord) -> Result<bool> {
        let now_ms = self.now_ms();
        let since_ms = match (self.rule, record.uncovered_since_ms) {
            (Some(_), None) => return Ok(false),
            (Some(_), Some(_)) => None,
            (None, Some(since_ms)) => return Ok(since_ms + UNCOVERED_MS <= now_ms),
            (None, None) => Some(now_ms),
        };
        let note = |record: &mut SetRecord| {
            record.uncovered_since_ms = since_ms;
            Ok(())
        };
        self.committer.sets.change(self.set.bucket, self.set.set, note).await?;
        Ok(false)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.committer.sets.now_ms()
    }

    pub(super) async fn withdraw(
        &self,
        generation: &Generation,
        why: Withdrawal<'_>,
    ) -> Result<bool> {
        self.committer.withdraw(self.set, generation.number, why).await
    }

    fn count(&self, generation: &Generation, counts: &mut SetCounts) {
        match generation.state {
            GenerationState::Pending | GenerationState::Pinning => {
                counts.pending += 1;
                let age_ms = self.now_ms().saturating_sub(generation.noted_ms);
                counts.oldest_pending_ms = counts.oldest_pending_ms.max(age_ms);
            }
            GenerationState::Committed => {
                counts.committed += 1;
                counts.pinned_bytes += generation.bytes;
            }
            GenerationState::Removing => {
                counts.removing += 1;
                counts.pinned_bytes += generation.bytes;
            }
        }
    }

    /// Ends intents whose writers are gone. A marker that was written without a generation makes a
    /// pending one: the versions that were current at the time are unknown.
    async fn settle_intents(&self) -> Result<()> {
        let (sets, set) = (&self.committer.sets, self.set);
        let Some((record, _)) = sets.record(set.bucket, set.set).await? else { return Ok(()) };
        let now_ms = self.now_ms();
        for intent in record.intents.iter().filter(|it| it.at_ms + INTENT_AGE_MS <= now_ms) {
            let current = self.committer.current_version(set.bucket_name, &intent.key).await?;
            let is_known =
                |record: &SetRecord| record.generations.iter().any(|it| it.marker == current);
            let is_written = current.is_some() && current != intent.before;
            // Its writer may still be at it: the marker is what it was, or another writer's.
            let may_come = !is_written || is_known(&record);
            if may_come && intent.at_ms + INTENT_AGE_MS_MAX > now_ms {
                continue;
            }
            let position = match current.as_deref().map(str::parse::<VersionId>) {
                Some(Ok(VersionId::Numbered { position, .. })) => position,
                _ => 0,
            };
            let settle = |record: &mut SetRecord| {
                record.end(&intent.token);
                if is_written && !is_known(record) {
                    record.note(Noted {
                        order: position,
                        marker: current.clone(),
                        manifest: None,
                        objects: 0,
                        bytes: 0,
                        now_ms,
                        pending: Some(
                            "unclear: the proxy that wrote the marker is gone".to_owned(),
                        ),
                        refuses_more: false,
                        is_published: false,
                    });
                }
                Ok(())
            };
            sets.change(set.bucket, set.set, settle).await?;
        }
        Ok(())
    }

    async fn pin_again(&self, generation: &Generation) -> Result<bool> {
        if generation.changed_ms + UNATTENDED_MS > self.now_ms() {
            return Ok(false);
        }
        let outcome = self.committer.pin_all(self.set, generation, PINNING_TIME).await?;
        Ok(matches!(outcome, CheckpointOutcome::Committed { .. }))
    }

    /// Deletes manifests that a process which died left without a generation.
    async fn delete_orphans(&self, record: &SetRecord) -> Result<()> {
        let (sets, set) = (&self.committer.sets, self.set);
        let before_ms = self.now_ms().saturating_sub(ORPHAN_AGE_MS);
        for token in sets.tokens(set.bucket, set.set, before_ms, MANIFESTS_MAX).await? {
            let is_named = |it: &Generation| it.manifest.as_deref() == Some(token.as_str());
            if !record.generations.iter().any(is_named) {
                sets.delete_manifest(set.bucket, set.set, &token).await?;
            }
        }
        Ok(())
    }
}

impl Committer {
    /// Returns true if no object of a set's own folder is current, although a generation is
    /// committed. Sets that were published under another name than their folder's don't count.
    pub(super) async fn is_deleted(&self, bucket: &Bucket, record: &SetRecord) -> Result<bool> {
        match record.newest() {
            Some(newest) if !newest.is_published => {
                self.is_empty(bucket, &record.name, RegisterKind::Object).await
            }
            _ => Ok(false),
        }
    }

    /// Returns true if a quorum holds no object, or no upload, in a folder.
    pub(super) async fn is_empty(
        &self,
        bucket: &Bucket,
        folder: &str,
        kind: RegisterKind,
    ) -> Result<bool> {
        let context = self.sets.context();
        let paths = Paths::all(bucket, kind).below(folder.as_bytes());
        let mut walk =
            self.sets.listings.walk_whole(&context, bucket, &paths, ListStart::First, 10)?;
        while let Some((_, entry)) = walk.next().await? {
            if matches!(entry.value, Value::Object(_) | Value::Upload(_)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
