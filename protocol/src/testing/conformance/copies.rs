//! Checks of extent copies: presence, birth, delete marks and audits (rule X4).

use super::{body, owner, pattern};
use crate::backend::{Backend, BackendExt, NewExtent, Presence};
use crate::error::{ErrorKind, Result};
use crate::extent::{ExtentRef, Layout};
use crate::id::{BucketId, DeviceId, ExtentId};

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    a_deleted_extent_is_remembered_and_a_released_one_is_not(backend, device).await;
    a_copy_keeps_its_birth(backend, device).await;
    an_audit_reads_every_extent_once(backend, device).await;
}

async fn put(
    backend: &dyn Backend,
    device: DeviceId,
    id: ExtentId,
    birth_ms: Option<u64>,
) -> Result<ExtentRef> {
    let new = NewExtent {
        id,
        owner: owner(BucketId::random()),
        length: Some(5000),
        birth_ms,
        layout: Layout::default(),
        hashes: None,
    };
    backend.write_extent(device, new, body(vec![Ok(pattern(5000))])).await
}

async fn presence(backend: &dyn Backend, device: DeviceId, id: ExtentId) -> Presence {
    backend.presence(device, &[id]).await.unwrap()[0]
}

async fn a_deleted_extent_is_remembered_and_a_released_one_is_not(
    backend: &dyn Backend,
    device: DeviceId,
) {
    let ids: Vec<_> = (0..3).map(|_| ExtentId::random()).collect();
    for id in &ids[..2] {
        put(backend, device, *id, None).await.unwrap();
    }
    let presences = backend.presence(device, &ids).await.unwrap();
    assert_eq!(presences, [Presence::Here, Presence::Here, Presence::Missing], "in their order");
    // A delete of a missing extent is remembered too: a copy of the extent may be in transit.
    backend.delete_extents(device, &[ids[0], ids[2]]).await.unwrap();
    backend.release_extents(device, &[ids[1], ids[2]]).await.unwrap();
    let presences = backend.presence(device, &ids).await.unwrap();
    assert_eq!(presences, [Presence::Deleted, Presence::Missing, Presence::Deleted]);
    for id in [ids[0], ids[2]] {
        let error = put(backend, device, id, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(presence(backend, device, id).await, Presence::Deleted);
    }
    put(backend, device, ids[1], None).await.unwrap();
    assert_eq!(presence(backend, device, ids[1]).await, Presence::Here);
    backend.release_extents(device, &[ids[1]]).await.unwrap();
    assert!(backend.stat_extent(device, ids[1]).await.is_err());
    assert!(backend.presence(device, &[]).await.unwrap().is_empty());
}

async fn a_copy_keeps_its_birth(backend: &dyn Backend, device: DeviceId) {
    let (copy, first) = (ExtentId::random(), ExtentId::random());
    put(backend, device, copy, Some(1234)).await.unwrap();
    put(backend, device, first, None).await.unwrap();
    assert_eq!(backend.stat_extent(device, copy).await.unwrap().record.birth_ms, 1234);
    assert!(backend.stat_extent(device, first).await.unwrap().record.birth_ms > 1234);
    backend.release_extents(device, &[copy, first]).await.unwrap();
}

async fn an_audit_reads_every_extent_once(backend: &dyn Backend, device: DeviceId) {
    let mut ids: Vec<_> = (0..5).map(|_| ExtentId::random()).collect();
    for id in &ids {
        put(backend, device, *id, None).await.unwrap();
    }
    let all = backend.list_extents(device, None, 10_000).await.unwrap();
    let expected: u64 = all.iter().map(|record| u64::from(record.extent.length)).sum();
    for bytes_max in [0, 6000, u64::MAX] {
        let (mut items, mut bytes, mut after) = (0, 0, None);
        loop {
            let audited = backend.audit_extents(device, after, bytes_max).await.unwrap();
            assert!(audited.corrupt.is_empty() && audited.items > 0);
            assert!(
                bytes_max > 0 || audited.items == 1,
                "one at least, and no more than asked for"
            );
            items += audited.items;
            bytes += audited.bytes;
            assert!(audited.next.is_none() || audited.next > after);
            after = audited.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((items, bytes), (all.len() as u64, expected));
    }
    ids.sort();
    let rest = backend.audit_extents(device, ids.last().copied(), u64::MAX).await.unwrap();
    assert!(rest.items < all.len() as u64 && rest.next.is_none());
    backend.release_extents(device, &ids).await.unwrap();
}
