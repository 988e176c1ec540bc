//! Checks of extents: written wholly or not at all, and read back unchanged.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;

use super::{body, owner, pattern};
use crate::backend::{Backend, BackendExt, ExtentHasher, NewExtent};
use crate::error::{Error, ErrorKind};
use crate::extent::{ExtentRef, Layout};
use crate::id::{BucketId, DeviceId, ExtentId};
use crate::limits;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    extents_are_read_as_they_were_written(backend, device).await;
    a_failed_body_leaves_nothing(backend, device).await;
    a_body_of_another_length_is_refused(backend, device).await;
    hashes_of_the_sender_are_compared_and_kept(backend, device).await;
    deletes_are_idempotent(backend, device).await;
    a_reader_outlives_a_delete(backend, device).await;
    extents_are_listed_by_id(backend, device).await;
    devices_return_their_state(backend, device).await;
}

async fn store(backend: &dyn Backend, device: DeviceId, bytes: &Bytes, piece: usize) -> ExtentRef {
    let new = NewExtent {
        id: ExtentId::random(),
        owner: owner(BucketId::random()),
        length: None,
        birth_ms: None,
        layout: Layout::default(),
        hashes: None,
    };
    let pieces = bytes.chunks(piece).map(|piece| Ok(bytes.slice_ref(piece))).collect();
    backend.write_extent(device, new, body(pieces)).await.expect("the device takes extents")
}

async fn load(backend: &dyn Backend, device: DeviceId, id: ExtentId, range: Range<u64>) -> Bytes {
    let mut stream = backend.read_extent(device, id, range).await.expect("the extent is there");
    let mut bytes = BytesMut::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.expect("the bytes are good"));
    }
    bytes.freeze()
}

async fn extents_are_read_as_they_were_written(backend: &dyn Backend, device: DeviceId) {
    let packed = usize::try_from(limits::PACKED_BYTES_MAX).unwrap_or(0);
    let block = usize::try_from(limits::BLOCK_BYTES).unwrap_or(0);
    let lengths = [1, 4095, 4096, 4097, block, block + 1, packed, packed + 1, 3 * packed + 17];
    for length in lengths {
        let bytes = pattern(length);
        let extent = store(backend, device, &bytes, 100_000).await;
        assert_eq!(extent.blake3, *blake3::hash(&bytes).as_bytes(), "{length} bytes");
        assert_eq!(u64::from(extent.length), length as u64);
        let mid = length / 2;
        for range in [0..length, 0..1, length - 1..length, mid..length, mid..mid + 1] {
            let found =
                load(backend, device, extent.id, range.start as u64..range.end as u64).await;
            assert_eq!(found, bytes.slice(range.clone()), "{range:?} of {length} bytes");
        }
        let stat = backend.stat_extent(device, extent.id).await.unwrap();
        assert_eq!((stat.record.extent, stat.location.length), (extent, length as u64));
        assert!(stat.location.offset.is_multiple_of(limits::ALIGN_BYTES));
        backend.delete_extents(device, &[extent.id]).await.unwrap();
    }
}

async fn a_failed_body_leaves_nothing(backend: &dyn Backend, device: DeviceId) {
    for before in [0, 10, 3_000_000] {
        let id = ExtentId::random();
        let new = NewExtent {
            id,
            owner: owner(BucketId::random()),
            length: None,
            birth_ms: None,
            layout: Layout::default(),
            hashes: None,
        };
        let pieces = vec![Ok(pattern(before)), Err(Error::invalid("the client went away"))];
        let written = backend.write_extent(device, new, body(pieces)).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Invalid, "the body's own error");
        let stat = backend.stat_extent(device, id).await;
        assert_eq!(stat.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

async fn a_body_of_another_length_is_refused(backend: &dyn Backend, device: DeviceId) {
    for (announced, length) in [(10, 9), (10, 11), (2_000_000, 10), (10, 2_000_000)] {
        let id = ExtentId::random();
        let owner = owner(BucketId::random());
        let new = NewExtent {
            id,
            owner,
            length: Some(announced),
            birth_ms: None,
            layout: Layout::default(),
            hashes: None,
        };
        let written = backend.write_extent(device, new, body(vec![Ok(pattern(length))])).await;
        assert!(written.is_err(), "{length} bytes where {announced} were announced");
        let read = backend.read_extent(device, id, 0..1).await;
        assert_eq!(read.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }
}

async fn hashes_of_the_sender_are_compared_and_kept(backend: &dyn Backend, device: DeviceId) {
    let packed = usize::try_from(limits::PACKED_BYTES_MAX).unwrap_or(0);
    for length in [1, 70_000, packed + 1] {
        let bytes = pattern(length);
        let mut hasher = ExtentHasher::new(length as u64);
        let hashes = hasher.sent().clone();
        hasher.update(&bytes);
        let new = || NewExtent {
            id: ExtentId::random(),
            owner: owner(BucketId::random()),
            length: Some(length as u64),
            birth_ms: None,
            layout: Layout::default(),
            hashes: Some(hashes.clone()),
        };
        let pieces = |bytes: &Bytes| {
            body(bytes.chunks(50_000).map(|piece| Ok(bytes.slice_ref(piece))).collect())
        };
        let extent = backend.write_extent(device, new(), pieces(&bytes)).await.unwrap();
        assert_eq!(extent.blake3, *blake3::hash(&bytes).as_bytes());
        assert_eq!(load(backend, device, extent.id, 0..length as u64).await, bytes);
        backend.delete_extents(device, &[extent.id]).await.unwrap();
        let mut flipped = BytesMut::from(&bytes[..]);
        flipped[length - 1] ^= 1;
        let new = new();
        let id = new.id;
        let written = backend.write_extent(device, new, pieces(&flipped.freeze())).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable, "no news of the disk");
        let stat = backend.stat_extent(device, id).await;
        assert_eq!(stat.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

async fn deletes_are_idempotent(backend: &dyn Backend, device: DeviceId) {
    let extent = store(backend, device, &pattern(5), 5).await;
    let ids = [extent.id, ExtentId::random()];
    for _ in 0..2 {
        backend.delete_extents(device, &ids).await.unwrap();
        let read = backend.read_extent(device, extent.id, 0..5).await;
        assert_eq!(read.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }
}

async fn a_reader_outlives_a_delete(backend: &dyn Backend, device: DeviceId) {
    for length in [50_000, 5_000_000] {
        let bytes = pattern(length);
        let extent = store(backend, device, &bytes, length).await;
        let mut stream = backend.read_extent(device, extent.id, 0..length as u64).await.unwrap();
        backend.delete_extents(device, &[extent.id]).await.unwrap();
        let next = store(backend, device, &Bytes::from(vec![0xff; length]), length).await;
        let mut read = BytesMut::new();
        while let Some(piece) = stream.next().await {
            read.extend_from_slice(&piece.expect("a reader that has an extent open finishes"));
        }
        assert!(read == bytes, "space of {length} bytes was given away under a reader");
        backend.delete_extents(device, &[next.id]).await.unwrap();
    }
}

async fn extents_are_listed_by_id(backend: &dyn Backend, device: DeviceId) {
    let mut mine = Vec::new();
    for length in [1, 2, 2_000_000] {
        mine.push(store(backend, device, &pattern(length), length).await.id);
    }
    mine.sort_unstable();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = backend.list_extents(device, after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.extent.id);
        seen.extend(page.iter().map(|record| record.extent.id));
    }
    assert!(seen.is_sorted());
    seen.retain(|id| mine.contains(id));
    assert_eq!(seen, mine);
    backend.delete_extents(device, &mine).await.unwrap();
}

async fn devices_return_their_state(backend: &dyn Backend, device: DeviceId) {
    let all = backend.devices().await.unwrap();
    let found = all.iter().find(|status| status.device == device).expect("the device is listed");
    assert_eq!(found.health, crate::backend::DeviceHealth::Ready);
}
