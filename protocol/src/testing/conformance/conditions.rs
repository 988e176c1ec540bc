//! Checks of calls with a condition: the device, the time, and the bytes of a copy (rules G1, G2, P2,
//! X8, X9).

use super::{body, owner, pattern, plain, register, stamp};
use crate::backend::{
    Backend, BackendExt, DeleteCondition, DeviceCondition, DeviceStatus, NewExtent, Presence,
    RegisterDrop, ReleaseCondition, StrayCondition,
};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::extent::{ExtentRef, Layout};
use crate::id::{BucketId, DeviceId, DeviceIdentity, ExtentId};
use crate::limits::CONDITION_MS;
use crate::stamp::Stamp;
use crate::term::Term;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    a_change_is_for_one_device_and_one_time(backend, device).await;
    exactly_the_named_copies_are_released_in_time(backend, device).await;
    strays_are_dropped_at_the_devices_term_and_in_time(backend, device).await;
    unneeded_extents_are_deleted_in_time(backend, device).await;
}

async fn status(backend: &dyn Backend, device: DeviceId) -> DeviceStatus {
    let all = backend.devices().await.unwrap();
    all.into_iter().find(|status| status.device == device).expect("the device is listed")
}

fn is_refused(refusal: &Error, kind: ErrorKind) -> bool {
    refusal.kind() == kind && refusal.had_no_effect()
}

async fn a_change_is_for_one_device_and_one_time(backend: &dyn Backend, device: DeviceId) {
    let (before, now_ms) = (status(backend, device).await, SystemClock.now_ms());
    let here = DeviceCondition::at(before.identity, now_ms);
    let swapped = DeviceCondition { identity: DeviceIdentity([0xee; 16]), ..here };
    let late = DeviceCondition { not_after_ms: now_ms - 1000, ..here };
    for (condition, kind) in [(swapped, ErrorKind::Conflict), (late, ErrorKind::Unavailable)] {
        let floor = Stamp::at_ms(now_ms + 3_600_000);
        let refusals = [
            backend.raise_floor_of(device, condition, floor).await,
            backend.set_voting_of(device, condition, !before.voting).await,
            backend.set_joined_of(device, condition, before.joined + 1).await,
            backend.set_fenced_of(device, condition).await,
        ];
        assert!(refusals.into_iter().all(|it| is_refused(&it.unwrap_err(), kind)));
    }
    let after = status(backend, device).await;
    assert_eq!((after.voting, after.joined), (before.voting, before.joined), "nothing changed");
    backend.set_fenced_of(device, here).await.unwrap();
    backend.raise_floor_of(device, here, Stamp::at_ms(1)).await.unwrap();
    backend.set_joined_of(device, here, before.joined + 1).await.unwrap();
    for voting in [false, true] {
        backend.set_voting_of(device, here, voting).await.unwrap();
        let now = status(backend, device).await;
        assert_eq!((now.voting, now.joined), (voting, before.joined + 1));
    }
}

async fn strays_are_dropped_at_the_devices_term_and_in_time(
    backend: &dyn Backend,
    device: DeviceId,
) {
    let (term, now_ms) = (status(backend, device).await.term, SystemClock.now_ms());
    let key = register(BucketId::random(), "stray");
    backend.write(device, plain(&key, stamp(5))).await.unwrap();
    let drops = [RegisterDrop { key: key.clone(), up_to: stamp(5), collectable: false }];
    let here = StrayCondition::at(term, now_ms);
    let earlier = StrayCondition { term: Term(term.0.wrapping_sub(1)), ..here };
    let late = StrayCondition { not_after_ms: now_ms - 1000, ..here };
    for (condition, kind) in [(earlier, ErrorKind::Conflict), (late, ErrorKind::Unavailable)] {
        let refusal = backend.drop_strays(device, &drops, condition).await.unwrap_err();
        assert!(is_refused(&refusal, kind), "{refusal}");
        let held = backend.holdings(device, std::slice::from_ref(&key)).await.unwrap();
        assert!(held[0].held.is_some(), "the register stays");
    }
    let newer = [RegisterDrop { up_to: stamp(4), ..drops[0].clone() }];
    for (drops, stays) in [(&newer, true), (&drops, false)] {
        backend.drop_strays(device, drops, here).await.unwrap();
        let held = backend.holdings(device, std::slice::from_ref(&key)).await.unwrap();
        assert_eq!(held[0].held.is_some(), stays);
    }
}

async fn put(backend: &dyn Backend, device: DeviceId) -> ExtentRef {
    let new = NewExtent {
        id: ExtentId::random(),
        owner: owner(BucketId::random()),
        length: Some(5000),
        birth_ms: None,
        layout: Layout::default(),
        hashes: None,
    };
    backend.write_extent(device, new, body(vec![Ok(pattern(5000))])).await.unwrap()
}

async fn exactly_the_named_copies_are_released_in_time(backend: &dyn Backend, device: DeviceId) {
    let held = [put(backend, device).await, put(backend, device).await];
    let ids = held.map(|extent| extent.id);
    let presences = async || backend.presence_by(device, &ids, &[]).await.unwrap();
    let now_ms = SystemClock.now_ms();
    let late = ReleaseCondition { not_after_ms: now_ms - 1000, rings: Vec::new() };
    let refusal = backend.release_copies(device, &held, &late).await.unwrap_err();
    assert!(is_refused(&refusal, ErrorKind::Unavailable), "{refusal}");
    assert_eq!(presences().await, [Presence::Here; 2]);

    let in_time = ReleaseCondition { not_after_ms: now_ms + CONDITION_MS, rings: Vec::new() };
    let other_bytes = ExtentRef { blake3: [7; 32], ..held[0] };
    let missing = ExtentRef { id: ExtentId::random(), ..held[0] };
    let named = [other_bytes, held[1], held[1], missing];
    backend.release_copies(device, &named, &in_time).await.unwrap();
    assert_eq!(presences().await, [Presence::Here, Presence::Missing]);
    backend.release_copies(device, &[], &in_time).await.unwrap();
    let always = ReleaseCondition::of_wrong_copies();
    backend.release_copies(device, &held, &always).await.unwrap();
    assert_eq!(presences().await, [Presence::Missing; 2], "the deletion isn't remembered");
}

async fn unneeded_extents_are_deleted_in_time(backend: &dyn Backend, device: DeviceId) {
    let ids = [put(backend, device).await.id, put(backend, device).await.id, ExtentId::random()];
    let presences = async || backend.presence(device, &ids).await.unwrap();
    let before = [Presence::Here, Presence::Here, Presence::Missing];
    let now_ms = SystemClock.now_ms();
    let late = DeleteCondition { not_after_ms: now_ms - 1000 };
    let refusal = backend.delete_unneeded(device, &ids, late).await.unwrap_err();
    assert!(is_refused(&refusal, ErrorKind::Unavailable), "{refusal}");
    assert_eq!(presences().await, before, "nothing is deleted, and no mark is left");

    let in_time = DeleteCondition { not_after_ms: now_ms + CONDITION_MS };
    backend.delete_unneeded(device, &[], in_time).await.unwrap();
    assert_eq!(presences().await, before);
    backend.delete_unneeded(device, &[ids[0], ids[0], ids[2]], in_time).await.unwrap();
    let after = [Presence::Deleted, Presence::Here, Presence::Deleted];
    assert_eq!(presences().await, after, "the deletion is remembered");
    backend.delete_unneeded(device, &ids, in_time).await.unwrap();
    assert_eq!(presences().await, [Presence::Deleted; 3]);
}
