//! Primaries with different bytes under one id are found, reported and left as they are.

use std::sync::Arc;

use martlet_protocol::backend::CallKind;
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{Clock, ManualClock};
use parking_lot::Mutex;

use super::super::{Audit, AuditOptions};
use super::*;
use crate::cluster::DeviceScope;
use crate::cursors::MemoryCursors;
use crate::run_once;
use crate::testing::multi_node::MultiNodeWorld;
use crate::worker::{StepProgress, Worker};

const HOUR_MS: u64 = 60 * 60 * 1000;

fn worker(world: &MultiNodeWorld, scope: DeviceScope, cursors: &Arc<dyn Cursors>) -> Audit {
    Audit::new(world.shared.clone(), scope, AuditOptions::default())
        .with_clock(world.clock.clone())
        .with_cursors(cursors.clone())
}

async fn pass(world: &MultiNodeWorld, cursors: &Arc<dyn Cursors>) -> StepProgress {
    run_once(&mut worker(world, DeviceScope::All, cursors)).await.unwrap()
}

fn cursors() -> Arc<dyn Cursors> {
    Arc::new(MemoryCursors::default())
}

/// A world of extents, and the id and primaries of one of them.
async fn world_of_extents() -> (MultiNodeWorld, ExtentId, Vec<DeviceId>) {
    let world = MultiNodeWorld::new(5);
    let id = world.extents(30).await[7];
    let primaries = world.data_primaries(id);
    (world, id, primaries)
}

#[tokio::test]
async fn a_wrong_copy_of_any_primary_is_found_and_stays() {
    for at in 0..3 {
        for length in [16, 15] {
            let (world, id, primaries) = world_of_extents().await;
            let cursors = cursors();
            assert_eq!(pass(&world, &cursors).await.differing, 0);
            world.replace_copy(primaries[at], id, length).await;
            let wrong = world.record(primaries[at], id).await;
            let before = world.copies(5);
            let progress = pass(&world, &cursors).await;
            assert_eq!((progress.differing, progress.backlog), (1, 1), "primary {at}");
            assert_eq!((progress.copied, progress.freed), (0, 0));
            assert_eq!(world.copies(5), before, "nothing is removed");
            assert_eq!(world.record(primaries[at], id).await, wrong);
        }
    }
}

#[tokio::test]
async fn each_extent_is_compared_once_by_the_process_of_its_first_primary() {
    let (world, id, primaries) = world_of_extents().await;
    world.replace_copy(primaries[2], id, 16).await;
    for device in (0..5).map(DeviceId) {
        let scope = DeviceScope::Nodes(vec![format!("n{}", device.0)]);
        let progress = run_once(&mut worker(&world, scope, &cursors())).await.unwrap();
        assert_eq!(progress.differing, u64::from(device == primaries[0]), "device {device}");
    }
}

#[tokio::test]
async fn a_difference_is_known_until_it_is_gone_also_after_a_restart() {
    let (world, id, primaries) = world_of_extents().await;
    world.replace_copy(primaries[1], id, 16).await;
    let cursors = cursors();
    assert_eq!(pass(&world, &cursors).await.differing, 1);
    // A new worker compares what it loaded at its first step.
    let mut audit = worker(&world, DeviceScope::All, &cursors);
    world.memory(primaries[2]).set_offline(primaries[2], true);
    assert_eq!(audit.step().await.unwrap().differing, 1);
    world.memory(primaries[2]).set_offline(primaries[2], false);
    world.memory(primaries[1]).release_extents(primaries[1], &[id]).await.unwrap();
    assert_eq!(audit.step().await.unwrap().differing, 1, "it was compared just now");
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(audit.step().await.unwrap().differing, 0);
    assert_eq!(DifferingExtents::load(&*cursors).count(), 0);
}

#[tokio::test]
async fn silence_of_a_primary_is_counted_and_hides_no_other_difference() {
    let (world, id, primaries) = world_of_extents().await;
    world.replace_copy(primaries[1], id, 16).await;
    world.memory(primaries[2]).set_offline(primaries[2], true);
    let cluster = world.step();
    let compared = compare(&cluster, primaries[0], None).await.unwrap();
    assert_eq!(compared.differing, [(id, crate::testing::POLICY)]);
    let is_here = |it: &ExtentId| {
        let of = world.data_primaries(*it);
        of[0] == primaries[0] && of.contains(&primaries[2])
    };
    let silent = world.copies(5).into_keys().filter(|it| is_here(it)).count();
    assert_eq!(compared.unanswered, silent as u64);
    assert!(compare(&cluster, primaries[2], None).await.is_err(), "its own extents");
}

/// A page of 1,024 extents takes a listing, and a call for each other device.
#[tokio::test]
async fn a_page_takes_a_call_for_each_other_device() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorded = calls.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let calls = recorded.clone();
        let choose = move |call: &martlet_protocol::testing::Call<'_>| {
            calls.lock().push(call.op);
            Fault::None
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.extents(2500).await;
    let device = DeviceId(0);
    let (mut after, mut pages, mut bytes) = (None, 0, 0);
    calls.lock().clear();
    loop {
        let compared = compare(&world.step(), device, after).await.unwrap();
        (pages, bytes) = (pages + 1, bytes + compared.bytes);
        after = compared.next;
        if after.is_none() {
            break;
        }
    }
    let count = |kind| calls.lock().iter().filter(|it| **it == kind).count();
    assert_eq!((pages, bytes), (3, 2500 * RECORD_BYTES));
    assert_eq!((count(CallKind::ListExtents), count(CallKind::SeekExtents)), (3, 6));
}

#[test]
fn remembered_extents_are_bounded_and_read_as_they_were_saved() {
    let mut differing = DifferingExtents::default();
    let id = |number: u16| {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        ExtentId(id)
    };
    differing.note((0..2000).map(|number| (id(number), PolicyId(number % 3))).collect());
    assert_eq!(differing.count(), KNOWN_MAX as u64);
    let cursors = MemoryCursors::default();
    differing.save(&cursors);
    assert_eq!(DifferingExtents::load(&cursors).known, differing.known);
    cursors.save(NAME, "x 1 1:zz :00");
    assert_eq!(DifferingExtents::load(&cursors).count(), 0);
}

#[tokio::test]
async fn the_audit_compares_after_it_has_read_and_goes_on_after_a_restart() {
    let (world, id, primaries) = world_of_extents().await;
    world.replace_copy(primaries[0], id, 16).await;
    let cursors = cursors();
    let mut steps = 0;
    loop {
        // Each step by a new worker.
        let progress = worker(&world, DeviceScope::All, &cursors).step().await.unwrap();
        steps += 1;
        if progress.idle {
            assert_eq!(progress.differing, 1);
            break;
        }
    }
    assert_eq!(steps, 3, "registers, extents, copies");
    assert!(world.clock.now_ms() > 0);
}
