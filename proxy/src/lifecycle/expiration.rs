//! Expiration of one version, by a ballot that judges the entry again.

use std::time::Duration;

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{Bucket, DeleteMarker, Entry, Object, Value};
use martlet_protocol::lifecycle::{
    Day, DueAction, Lifecycle, LifecycleAction, ListedHead, Subject, VersionPosition,
};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::lock::{Bypass, check_removal};
use martlet_protocol::{Setting, Stamp, Version, VersionId, Versioning, WriteId};

use crate::api::ListedVersion;
use crate::bucket::ObjectTarget;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Proposal, Step, WriteError, WriteOutcome};
use crate::store::Services;
use crate::versions::{Behind, New, Provided, VersionRemoval};
use crate::walk::Paths;

/// Age of the replies about hints that an expiration relies on. A write that becomes a hint later is concurrent with it.
const HINTS_AGE_MAX: Duration = Duration::from_secs(1);

/// Rules and time of a run.
#[derive(Clone, Copy)]
pub(crate) struct ExpirationRun<'a> {
    /// Bucket of the page, with the document of the rules.
    pub(crate) bucket: &'a Bucket,
    pub(crate) rules: &'a Lifecycle,
    pub(crate) day: Day,
    /// Time of the page and of all its ballots, in milliseconds since 1970.
    pub(crate) now_ms: u64,
}

/// A due version, as read from a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpirationCandidate {
    pub(crate) key: String,
    pub(crate) id: VersionId,
    pub(crate) modified_ms: u64,
    pub(crate) position: VersionPosition,
    /// First version of its key on the page, or on an earlier page of the key.
    pub(crate) head: ListedHead,
    pub(crate) action: LifecycleAction,
}

/// Result of an expiration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpirationOutcome {
    /// The version was removed, or a delete marker was created.
    Done(ExpirationEffect),
    /// The version doesn't exist, or is no longer due, or the bucket has other rules now.
    NotDue,
    /// The version stays for now.
    Kept,
}

/// Effect of an expiration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpirationEffect {
    /// Stamp of the write.
    pub(crate) stamp: Stamp,
    /// The delete marker that was created, or the version that was removed; none without
    /// versioning.
    pub(crate) version: Option<VersionId>,
    pub(crate) is_new_marker: bool,
}

impl ExpirationRun<'_> {
    /// Returns true if the rules of the run are still those of the bucket.
    fn applies_to(&self, bucket: &Bucket) -> bool {
        let document = bucket.settings.get(Setting::Lifecycle);
        bucket.id == self.bucket.id && document == self.bucket.settings.get(Setting::Lifecycle)
    }

    fn is_due(&self, due: Option<DueAction<'_>>) -> Option<LifecycleAction> {
        due.filter(|due| due.at_ms <= self.now_ms).map(|due| due.action)
    }

    /// Returns the version as due, if the page shows it as due and removable.
    pub(crate) fn candidate(
        &self,
        version: &ListedVersion,
        position: VersionPosition,
        head: ListedHead,
    ) -> Option<ExpirationCandidate> {
        let found = version.object.as_deref();
        let object = found.map(|object| (object.size, object.attributes.tags.as_slice()));
        let due = self.rules.due(&Subject { key: &version.key, object }, position, self.day);
        let action = self.is_due(due)?;
        (action != LifecycleAction::Remove || may_remove(found, self.now_ms)).then(|| {
            ExpirationCandidate {
                action,
                key: version.key.clone(),
                id: version.id,
                modified_ms: version.modified_ms,
                position,
                head,
            }
        })
    }

    /// Largest number of newer noncurrent versions that an enabled rule keeps; zero for none.
    fn newer_max(&self) -> u32 {
        let rules = self.rules.rules.iter().filter(|rule| rule.is_enabled);
        rules.filter_map(|rule| rule.noncurrent.as_ref()?.newer).max().unwrap_or(0)
    }

    /// Returns true if an entry is the selected version and is still due.
    fn still_due(&self, candidate: &ExpirationCandidate, entry: &Entry) -> bool {
        self.due_at(candidate, candidate.position, entry)
    }

    /// Returns true if an entry is the selected noncurrent version, and is still due behind so many newer ones.
    fn still_due_behind(
        &self,
        candidate: &ExpirationCandidate,
        entry: &Entry,
        counted: u32,
    ) -> bool {
        let position = match candidate.position {
            // Others that the run removes are counted, but don't stay: the page is right about these.
            VersionPosition::Noncurrent { since_ms, newer } => {
                VersionPosition::Noncurrent { since_ms, newer: newer.min(counted) }
            }
            position => position,
        };
        self.due_at(candidate, position, entry)
    }

    fn due_at(
        &self,
        candidate: &ExpirationCandidate,
        position: VersionPosition,
        entry: &Entry,
    ) -> bool {
        let (modified_ms, object) = match &entry.value {
            Value::Object(object) => {
                (object.modified_ms, Some((object.size, object.attributes.tags.as_slice())))
            }
            Value::DeleteMarker(marker) => (marker.modified_ms, None),
            _ => return false,
        };
        let due = self.rules.due(&Subject { key: &candidate.key, object }, position, self.day);
        modified_ms == candidate.modified_ms && self.is_due(due) == Some(candidate.action)
    }
}

/// Returns true if a rule may remove the version: it isn't locked.
fn may_remove(object: Option<&Object>, now_ms: u64) -> bool {
    let is_free =
        |object: &Object| check_removal(&object.attributes.marks, now_ms, Bypass::Nothing).is_ok();
    object.is_none_or(is_free)
}

fn object_in(entry: &Entry) -> Option<&Object> {
    match &entry.value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

/// Expiration of the objects of a bucket.
pub(crate) struct Expirations<'a> {
    pub(crate) services: &'a Services,
    pub(crate) context: &'a RequestContext,
}

impl Expirations<'_> {
    /// Refuses if no current object of a page can expire: the bucket keeps no versions, and a device of the index is silent.
    /// Each ballot would find that out by itself, and the worker would wait for all of them.
    pub(super) async fn check_decidable(
        &self,
        bucket: &Bucket,
        candidates: &[ExpirationCandidate],
    ) -> Result<()> {
        let expires = |it: &ExpirationCandidate| it.action == LifecycleAction::Expire;
        if bucket.versioning().state.keeps_versions() || !candidates.iter().any(expires) {
            return Ok(());
        }
        Ok(self.services.buckets.fences.check_hints_known(HINTS_AGE_MAX).await?)
    }

    /// Expires a due version.
    pub(crate) async fn expire(
        &self,
        bucket: &str,
        candidate: &ExpirationCandidate,
        run: &ExpirationRun<'_>,
    ) -> ExpirationOutcome {
        match Box::pin(self.try_expire(bucket, candidate, run)).await {
            Ok(None) => ExpirationOutcome::NotDue,
            Ok(Some((WriteOutcome::At(stamp), version))) => {
                let is_new_marker =
                    candidate.action == LifecycleAction::Expire && version.is_some();
                ExpirationOutcome::Done(ExpirationEffect { stamp, version, is_new_marker })
            }
            Ok(Some((WriteOutcome::Kept(_), _))) | Err(Error::NoSuchBucket) => {
                ExpirationOutcome::NotDue
            }
            Ok(Some((WriteOutcome::Fenced, _))) => {
                // The rules may have changed.
                self.services.buckets.forget(bucket);
                ExpirationOutcome::Kept
            }
            Err(error) => {
                let key = &candidate.key;
                tracing::debug!(bucket, key, %error, "keeping a due version for now");
                ExpirationOutcome::Kept
            }
        }
    }

    /// Expires a version; none if the bucket of the run has other rules now, or is another.
    async fn try_expire(
        &self,
        bucket: &str,
        candidate: &ExpirationCandidate,
        run: &ExpirationRun<'_>,
    ) -> Result<Option<(WriteOutcome, Option<VersionId>)>> {
        let target = self.services.buckets.target(self.context, bucket, &candidate.key).await?;
        if !run.applies_to(&target.bucket) {
            return Ok(None);
        }
        let landed = match candidate.action {
            LifecycleAction::Expire => self.expire_current(&target, candidate, run).await,
            LifecycleAction::Remove => {
                let removed = self.remove_candidate(&target, candidate, run).await;
                removed.map(|landed| (landed, Some(candidate.id)))
            }
            LifecycleAction::Abort => unreachable!("versions are never aborted"),
        };
        Ok(Some(landed?))
    }

    /// Creates a delete marker and returns its version; without versioning, deletes the object if no hint of its key waits.
    async fn expire_current(
        &self,
        target: &ObjectTarget<'_>,
        candidate: &ExpirationCandidate,
        run: &ExpirationRun<'_>,
    ) -> Result<(WriteOutcome, Option<VersionId>), WriteError> {
        let now_ms = self.services.registers.stamps.now_ms();
        let intent = target.intent(WriteId::random(), now_ms + COMMIT_WINDOW_MS);
        let versioning = target.bucket.versioning().state;
        let still_applies = |view: &RegisterView| {
            let entry = view.entry.as_ref();
            let entry = entry.filter(|entry| matches!(entry.value, Value::Object(_)));
            // A marker with an id preserves the object; one without replaces it.
            let fits = |entry: &Entry| {
                run.still_due(candidate, entry)
                    && (versioning == Versioning::Enabled || may_remove(object_in(entry), now_ms))
            };
            entry.is_some_and(fits)
        };
        if !versioning.keeps_versions() {
            self.check_not_hinted(target).await.map_err(WriteError::clean)?;
            let mut evaluate = |view: &RegisterView| {
                let tombstone = || Step::Write(Proposal::of(Value::Tombstone));
                Ok(if still_applies(view) { tombstone() } else { Step::Keep })
            };
            return Ok((
                self.services.registers.ballots.decide(intent, &mut evaluate).await?,
                None,
            ));
        }
        let marker = DeleteMarker { modified_ms: now_ms, version: None };
        let value = &Value::DeleteMarker(Box::new(marker));
        let new = New { value, inline: None };
        let mut check = |view: &RegisterView| Ok(still_applies(view));
        let (landed, version) = self
            .services
            .versions
            .append(self.context, &target.bucket, intent, new, &mut check)
            .await?;
        Ok((landed, version.map(Version::name)))
    }

    /// Refuses unless no device keeps a hint of the key. The tombstone would be above a newer write that was acknowledged
    /// without a quorum, and is on no quorum yet (rule A1).
    async fn check_not_hinted(&self, target: &ObjectTarget<'_>) -> martlet_protocol::Result<()> {
        let key = &target.key;
        let (shards, prefix) = (vec![key.shard], key.name.clone());
        let paths = Paths { bucket: key.bucket, shards, kind: key.kind, prefix, fold: None };
        self.services.buckets.fences.check_not_hinted(paths, HINTS_AGE_MAX).await
    }

    /// Removes a noncurrent version, or a lone delete marker.
    async fn remove_candidate(
        &self,
        target: &ObjectTarget<'_>,
        candidate: &ExpirationCandidate,
        run: &ExpirationRun<'_>,
    ) -> Result<WriteOutcome, WriteError> {
        let now_ms = self.services.registers.stamps.now_ms();
        let intent = target.intent(WriteId::random(), now_ms + COMMIT_WINDOW_MS);
        let fits =
            |entry: &Entry| run.still_due(candidate, entry) && may_remove(object_in(entry), now_ms);
        let fits_behind = |entry: &Entry, counted: u32| {
            run.still_due_behind(candidate, entry, counted) && may_remove(object_in(entry), now_ms)
        };
        let behind =
            Behind { head: candidate.head, newer_max: run.newer_max(), fits: &fits_behind };
        let provided = match candidate.position {
            VersionPosition::LoneMarker { .. } => Provided::Alone(&fits),
            _ => Provided::Behind(&behind),
        };
        let removal = VersionRemoval { version: candidate.id, bypass: Bypass::Nothing };
        let removed =
            self.services.versions.remove_version_if(target, intent, removal, provided).await;
        removed.map(|(landed, _)| landed)
    }
}
