//! Each planted fault is found, and no other.

use martlet_protocol::backend::{CallKind, EntryWrite, RegisterDrop};
use martlet_protocol::entry::Value;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{BackendExt, ErrorKind, ManualClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::replicate::testing::extent_id;
use crate::testing::multi_node::{MultiNodeWorld, key};

mod fragments;
mod uploads;

const FAST: CensusOptions =
    CensusOptions { pause: Duration::ZERO, second_look: Duration::from_millis(1) };

async fn take(world: &MultiNodeWorld) -> CensusReport {
    census(&world.shared, FAST, &mut |_| ()).await
}

/// Makes 50 registers and 50 extents, all on their primaries.
async fn world() -> MultiNodeWorld {
    let world = MultiNodeWorld::new(5);
    fill(&world).await;
    world
}

async fn fill(world: &MultiNodeWorld) {
    for n in 0..50 {
        let write = world.write(&key(&format!("key-{n}")));
        world.write_on(&world.primaries(&write.key), &write).await;
    }
    world.extents(50).await;
}

fn faults(tally: &KindCounts) -> [u64; 3] {
    [tally.missing, tally.older, tally.stray]
}

#[tokio::test]
async fn a_healthy_cluster_is_counted_and_clean() {
    let world = world().await;
    let mut observed = Vec::new();
    let report = census(&world.shared, FAST, &mut |progress| observed.push(*progress)).await;
    let all = KindCounts { things: 50, copies: 150, ..KindCounts::default() };
    let partitions = 2 * world.index().partitions().count() as u64;
    let expected = CensusReport {
        partitions,
        registers: all.clone(),
        extents: all,
        clean: true,
        ..CensusReport::default()
    };
    assert_eq!(report, expected);
    let last = observed.last().unwrap();
    assert_eq!((last.registers, last.extents, last.extent_copies, last.faults), (50, 50, 150, 0));
    assert!(observed.len() > 2 && observed.is_sorted_by_key(|it| it.registers));
}

#[tokio::test]
async fn missing_older_and_stray_registers_are_found_each_by_itself() {
    let write_of = |world: &MultiNodeWorld| world.write(&key("key-7"));
    for (fault, expected) in [("missing", [1, 0, 0]), ("older", [0, 1, 0]), ("stray", [0, 0, 1])] {
        let world = world().await;
        let newer = write_of(&world);
        let primaries = world.primaries(&newer.key);
        match fault {
            "missing" => {
                let up_to = world.stamps.issue();
                let drop = RegisterDrop { key: newer.key.clone(), up_to, collectable: false };
                let device = primaries[1];
                world.memory(device).drop_registers(device, &[drop]).await.unwrap();
            }
            "older" => world.write_on(&primaries[1..], &newer).await,
            _ => {
                let entry = world.read_on(primaries[0], &newer.key).await.unwrap();
                let copy = EntryWrite { entry, mode: WriteMode::Repair, ..newer.clone() };
                world.write_on(&[world.handoff(&newer.key)], &copy).await;
            }
        }
        let report = take(&world).await;
        assert_eq!(faults(&report.registers), expected, "{fault}");
        assert_eq!((report.registers.things, report.clean), (50, false), "{fault}");
        assert!(faults(&report.extents) == [0; 3]);
        assert!(report.findings.len() == 1 && report.findings[0].contains("key-7"), "{report:?}");
    }
}

#[tokio::test]
async fn missing_other_and_stray_extents_are_found_each_by_itself() {
    for (fault, expected) in [("missing", [1, 0, 0]), ("stray", [0, 0, 1])] {
        let world = world().await;
        let id = extent_id(7);
        let primaries = world.data_primaries(id);
        if fault == "missing" {
            world.memory(primaries[1]).release_extents(primaries[1], &[id]).await.unwrap();
        } else {
            let stray = (0..5).map(DeviceId).find(|it| !primaries.contains(it)).unwrap();
            world.extent_on(&[stray], id, "object").await;
        }
        let report = take(&world).await;
        assert_eq!(faults(&report.extents), expected, "{fault}");
        assert_eq!((report.extents.things, report.clean), (50, false), "{fault}");
        assert!(faults(&report.registers) == [0; 3]);
        assert!(report.findings.len() == 1 && report.findings[0].contains(&id.to_string()));
    }
}

#[tokio::test]
async fn hints_silence_and_missing_votes_are_reported() {
    let world = world().await;
    let kept = world.write(&key("key-3"));
    world.keep_on(world.handoff(&kept.key), &kept).await;
    let report = take(&world).await;
    assert_eq!((report.hints, report.clean, report.findings.len()), (1, false, 1));

    let (out, mute) = (DeviceId(2), DeviceId(4));
    world.memory(out).set_offline(out, true);
    world.memory(mute).set_voting(mute, false).await.unwrap();
    let report = take(&world).await;
    assert_eq!((report.silent, report.without_votes), (vec![out], vec![mute]));
    // The census states nothing about the silent device's contents.
    assert_eq!((faults(&report.registers), faults(&report.extents)), ([0; 3], [0; 3]));
    assert!(!report.clean);
}

#[tokio::test]
async fn a_device_that_falls_silent_during_a_census_is_reported() {
    for op in [CallKind::Walk, CallKind::ListExtents, CallKind::Holdings, CallKind::Presence] {
        let breaks = Arc::new(AtomicBool::new(false));
        let broken = breaks.clone();
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let world = MultiNodeWorld::wrapped(5, clock, move |device, memory| {
            let broken = broken.clone();
            let choose = move |call: &Call<'_>| {
                let hit = call.op == op && device == DeviceId(1) && broken.load(Ordering::SeqCst);
                if hit { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
            };
            Arc::new(FaultyBackend::new(memory, choose))
        });
        fill(&world).await;
        // A fault, so that second checks happen.
        let id = extent_id(900);
        world.extent_on(&world.data_primaries(id)[..1], id, "object").await;
        let odd = world.write(&key("odd"));
        world.write_on(&world.primaries(&odd.key)[..1], &odd).await;
        breaks.store(true, Ordering::SeqCst);
        let report = take(&world).await;
        assert_eq!((report.silent, report.clean), (vec![DeviceId(1)], false), "{op:?}");
    }
}

#[tokio::test]
async fn a_write_in_flight_is_no_finding() {
    // A write that reaches its last primary between the first check and the second.
    let late: Arc<parking_lot::Mutex<Option<EntryWrite>>> = Arc::default();
    let held = late.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let (held, inner) = (held.clone(), memory.clone());
        let choose = move |call: &Call<'_>| {
            let write = (call.op == CallKind::Holdings).then(|| held.lock().clone()).flatten();
            if let Some(write) = write {
                let stored = inner.write(call.device, write);
                futures::executor::block_on(stored).unwrap();
            }
            Fault::None
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    fill(&world).await;
    let write = world.write(&key("late"));
    world.write_on(&world.primaries(&write.key)[..2], &write).await;
    *late.lock() = Some(write);
    let report = take(&world).await;
    assert!(report.clean, "{report:?}");
}

#[tokio::test]
async fn tombstones_count_until_they_may_be_collected() {
    let world = world().await;
    let mut deleted = world.write(&key("key-9"));
    deleted.entry.value = Value::Tombstone;
    let primaries = world.primaries(&deleted.key);
    world.write_on(&primaries, &deleted).await;
    assert!(take(&world).await.clean);
    let marks = [(deleted.key.clone(), deleted.entry.order)];
    world.memory(primaries[0]).mark_collectable(primaries[0], &marks).await.unwrap();
    let report = take(&world).await;
    assert!(report.clean && report.registers.things == 50, "one that is marked is still there");
    for device in &primaries {
        world.memory(*device).mark_collectable(*device, &marks).await.unwrap();
        let drop = RegisterDrop { key: deleted.key.clone(), up_to: marks[0].1, collectable: true };
        world.memory(*device).drop_registers(*device, &[drop]).await.unwrap();
    }
    let report = take(&world).await;
    assert!(report.clean && report.registers.things == 49);
}
