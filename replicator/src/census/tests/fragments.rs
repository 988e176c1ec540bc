//! Fragments: each belongs to one device, and is counted there once.

use martlet_protocol::extent::{ExtentRole, Stripe};
use martlet_protocol::{DeviceId, ExtentId};

use super::*;
use crate::testing::stripes::{CODED, fragments, noise, owner};

const STRIPE: Stripe = Stripe { k: 4, m: 2, length: 400_000 };

async fn coded() -> (MultiNodeWorld, ExtentId) {
    let world = MultiNodeWorld::coded(4, 2, 8);
    for n in 0..20 {
        world.stripe(extent_id(n).whole(), &bytes(n), "object").await;
    }
    (world, extent_id(7).whole())
}

fn bytes(n: u16) -> bytes::Bytes {
    noise(u64::from(n), 400_000)
}

/// Puts fragment `number` of an extent with the bytes of extent `of` on a device.
async fn put(world: &MultiNodeWorld, device: DeviceId, id: ExtentId, number: u8, of: u16) {
    let bytes = fragments(4, 2, &bytes(of)).remove(usize::from(number)).1;
    let owner = owner("object", ExtentRole::Data);
    world.fragment_on(device, id.fragment(number), bytes, STRIPE, owner).await;
}

#[tokio::test]
async fn missing_stray_and_unlike_fragments_are_found_each_by_itself() {
    let (world, id) = coded().await;
    let whole = KindCounts { things: 20, copies: 120, ..KindCounts::default() };
    let report = take(&world).await;
    assert_eq!((&report.extents, report.clean), (&whole, true), "{report:?}");

    let homes = world.homes(id);
    let outside = (0..8).map(DeviceId).find(|it| !homes.contains(it)).unwrap();
    world.lose(id, 3).await;
    assert_eq!(faults(&take(&world).await.extents), [1, 0, 0]);
    // A fragment at another fragment's home is a stray, and its own home still lacks it.
    put(&world, homes[1], id, 3, 7).await;
    assert_eq!(faults(&take(&world).await.extents), [1, 0, 1]);
    put(&world, homes[3], id, 3, 7).await;
    let report = take(&world).await;
    assert_eq!((faults(&report.extents), report.extents.copies), ([0, 0, 1], 121));
    world.memory(homes[1]).release_extents(homes[1], &[id.fragment(3)]).await.unwrap();
    assert!(take(&world).await.clean);
    // A fragment whose bytes differ from the home's fragment.
    put(&world, outside, id, 5, 8).await;
    let report = take(&world).await;
    assert_eq!((faults(&report.extents), report.lost), ([0, 1, 1], 0));
    assert!(report.findings[0].contains(&id.to_string()), "{report:?}");
}

#[tokio::test]
async fn an_extent_is_lost_if_an_entry_needs_it_and_all_devices_replied() {
    let (world, id) = coded().await;
    world.make_bucket(CODED).await;
    for number in [0, 1, 2] {
        world.lose(id, number).await;
    }
    let report = take(&world).await;
    assert_eq!((report.lost, report.clean), (0, true), "a write that came to nothing: {report:?}");
    let extent = world.stripe(extent_id(30).whole(), &bytes(30), "wanted").await;
    world.commit_coded("wanted", vec![extent]).await;
    for number in [0, 1, 5] {
        world.lose(extent.id, number).await;
    }
    let report = take(&world).await;
    assert_eq!((report.lost, faults(&report.extents)), (1, [3, 0, 0]));
    // Any device suffices: one more fragment, away from its home.
    let homes = world.homes(extent.id);
    put(&world, homes[2], extent.id, 0, 30).await;
    let report = take(&world).await;
    assert_eq!((report.lost, faults(&report.extents)), (0, [3, 0, 1]));
    world.memory(homes[2]).release_extents(homes[2], &[extent.id]).await.unwrap();
    let silent = homes[4];
    world.memory(silent).set_offline(silent, true);
    let report = take(&world).await;
    assert_eq!((report.lost, report.silent.len()), (0, 1), "nobody can tell");
}

#[tokio::test]
async fn an_extent_without_fragments_is_lost_if_an_entry_needs_it() {
    let world = MultiNodeWorld::coded(4, 2, 8);
    world.make_bucket(CODED).await;
    let mut extents = Vec::new();
    for (n, length) in [(1, 400_000), (2, 10_000)] {
        let bytes = noise(u64::from(n), length);
        extents.push(world.stripe(extent_id(n).whole(), &bytes, "wanted").await);
    }
    let orphan = world.stripe(extent_id(3).whole(), &noise(3, 10_000), "wanted").await;
    world.commit_coded("wanted", extents.clone()).await;
    let wipe = async |id: ExtentId| {
        for number in 0..6 {
            world.lose(id, number).await;
        }
    };
    wipe(orphan.id).await;
    assert!(take(&world).await.clean);
    for (lost, extent) in (1..).zip(&extents) {
        wipe(extent.id).await;
        let report = take(&world).await;
        assert_eq!((report.lost, report.clean), (lost, false), "{report:?}");
        assert!(report.findings.iter().any(|it| it.contains(&extent.id.to_string())));
    }
    // A silent device may have it.
    world.memory(DeviceId(0)).set_offline(DeviceId(0), true);
    assert_eq!(take(&world).await.lost, 0);
    world.memory(DeviceId(0)).set_offline(DeviceId(0), false);
    // An overwritten extent is not missed.
    world.commit_coded("wanted", Vec::new()).await;
    assert_eq!(take(&world).await.lost, 0);
}
