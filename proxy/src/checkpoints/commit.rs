//! Commits: what was current when a marker came is noted, pinned and published.
//!
//! ```text
//! intent ──▶ marker written ──▶ note: list by a quorum, check, manifest ──▶ generation
//!                                     ──▶ a ballot for each pin ──▶ committed
//! ```
//!
//! Each arrow to the right of the marker may be the last one of a process that dies. The record then
//! says what is known: an intent without a generation, a pending generation, or one that is being
//! pinned. [`upkeep`](super::upkeep) goes on from there.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{Detail, ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::{Bucket, Entry, Object, Value};
use martlet_protocol::{BucketId, RegisterKind, Stamp, Version};
use tokio::sync::Semaphore;

use super::check::{MARKER_BYTES_MAX, missing, reads};
use super::manifest::{Manifest, ManifestEntry, NAME_BYTES_MAX, OBJECTS_MAX};
use super::records::{
    Generation, GenerationState, MarkerIntent, NoteOutcome, Noted, SetRecord, Withdrawal,
};
use super::rules::{CheckpointRule, CheckpointRules, Place, Recommit};
use super::set_store::{SetStore, random_token};
use crate::api::{ObjectName, ReadConditions, Selection, WrittenObject};
use crate::bucket::busy;
use crate::checkpoint_outcome::CheckpointOutcome;
use crate::error::{Error, Result};
use crate::versions::Reviser;
use crate::walk::{Paths, text};

/// Time in which a request pins; what is left is for the worker.
const PINNING_TIME: Duration = Duration::from_secs(15);
/// Age of a marker from which it is unclear what was current when it came: its saver may have given
/// up, and save again.
const NOTE_AGE_MS_MAX: u64 = 60_000;
/// Commits that one process notes at once: each may hold the names of 100,000 objects.
const NOTES_AT_ONCE: usize = 8;

/// A write of a marker that was begun.
pub(crate) struct MarkerWrite {
    bucket: Arc<Bucket>,
    bucket_name: String,
    rules: Arc<CheckpointRules>,
    key: String,
    token: String,
}

/// A set in a bucket.
#[derive(Clone, Copy)]
pub(crate) struct SetName<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) bucket_name: &'a str,
    pub(crate) set: &'a str,
}

/// Commits of checkpoint sets.
pub(crate) struct Committer {
    pub(super) sets: SetStore,
    pub(super) reviser: Reviser,
    notes: Semaphore,
}

impl Committer {
    pub(crate) fn new(sets: SetStore, reviser: Reviser) -> Self {
        Self { sets, reviser, notes: Semaphore::new(NOTES_AT_ONCE) }
    }

    /// Notes the intent to write a key, if the key is a marker; none otherwise. Must precede the
    /// write, so that a marker whose writer dies is not forgotten.
    ///
    /// # Errors
    /// The intent can't be recorded: the marker must not be written.
    pub(crate) async fn begin(
        &self,
        bucket: &Arc<Bucket>,
        bucket_name: &str,
        key: &str,
    ) -> Result<Option<MarkerWrite>> {
        if !CheckpointRules::exist(bucket) {
            return Ok(None);
        }
        Box::pin(self.begin_marker(bucket, bucket_name, key)).await
    }

    async fn begin_marker(
        &self,
        bucket: &Arc<Bucket>,
        bucket_name: &str,
        key: &str,
    ) -> Result<Option<MarkerWrite>> {
        // Rules that this version can't read are left to processes that can.
        let Some(rules) = CheckpointRules::of(bucket).ok().flatten() else { return Ok(None) };
        let Place::Set { rule, folder, rest } = rules.place(key) else { return Ok(None) };
        if !rule.is_marker(rest) || rule.is_temporary(folder) {
            return Ok(None);
        }
        let before = self.current_version(bucket_name, key).await?;
        let (token, at_ms) = (random_token(), self.sets.now_ms());
        let begin = |record: &mut SetRecord| {
            let (token, key, before) = (token.clone(), key.to_owned(), before.clone());
            let has_room = record.begin(MarkerIntent { token, key, before, at_ms });
            if has_room { Ok(()) } else { Err(busy()) }
        };
        self.sets.change(bucket.id, folder, begin).await?;
        let (bucket, key) = (bucket.clone(), key.to_owned());
        let (bucket_name, rules) = (bucket_name.to_owned(), rules.clone());
        Ok(Some(MarkerWrite { bucket, bucket_name, rules, key, token }))
    }

    /// Current version of a key, as clients see it; none if no object is there.
    pub(super) async fn current_version(&self, bucket: &str, key: &str) -> Result<Option<String>> {
        let (context, any) = (self.sets.context(), ReadConditions::default());
        let head = self.sets.reader.head(&context, bucket, key, Selection::Whole, &any);
        match Box::pin(head).await {
            Ok(read) => Ok(Some(version_text(&read.object))),
            Err(Error::NoSuchKey | Error::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Goes on after the write of a key that was begun: makes the generation of a marker that was
    /// written, or ends the intent of one that wasn't.
    pub(crate) async fn finish(
        &self,
        marker: Option<MarkerWrite>,
        written: Result<WrittenObject>,
    ) -> Result<WrittenObject> {
        let Some(marker) = marker else { return written };
        match written {
            Ok(written) => {
                let outcome = Box::pin(self.note_marker(marker, &written.object)).await;
                Ok(WrittenObject { checkpoint: Some(outcome), ..written })
            }
            Err(error) => {
                Box::pin(self.give_up(marker, &error)).await;
                Err(error)
            }
        }
    }

    /// Ends the intent of a marker that was certainly not written. Otherwise the intent stays, and
    /// the worker looks at the marker later.
    async fn give_up(&self, marker: MarkerWrite, failure: &Error) {
        if matches!(failure, Error::Backend(_)) {
            return;
        }
        let Place::Set { folder, .. } = marker.rules.place(&marker.key) else { return };
        let (bucket, bucket_name) = (marker.bucket.id, marker.bucket_name.as_str());
        let set = SetName { bucket, bucket_name, set: folder };
        if let Err(error) = self.end_intent(set, &marker.token).await {
            tracing::debug!(key = marker.key, %error, "could not end the intent of a marker");
        }
    }

    /// Makes the generation of a marker that was written. A failure leaves the intent, and the
    /// worker decides.
    async fn note_marker(&self, marker: MarkerWrite, object: &Object) -> CheckpointOutcome {
        match self.note_once(&marker, object).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::debug!(key = marker.key, %error, "could not commit a checkpoint yet");
                CheckpointOutcome::Pending { generation: None, reason: error.to_string() }
            }
        }
    }

    async fn note_once(&self, marker: &MarkerWrite, object: &Object) -> Result<CheckpointOutcome> {
        let Place::Set { rule, folder, rest } = marker.rules.place(&marker.key) else {
            return Err(busy());
        };
        let set =
            SetName { bucket: marker.bucket.id, bucket_name: &marker.bucket_name, set: folder };
        let turn = self.notes.acquire().await.map_err(|_| busy())?;
        let own = object.version.unwrap_or(Version::UNVERSIONED);
        let entries = match self.current(&marker.bucket, folder).await {
            Err(Error::InvalidRequest(reason)) => {
                self.end_intent(set, &marker.token).await?;
                return Ok(CheckpointOutcome::Refused { reason });
            }
            entries => entries?,
        };
        let is_current = |entry: &ManifestEntry| entry.rest == rest && entry.version == own;
        if !entries.iter().any(is_current) {
            self.end_intent(set, &marker.token).await?;
            let reason = "another write of the marker came later".to_owned();
            return Ok(CheckpointOutcome::Refused { reason });
        }
        let came_ms = Stamp { time: own.position, ..Stamp::ZERO }.time_ms();
        if came_ms + NOTE_AGE_MS_MAX < self.sets.now_ms() {
            // The intent stays, so the worker makes a generation that is unclear.
            let reason = "the proxy noted the marker too late: write it again".to_owned();
            return Ok(CheckpointOutcome::Pending { generation: None, reason });
        }
        let pending = self.pending_reason(set, rule, rest, &entries, own).await?;
        let (name, folder) = (folder.to_owned(), folder.to_owned());
        let manifest = Manifest { set: name, folder, entries };
        let noted = self.noted(set, &manifest, rule).await?;
        let noted =
            Noted { order: own.position, marker: Some(version_text(object)), pending, ..noted };
        let note = |record: &mut SetRecord| {
            record.end(&marker.token);
            Ok(record.note(noted.clone()))
        };
        let outcome = self.sets.change(set.bucket, set.set, note).await?;
        // Pins of one large set keep no other set waiting.
        drop((manifest, turn));
        self.outcome_of(set, outcome).await
    }

    async fn end_intent(&self, set: SetName<'_>, token: &str) -> Result<()> {
        let end = |record: &mut SetRecord| {
            record.end(token);
            Ok(())
        };
        self.sets.change(set.bucket, set.set, end).await
    }

    /// Saves a manifest, and describes the generation that it is for.
    pub(super) async fn noted(
        &self,
        set: SetName<'_>,
        manifest: &Manifest,
        rule: &CheckpointRule,
    ) -> Result<Noted> {
        let token = self.sets.save(set.bucket, manifest).await?;
        Ok(Noted {
            order: self.sets.registers.stamps.issue().time,
            marker: None,
            manifest: Some(token),
            objects: manifest.entries.len() as u64,
            bytes: manifest.bytes(),
            now_ms: self.sets.now_ms(),
            pending: None,
            refuses_more: rule.recommit == Recommit::Refuse,
            is_published: manifest.folder != manifest.set,
        })
    }

    /// Goes on with a generation after it was noted.
    pub(super) async fn outcome_of(
        &self,
        set: SetName<'_>,
        outcome: NoteOutcome,
    ) -> Result<CheckpointOutcome> {
        let generation = match outcome {
            NoteOutcome::Refused(reason) => return Ok(CheckpointOutcome::Refused { reason }),
            NoteOutcome::Noted(generation) => generation,
        };
        if generation.state == GenerationState::Pinning {
            let number = generation.number;
            return Ok(match self.pin_all(set, &generation, PINNING_TIME).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let reason = format!("versions are being pinned: {error}");
                    CheckpointOutcome::Pending { generation: Some(number), reason }
                }
            });
        }
        Ok(reported(&generation))
    }

    /// Reason why a noted generation isn't complete; none if it is.
    async fn pending_reason(
        &self,
        set: SetName<'_>,
        rule: &CheckpointRule,
        marker: &str,
        entries: &[ManifestEntry],
        version: Version,
    ) -> Result<Option<String>> {
        let lacking = self.lacking(set, rule, marker, entries, version).await?;
        let settling = || format!("settling for {} s", rule.settle_ms / 1000);
        Ok(lacking.or_else(|| (rule.settle_ms > 0).then(settling)))
    }

    /// Reason why the entries lack objects that the marker names; none if they don't.
    pub(super) async fn lacking(
        &self,
        set: SetName<'_>,
        rule: &CheckpointRule,
        marker: &str,
        entries: &[ManifestEntry],
        version: Version,
    ) -> Result<Option<String>> {
        if !reads(rule.check, marker) {
            return Ok(None);
        }
        let key = format!("{}{marker}", set.set);
        let name = ObjectName { key: &key, version: Some(version.name()) };
        let bytes_max = usize::try_from(MARKER_BYTES_MAX).unwrap_or(usize::MAX);
        match self.sets.bytes_of(set.bucket_name, name, bytes_max).await {
            Ok((_, bytes)) => Ok(missing(rule.check, &bytes, entries)),
            // A quorum may be out for a while; everything else stays as it is.
            Err(error @ Error::Backend(_)) => Err(error),
            Err(error) => Ok(Some(format!("the marker can't be read: {error}"))),
        }
    }

    /// All objects below a folder, as a quorum holds them, in order of name.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] if there are too many for a generation.
    pub(super) async fn current(
        &self,
        bucket: &Bucket,
        folder: &str,
    ) -> Result<Vec<ManifestEntry>> {
        let context = self.sets.context();
        let paths = Paths::all(bucket, RegisterKind::Object).below(folder.as_bytes());
        let mut walk =
            self.sets.listings.walk_whole(&context, bucket, &paths, ListStart::First, 1000)?;
        walk.selection = RowSelection { detail: Detail::Summary, kinds: RowKinds::Objects };
        let (mut entries, mut name_bytes) = (Vec::new(), 0);
        while let Some((name, Entry { value, .. })) = walk.next().await? {
            let Value::Object(object) = value else { continue };
            name_bytes += name.len();
            if entries.len() == OBJECTS_MAX || name_bytes > NAME_BYTES_MAX {
                return Err(Error::InvalidRequest(format!(
                    "the folder has more than {OBJECTS_MAX} objects, or very long names"
                )));
            }
            entries.push(entry_of(&text(name.slice(folder.len()..))?, &object));
        }
        Ok(entries)
    }

    /// Takes a generation out of the view. Returns true if it was in, or on its way there.
    pub(super) async fn withdraw(
        &self,
        set: SetName<'_>,
        number: u64,
        why: Withdrawal<'_>,
    ) -> Result<bool> {
        let now_ms = self.sets.now_ms();
        let withdraw = |record: &mut SetRecord| Ok(record.withdraw(number, why, now_ms));
        self.sets.change(set.bucket, set.set, withdraw).await
    }
}

/// Returns true if an object is the one that an entry of a manifest describes.
pub(crate) fn is_noted(entry: &ManifestEntry, object: &Object) -> bool {
    object.size == entry.size && object.etag == entry.etag
}

pub(super) fn entry_of(rest: &str, object: &Object) -> ManifestEntry {
    ManifestEntry {
        rest: rest.to_owned(),
        version: object.version.unwrap_or(Version::UNVERSIONED),
        size: object.size,
        etag: object.etag,
        modified_ms: object.modified_ms,
    }
}

pub(super) fn version_text(object: &Object) -> String {
    object.version.unwrap_or(Version::UNVERSIONED).name().to_string()
}

/// Outcome that a generation's state stands for.
pub(super) fn reported(generation: &Generation) -> CheckpointOutcome {
    let number = generation.number;
    let reason = || generation.reason.clone().unwrap_or_else(|| "versions are being pinned".into());
    match generation.state {
        GenerationState::Committed => CheckpointOutcome::Committed { generation: number },
        GenerationState::Pending | GenerationState::Pinning => {
            CheckpointOutcome::Pending { generation: Some(number), reason: reason() }
        }
        GenerationState::Removing => CheckpointOutcome::Refused { reason: reason() },
    }
}
