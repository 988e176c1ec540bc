//! Devices visit the bins that differ, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use martlet_erasure::{Code, FragmentIndex, Geometry};
use martlet_protocol::backend::CallKind;
use martlet_protocol::extent::Stripe;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{ExtentId, ManualClock};

use super::*;
use crate::replicate::testing::extent_id;
use crate::testing::multi_node::MultiNodeWorld;

fn with_all(of: ClassHome<'_>) -> Comparison {
    let others = of.primaries.iter().filter(|it| **it != of.device);
    Comparison::With(others.map(|it| (*it, of.class)).collect())
}

async fn visits(world: &MultiNodeWorld, device: u32) -> Visits {
    differing(&world.step(), DeviceId(device), with_all).await.unwrap()
}

/// Returns the extents of a device that are visited.
async fn visited(world: &MultiNodeWorld, device: u32) -> Vec<ExtentId> {
    let visits = visits(world, device).await;
    let all = world.memory(DeviceId(device)).extents(DeviceId(device));
    all.into_iter().filter(|id| visits.contains(id.placement())).collect()
}

#[tokio::test]
async fn only_bins_that_differ_are_visited_by_those_that_hold_them() {
    let world = MultiNodeWorld::new(4);
    let ids = world.extents(200).await;
    for device in 0..4 {
        assert_eq!(visits(&world, device).await, Visits::default());
    }
    let missing = ids[77];
    let holders = world.data_primaries(missing);
    world.memory(holders[1]).release_extents(holders[1], &[missing]).await.unwrap();
    for device in (0..4).map(DeviceId) {
        let holds = device != holders[1] && holders.contains(&device);
        let expected = if holds { vec![missing] } else { Vec::new() };
        assert_eq!(visited(&world, device.0).await, expected, "{device}");
    }
}

#[tokio::test]
async fn each_peer_gets_one_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(5, clock, move |_, memory| {
        let count = count.clone();
        let choose = move |call: &Call<'_>| {
            count.fetch_add(usize::from(call.op == CallKind::ExtentSums), Ordering::SeqCst);
            Fault::None
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.extents(500).await;
    assert_eq!(visits(&world, 0).await, Visits::default());
    assert_eq!(calls.load(Ordering::SeqCst), 5, "its own, and those of four peers");
}

#[tokio::test]
async fn peers_without_sums_are_doubted_and_silent_peers_are_not() {
    // A node of an earlier version refuses the call as if it was out.
    for (is_silent, is_visited) in [(false, true), (true, false)] {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
            let choose = move |call: &Call<'_>| {
                let is_it = call.op == CallKind::ExtentSums || is_silent;
                let refused = is_it && call.device == DeviceId(2);
                if refused { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
            };
            Arc::new(FaultyBackend::new(memory, choose))
        });
        world.extents(20).await;
        assert_eq!(visited(&world, 0).await.len(), if is_visited { 20 } else { 0 });
        let own = differing(&world.step(), DeviceId(2), with_all).await;
        assert_eq!(own.is_ok(), is_visited, "an old node is walked, and a silent one is left");
        assert!(own.is_err() || own.unwrap() == Visits::everything());
    }
}

#[tokio::test]
async fn devices_that_count_their_extents_are_left_to_later_passes() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let choose = move |call: &Call<'_>| {
            let counts = call.op == CallKind::ExtentSums && call.device == DeviceId(2);
            if counts { Fault::Refuse(ErrorKind::Conflict) } else { Fault::None }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.extents(20).await;
    let mut visits = visits(&world, 0).await;
    assert_eq!(std::mem::take(&mut visits.uncompared), 1);
    assert_eq!(visits, Visits::default());
    let own = differing(&world.step(), DeviceId(2), with_all).await;
    assert_eq!(own.unwrap_err().kind(), ErrorKind::Conflict);
}

/// Sums of one policy with these bins, one extent each.
fn sums(power: u8, bins: &[u32]) -> PolicySums {
    let sum = |bin: &u32| {
        let at = ExtentBin { bin: *bin, class: ExtentClass::COPY };
        (at, ExtentSum { hash: 1, count: 1 })
    };
    PolicySums { policy: PolicyId(0), power, sums: bins.iter().map(sum).collect() }
}

#[test]
fn bins_of_different_widths_are_compared_at_the_wider() {
    let ring = crate::testing::multi_node::ring(0..3);
    let (narrow, wide) = (ring.part_power() + 3, ring.part_power() + 1);
    let pairs: Vec<Pair> = [0, 1, 9]
        .map(|bin| ExtentBin { bin, class: ExtentClass::COPY })
        .map(|mine| Pair { mine, theirs: ExtentClass::COPY })
        .into();
    let mine = sums(narrow, &[0, 1, 9]);
    let differ =
        |theirs: &PolicySums| differences(&ring, &mine, &mut Folded::default(), theirs, &pairs);
    assert_eq!(differ(&mine), [0; 0]);
    let mut theirs = sums(wide, &[0, 2]);
    assert_eq!(differ(&theirs), [0, 1], "one extent of two is missing");
    theirs.sums[0].1 = ExtentSum { hash: 2, count: 2 };
    assert_eq!(differ(&theirs), [0; 0]);
    theirs.sums.pop();
    assert_eq!(differ(&theirs), [9]);
    assert_eq!(differ(&sums(u8::MAX, &[])), [0, 1, 9], "no extent of the policy");
    if let Some(power) = ring.part_power().checked_sub(1) {
        assert_eq!(differ(&sums(power, &[0])), [0, 1, 9], "bins wider than partitions");
    }
}

#[test]
fn classes_know_which_fragments_have_bytes() {
    for (k, m) in [(2, 1), (4, 2), (8, 3), (10, 4)] {
        let code = Code::new(k, m).unwrap();
        let most = u32::try_from(code.extent_bytes_max()).unwrap();
        for length in (1..200).map(|n| n * 12_345).chain([65_536, 65_537, 262_144, most]) {
            let geometry = Geometry::new(code, u64::from(length)).unwrap();
            let stripe = Some(Stripe { k, m, length });
            let class = ExtentClass::of(extent_id(1).whole().fragment(1), stripe);
            let expected = ExtentClass { k, m, needed: geometry.needed(), fragment: 1 };
            assert_eq!(class, expected, "{length}");
            for fragment in 0..k + m {
                let is_stored = fragment < class.needed || fragment >= k;
                assert_eq!(geometry.stored_bytes(FragmentIndex(fragment)) > 0, is_stored);
            }
        }
    }
}
