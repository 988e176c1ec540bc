//! Commits: what was current when a marker came is noted, pinned and published.
//!
//! ```text
//! intent ──▶ marker written ──▶ note: list by a quorum, check, manifest ──▶ generation
//!                                     ──▶ a ballot for each pin ──▶ committed
//! ```
//!
//! Each arrow to the right of the marker may be the last one of a process that dies. The record then
//! says what is known: an intent without a generation, a pending generation, or one that is being
//! pinned. [`upkeep`](super::upkeep) goes on from there. [`marker`](super::marker) begins and ends it.

use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::backend::{Detail, ListStart, RowKinds, RowSelection};
use martlet_protocol::entry::{Bucket, Entry, Object, Value};
use martlet_protocol::{RegisterKind, Stamp, Version};
use tokio::sync::Semaphore;

use super::check::{MARKER_BYTES_MAX, missing, reads};
use super::manifest::{Manifest, ManifestEntry, NAME_BYTES_MAX, OBJECTS_MAX};
use super::marker::BegunMarker;
use super::records::{Generation, GenerationState, NoteOutcome, Noted, SetRecord, Withdrawal};
use super::rules::{CheckpointRule, Recommit};
use super::series::{KnownBounds, RankedSeries};
use super::set_store::{SetName, SetStore};
use super::tenant_turns::TenantTurns;
use crate::api::ObjectName;
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
/// Intents that one process gives up at once.
const GIVEN_UP_AT_ONCE: usize = 64;
/// Commits that one process notes at once: each may hold the names of 100,000 objects.
const NOTES_AT_ONCE: usize = 8;
/// Of these, commits of one tenant.
const NOTES_OF_TENANT: usize = 4;
/// Markers that one process reads at once: each may have 64 MiB, and as many bytes of names.
const MARKERS_AT_ONCE: usize = 3;
/// Of these, markers of one tenant.
const MARKERS_OF_TENANT: usize = 1;
/// Plans that one process makes at once: each may hold the names of 100,000 objects twice.
const PLANS_AT_ONCE: usize = 4;
/// Of these, plans of one tenant's buckets.
const PLANS_OF_TENANT: usize = 2;
/// Longest marker, in bytes, and most objects, that are compared without a thread of their own.
const BRIEF_BYTES: usize = 64 << 10;
const BRIEF_OBJECTS: usize = 1000;

/// Marker whose names are to be compared with objects.
pub(super) struct MarkerCheck<'a> {
    pub(super) set: SetName<'a>,
    pub(super) rule: &'a CheckpointRule,
    /// Name of the marker within the set.
    pub(super) marker: &'a str,
    pub(super) version: Version,
}

/// Commits of checkpoint sets.
pub(crate) struct Committer {
    pub(super) sets: SetStore,
    pub(super) reviser: Reviser,
    notes: TenantTurns,
    /// Turns of markers that are read.
    markers: TenantTurns,
    /// Turns of plans.
    pub(super) plans: TenantTurns,
    /// Turns of intents whose requests ended early.
    pub(super) giving_up: Arc<Semaphore>,
    /// Oldest generations that rules keep, for plans.
    pub(super) bounds: KnownBounds,
    /// Series that the worker's pass has ranked.
    pub(super) ranked: RankedSeries,
}

impl Committer {
    pub(crate) fn new(sets: SetStore, reviser: Reviser) -> Self {
        let giving_up = Arc::new(Semaphore::new(GIVEN_UP_AT_ONCE));
        let (bounds, ranked) = (KnownBounds::default(), RankedSeries::default());
        let notes = TenantTurns::new(NOTES_AT_ONCE, NOTES_OF_TENANT);
        let markers = TenantTurns::new(MARKERS_AT_ONCE, MARKERS_OF_TENANT);
        let plans = TenantTurns::new(PLANS_AT_ONCE, PLANS_OF_TENANT);
        Self { sets, reviser, notes, markers, plans, giving_up, bounds, ranked }
    }

    /// Makes the generation of a marker that was written.
    pub(super) async fn note_once(
        &self,
        marker: &BegunMarker,
        object: &Object,
    ) -> Result<CheckpointOutcome> {
        let (set, rule, rest) = marker.place().ok_or_else(busy)?;
        let turn = self.notes.acquire(set.owner).await?;
        let own = object.version.unwrap_or(Version::UNVERSIONED);
        let entries = match self.current(&marker.bucket, set.set).await {
            Err(Error::InvalidRequest(reason)) => {
                self.end_intent(set, marker).await?;
                return Ok(CheckpointOutcome::Refused { reason });
            }
            entries => entries?,
        };
        let is_current = |entry: &ManifestEntry| entry.rest == rest && entry.version == own;
        if !entries.iter().any(is_current) {
            self.end_intent(set, marker).await?;
            let reason = "another write of the marker came later".to_owned();
            return Ok(CheckpointOutcome::Refused { reason });
        }
        let came_ms = Stamp { time: own.position, ..Stamp::ZERO }.time_ms();
        if came_ms + NOTE_AGE_MS_MAX < self.sets.now_ms() {
            // The intent stays, so the worker makes a generation that is unclear.
            let reason = "the proxy noted the marker too late: write it again".to_owned();
            return Ok(CheckpointOutcome::Pending { generation: None, reason });
        }
        let check = MarkerCheck { set, rule, marker: rest, version: own };
        let (entries, lacking) = self.lacking(check, entries).await?;
        let pending = lacking.or_else(|| (rule.settle_ms > 0).then(|| settling(rule)));
        let (name, folder) = (set.set.to_owned(), set.set.to_owned());
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

    /// Reason why the entries lack objects that the marker names; none if they don't. Returns the
    /// entries too.
    pub(super) async fn lacking(
        &self,
        check: MarkerCheck<'_>,
        entries: Vec<ManifestEntry>,
    ) -> Result<(Vec<ManifestEntry>, Option<String>)> {
        let MarkerCheck { set, rule, marker, version } = check;
        if !reads(rule.check, marker) {
            return Ok((entries, None));
        }
        let turn = self.markers.acquire(set.owner).await?;
        let key = format!("{}{marker}", set.set);
        let name = ObjectName { key: &key, version: Some(version.name()) };
        let bytes_max = usize::try_from(MARKER_BYTES_MAX).unwrap_or(usize::MAX);
        let check = rule.check;
        match self.sets.bytes_of(set.bucket_name, name, bytes_max).await {
            Ok((_, bytes)) if bytes.len() <= BRIEF_BYTES && entries.len() <= BRIEF_OBJECTS => {
                let lacking = missing(check, &bytes, &entries);
                Ok((entries, lacking))
            }
            Ok((_, bytes)) => {
                let work = tokio::task::spawn_blocking(move || {
                    let lacking = missing(check, &bytes, &entries);
                    // The turn ends with the memory, also if the request has ended.
                    drop((bytes, turn));
                    (entries, lacking)
                });
                work.await.map_err(|_| busy())
            }
            // A quorum may be out for a while; everything else stays as it is.
            Err(error @ Error::Backend(_)) => Err(error),
            Err(error) => Ok((entries, Some(format!("the marker can't be read: {error}")))),
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

/// Reason of a generation whose time to settle isn't over.
pub(super) fn settling(rule: &CheckpointRule) -> String {
    format!("settling for {} s", rule.settle_ms / 1000)
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
