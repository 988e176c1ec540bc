//! Calls about the owners of many extents at once: a worker asks each node about a batch of keys,
//! and receives the extents that the node's entries need, not the entries (rule X3).
//!
//! The state of a claim is a pure function of the entries of its registers. Callers ask in the order
//! of [`ClaimPart`], because an extent on its way moves in that order: from an upload and its parts to
//! the object, to a version. A part that an object needs is freed only once the object is written, so
//! an upload and its parts are read in either order.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::registers::{ListReply, ListRequest, ListStart};
use crate::entry::{Body, Entry, UploadState, Value};
use crate::extent::ExtentRef;
use crate::id::{BucketId, DeviceId, ExtentId, PolicyId, Shard, UploadId};
use crate::key::{RegisterKey, RegisterKind};
use crate::term::Term;

/// Most rows of parts, or of versions, that one claim reads. A claim with more is answered
/// [`ClaimState::truncated`].
pub const CLAIM_ROWS_MAX: usize = 4096;
/// Most extents that the claims of one device name in a reply. Later claims are truncated.
pub const CLAIM_EXTENTS_MAX: usize = 256 * 1024;

/// Owner of extents whose need is in question.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnerClaim {
    /// Bucket of the object.
    pub bucket: BucketId,
    /// Shard of the key.
    pub shard: Shard,
    /// Key of the object.
    pub key: String,
    /// The multipart upload, if the extents were written for one.
    pub upload: Option<UploadId>,
}

/// Registers of a claim that one request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimPart {
    /// The upload and its parts. A claim without an upload needs none of them.
    Upload,
    /// The object, then its versions that are not current.
    Object,
}

/// Source of the entries: a device's registers, or its hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimSource {
    /// The registers; the device needs its votes.
    Registers,
    /// The hints that the device keeps for others.
    Hints,
}

/// A batch of claims for several devices of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimsRequest {
    /// Source of the entries.
    pub source: ClaimSource,
    /// Registers to read.
    pub part: ClaimPart,
    /// The caller's term (rule P1).
    pub term: Term,
    /// Claims of each device; a device is named once.
    pub devices: Vec<DeviceClaims>,
}

/// Claims for one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceClaims {
    /// The device.
    pub device: DeviceId,
    /// The claims.
    pub claims: Vec<OwnerClaim>,
}

/// Reply of one device to its claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimsReply {
    /// State of each claim, in the order of the claims.
    Answered(Vec<ClaimState>),
    /// The caller's term is lower than the device's.
    Outdated(Term),
    /// The device did not answer, or has no votes.
    Silent,
}

/// A manifest that is kept in extents of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpilledManifest {
    /// Storage policy of these extents.
    pub policy: PolicyId,
    /// The extents that hold the encoded manifest, in order.
    pub pieces: Vec<ExtentRef>,
}

/// State of a claim on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimState {
    /// Extents that the entries name, without those of spilled manifests.
    pub extents: Vec<ExtentId>,
    /// Spilled manifests that the entries name.
    pub spilled: Vec<SpilledManifest>,
    /// Digest that replicas share if they agree about the object and its versions, or about the
    /// upload.
    pub head: [u8; 16],
    /// Digest that replicas share if they agree about the parts of an upload.
    pub parts: [u8; 16],
    /// True if the upload has ended: its parts need nothing.
    pub has_ended: bool,
    /// True if the claim has too many entries for a batch; the rest of the state is void.
    pub truncated: bool,
}

impl OwnerClaim {
    /// Register of the object.
    pub fn object(&self) -> RegisterKey {
        self.register(RegisterKind::Object, Bytes::copy_from_slice(self.key.as_bytes()))
    }

    /// Register of the upload.
    pub fn upload(&self, upload: UploadId) -> RegisterKey {
        let mut name = BytesMut::with_capacity(self.key.len() + 17);
        name.put_slice(self.key.as_bytes());
        name.put_u8(0);
        name.put_slice(&upload.0);
        self.register(RegisterKind::Upload, name.freeze())
    }

    /// Listing of the upload's parts.
    pub fn parts(&self, upload: UploadId, term: Term) -> ListRequest {
        self.listing(RegisterKind::Part, Bytes::copy_from_slice(&upload.0), term)
    }

    /// Listing of the versions that are not current.
    pub fn versions(&self, term: Term) -> ListRequest {
        let prefix = [self.key.as_bytes(), &[0]].concat().into();
        self.listing(RegisterKind::Version, prefix, term)
    }

    fn register(&self, kind: RegisterKind, name: Bytes) -> RegisterKey {
        RegisterKey { bucket: self.bucket, shard: self.shard, kind, name }
    }

    fn listing(&self, kind: RegisterKind, prefix: Bytes, term: Term) -> ListRequest {
        ListRequest {
            bucket: self.bucket,
            shards: vec![self.shard],
            kind,
            prefix,
            start: ListStart::First,
            limit: CLAIM_ROWS_MAX,
            fold: None,
            term,
        }
    }
}

impl ClaimState {
    /// State of a claim with too many entries.
    pub fn too_long() -> Self {
        Self { truncated: true, ..Self::default() }
    }

    /// State of the registers of [`ClaimPart::Upload`]. Parts of an upload that has ended need nothing,
    /// however many there are. A hint of a part counts although the upload has ended, because the
    /// part's primaries may not have it yet.
    pub fn of_upload(source: ClaimSource, parts: &ListReply, upload: Option<&Entry>) -> Self {
        let has_ended = upload.is_some_and(Entry::is_ended_upload);
        let mut state = Self { has_ended, ..Self::default() };
        let mut digest = blake3::Hasher::new();
        if source == ClaimSource::Hints || !has_ended {
            if parts.truncated {
                return Self::too_long();
            }
            for (name, entry) in &parts.entries {
                add_to(&mut digest, name, entry);
                state.add(entry);
            }
        }
        state.parts = short(&digest);
        let mut digest = blake3::Hasher::new();
        if let Some(entry) = upload {
            add_to(&mut digest, &[], entry);
            state.add(entry);
        }
        state.head = short(&digest);
        state
    }

    /// State of the registers of [`ClaimPart::Object`]. Tombstones of versions don't count, because
    /// replicas drop them one after another.
    pub fn of_object(object: Option<&Entry>, versions: &ListReply) -> Self {
        if versions.truncated {
            return Self::too_long();
        }
        let (mut state, mut digest) = (Self::default(), blake3::Hasher::new());
        if let Some(entry) = object {
            add_to(&mut digest, &[], entry);
            state.add(entry);
        }
        let kept = versions.entries.iter().filter(|(_, entry)| !entry.value.is_tombstone());
        for (name, entry) in kept {
            add_to(&mut digest, name, entry);
            state.add(entry);
        }
        state.head = short(&digest);
        state
    }

    /// Truncates the states after those that name [`CLAIM_EXTENTS_MAX`] extents together.
    pub fn bound(states: &mut [Self]) {
        let mut left = CLAIM_EXTENTS_MAX;
        for state in states {
            let pieces = state.spilled.iter().map(|it| it.pieces.len());
            let names = state.extents.len() + pieces.sum::<usize>();
            match left.checked_sub(names) {
                Some(rest) => left = rest,
                None => *state = Self::too_long(),
            }
        }
    }

    fn add(&mut self, entry: &Entry) {
        let body = match &entry.value {
            Value::Upload(upload) => match &upload.state {
                UploadState::Completing { object, .. } => Some(&object.body),
                _ => None,
            },
            value => value.body(),
        };
        match body {
            Some(Body::Extents(manifest)) => {
                self.extents.extend(manifest.extents.iter().map(|extent| extent.id));
            }
            Some(Body::Spilled { policy, manifest }) => {
                let spilled = SpilledManifest { policy: *policy, pieces: manifest.clone() };
                if !self.spilled.contains(&spilled) {
                    self.spilled.push(spilled);
                }
            }
            Some(Body::Empty | Body::Inline { .. }) | None => {}
        }
    }
}

fn add_to(digest: &mut blake3::Hasher, name: &[u8], entry: &Entry) {
    // Names have at most some KiB, and a length before each keeps two names apart.
    digest.update(&(name.len() as u64).to_le_bytes()).update(name);
    digest.update(&entry.order.to_bytes());
}

fn short(digest: &blake3::Hasher) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&digest.finalize().as_bytes()[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Attributes, ETag, Manifest, Object, Part, Upload};
    use crate::id::WriteId;
    use crate::stamp::Stamp;

    fn extent(id: u8) -> ExtentRef {
        ExtentRef { id: ExtentId([id; 16]), length: 10, blake3: [0; 32] }
    }

    fn body(id: u8) -> Body {
        let extents = vec![extent(id)];
        let (parts, part_checksums) = (Vec::new(), Vec::new());
        Body::Extents(Manifest { policy: PolicyId(0), extents, parts, part_checksums })
    }

    fn object(body: Body) -> Object {
        Object {
            size: 10,
            etag: ETag::Md5([0; 16]),
            modified_ms: 0,
            attributes: Attributes::default(),
            checksums: Vec::new(),
            upload: None,
            body,
            version: None,
        }
    }

    fn entry(order_ms: u64, value: Value) -> Entry {
        Entry { order: Stamp::at_ms(order_ms), write_id: WriteId([1; 16]), value }
    }

    fn part(order_ms: u64, id: u8) -> Entry {
        let part =
            Part { size: 10, tag: [0; 16], modified_ms: 0, checksums: Vec::new(), body: body(id) };
        entry(order_ms, Value::Part(Box::new(part)))
    }

    fn upload(state: UploadState) -> Entry {
        let upload = Upload {
            key: "k".into(),
            id: UploadId([2; 16]),
            initiated_ms: 0,
            attributes: Attributes::default(),
            checksum: None,
            policy: PolicyId(0),
            state,
        };
        entry(5, Value::Upload(Box::new(upload)))
    }

    fn listed(entries: &[(&'static str, Entry)]) -> ListReply {
        let entries = entries
            .iter()
            .map(|(name, entry)| (Bytes::from_static(name.as_bytes()), entry.clone()));
        ListReply { entries: entries.collect(), truncated: false }
    }

    #[test]
    fn parts_of_an_ended_upload_need_nothing_unless_they_are_hints() {
        let parts = listed(&[("p1", part(1, 1)), ("p2", part(2, 2))]);
        let (open, ended) = (upload(UploadState::Open), upload(UploadState::Aborted));
        let of = |source, upload| ClaimState::of_upload(source, &parts, upload);
        let two = [ExtentId([1; 16]), ExtentId([2; 16])];
        assert_eq!(of(ClaimSource::Registers, Some(&open)).extents, two);
        assert_eq!(of(ClaimSource::Registers, None).extents, two);
        let over = of(ClaimSource::Registers, Some(&ended));
        assert!(over.extents.is_empty() && over.has_ended);
        assert_eq!(of(ClaimSource::Hints, Some(&ended)).extents, two);
        let many = ListReply { truncated: true, ..parts.clone() };
        assert_eq!(ClaimState::of_upload(ClaimSource::Registers, &many, Some(&ended)), over);
        assert!(ClaimState::of_upload(ClaimSource::Registers, &many, Some(&open)).truncated);
        assert!(ClaimState::of_upload(ClaimSource::Hints, &many, Some(&ended)).truncated);
    }

    #[test]
    fn an_upload_that_completes_needs_what_its_object_names() {
        let state = UploadState::Completing {
            write_id: WriteId([1; 16]),
            order: Stamp::at_ms(1),
            object: Box::new(object(body(9))),
            condition: crate::entry::KeyCondition::default(),
            follows: None,
        };
        let found = ClaimState::of_upload(
            ClaimSource::Registers,
            &ListReply::default(),
            Some(&upload(state)),
        );
        assert_eq!((found.extents, found.has_ended), (vec![ExtentId([9; 16])], false));
    }

    #[test]
    fn digests_differ_if_an_order_or_a_version_differs() {
        let of = |order_ms, versions: &[(&'static str, Entry)]| {
            let held = entry(order_ms, Value::Object(Box::new(object(body(1)))));
            ClaimState::of_object(Some(&held), &listed(versions)).head
        };
        let kept = ("v", entry(3, Value::Object(Box::new(object(body(2))))));
        let gone = ("v", entry(4, Value::Tombstone));
        assert_eq!(of(1, &[]), of(1, &[gone]), "tombstones of versions go one after another");
        let all = [of(1, &[]), of(2, &[]), of(1, std::slice::from_ref(&kept))];
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
        let absent = ClaimState::of_object(None, &ListReply::default());
        assert_ne!(absent.head, all[0]);
    }

    #[test]
    fn spilled_manifests_are_named_once() {
        let spilled = Body::Spilled { policy: PolicyId(3), manifest: vec![extent(4)] };
        let held = entry(1, Value::Object(Box::new(object(spilled))));
        let state = ClaimState::of_object(Some(&held), &listed(&[("v", held.clone())]));
        let expected = SpilledManifest { policy: PolicyId(3), pieces: vec![extent(4)] };
        assert_eq!((state.extents, state.spilled), (vec![], vec![expected]));
    }

    #[test]
    fn too_many_entries_or_extents_are_left_to_single_questions() {
        let cut = ListReply { truncated: true, ..listed(&[("p", part(1, 1))]) };
        assert!(ClaimState::of_upload(ClaimSource::Hints, &cut, None).truncated);
        assert!(ClaimState::of_object(None, &cut).truncated);
        let large = ClaimState {
            extents: vec![ExtentId([0; 16]); CLAIM_EXTENTS_MAX],
            ..Default::default()
        };
        let small = ClaimState { extents: vec![ExtentId([1; 16])], ..Default::default() };
        let mut states = [large.clone(), small.clone()];
        ClaimState::bound(&mut states);
        assert_eq!(states, [large.clone(), ClaimState::too_long()]);
        let mut states = [small.clone(), large];
        ClaimState::bound(&mut states);
        assert_eq!(states, [small, ClaimState::too_long()]);
    }
}
