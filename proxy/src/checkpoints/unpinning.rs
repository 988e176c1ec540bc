//! Release of the pins of a withdrawn generation.
//!
//! ```text
//! versions read ──▶ record read: the generation is still being removed ──▶ a ballot for each version as it was read
//! ```
//!
//! While the record has a generation as being removed, no earlier one begins to be pinned. So a version that was read
//! before the record has no pin that a later step set. A worker that stood still after the second read finds another
//! entry of a version that was pinned meanwhile. The ballot refuses the change then, and the next visit begins anew.

use futures::future::try_join_all;
use martlet_protocol::backend::Want;
use martlet_protocol::entry::{Entry, Object, Value};
use martlet_protocol::{Level, Stamp, VersionId};

use super::manifest::{Manifest, ManifestEntry, NeededVersions};
use super::pins::{Pin, SetId, is_held, unpin};
use super::records::{Generation, GenerationState, SetRecord};
use super::set_store::{SetName, SetStore};
use super::upkeep::Visit;
use crate::api::ObjectName;
use crate::error::{Error, Result};
use crate::versions::VersionRead;

/// Versions that are read or unpinned at once.
const AT_ONCE: usize = 32;

/// A version whose pin is to be released or lowered.
struct PinnedVersion {
    key: String,
    version: VersionId,
    /// Latest other generation of the set that needs the version.
    needed_by: Option<u64>,
    /// Order of the entry that was read; none if there was none.
    order: Option<Stamp>,
}

impl Visit<'_> {
    /// Releases the pins of a generation that is being removed, or lowers them to the generation that still needs the
    /// version.
    ///
    /// # Errors
    /// If the generation, or a version, has changed meanwhile: the next visit goes on.
    pub(super) async fn unpin_all(
        &self,
        record: &SetRecord,
        generation: &Generation,
        manifest: &Manifest,
    ) -> Result<()> {
        let needed = self.needed_by_others(record, generation, manifest).await?;
        let needed: Vec<_> = manifest.entries.iter().zip(needed).collect();
        let held = Pin { set: SetId::of(self.set.set), generation: generation.number };
        for entries in needed.chunks(AT_ONCE) {
            let reads = entries.iter().map(|(entry, needed_by)| {
                self.pinned_version(manifest.key_of(entry), entry, held, *needed_by)
            });
            let pinned: Vec<_> = try_join_all(reads).await?.into_iter().flatten().collect();
            if pinned.is_empty() {
                continue;
            }
            check_is_removing(&self.committer.sets, self.set, record, generation.number).await?;
            try_join_all(pinned.iter().map(|version| self.unpin_one(version, held))).await?;
        }
        Ok(())
    }

    /// Latest earlier generation of the set that needs each version of a manifest, in the order of its entries.
    async fn needed_by_others(
        &self,
        record: &SetRecord,
        generation: &Generation,
        manifest: &Manifest,
    ) -> Result<Vec<Option<u64>>> {
        let mut needed = NeededVersions::new(manifest);
        for other in record.pinned_below(generation.number) {
            let Some(token) = &other.manifest else { continue };
            let (sets, set) = (&self.committer.sets, self.set);
            needed.add(other.number, &*sets.manifest(set, token).await?);
        }
        Ok(needed.into_inner())
    }

    /// Reads a version; returns none if its pins stay as they are.
    async fn pinned_version(
        &self,
        key: String,
        noted: &ManifestEntry,
        held: Pin,
        needed_by: Option<u64>,
    ) -> Result<Option<PinnedVersion>> {
        let (sets, context) = (&self.committer.sets, self.committer.sets.context());
        let version = noted.version.name();
        let target = sets.catalog.target(&context, self.set.bucket_name, &key).await?;
        let (head, want, level) = (&target.key, Want::Entry, Level::Strict);
        let view = sets.registers.read(&context, head, want, level).await?;
        let read = VersionRead { head, version: Some(version), want, level };
        let view = self.committer.reviser.versions.view_of(&context, read, view).await?;
        let is_pinned = match view.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::Object(object)) => is_held(&object.attributes.marks, held, needed_by)?,
            // The ballot finds out if the version is somewhere else.
            _ => true,
        };
        let order = view.entry.map(|entry| entry.order);
        Ok(is_pinned.then_some(PinnedVersion { key, version, needed_by, order }))
    }

    async fn unpin_one(&self, pinned: &PinnedVersion, held: Pin) -> Result<()> {
        let (committer, context) = (self.committer, self.committer.sets.context());
        let mut change = |entry: &Entry, object: &Object| {
            if Some(entry.order) != pinned.order {
                return Err(changed());
            }
            let mut object = object.clone();
            unpin(&mut object.attributes.marks, held, pinned.needed_by)?;
            Ok(Some(object))
        };
        let name = ObjectName { key: &pinned.key, version: Some(pinned.version) };
        let bucket = self.set.bucket_name;
        let unpinning = committer.reviser.revise_by_operator(&context, bucket, name, &mut change);
        match Box::pin(unpinning).await {
            Ok(_) | Err(Error::NoSuchVersion | Error::NoSuchKey | Error::DeleteMarker { .. }) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns an error unless a generation is still being removed, and the same earlier ones need their versions.
async fn check_is_removing(
    sets: &SetStore,
    set: SetName<'_>,
    record: &SetRecord,
    number: u64,
) -> Result<()> {
    let now = sets.record(set.bucket, set.set).await?;
    let is_same = now.is_some_and(|(now, _)| {
        now.find(number).is_some_and(|it| it.state == GenerationState::Removing)
            && now.needs_below(number) == record.needs_below(number)
    });
    if is_same { Ok(()) } else { Err(changed()) }
}

fn changed() -> Error {
    let message = "a generation or a version changed while its pins were released";
    martlet_protocol::Error::unavailable(message).into()
}
