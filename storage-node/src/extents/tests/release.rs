//! Releases under conditions, and statements about copies by a ring (rule X9).

use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::PolicyId;
use martlet_protocol::backend::{Presence, ReleaseCondition, RingEpoch, RingEpochs};

use super::*;

fn ring(epoch: u64) -> RingEpoch {
    RingEpoch::of(PolicyId(0), epoch, &[1; 32])
}

fn by(epoch: u64) -> ReleaseCondition {
    ReleaseCondition { not_after_ms: u64::MAX, rings: vec![ring(epoch)] }
}

fn open_by_rings(seed: u64, epoch: u64) -> (ExtentStore, Arc<RingEpochs>, FaultyDisk) {
    let (disk, table) = fresh(seed);
    let rings = Arc::new(RingEpochs::default());
    rings.raise(ring(epoch));
    let with = ExtentOptions { rings: Some(rings.clone()), ..options() };
    (open_with(&disk, &table, &with).unwrap().0, rings, disk)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_an_earlier_ring_leaves_copies_and_one_by_a_later_ring_removes_them() {
    let (store, rings, disk) = open_by_rings(1, 5);
    let mut held = Vec::new();
    for (byte, length) in (1..=4).zip([70_000, 1_200_000, 70_000, 1_200_000]) {
        held.push(put(&store, ExtentId([byte; 16]), length).await.unwrap());
    }
    let ids: Vec<ExtentId> = held.iter().map(|it| it.id).collect();
    let refusal = store.release_copies(held.clone(), by(4)).await.unwrap_err();
    assert!(refusal.kind() == ErrorKind::Unavailable && refusal.had_no_effect(), "{refusal}");
    assert_eq!(store.presence_by(&ids, &[ring(5)]).await.unwrap(), [Presence::Here; 4]);
    store.presence_by(&ids, &[ring(6)]).await.unwrap_err();
    store.release_copies(held[..2].to_vec(), by(5)).await.unwrap();
    rings.raise(ring(6));
    store.release_copies(held.clone(), by(5)).await.unwrap_err();
    let left = [Presence::Missing, Presence::Missing, Presence::Here, Presence::Here];
    assert_eq!(store.presence_by(&ids, &[ring(6)]).await.unwrap(), left);
    // Other bytes than named, and a time that is over.
    let other = ExtentRef { length: 1, ..held[2] };
    store.release_copies(vec![other], by(6)).await.unwrap();
    let late = ReleaseCondition { not_after_ms: 1, ..by(6) };
    store.release_copies(held.clone(), late).await.unwrap_err();
    assert_eq!(store.presence_by(&ids, &[ring(6)]).await.unwrap(), left);
    store.release_copies(held.clone(), by(7)).await.unwrap();
    assert_eq!(store.presence(&ids).await.unwrap(), [Presence::Missing; 4]);
    // The ids may be written again, and nothing of the removed copies takes space.
    put(&store, ids[0], 70_000).await.unwrap();
    no_leaks(&store, &disk).await;
}

/// A node that stated a copy by a ring has the copy after every release by an earlier ring.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stated_copy_outlives_all_releases_by_earlier_rings() {
    let (store, rings, _) = open_by_rings(2, 0);
    let store = Arc::new(store);
    let stated = Arc::new(AtomicU64::new(0));
    for round in 1..=60_u64 {
        let id = ExtentId([u8::try_from(round).unwrap(); 16]);
        let held = put(&store, id, 5_000).await.unwrap();
        let release = {
            let store = store.clone();
            tokio::spawn(async move { store.release_copies(vec![held], by(round - 1)).await })
        };
        let state = {
            let (store, rings, stated) = (store.clone(), rings.clone(), stated.clone());
            tokio::spawn(async move {
                rings.raise(ring(round));
                let stated_now = store.presence_by(&[id], &[ring(round)]).await.unwrap()[0];
                stated.fetch_add(u64::from(stated_now == Presence::Here), Ordering::Relaxed);
                stated_now
            })
        };
        let (released, was) = (release.await.unwrap(), state.await.unwrap());
        let now = store.presence(&[id]).await.unwrap()[0];
        assert_eq!(released.is_ok(), now == Presence::Missing, "round {round}");
        if was == Presence::Here {
            assert_eq!(now, Presence::Here, "round {round}: the stated copy is gone");
        }
    }
    assert!(stated.load(Ordering::Relaxed) > 0);
}

/// A release writes no mark, and an opening after a crash keeps whole files and records without a
/// row. So a wrong copy would come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_copy_that_was_released_does_not_come_back_wherever_the_power_is_cut() {
    let (id, bystander) = (ExtentId([1; 16]), ExtentId([2; 16]));
    let mut acknowledged = 0;
    for (length, keep_rows) in
        [70_000, 1_200_000].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        for (round, calls) in (0..8).flat_map(|round| (0..40).map(move |calls| (round, calls))) {
            let seed = round * 1000 + calls;
            let (disk, table) = fresh(seed);
            let (store, _) = open(&disk, &table).unwrap();
            put(&store, bystander, length).await.unwrap();
            let wrong = put(&store, id, length).await.unwrap();
            disk.fail_after(calls, DiskFault::PowerCut);
            let condition = ReleaseCondition::of_wrong_copies();
            let released = store.release_copies(vec![wrong], condition).await.is_ok();
            store.close();
            let has_ended = disk.heal();
            let disk = disk.reboot();
            let table = table.powered_by(&disk, keep_rows);
            let (store, _) = open(&disk, &table).unwrap();
            let is_back = get(&store, id).await.is_ok();
            assert!(!(is_back && released), "seed {seed}, {length} bytes, {keep_rows}");
            assert!(is_there(&store, bystander, length).await);
            acknowledged += usize::from(released);
            // The device gets the right copy, whatever is left of the wrong one.
            if !is_back {
                put(&store, id, length).await.unwrap();
                assert!(is_there(&store, id, length).await);
            }
            if released {
                no_leaks(&store, &disk).await;
            }
            if has_ended {
                break;
            }
        }
    }
    assert!(acknowledged >= 8, "only {acknowledged} releases were acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_copy_that_the_disk_can_not_remove_keeps_its_row() {
    for length in [70_000, 1_200_000] {
        let (disk, table) = fresh(5);
        let (store, _) = open(&disk, &table).unwrap();
        let wrong = put(&store, ExtentId([1; 16]), length).await.unwrap();
        disk.fail_after(0, DiskFault::Io);
        let condition = ReleaseCondition::of_wrong_copies();
        store.release_copies(vec![wrong], condition).await.unwrap_err();
        assert_eq!(store.list(None, 9).await.unwrap().len(), 1, "{length} bytes");
        sums_are_right(&store).await;
    }
}
