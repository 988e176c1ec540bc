//! Rewrite of one object under another policy.
//!
//! Its bytes are read and written like any others. Then a ballot (rule R7) replaces its entry, on
//! the condition that it is still the write that was read. So a client's concurrent write wins:
//!
//! * An overwrite or delete before the ballot has another write id: nothing is written.
//! * An overwrite after it comes above, as after any write.
//! * A write acknowledged without a quorum is kept as a hint (rule A1). The new entry would be
//!   above it, and would bring the old object back. So all nodes are asked first which devices keep
//!   hints, and those devices about the key. If one doesn't reply, the object isn't moved. Moves of the
//!   same second share the replies of nodes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use martlet_protocol::backend::Want;
use martlet_protocol::entry::{Body, Bucket, ETag, Entry, Manifest, Mark, Object};
use martlet_protocol::extent::{BodyFacts, ExtentRole};
use martlet_protocol::limits::COMMIT_WINDOW_MS;
use martlet_protocol::{Level, PolicyId, RegisterKind, Stamp, VersionId, WriteId};

use super::pace::Attempt;
use crate::api::NewBody;
use crate::bucket::{ObjectTarget, busy, object_of};
use crate::context::RequestContext;
use crate::digest::md5_of_md5s;
use crate::encryption::stored_sizes;
use crate::error::{Error, Result};
use crate::index::{Intent, WriteError, WriteOutcome};
use crate::orphan_guard::OrphanGuard;
use crate::policy::object_policy;
use crate::store::Services;
use crate::upload::{Destination, StoredBody};
use crate::versions::{Revision, VersionRead};
use crate::walk::Paths;

/// Age of the replies about hints that a move relies on. A write that becomes a hint later is concurrent
/// with the move.
const HINTS_AGE_MAX: Duration = Duration::from_secs(1);

/// Result of moving an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveOutcome {
    /// The object was moved.
    Moved,
    /// Nothing to move: the policy is right, or the object has no extents or is gone.
    InPlace,
    /// The object was overwritten or deleted meanwhile.
    Overtaken,
}

/// The new extents. Dropping it deletes them unless they were claimed.
#[derive(Default)]
struct NewExtents {
    claim: AtomicBool,
    orphans: Vec<OrphanGuard>,
}

impl NewExtents {
    fn release(&self) {
        self.claim.store(false, Ordering::Release);
    }
}

impl Drop for NewExtents {
    fn drop(&mut self) {
        for orphans in &self.orphans {
            orphans.claim().store(*self.claim.get_mut(), Ordering::Release);
        }
    }
}

/// New body of a version.
struct Replacement {
    version: VersionId,
    /// Write whose body is replaced.
    replaced: WriteId,
    write_id: WriteId,
    commit_by_ms: u64,
    body: Body,
}

/// Move of one object.
pub(super) struct ObjectMove<'a> {
    pub(super) services: &'a Services,
    pub(super) context: &'a RequestContext,
}

impl ObjectMove<'_> {
    /// Moves an object to the policy of new writes.
    pub(super) async fn rewrite_object(
        &self,
        bucket: &str,
        key: &str,
        version: VersionId,
        attempt: &Arc<Attempt>,
    ) -> Result<MoveOutcome> {
        let target = self.services.buckets.target(self.context, bucket, key).await?;
        let (want, level) = (Want::Entry, Level::Strict);
        let head = self.services.registers.read(self.context, &target.key, want, level).await?;
        let read = VersionRead { head: &target.key, version: Some(version), want, level };
        let view = self.services.versions.view_of(self.context, read, head).await?;
        let (Some(entry), Some(object)) = (&view.entry, object_of(&view)) else {
            return Ok(MoveOutcome::InPlace);
        };
        let Some((_, policy)) = policies_of(self.context, &target.bucket, object) else {
            return Ok(MoveOutcome::InPlace);
        };
        let (write_id, commit_by_ms) =
            (WriteId::random(), self.services.registers.stamps.now_ms() + COMMIT_WINDOW_MS);
        let to = Destination {
            bucket: target.bucket.id,
            key,
            write_id,
            upload: None,
            role: ExtentRole::Data,
            offset: 0,
            facts: Some(facts_of(object)),
            policy,
            inline_bytes_max: 0,
            etags: object.etag.kind(),
        };
        let mut new_extents = NewExtents::default();
        let body = self.body_anew(object, to, &mut new_extents, attempt).await?;
        let fences = &self.services.buckets.fences;
        fences.check_not_hinted(register_of(&target), HINTS_AGE_MAX).await?;
        let replaced = entry.write_id;
        let replacement = Replacement { version, replaced, write_id, commit_by_ms, body };
        self.replace(target, &replacement, &new_extents).await
    }

    /// Writes the bytes of an object anew, verified against its ETag.
    async fn body_anew(
        &self,
        object: &Object,
        to: Destination<'_>,
        new_extents: &mut NewExtents,
        attempt: &Arc<Attempt>,
    ) -> Result<Body> {
        let before = self.services.bodies.manifest(&object.body).await?;
        let before = before.ok_or_else(|| differs("has no extents"))?;
        let lengths = stored_sizes(object, &before.parts);
        if before.length() != lengths.iter().sum::<u64>() {
            return Err(differs("has a wrong length"));
        }
        let mut manifest =
            Manifest { extents: Vec::new(), policy: to.policy, ..Manifest::clone(&before) };
        let mut tags = Vec::new();
        for range in one_after_another(&lengths) {
            let (size, offset) = (range.end - range.start, range.start);
            let bytes =
                self.services.bodies.read_extents(before.policy, &before.extents, range).await?;
            let new_body = NewBody { size: Some(size), ..unchecked(attempt.paced(bytes)) };
            let StoredBody { tag, extents, orphans, .. } = self
                .services
                .body_writer
                .store_plain(new_body, Destination { offset, ..to })
                .await?;
            manifest.extents.extend(extents);
            new_extents.orphans.push(orphans);
            tags.push(tag);
        }
        // The ETag of an encrypted object covers plain bytes, which are not available here. The
        // bytes read are still verified against the hashes of their extents.
        let is_plain = object.attributes.marks.get(Mark::Encryption).is_none();
        if is_plain && !is_of(object.etag, &tags) {
            return Err(differs("does not match its ETag"));
        }
        let (body, orphans) = self.services.body_writer.store_manifest(manifest, to).await?;
        new_extents.orphans.push(orphans);
        Ok(body)
    }

    /// Replaces the body of a version, if its last write is still the one that was read.
    async fn replace(
        &self,
        mut target: ObjectTarget<'_>,
        replacement: &Replacement,
        new_extents: &NewExtents,
    ) -> Result<MoveOutcome> {
        let &Replacement { version, replaced, write_id, commit_by_ms, ref body } = replacement;
        let mut change = |entry: &Entry, object: &Object| {
            let is_there = entry.write_id == replaced;
            Ok(is_there.then(|| Object { body: body.clone(), ..object.clone() }))
        };
        for _ in 0..2 {
            let claim = Some(&new_extents.claim);
            let intent = Intent { claim, ..target.intent(write_id, commit_by_ms) };
            let floor = Stamp::at_ms(target.bucket.versioning().above_ms);
            let mut revision = Revision::new(
                &self.services.versions,
                self.context,
                Some(version),
                &mut change,
                false,
            );
            match self.services.registers.ballots.decide_by(intent, floor, &mut revision).await {
                Ok(WriteOutcome::At(_)) => return Ok(MoveOutcome::Moved),
                // A register beside the head names the new extents.
                Ok(_) | Err(_) if revision.is_beside => {
                    new_extents.claim.store(true, Ordering::Release);
                    return Err(unsettled());
                }
                Ok(WriteOutcome::Kept(_))
                | Err(WriteError {
                    error: Error::NoSuchKey | Error::NoSuchVersion | Error::DeleteMarker { .. },
                    maybe_written: false,
                    ..
                }) => {
                    new_extents.release();
                    return Ok(MoveOutcome::Overtaken);
                }
                Ok(WriteOutcome::Fenced) => {
                    new_extents.release();
                    target.bucket = self
                        .services
                        .buckets
                        .refreshed(self.context, target.name, &target.bucket)
                        .await?;
                }
                Err(WriteError { error, maybe_written, .. }) => {
                    if !maybe_written {
                        new_extents.release();
                    }
                    return Err(error);
                }
            }
        }
        Err(busy())
    }
}

/// Current and right policy of an object, if they differ.
pub(super) fn policies_of(
    context: &RequestContext,
    bucket: &Bucket,
    object: &Object,
) -> Option<(PolicyId, PolicyId)> {
    let from = match &object.body {
        Body::Extents(manifest) if !manifest.extents.is_empty() => manifest.policy,
        Body::Spilled { policy, .. } => *policy,
        Body::Empty | Body::Inline { .. } | Body::Extents(_) => return None,
    };
    // An old class that names no policy has no effect.
    let to = object_policy(&context.cluster, bucket, &object.attributes).unwrap_or(bucket.policy);
    (from != to).then_some((from, to))
}

/// Paths of an object's register, and those of keys that begin with its key.
fn register_of(target: &ObjectTarget<'_>) -> Paths {
    Paths {
        bucket: target.bucket.id,
        shards: vec![target.key.shard],
        kind: RegisterKind::Object,
        prefix: target.key.name.clone(),
        fold: None,
    }
}

/// Facts about the body of an object. One of several parts is written in pieces, each with an end of
/// its own: a rebuild of the index must not take the first of them for the object.
fn facts_of(object: &Object) -> BodyFacts {
    let is_encrypted = object.attributes.marks.get(Mark::Encryption).is_some();
    let part = object.etag.parts().map(|_| BodyFacts::PIECE);
    BodyFacts { is_encrypted, is_moved: true, part, ..BodyFacts::default() }
}

/// Ranges to read one by one: the parts of a multipart object, whose MD5s make up its ETag.
fn one_after_another(lengths: &[u64]) -> Vec<Range<u64>> {
    let mut start = 0;
    let range = |length: &u64| {
        start += length;
        start - length..start
    };
    lengths.iter().map(range).collect()
}

/// Returns true if an object whose parts have these MD5s has this ETag. An opaque ETag is of any
/// bytes.
fn is_of(etag: ETag, md5s: &[[u8; 16]]) -> bool {
    match etag {
        ETag::Md5(md5) => md5s == [md5],
        ETag::Multipart { md5, parts } => {
            md5s.len() == usize::from(parts) && md5_of_md5s(md5s.iter()) == md5
        }
        ETag::Opaque { .. } => true,
    }
}

fn unchecked(bytes: martlet_protocol::ByteStream) -> NewBody {
    let expected = Box::new(|| Ok(Vec::new()));
    NewBody { bytes, size: None, md5: None, compute: Vec::new(), expected }
}

fn unsettled() -> Error {
    martlet_protocol::Error::unavailable("the outcome of the version's move is unknown").into()
}

fn differs(how: &str) -> Error {
    martlet_protocol::Error::corrupt(format!("the object {how} and was not moved")).into()
}
