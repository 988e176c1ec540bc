//! Removal of withdrawn generations: pins are released, and objects deleted.
//!
//! ```text
//! withdrawn ──grace, holds──▶ unpinned ──▶ objects deleted, the marker first ──▶ forgotten
//! ```
//!
//! The grace time is longer than any ballot lives: a pin that a slow proxy sets can't come after the
//! pins were removed.

use futures::future::try_join_all;
use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{DeleteMarker, Entry, Value};
use martlet_protocol::limits::{COMMIT_WINDOW_MS, FIRST_HAND_AGE_MS_MAX};
use martlet_protocol::lock::{Bypass, check_removal_of};
use martlet_protocol::{RegisterKind, Version, WriteId};

use super::commit::{Committer, is_noted};
use super::completion::is_still_abandoned;
use super::manifest::{Manifest, ManifestEntry, NeededVersions};
use super::records::{Generation, GenerationState, SetRecord, WithdrawalCause};
use super::upkeep::Visit;
use crate::bucket::busy;
use crate::error::{Error, Result};
use crate::index::WriteOutcome;
use crate::versions::{New, Provided, VersionRemoval};

/// Time for which a withdrawn generation keeps its pins: no ballot of a proxy lives as long, and
/// readers that began before have ended.
const GRACE_MS: u64 = 2 * FIRST_HAND_AGE_MS_MAX;
/// Versions that are deleted at once.
const AT_ONCE: usize = 32;

/// Returns true once grace time and holds are over, also those of earlier generations: versions
/// that these share have the pin of the later one.
fn is_due(record: &SetRecord, generation: &Generation, now_ms: u64) -> bool {
    let is_earlier = |it: &&Generation| {
        it.state == GenerationState::Removing && it.has_pins && it.number < generation.number
    };
    let mut earlier = record.generations.iter().filter(is_earlier);
    due_ms(generation) <= now_ms && earlier.all(|it| due_ms(it) <= now_ms)
}

impl Visit<'_> {
    /// Removes a withdrawn generation, once its grace time and its holds are over.
    pub(super) async fn remove(&self, record: &SetRecord, generation: &Generation) -> Result<bool> {
        let (sets, set) = (&self.committer.sets, self.set);
        let number = generation.number;
        if !is_due(record, generation, self.now_ms()) {
            return Ok(false);
        }
        // Unpinning is not repeated in each pass while a marker may come.
        if generation.deletes_objects && !record.may_delete() {
            return Ok(false);
        }
        if let Some(token) = &generation.manifest {
            let manifest = sets.manifest(set, token).await?;
            if self.spares_objects(record, generation).await? {
                return Ok(false);
            }
            if generation.has_pins {
                self.unpin_all(record, generation, &manifest).await?;
            }
            if generation.deletes_objects && !self.delete_unneeded(generation, &manifest).await? {
                return Ok(false);
            }
        }
        // Shared versions got the pins of earlier generations as the visit found them. A generation whose pins
        // went to one that is gone meanwhile is needed for the next visit, which releases them.
        let forget = |now: &mut SetRecord| {
            let is_same = now.needs_below(number) == record.needs_below(number);
            if is_same {
                now.forget(number);
            }
            Ok(is_same)
        };
        if !sets.change(set.bucket, set.set, forget).await? {
            return Ok(false);
        }
        if let Some(token) = &generation.manifest {
            sets.delete_manifest(set.bucket, set.set, token).await?;
        }
        Ok(true)
    }

    /// Returns true if the cause of a withdrawal no longer holds. Notes that the objects stay: they may be the last
    /// good ones, or in use again.
    async fn spares_objects(&self, record: &SetRecord, generation: &Generation) -> Result<bool> {
        let (sets, set, number) = (&self.committer.sets, self.set, generation.number);
        let may_spare = generation.deletes_objects && !generation.is_deleting;
        if !may_spare || would_delete_now(self, record, generation).await? {
            return Ok(false);
        }
        let spare = |record: &mut SetRecord| Ok(record.spare_objects(number));
        sets.change(set.bucket, set.set, spare).await
    }

    /// Deletes the versions that no other generation of the set needs, pinned or not yet. Returns
    /// false if that is unclear for now.
    async fn delete_unneeded(&self, generation: &Generation, manifest: &Manifest) -> Result<bool> {
        let (sets, set, number) = (&self.committer.sets, self.set, generation.number);
        let begin = |record: &mut SetRecord| {
            let begun = record.begin_deleting(number);
            Ok(begun.then(|| record.generations.clone()))
        };
        let Some(generations) = sets.change(set.bucket, set.set, begin).await? else {
            return Ok(false);
        };
        let mut needed = NeededVersions::new(manifest);
        for other in generations.iter().filter(|it| it.state != GenerationState::Removing) {
            let Some(token) = &other.manifest else { continue };
            needed.add(other.number, &*sets.manifest(set, token).await?);
        }
        let needed = manifest.entries.iter().zip(needed.into_inner());
        let is_unneeded = |(it, by): (_, Option<u64>)| by.is_none().then_some(it);
        let unneeded: Vec<&ManifestEntry> = needed.filter_map(is_unneeded).collect();
        self.delete_all(generation, manifest, unneeded).await?;
        Ok(true)
    }

    /// Deletes versions of a generation, markers first. Locked and pinned ones stay.
    async fn delete_all(
        &self,
        generation: &Generation,
        manifest: &Manifest,
        entries: Vec<&ManifestEntry>,
    ) -> Result<()> {
        // No version of an emptied folder was current: one that is was restored.
        let may_be_current = generation.withdrawn_by() != WithdrawalCause::Emptied;
        let is_marker =
            |entry: &&ManifestEntry| self.rule.is_some_and(|rule| rule.is_marker(&entry.rest));
        let (markers, others): (Vec<&ManifestEntry>, Vec<&ManifestEntry>) =
            entries.into_iter().partition(is_marker);
        for entries in [markers, others] {
            for entries in entries.chunks(AT_ONCE) {
                let deletes = entries.iter().map(|entry| {
                    self.delete_version(manifest.key_of(entry), entry, may_be_current)
                });
                try_join_all(deletes).await?;
            }
        }
        Ok(())
    }

    /// Deletes one version for good. Where it is current and older ones exist, a delete marker comes
    /// first, so that no older version becomes current.
    async fn delete_version(
        &self,
        key: String,
        noted: &ManifestEntry,
        may_be_current: bool,
    ) -> Result<()> {
        let version = noted.version;
        // A null version may have been replaced.
        let is_it = |entry: &Entry| is_noted_value(noted, &entry.value);
        if may_be_current && self.removed(&key, version, Provided::Alone(&is_it)).await? {
            return Ok(());
        }
        let is_removed = self.removed(&key, version, Provided::Noncurrent(&is_it)).await?;
        if is_removed || !may_be_current {
            return Ok(());
        }
        self.hide(&key, noted).await?;
        self.removed(&key, version, Provided::Noncurrent(&is_it)).await.map(drop)
    }

    /// Returns true if a version is gone, or stays for a pin or a lock.
    ///
    /// # Errors
    /// As of the ballot, or its bucket is outdated: the next pass goes on.
    async fn removed(&self, key: &str, version: Version, provided: Provided<'_>) -> Result<bool> {
        let (sets, context) = (&self.committer.sets, self.committer.sets.context());
        let target = sets.catalog.target(&context, self.set.bucket_name, key).await?;
        let intent = target.intent(WriteId::random(), self.now_ms() + COMMIT_WINDOW_MS);
        let removal = VersionRemoval { version: version.name(), bypass: Bypass::Nothing };
        let versions = &self.committer.reviser.versions;
        let removing = versions.remove_version_if(&target, intent, removal, provided);
        match Box::pin(removing).await {
            Ok((outcome, _)) => is_written(self.committer, self.set.bucket_name, &outcome),
            Err(failed) => match failed.error {
                // Another set needs it, or a client locked it.
                Error::Locked(_) => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Adds a delete marker, if this version is current and may go.
    async fn hide(&self, key: &str, noted: &ManifestEntry) -> Result<()> {
        let (sets, context) = (&self.committer.sets, self.committer.sets.context());
        let target = sets.catalog.target(&context, self.set.bucket_name, key).await?;
        let now_ms = self.now_ms();
        let intent = target.intent(WriteId::random(), now_ms + COMMIT_WINDOW_MS);
        let marker = DeleteMarker { modified_ms: now_ms, version: None };
        let value = &Value::DeleteMarker(Box::new(marker));
        let mut check = |view: &RegisterView| {
            let value = view.entry.as_ref().map(|entry| &entry.value);
            let is_it = |value: &Value| {
                value.version().is_some_and(|held| held.name() == noted.version.name())
                    && is_noted_value(noted, value)
                    && check_removal_of(value, now_ms, Bypass::Nothing).is_ok()
            };
            Ok(value.is_some_and(is_it))
        };
        let new = New { value, inline: None };
        let versions = &self.committer.reviser.versions;
        let appending = versions.append(&context, &target.bucket, intent, new, &mut check);
        let (outcome, _) = Box::pin(appending).await?;
        is_written(self.committer, self.set.bucket_name, &outcome).map(drop)
    }
}

/// Returns true if the cause for which a generation was withdrawn still holds.
async fn would_delete_now(
    visit: &Visit<'_>,
    record: &SetRecord,
    generation: &Generation,
) -> Result<bool> {
    let set = visit.set.set;
    match generation.withdrawn_by() {
        WithdrawalCause::Retention => {
            visit.committer.would_retire_now(visit.bucket, set, generation).await
        }
        WithdrawalCause::Emptied => {
            // The objects of a later save are no restored ones.
            let is_replaced =
                record.newest().is_some_and(|newest| newest.number > generation.number);
            Ok(is_replaced
                || visit.committer.is_empty(visit.bucket, set, RegisterKind::Object).await?)
        }
        WithdrawalCause::Abandoned => is_still_abandoned(visit, generation).await,
        WithdrawalCause::Other => Ok(true),
    }
}

/// Returns true for a write that was made, and an error for one that a newer state of the bucket refused.
fn is_written(committer: &Committer, bucket_name: &str, outcome: &WriteOutcome) -> Result<bool> {
    match outcome {
        WriteOutcome::At(_) => Ok(true),
        WriteOutcome::Kept(_) => Ok(false),
        WriteOutcome::Fenced => {
            committer.sets.catalog.forget(bucket_name);
            Err(busy())
        }
    }
}

/// Time from which a withdrawn generation may be removed, in milliseconds since 1970.
fn due_ms(generation: &Generation) -> u64 {
    generation.held_until_ms.max(generation.changed_ms + GRACE_MS)
}

/// Returns true if a value is the object that an entry of a manifest describes.
fn is_noted_value(noted: &ManifestEntry, value: &Value) -> bool {
    matches!(value, Value::Object(object) if is_noted(noted, object)
        && object.modified_ms == noted.modified_ms)
}
