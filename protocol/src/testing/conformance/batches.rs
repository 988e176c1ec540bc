//! Checks of calls about many items at once: owners, extents, garbage, aged registers.

use std::collections::BTreeSet;

use super::{body, in_extents, object, owner, pattern, plain, register, stamp, tombstone};
use crate::backend::{
    AgedWalk, Backend, BackendExt, ClaimPart, ClaimSource, ClaimState, ClaimsReply, ClaimsRequest,
    DeviceClaims, EntryWrite, ListReply, NewExtent, OwnerClaim, Sought, WriteReply,
};
use crate::extent::{ExtentRef, Layout, Stripe};
use crate::extent_sums::ExtentSums;
use crate::id::{BucketId, DeviceId, ExtentId, PolicyId, UploadId};
use crate::key::RegisterKey;
use crate::stamp::Stamp;
use crate::term::Term;
use crate::tree::Span;

pub(super) async fn all(backend: &dyn Backend, device: DeviceId) {
    owners_return_the_extents_they_need(backend, device).await;
    a_device_that_is_not_here_is_silent(backend, device).await;
    extents_are_sought_together(backend, device).await;
    garbage_continues_behind_a_record(backend, device).await;
    aged_registers_are_found_and_no_others(backend, device).await;
    sums_of_extents_follow_each_change(backend, device).await;
}

fn naming(key: &RegisterKey, order: Stamp, id: ExtentId) -> EntryWrite {
    let extent = ExtentRef { id, length: 3, blake3: [0; 32] };
    let mut write = plain(key, order);
    write.entry.value = object(in_extents(vec![extent]));
    write
}

fn claim(key: &RegisterKey, upload: Option<UploadId>) -> OwnerClaim {
    let name = String::from_utf8(key.name.to_vec()).unwrap();
    OwnerClaim { bucket: key.bucket, shard: key.shard, key: name, upload }
}

async fn ask(
    backend: &dyn Backend,
    device: DeviceId,
    source: ClaimSource,
    claims: Vec<OwnerClaim>,
) -> Vec<ClaimState> {
    let (part, term) = (ClaimPart::Object, Term::ANY);
    let devices = vec![DeviceClaims { device, claims }];
    let request = ClaimsRequest { source, part, term, devices };
    let mut replies = backend.claims(device, &request).await.unwrap();
    assert_eq!(replies.len(), 1);
    match replies.remove(0) {
        ClaimsReply::Answered(states) => states,
        other => panic!("{other:?}"),
    }
}

async fn owners_return_the_extents_they_need(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let [held, gone, hinted, absent] =
        ["held", "gone", "hinted", "absent"].map(|name| register(bucket, name));
    let [one, two] = [ExtentId::random(), ExtentId::random()];
    let (first, dead) = (naming(&held, stamp(1), one), tombstone(&gone, stamp(1)));
    for write in [first.clone(), dead.clone()] {
        assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
    }
    backend.keep_hint(device, naming(&hinted, stamp(1), two)).await.unwrap();
    let claims: Vec<OwnerClaim> =
        [&held, &gone, &hinted, &absent].map(|key| claim(key, None)).into();
    let of = |held: Option<&EntryWrite>| {
        ClaimState::of_object(held.map(|it| &it.entry), &ListReply::default())
    };
    let states = ask(backend, device, ClaimSource::Registers, claims.clone()).await;
    assert_eq!(states, [of(Some(&first)), of(Some(&dead)), of(None), of(None)]);
    assert_eq!(states[0].extents, [one]);
    let states = ask(backend, device, ClaimSource::Hints, claims).await;
    let named: Vec<&[ExtentId]> = states.iter().map(|state| &state.extents[..]).collect();
    assert_eq!(named, [&[][..], &[], &[two], &[]]);
    backend.forget_hint(device, &hinted, stamp(1)).await.unwrap();
}

async fn a_device_that_is_not_here_is_silent(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "k");
    let of = |device| DeviceClaims { device, claims: vec![claim(&key, None)] };
    let request = ClaimsRequest {
        source: ClaimSource::Registers,
        part: ClaimPart::Upload,
        term: Term::ANY,
        devices: vec![of(DeviceId(4_000_000)), of(device)],
    };
    let replies = backend.claims(device, &request).await.unwrap();
    let nothing = ClaimsReply::Answered(vec![ClaimState::default()]);
    assert_eq!(replies, [ClaimsReply::Silent, nothing]);
}

async fn extents_are_sought_together(backend: &dyn Backend, device: DeviceId) {
    let (id, of) = (ExtentId::random(), owner(BucketId::random()));
    let new = NewExtent {
        id,
        owner: of.clone(),
        length: None,
        birth_ms: Some(7),
        layout: Layout::default(),
        hashes: None,
    };
    let extent = backend.write_extent(device, new, body(vec![Ok(pattern(10))])).await.unwrap();
    let ids = [ExtentId::random(), id];
    let sought = backend.seek_extents(device, &ids).await.unwrap();
    let [Sought::Missing, Sought::Here(record)] = &sought[..] else { panic!("{sought:?}") };
    assert_eq!((record.extent, &record.owner, record.birth_ms), (extent, &of, 7));
    backend.delete_extents(device, &[id]).await.unwrap();
    let sought = backend.seek_extents(device, &ids).await.unwrap();
    assert_eq!(sought, [Sought::Missing, Sought::Deleted]);
}

async fn garbage_continues_behind_a_record(backend: &dyn Backend, device: DeviceId) {
    let key = register(BucketId::random(), "k");
    for ticks in 1..=4 {
        let write = naming(&key, stamp(ticks), ExtentId::random());
        backend.write(device, write).await.unwrap();
    }
    let all = backend.garbage(device, u64::MAX, usize::MAX).await.unwrap();
    assert!(all.iter().filter(|record| record.key == key).count() == 3, "{all:?}");
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = backend.garbage_after(device, after.clone(), u64::MAX, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        found.extend(page);
    }
    assert_eq!(found, all);
    let before = backend.garbage_after(device, None, 0, 2).await.unwrap();
    assert_eq!(before, [], "none is as old as that");
}

async fn aged_registers_are_found_and_no_others(backend: &dyn Backend, device: DeviceId) {
    let bucket = BucketId::random();
    let [old, young, live, empty] =
        ["old", "young", "live", "empty"].map(|name| register(bucket, name));
    for write in [tombstone(&old, stamp(1)), tombstone(&young, stamp(9)), plain(&live, stamp(2))] {
        assert_eq!(backend.write(device, write).await.unwrap(), WriteReply::Stored);
    }
    backend.promise(device, &empty, stamp(1), Term::ANY).await.unwrap();
    for thorough in [false, true] {
        let walk = AgedWalk { tombstones_before: stamp(5), buckets_before: stamp(5), thorough };
        let (mut found, mut entries, mut after) = (BTreeSet::new(), 0, None);
        loop {
            let page = backend.aged(device, walk, after.as_ref(), 1).await.unwrap();
            let mine = page.aged.into_iter().filter(|it| it.key.bucket == bucket);
            found.extend(mine.map(|it| (it.key.name, it.tombstone)));
            let of_mine = page.buckets.iter().filter(|it| it.bucket == bucket);
            entries += of_mine.map(|it| it.entries).sum::<u64>();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut expected = BTreeSet::from([(old.name.clone(), Some(stamp(1)))]);
        if thorough {
            expected.insert((empty.name.clone(), None));
        }
        assert_eq!(found, expected, "thorough: {thorough}");
        assert_eq!(entries, 2, "the old tombstone and the live entry");
    }
}

async fn sums_of_extents_follow_each_change(backend: &dyn Backend, device: DeviceId) {
    let policy = PolicyId(77);
    let stripe = Stripe { k: 2, m: 1, length: 100_000 };
    let layouts = [None, Some(stripe)].map(|stripe| Layout { policy, stripe });
    let mut expected = ExtentSums::default();
    let ids: Vec<ExtentId> = (0..6).map(|_| ExtentId::random()).collect();
    for (id, layout) in ids.iter().zip(layouts.iter().cycle()) {
        let owner = owner(BucketId::random());
        let new = NewExtent {
            id: *id,
            owner,
            length: Some(9),
            birth_ms: None,
            layout: *layout,
            hashes: None,
        };
        backend.write_extent(device, new, body(vec![Ok(pattern(9))])).await.unwrap();
        expected.add(*id, *layout);
        let sums = backend.extent_sums(device, Some(policy), &[Span::ALL]).await.unwrap();
        assert_eq!(sums, expected.within(Some(policy), &[Span::ALL]));
    }
    // An id that is named twice is taken out once, and an absent one not at all.
    backend.delete_extents(device, &[ids[0], ids[0], ExtentId::random()]).await.unwrap();
    backend.release_extents(device, &[ids[1], ids[1]]).await.unwrap();
    expected.remove(ids[0], layouts[0]);
    expected.remove(ids[1], layouts[1]);
    let placement = ids[2].placement();
    let spans = [Span { first: placement, last: placement }];
    for spans in [&[Span::ALL][..], &spans, &[]] {
        let sums = backend.extent_sums(device, Some(policy), spans).await.unwrap();
        assert_eq!(sums, expected.within(Some(policy), spans));
    }
    let all = backend.extent_sums(device, None, &[Span::ALL]).await.unwrap();
    assert!(all.iter().any(|of| of.policy == policy));
    backend.release_extents(device, &ids).await.unwrap();
}
