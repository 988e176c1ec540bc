//! Bodies that the extents of one key form, without the index: a pure function of their records.
//!
//! | extents | body |
//! |---|---|
//! | data of one write | an object that was put at once |
//! | pieces of a manifest of one write | the object that the manifest describes, parts included |
//! | pieces of a part's manifest | none |
//! | data of the parts of one upload | an object of all parts, if an operator accepts uploads |
//!
//! A body is whole if its extents follow each other from offset 0 and its last extent ends it. The
//! facts of an extent ([`BodyFacts`]) name the last one. Extents of earlier releases have no facts:
//! there the last copy is one that is shorter than an extent can be, and an operator has to accept
//! that the body may be encrypted, or the first part of a moved object of several.
//!
//! A move writes an object of several parts in pieces, each with an end of its own. Without their
//! manifest nothing shows how many pieces there were, so they never become an object.

use std::collections::BTreeMap;
use std::fmt;

use martlet_protocol::extent::{BodyFacts, ExtentRecord, ExtentRef, ExtentRole, Owner};
use martlet_protocol::limits::{EXTENT_BYTES_MAX, MANIFEST_EXTENTS_INLINE_MAX};
use martlet_protocol::lost::{LostExtent, LostKey};
use martlet_protocol::{PolicyId, UploadId, WriteId};

/// Bodies beyond those that are certain.
#[expect(clippy::struct_excessive_bools, reason = "each is a consent of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildConsent {
    /// Accept extents without facts, from releases before them: the body may be encrypted.
    pub without_facts: bool,
    /// Accept uploads whose parts 1 to n lie whole: they may not have been completed.
    pub uploads: bool,
    /// Accept the order of births where several bodies of a key have no certain one: a slow write may
    /// have begun before a shorter one and ended after it, a later upload may have been completed, and
    /// a move gave versions new births. Of several bodies, the whole one that was born last comes back.
    pub latest: bool,
    /// Accept bodies that were born after the entry of their key, over this entry: the replica that was
    /// left may have missed later writes.
    pub over_older: bool,
}

/// Reason for which a body is not brought back. Its extents stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotRebuilt {
    /// The entry had the wrapped data key.
    Encrypted,
    /// An extent is missing, or the end of the body.
    Incomplete,
    /// An extent has too few copies or fragments, or its bytes differ from its hash.
    Unreadable,
    /// The extents are of a release that wrote no facts, and the operator accepts none of them.
    NoFacts,
    /// Parts of an upload: their order and the completion were in the index.
    Upload,
    /// Pieces of an object of several parts that was moved, without their manifest.
    Pieces,
    /// The key has several bodies, and their order is not certain.
    Several,
    /// A version that was born later is back already, and would be replaced by this one.
    Behind,
    /// Versioning of the bucket is suspended: nothing tells which bodies were kept versions.
    Suspended,
}

impl NotRebuilt {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Incomplete => "incomplete",
            Self::Unreadable => "unreadable",
            Self::NoFacts => "no-facts",
            Self::Upload => "upload",
            Self::Pieces => "pieces",
            Self::Several => "several",
            Self::Behind => "behind",
            Self::Suspended => "suspended",
        }
    }
}

impl fmt::Display for NotRebuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Encrypted => "encrypted: its data key was in the lost entry",
            Self::Incomplete => "incomplete: an extent or the end of the body is missing",
            Self::Unreadable => "unreadable: an extent has too few good copies or fragments",
            Self::NoFacts => "written by a release without facts: --without-facts accepts it",
            Self::Upload => "parts of an upload, completed or not: --uploads accepts it",
            Self::Pieces => "pieces of a moved multipart object, whose manifest is lost",
            Self::Several => "one of several bodies: --latest accepts the order of their births",
            Self::Behind => "older than a version that is back: get its bytes from its extents",
            Self::Suspended => "versions were suspended: enable versioning of the bucket first",
        })
    }
}

/// A body that is not brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBody {
    /// Reason.
    pub reason: NotRebuilt,
    /// Birth of its last extent, in milliseconds since 1970.
    pub born_ms: u64,
    /// Bytes of its extents.
    pub bytes: u64,
}

/// Kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// The extents are the object.
    Whole,
    /// The extents are a manifest.
    Manifest,
    /// The extents are the parts of an upload.
    Parts,
}

/// A body that may be brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LostBody {
    pub(super) kind: BodyKind,
    /// Write that named it: of an upload without a manifest, the id of the upload.
    pub(super) write_id: WriteId,
    pub(super) upload: Option<UploadId>,
    /// Birth of its last extent, in milliseconds since 1970.
    pub(super) born_ms: u64,
    /// True if births tell the order of its write among those of the key, unless writes overlap.
    pub(super) has_order: bool,
    pub(super) policy: PolicyId,
    pub(super) extents: Vec<ExtentRef>,
    /// Bytes of each part.
    pub(super) parts: Vec<u64>,
    /// Writes of the parts.
    pub(super) part_writes: Vec<WriteId>,
    pub(super) refusal: Option<NotRebuilt>,
}

impl LostBody {
    /// Returns its number of stored bytes. Of a manifest these are not the object's.
    pub(super) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.length)).sum()
    }

    /// Returns the body for a report.
    pub(super) fn refused_for(&self, reason: NotRebuilt) -> RefusedBody {
        RefusedBody { reason, born_ms: self.born_ms, bytes: self.bytes() }
    }
}

/// Returns the bodies of a key, the one that was born last at the end.
pub(super) fn bodies_of(key: &LostKey, consent: RebuildConsent) -> Vec<LostBody> {
    let mut runs: BTreeMap<(WriteId, bool), Vec<&LostExtent>> = BTreeMap::new();
    let mut uploads: BTreeMap<UploadId, Vec<&LostExtent>> = BTreeMap::new();
    for extent in &key.extents {
        let owner = &extent.record.owner;
        match (owner.role, owner.upload) {
            (ExtentRole::Data, Some(upload)) => uploads.entry(upload).or_default().push(extent),
            // The manifest of a part describes no object. The data of the part show all of it.
            (ExtentRole::Manifest, Some(_)) if is_of_part(owner) => {}
            (role, _) => {
                let is_manifest = role == ExtentRole::Manifest;
                runs.entry((owner.write_id, is_manifest)).or_default().push(extent);
            }
        }
    }
    let described: Vec<(WriteId, Option<UploadId>)> = runs
        .iter()
        .filter(|((_, is_manifest), _)| *is_manifest)
        .map(|((write_id, _), of)| (*write_id, of[0].record.owner.upload))
        .collect();
    let mut bodies = Vec::new();
    for ((write_id, is_manifest), of) in runs {
        // The manifest of a write describes its data too.
        if is_manifest || !described.iter().any(|(id, _)| *id == write_id) {
            bodies.push(one_write(write_id, is_manifest, of, consent));
        }
    }
    for (upload, of) in uploads {
        if !described.iter().any(|(_, id)| *id == Some(upload)) {
            bodies.push(one_upload(upload, of, consent));
        }
    }
    bodies.sort_by_key(|body| (body.born_ms, body.write_id));
    bodies
}

fn is_of_part(owner: &Owner) -> bool {
    owner.facts().is_some_and(|facts| facts.part.is_some())
}

/// Returns the body of one write.
fn one_write(
    write_id: WriteId,
    is_manifest: bool,
    of: Vec<&LostExtent>,
    consent: RebuildConsent,
) -> LostBody {
    let run = Run::of(of, consent);
    let is_too_long = !is_manifest && run.extents.len() > MANIFEST_EXTENTS_INLINE_MAX;
    // The manifest of such an object is written after its data.
    let refusal = run.refusal.or(is_too_long.then_some(NotRebuilt::Incomplete));
    LostBody {
        kind: if is_manifest { BodyKind::Manifest } else { BodyKind::Whole },
        write_id,
        upload: run.upload,
        born_ms: run.born_ms,
        has_order: run.has_order,
        policy: run.policy,
        extents: run.extents,
        parts: Vec::new(),
        part_writes: Vec::new(),
        refusal,
    }
}

/// Returns the body of all parts of an upload. Of a part that was sent again the last whole one
/// counts: the client may have gone away within a later one.
fn one_upload(upload: UploadId, of: Vec<&LostExtent>, consent: RebuildConsent) -> LostBody {
    let born_ms = of.iter().map(|it| it.record.birth_ms).max().unwrap_or_default();
    let policy = of.first().map(|it| it.record.layout.policy).unwrap_or_default();
    let mut writes: BTreeMap<WriteId, Vec<&LostExtent>> = BTreeMap::new();
    for extent in of {
        writes.entry(extent.record.owner.write_id).or_default().push(extent);
    }
    let mut numbered: BTreeMap<u16, (WriteId, Run)> = BTreeMap::new();
    let mut refusal = (!consent.uploads).then_some(NotRebuilt::Upload);
    for (write_id, of) in writes {
        let Some(number) = of[0].record.owner.facts().and_then(|facts| facts.part) else {
            refusal = refusal.or(Some(NotRebuilt::Upload));
            continue;
        };
        let run = Run::of(of, consent);
        let rank = |write_id: WriteId, run: &Run| (run.is_whole(), run.born_ms, write_id);
        let is_better = |(id, held): &(WriteId, Run)| rank(write_id, &run) > rank(*id, held);
        if numbered.get(&number).is_none_or(is_better) {
            numbered.insert(number, (write_id, run));
        }
    }
    let mut body = LostBody {
        kind: BodyKind::Parts,
        write_id: WriteId(upload.0),
        upload: Some(upload),
        born_ms,
        // The completion may have come long after the last part.
        has_order: false,
        policy,
        extents: Vec::new(),
        parts: Vec::new(),
        part_writes: Vec::new(),
        refusal: None,
    };
    for (expected, (number, (write_id, run))) in (1..).zip(numbered) {
        let gap = (number != expected || run.policy != policy).then_some(NotRebuilt::Incomplete);
        refusal = refusal.or(run.refusal).or(gap);
        body.parts.push(run.extents.iter().map(|extent| u64::from(extent.length)).sum());
        body.part_writes.push(write_id);
        body.extents.extend(run.extents);
    }
    let is_too_long = body.extents.len() > MANIFEST_EXTENTS_INLINE_MAX;
    body.refusal = refusal.or(is_too_long.then_some(NotRebuilt::Incomplete));
    body
}

/// Extents of one write in order.
struct Run {
    extents: Vec<ExtentRef>,
    upload: Option<UploadId>,
    born_ms: u64,
    has_order: bool,
    policy: PolicyId,
    refusal: Option<NotRebuilt>,
}

impl Run {
    fn of(mut of: Vec<&LostExtent>, consent: RebuildConsent) -> Self {
        of.sort_by_key(|it| it.record.owner.body_offset());
        let upload = of.first().and_then(|it| it.record.owner.upload);
        let policy = of.first().map(|it| it.record.layout.policy).unwrap_or_default();
        let born_ms = of.iter().map(|it| it.record.birth_ms).max().unwrap_or_default();
        let refusal = refusal_of(&of, policy, consent);
        let is_original = |facts: Option<BodyFacts>| facts.is_some_and(|facts| !facts.is_moved);
        let has_order = of.iter().all(|it| is_original(it.record.owner.facts()));
        let extents = of.iter().map(|it| named(&it.record)).collect();
        Self { extents, upload, born_ms, has_order, policy, refusal }
    }

    fn is_whole(&self) -> bool {
        !matches!(self.refusal, Some(NotRebuilt::Incomplete | NotRebuilt::Unreadable))
    }
}

fn refusal_of(of: &[&LostExtent], policy: PolicyId, consent: RebuildConsent) -> Option<NotRebuilt> {
    if is_in_pieces(of) {
        return Some(NotRebuilt::Pieces);
    }
    let mut end = 0;
    for extent in of {
        let record = &extent.record;
        if record.owner.body_offset() != end || record.layout.policy != policy {
            return Some(NotRebuilt::Incomplete);
        }
        end += u64::from(named(record).length);
    }
    let last = of.last()?;
    let is_last = match last.record.owner.facts() {
        Some(facts) if facts.is_last => true,
        // A copy begins only once the one before is full.
        _ => {
            last.record.layout.stripe.is_none()
                && u64::from(last.record.extent.length) < EXTENT_BYTES_MAX
        }
    };
    if !is_last {
        return Some(NotRebuilt::Incomplete);
    }
    let facts: Vec<Option<BodyFacts>> = of.iter().map(|it| it.record.owner.facts()).collect();
    if facts.iter().flatten().any(|facts| facts.is_encrypted) {
        return Some(NotRebuilt::Encrypted);
    }
    if !consent.without_facts && facts.contains(&None) {
        return Some(NotRebuilt::NoFacts);
    }
    of.iter().any(|it| !it.is_readable).then_some(NotRebuilt::Unreadable)
}

/// Returns true for pieces of a moved object, in order of their offsets. Without facts a copy that is
/// not full ends its piece, so one before the last shows that there are several.
fn is_in_pieces(of: &[&LostExtent]) -> bool {
    let is_marked = |extent: &&LostExtent| {
        let owner = &extent.record.owner;
        let part = owner.facts().and_then(|facts| facts.part);
        owner.role == ExtentRole::Data && part == Some(BodyFacts::PIECE)
    };
    let ends_early = |extent: &&LostExtent| {
        let record = &extent.record;
        record.owner.facts().is_none()
            && record.layout.stripe.is_none()
            && u64::from(record.extent.length) < EXTENT_BYTES_MAX
    };
    let but_last = of.split_last().map_or(&[][..], |(_, before)| before);
    of.iter().any(is_marked) || but_last.iter().any(ends_early)
}

/// Returns the extent as manifests name it. The hash of a coded extent is unknown: zeros.
pub(super) fn named(record: &ExtentRecord) -> ExtentRef {
    match record.layout.stripe {
        Some(stripe) => ExtentRef { id: record.named(), length: stripe.length, blake3: [0; 32] },
        None => record.extent,
    }
}

#[cfg(test)]
mod tests;
