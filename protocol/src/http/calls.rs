//! Bounds on the requests and replies of calls, and the kinds that may be repeated.
//!
//! A request whose announced length exceeds its call's bound is refused unread, and a page is cut
//! to a length that the client accepts. So memory is bounded by the call, not by a peer's claim.

use bytes::Bytes;
use serde::Serialize;

use crate::backend::CallKind;
use crate::limits::CLAIMS_AT_ONCE_MAX;

/// Description of an extent in the request head: hexadecimal postcard of
/// [`NewExtent`](crate::backend::NewExtent).
pub(super) const EXTENT: http::HeaderName = http::HeaderName::from_static("x-martlet-extent");
/// Marks an extent whose hashes follow its bytes.
pub(super) const HASHES: http::HeaderName = http::HeaderName::from_static("x-martlet-hashes");
/// The caller's timeout in milliseconds.
pub(super) const DEADLINE: http::HeaderName = http::HeaderName::from_static("x-martlet-deadline");

/// Longest body of a call's request: an entry with its inline bytes, or a list of ids.
pub(super) const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Longest body of a reply about one register or extent.
const REPLY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Longest body of a reply with a page.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most items in a page, whatever limit is requested. That many of the longest entries fit into a
/// page's bytes: objects with the most parts, and buckets with the longest settings.
pub(super) const PAGE_ITEMS_MAX: usize = 1024;
/// Upper bound on the length of an entry.
const ENTRY_BYTES_MAX: usize = 62 * 1024;
/// Most ids in one request; callers with more ids send several requests.
pub(super) const IDS_MAX: usize = 4096;
/// Most registers in one request.
pub(super) const KEYS_MAX: usize = 512;
/// Most garbage ids in one request; garbage ids contain register names.
pub(super) const GARBAGE_IDS_MAX: usize = 512;

/// Most claims in one request, over all devices.
pub(super) const CLAIMS_MAX: usize = CLAIMS_AT_ONCE_MAX;

/// Encodes the body of a request or a reply. The length is computed first, so that inline bytes are
/// copied once.
pub(super) fn encode(value: &impl Serialize) -> postcard::Result<Bytes> {
    let length = postcard::experimental::serialized_size(value)?;
    Ok(postcard::to_extend(value, Vec::with_capacity(length))?.into())
}

impl CallKind {
    /// Longest reply that a caller accepts, in bytes.
    pub(super) fn reply_bytes_max(self) -> usize {
        match self {
            Self::List
            | Self::ListRows
            | Self::ListHints
            | Self::ListExtents
            | Self::Garbage
            | Self::Hints
            | Self::HintArrivals
            | Self::Registers
            | Self::Fences
            | Self::FencesAfter
            | Self::FencesOf
            | Self::Bins
            | Self::Walk
            | Self::Holdings
            | Self::Claims
            | Self::SeekExtents
            | Self::GarbageAfter
            | Self::Aged
            | Self::ExtentSums
            | Self::Usage
            | Self::OldRegisters
            | Self::HeldBuckets
            | Self::Quarantine => PAGE_BYTES_MAX,
            _ => REPLY_BYTES_MAX,
        }
    }

    /// Returns true if the call reads so much that a busy disk needs longer than for an index call.
    pub(super) fn reads_much(self) -> bool {
        matches!(self, Self::AuditExtents | Self::AuditRegisters | Self::Claims | Self::Aged)
    }

    /// Returns true if the call may be repeated when its outcome is unknown.
    pub(super) fn is_read(self) -> bool {
        match self {
            Self::Read
            | Self::List
            | Self::ListRows
            | Self::StatExtent
            | Self::ListExtents
            | Self::Garbage
            | Self::ReadHint
            | Self::ListHints
            | Self::Hints
            | Self::HintArrivals
            | Self::Registers
            | Self::Fences
            | Self::FencesAfter
            | Self::FencesOf
            | Self::Presence
            | Self::Sums
            | Self::Bins
            | Self::Walk
            | Self::Holdings
            | Self::Claims
            | Self::SeekExtents
            | Self::GarbageAfter
            | Self::Aged
            | Self::ExtentSums
            | Self::Usage
            | Self::OldRegisters
            | Self::HeldBuckets
            | Self::PresenceBy
            | Self::Quarantine
            | Self::ReadExtent => true,
            Self::Write
            | Self::Promise
            | Self::Fence
            | Self::PurgeBucket
            | Self::DeleteExtents
            | Self::DeleteUnneeded
            | Self::ForgetGarbage
            | Self::KeepHint
            | Self::ForgetHint
            | Self::RaiseFloor
            | Self::SetVoting
            | Self::ReleaseExtents
            | Self::AuditExtents
            | Self::MarkCollectable
            | Self::DropRegisters
            | Self::AuditRegisters
            | Self::RaiseTerm
            | Self::SetJoined
            | Self::RaiseFloorOf
            | Self::SetVotingOf
            | Self::SetJoinedOf
            | Self::SetFencedOf
            | Self::ReleaseCopies
            | Self::DropStrays
            | Self::WriteExtent => false,
        }
    }
}

const _: () = {
    use crate::limits;
    assert!(IDS_MAX * 2 * size_of::<crate::extent::ExtentRef>() < REQUEST_BYTES_MAX);
    assert!(limits::INLINE_BYTES_MAX < (REQUEST_BYTES_MAX / 2) as u64);
    assert!(IDS_MAX * 2 * size_of::<crate::ExtentId>() < REQUEST_BYTES_MAX);
    assert!(IDS_MAX * 2 * size_of::<crate::BucketId>() < REQUEST_BYTES_MAX);
    // A fence takes 16 bytes of id, 10 of generation, and 1; the count of a page takes 3.
    assert!(limits::FENCES_MAX * 27 + 3 < REPLY_BYTES_MAX && IDS_MAX <= limits::FENCES_MAX);
    assert!(KEYS_MAX * (limits::KEY_BYTES_MAX + 128) < REQUEST_BYTES_MAX);
    assert!(GARBAGE_IDS_MAX * (limits::KEY_BYTES_MAX + 128) < REQUEST_BYTES_MAX);
    assert!(CLAIMS_MAX * (limits::KEY_BYTES_MAX + 64) < REQUEST_BYTES_MAX);
    assert!(limits::INDEX_SHARDS_MAX as usize * 3 < REQUEST_BYTES_MAX);
    assert!(limits::LIST_KEYS_MAX < PAGE_ITEMS_MAX);
    assert!(PAGE_ITEMS_MAX * ENTRY_BYTES_MAX < PAGE_BYTES_MAX);
    // A part's length takes 5 bytes, an extent of the manifest 54.
    let parts = limits::PARTS_MAX as usize * 5 + limits::MANIFEST_EXTENTS_INLINE_MAX * 54;
    assert!(parts + limits::KEY_BYTES_MAX + 2 * limits::USER_METADATA_BYTES_MAX < ENTRY_BYTES_MAX);
    // Parts with checksums are limited to inline manifests; the longest checksum takes 65 bytes.
    let parts = limits::MANIFEST_EXTENTS_INLINE_MAX * (5 + 65 + 54);
    assert!(parts + limits::KEY_BYTES_MAX + 2 * limits::USER_METADATA_BYTES_MAX < ENTRY_BYTES_MAX);
    // A part in an entry has a checksum of each algorithm at worst: less than 1 KiB.
    assert!(limits::PART_EXTENTS_INLINE_MAX * 54 + 1024 < ENTRY_BYTES_MAX);
    assert!(limits::SETTINGS_BYTES_MAX + 2 * limits::KEY_BYTES_MAX < ENTRY_BYTES_MAX);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{
        Body, Checksum, ChecksumAlgorithm, ChecksumKind, Entry, Manifest, Part, Value,
    };
    use crate::extent::ExtentRef;
    use crate::id::{ExtentId, PolicyId, WriteId};
    use crate::limits::{PART_EXTENTS_INLINE_MAX, PUT_BYTES_MAX};
    use crate::stamp::{Stamp, WriterId};

    /// Bytes of a part on a page, whose body has `extents` extents in its entry.
    fn part_bytes(extents: usize) -> usize {
        let extent = ExtentRef { id: ExtentId([7; 16]), length: u32::MAX, blake3: [1; 32] };
        let (parts, part_checksums) = (Vec::new(), Vec::new());
        let extents = vec![extent; extents];
        let manifest = Manifest { policy: PolicyId(u16::MAX), extents, parts, part_checksums };
        let checksums = ChecksumAlgorithm::ALL.map(|algorithm| {
            let value = vec![1; algorithm.value_bytes()];
            Checksum { algorithm, kind: ChecksumKind::Composite, value }
        });
        let part = Part {
            size: PUT_BYTES_MAX,
            tag: [1; 16],
            modified_ms: u64::MAX,
            checksums: checksums.to_vec(),
            body: Body::Extents(manifest),
        };
        let order = Stamp { time: u64::MAX, writer: WriterId(u64::MAX) };
        let value = Value::Part(Box::new(part));
        let entry = Entry { order, write_id: WriteId([1; 16]), value };
        // The name is upload id, number and write id.
        postcard::to_stdvec(&(Bytes::from_static(&[1; 34]), entry)).unwrap().len()
    }

    /// A part of 5 GiB in extents of 4 MiB has 1,280.
    #[test]
    fn a_page_of_parts_fits_only_if_long_manifests_spill() {
        let longest = part_bytes(PART_EXTENTS_INLINE_MAX);
        assert!(longest <= ENTRY_BYTES_MAX, "{longest} bytes");
        let in_four_mib = usize::try_from(PUT_BYTES_MAX / (4 << 20)).unwrap();
        let too_long = part_bytes(in_four_mib);
        assert_eq!(in_four_mib, 1280);
        assert!(PAGE_ITEMS_MAX * too_long > PAGE_BYTES_MAX, "{too_long} bytes fit after all");
        let in_five_mib = usize::try_from(PUT_BYTES_MAX / (5 << 20)).unwrap();
        assert!(in_five_mib <= PART_EXTENTS_INLINE_MAX);
    }
}
