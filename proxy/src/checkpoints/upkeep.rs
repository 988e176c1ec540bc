//! Upkeep of sets: what a process that died left behind, pending generations, retention, removal.
//!
//! Each step reads the record, does what is due, and changes the record by compare-and-set. So any
//! number of workers may run at once, and a step that dies is repeated.
//!
//! ```text
//! withdrawn ──grace, holds──▶ unpinned ──▶ objects deleted, the marker first ──▶ forgotten
//! ```
//!
//! The grace time is longer than any ballot lives: a pin that a slow proxy sets can't come after the
//! pins were removed.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::try_join_all;
use martlet_protocol::backend::{ListStart, RegisterView};
use martlet_protocol::checkpoints::SetCounts;
use martlet_protocol::entry::{Bucket, DeleteMarker, Entry, Object, Value};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::lock::Bypass;
use martlet_protocol::{RegisterKind, Version, VersionId, WriteId};

use super::commit::{Committer, SetName};
use super::manifest::{Manifest, ManifestEntry};
use super::pins::{Pin, SetId, unpin};
use super::records::{GENERATIONS_MAX, Generation, GenerationState, Noted, SetRecord, Withdrawal};
use super::rules::CheckpointRule;
use crate::api::ObjectName;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::{Error, Result};
use crate::index::WriteOutcome;
use crate::versions::{New, Provided, VersionRemoval};
use crate::walk::Paths;

/// Time for which a withdrawn generation keeps its pins: no ballot of a proxy lives as long, and
/// readers that began before have ended.
const GRACE_MS: u64 = 2 * FIRST_HAND_AGE_MS_MAX;
/// Age at which an intent is looked at.
const INTENT_AGE_MS: u64 = FIRST_HAND_AGE_MS_MAX;
/// Age at which a write that was begun can't commit any more.
const INTENT_AGE_MS_MAX: u64 = COMMIT_WINDOW_MS + FIRST_HAND_AGE_MS_MAX;
/// Age from which a manifest that no record names is deleted.
const ORPHAN_AGE_MS: u64 = 24 * 3600 * 1000;
/// Age at which a generation whose proxy may be at it is continued.
const UNATTENDED_MS: u64 = 60_000;
/// Time for the pins of one generation; less than the grace time.
const PINNING_TIME: Duration = Duration::from_secs(300);
/// Manifests of a set that one step looks at; more than a record names, so that it meets orphans.
const MANIFESTS_MAX: usize = GENERATIONS_MAX + 100;
/// Versions that are unpinned or deleted at once.
const AT_ONCE: usize = 32;

const SUPERSEDED: Withdrawal<'_> = Withdrawal {
    reason: "a later generation was committed",
    deletes_objects: false,
    waits_for_holds: true,
};
const ABANDONED: Withdrawal<'_> =
    Withdrawal { reason: "abandoned", deletes_objects: true, waits_for_holds: true };
const UNCOVERED: Withdrawal<'_> =
    Withdrawal { reason: "no rule covers the set", deletes_objects: false, waits_for_holds: true };
const EMPTY: Withdrawal<'_> = Withdrawal {
    reason: "all objects of the set were deleted",
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
        let mut counts = SetCounts { sets: 1, ..SetCounts::default() };
        let is_deleted = self.is_deleted(&record).await?;
        for generation in &record.generations {
            self.count(generation, &mut counts);
            let outcome = match (generation.state, rule) {
                (GenerationState::Removing, _) => self.remove(&record, generation).await,
                (_, None) => self.withdraw(generation, UNCOVERED).await,
                (GenerationState::Committed, _) if is_deleted => {
                    self.withdraw(generation, EMPTY).await
                }
                (GenerationState::Committed, _) => Ok(false),
                (GenerationState::Pinning, _) => self.pin_again(generation).await,
                (GenerationState::Pending, Some(rule)) => {
                    self.complete(rule, &record, generation).await
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
        if record.generations.is_empty() && record.intents.is_empty() {
            sets.delete_record(set.bucket, set.set, etag).await?;
        }
        Ok(counts)
    }

    fn now_ms(&self) -> u64 {
        self.committer.sets.now_ms()
    }

    async fn withdraw(&self, generation: &Generation, why: Withdrawal<'_>) -> Result<bool> {
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
    /// pending one: nobody knows what was current when it came.
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

    /// Returns true if no object of a set's own folder is current, although a generation is
    /// committed. Sets that were published under another name than their folder's don't count.
    async fn is_deleted(&self, record: &SetRecord) -> Result<bool> {
        match record.newest() {
            Some(newest) if !newest.is_published => self.is_empty(RegisterKind::Object).await,
            _ => Ok(false),
        }
    }

    /// Returns true if a quorum holds no object, or no upload, in the set's folder.
    async fn is_empty(&self, kind: RegisterKind) -> Result<bool> {
        let sets = &self.committer.sets;
        let context = sets.context();
        let paths = Paths::all(self.bucket, kind).below(self.set.set.as_bytes());
        let mut walk = sets.listings.walk(&context, self.bucket, &paths, ListStart::First, 10)?;
        while let Some((_, entry)) = walk.next().await? {
            if matches!(entry.value, Value::Object(_) | Value::Upload(_)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn pin_again(&self, generation: &Generation) -> Result<bool> {
        if generation.changed_ms + UNATTENDED_MS > self.now_ms() {
            return Ok(false);
        }
        let outcome = self.committer.pin_all(self.set, generation, PINNING_TIME).await?;
        Ok(matches!(outcome, CheckpointOutcome::Committed { .. }))
    }

    /// Completes a pending generation once all that its marker names is there, with the versions
    /// that were noted and what came since.
    async fn complete(
        &self,
        rule: &CheckpointRule,
        record: &SetRecord,
        generation: &Generation,
    ) -> Result<bool> {
        let (committer, sets, set) = (self.committer, &self.committer.sets, self.set);
        if record.newest().is_some_and(|newest| newest.order > generation.order) {
            return self.withdraw(generation, SUPERSEDED).await;
        }
        let current = committer.current(self.bucket, set.set).await?;
        if self.is_abandoned(rule, generation, &current).await? {
            return self.withdraw(generation, ABANDONED).await;
        }
        let (Some(token), Some(marker)) = (&generation.manifest, &generation.marker) else {
            return Ok(false);
        };
        if generation.noted_ms + rule.settle_ms > self.now_ms() {
            return Ok(false);
        }
        let noted = sets.manifest(set.bucket, set.set, token).await?;
        let entries = union(&noted.entries, current);
        let is_marker = |it: &&ManifestEntry| {
            rule.is_marker(&it.rest) && it.version.name().to_string() == *marker
        };
        let Some(own) = entries.iter().find(is_marker) else { return Ok(false) };
        let (name, version) = (own.rest.clone(), own.version);
        if committer.lacking(set, rule, &name, &entries, version).await?.is_some() {
            return Ok(false);
        }
        let (of_set, folder) = (noted.set.clone(), noted.folder.clone());
        let manifest = Manifest { set: of_set, folder, entries };
        let full = committer.noted(set, &manifest, rule).await?;
        let number = generation.number;
        let refill = |record: &mut SetRecord| {
            let is_filled = record.refill(number, token, &full);
            Ok(record.find(number).filter(|_| is_filled).cloned())
        };
        match sets.change(set.bucket, set.set, refill).await? {
            Some(full) => {
                let outcome = committer.pin_all(set, &full, PINNING_TIME).await?;
                Ok(matches!(outcome, CheckpointOutcome::Committed { .. }))
            }
            None => Ok(false),
        }
    }

    /// Returns true if nothing was written to the folder for as long as the rule says, and no upload
    /// is open in it.
    async fn is_abandoned(
        &self,
        rule: &CheckpointRule,
        generation: &Generation,
        current: &[ManifestEntry],
    ) -> Result<bool> {
        let Some(abandon_after_ms) = rule.abandon_after_ms else { return Ok(false) };
        let last = current.iter().map(|entry| entry.modified_ms).max().unwrap_or_default();
        let last = last.max(generation.noted_ms);
        Ok(last + abandon_after_ms <= self.now_ms() && self.is_empty(RegisterKind::Upload).await?)
    }

    /// Removes a withdrawn generation, once its grace time and its holds are over.
    async fn remove(&self, record: &SetRecord, generation: &Generation) -> Result<bool> {
        let (sets, set) = (&self.committer.sets, self.set);
        let due_ms = generation.held_until_ms.max(generation.changed_ms + GRACE_MS);
        if due_ms > self.now_ms() {
            return Ok(false);
        }
        if let Some(token) = &generation.manifest {
            let manifest = sets.manifest(set.bucket, set.set, token).await?;
            if generation.has_pins {
                self.unpin_all(record, generation, &manifest).await?;
            }
            if generation.deletes_objects {
                self.delete_all(&manifest).await?;
            }
        }
        let number = generation.number;
        let forget = |record: &mut SetRecord| {
            record.forget(number);
            Ok(())
        };
        sets.change(set.bucket, set.set, forget).await?;
        if let Some(token) = &generation.manifest {
            sets.delete_manifest(set.bucket, set.set, token).await?;
        }
        Ok(true)
    }

    async fn unpin_all(
        &self,
        record: &SetRecord,
        generation: &Generation,
        manifest: &Manifest,
    ) -> Result<()> {
        let needed = self.needed_by_others(record, generation).await?;
        let held = Pin { set: SetId::of(self.set.set), generation: generation.number };
        for entries in manifest.entries.chunks(AT_ONCE) {
            let unpins = entries.iter().map(|entry| {
                let key = manifest.key_of(entry);
                let needed_by = needed.get(&(key.clone(), entry.version.name())).copied();
                self.unpin_one(key, entry, held, needed_by)
            });
            try_join_all(unpins).await?;
        }
        Ok(())
    }

    /// Versions that other generations of the set need, each with the latest of these.
    async fn needed_by_others(
        &self,
        record: &SetRecord,
        generation: &Generation,
    ) -> Result<HashMap<(String, VersionId), u64>> {
        let mut needed = HashMap::new();
        let others = record.generations.iter().filter(|it| {
            it.number < generation.number
                && matches!(it.state, GenerationState::Pinning | GenerationState::Committed)
        });
        for other in others {
            let Some(token) = &other.manifest else { continue };
            let (sets, set) = (&self.committer.sets, self.set);
            let manifest = sets.manifest(set.bucket, set.set, token).await?;
            for entry in &manifest.entries {
                let by = needed.entry((manifest.key_of(entry), entry.version.name())).or_default();
                *by = other.number.max(*by);
            }
        }
        Ok(needed)
    }

    async fn unpin_one(
        &self,
        key: String,
        entry: &ManifestEntry,
        held: Pin,
        needed_by: Option<u64>,
    ) -> Result<()> {
        let (committer, context) = (self.committer, self.committer.sets.context());
        let mut change = |_: &Entry, object: &Object| {
            let mut object = object.clone();
            unpin(&mut object.attributes.marks, held, needed_by)?;
            Ok(Some(object))
        };
        let name = ObjectName { key: &key, version: Some(entry.version.name()) };
        let bucket = self.set.bucket_name;
        let unpinning = committer.reviser.revise_by_operator(&context, bucket, name, &mut change);
        match Box::pin(unpinning).await {
            Ok(_) | Err(Error::NoSuchVersion | Error::NoSuchKey | Error::DeleteMarker { .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes the versions of a generation, markers first. Locked and pinned ones stay.
    async fn delete_all(&self, manifest: &Manifest) -> Result<()> {
        let is_marker =
            |entry: &&ManifestEntry| self.rule.is_some_and(|rule| rule.is_marker(&entry.rest));
        let (markers, others): (Vec<&ManifestEntry>, Vec<&ManifestEntry>) =
            manifest.entries.iter().partition(is_marker);
        for entries in [markers, others] {
            for entries in entries.chunks(AT_ONCE) {
                let deletes = entries
                    .iter()
                    .map(|entry| self.delete_version(manifest.key_of(entry), entry.version));
                try_join_all(deletes).await?;
            }
        }
        Ok(())
    }

    /// Deletes one version for good. Where it is current and older ones exist, a delete marker comes
    /// first, so that no older version becomes current.
    async fn delete_version(&self, key: String, version: Version) -> Result<()> {
        let any = |_: &Entry| true;
        if self.removed(&key, version, Provided::Alone(&any)).await?
            || self.removed(&key, version, Provided::Noncurrent(&any)).await?
        {
            return Ok(());
        }
        self.hide(&key, version).await?;
        self.removed(&key, version, Provided::Noncurrent(&any)).await.map(drop)
    }

    async fn removed(&self, key: &str, version: Version, provided: Provided<'_>) -> Result<bool> {
        let (sets, context) = (&self.committer.sets, self.committer.sets.context());
        let target = sets.catalog.target(&context, self.set.bucket_name, key).await?;
        let intent = target.intent(WriteId::random(), self.now_ms() + COMMIT_WINDOW_MS);
        let removal = VersionRemoval { version: version.name(), bypass: Bypass::Nothing };
        let versions = &self.committer.reviser.versions;
        let removing = versions.remove_version_if(&target, intent, removal, provided);
        match Box::pin(removing).await {
            Ok((outcome, _)) => Ok(matches!(outcome, WriteOutcome::At(_))),
            Err(failed) => match failed.error {
                // Another set needs it, or a client locked it.
                Error::Locked(_) => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Adds a delete marker, if this version is current.
    async fn hide(&self, key: &str, version: Version) -> Result<()> {
        let (sets, context) = (&self.committer.sets, self.committer.sets.context());
        let target = sets.catalog.target(&context, self.set.bucket_name, key).await?;
        let now_ms = self.now_ms();
        let intent = target.intent(WriteId::random(), now_ms + COMMIT_WINDOW_MS);
        let marker = DeleteMarker { modified_ms: now_ms, version: None };
        let value = &Value::DeleteMarker(Box::new(marker));
        let mut check = |view: &RegisterView| {
            let held = view.entry.as_ref().and_then(|entry| entry.value.version());
            Ok(held.is_some_and(|held| held.name() == version.name()))
        };
        let new = New { value, inline: None };
        let versions = &self.committer.reviser.versions;
        Box::pin(versions.append(&context, &target.bucket, intent, new, &mut check)).await?;
        Ok(())
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
    use martlet_protocol::entry::ETag;

    use super::*;

    #[test]
    fn later_versions_of_noted_objects_are_left_out() {
        let entry = |rest: &str, position| ManifestEntry {
            rest: rest.to_owned(),
            version: Version { position, id: None },
            size: 1,
            etag: ETag::Md5([0; 16]),
            modified_ms: 0,
        };
        let noted = [entry("b", 1), entry("d", 1)];
        let current = vec![entry("a", 2), entry("b", 2), entry("c", 2)];
        let union = union(&noted, current);
        let shown: Vec<_> =
            union.iter().map(|it| (it.rest.as_str(), it.version.position)).collect();
        assert_eq!(shown, [("a", 2), ("b", 1), ("c", 2), ("d", 1)]);
    }
}
