//! Registers converge, at almost no cost afterwards, and strays are dropped last.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use martlet_protocol::backend::{CallKind, EntryWrite, RegisterDrop};
use martlet_protocol::entry::Value;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{BackendExt, ErrorKind, ManualClock, Phase, Term};
use parking_lot::Mutex;

use super::*;
use crate::sync::SyncDevices;
use crate::testing::multi_node::{MultiNodeWorld, key, ring};
use crate::{RingChange, run_all_once, run_once};

mod healing;
mod late;
mod peers;

fn worker(world: &MultiNodeWorld) -> ReplicateRegisters {
    ReplicateRegisters::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

async fn run(world: &MultiNodeWorld) -> StepProgress {
    run_once(&mut worker(world)).await.unwrap()
}

/// Writes `count` objects with inline bytes; every other one misses one of its primaries, in turn.
async fn lost_writes(world: &MultiNodeWorld, count: usize) -> Vec<EntryWrite> {
    let mut writes = Vec::new();
    for n in 0..count {
        let write = world.inline(&key(&format!("key-{n}")));
        let mut primaries = world.primaries(&write.key);
        if n % 2 == 0 {
            primaries.remove(n / 2 % 3);
        }
        world.write_on(&primaries, &write).await;
        writes.push(write);
    }
    writes
}

async fn is_everywhere(world: &MultiNodeWorld, write: &EntryWrite) -> bool {
    let mut all = true;
    for device in world.primaries(&write.key) {
        let view = world.held(device, &write.key).await;
        let same = view.entry.is_some_and(|entry| entry.write_id == write.entry.write_id);
        all &= same && view.inline == write.inline;
    }
    all
}

#[tokio::test]
async fn writes_missed_by_one_of_three_are_copied_with_their_bytes() {
    let world = MultiNodeWorld::new(5);
    let writes = lost_writes(&world, 300).await;
    let progress = run(&world).await;
    for write in &writes {
        assert!(is_everywhere(&world, write).await, "{:?}", write.key);
        for device in world.primaries(&write.key) {
            // No promise refused the copy: the order is the original one (rule R4).
            let held = world.held(device, &write.key).await.entry.unwrap();
            assert_eq!(held.order, write.entry.order);
        }
    }
    assert_eq!((progress.repaired, progress.kept), (150, 0));
    let again = run(&world).await;
    assert_eq!((again.repaired, again.done, again.backlog), (0, 0, 0));
}

#[tokio::test]
async fn of_two_writes_the_newer_one_is_everywhere_afterwards() {
    let world = MultiNodeWorld::new(4);
    let key = key("k");
    let primaries = world.primaries(&key);
    world.write_on(&primaries, &world.write(&key)).await;
    let newer = world.write(&key);
    world.write_on(&primaries[2..], &newer).await;
    let mut deleted = world.write(&key);
    deleted.entry.value = Value::Tombstone;
    run(&world).await;
    assert!(is_everywhere(&world, &newer).await);
    world.write_on(&primaries[..1], &deleted).await;
    run(&world).await;
    assert!(is_everywhere(&world, &deleted).await);
}

#[tokio::test]
async fn a_promise_in_the_way_is_settled_under_the_same_write_id() {
    let world = MultiNodeWorld::new(4);
    let write = world.inline(&key("k"));
    let primaries = world.primaries(&write.key);
    world.write_on(&primaries[..1], &write).await;
    let ballot = world.stamps.issue_above(write.entry.order);
    world.promise_on(&primaries[1..2], &write.key, ballot).await;
    run(&world).await;
    assert!(is_everywhere(&world, &write).await);
    for device in primaries {
        let order = world.held(device, &write.key).await.entry.unwrap().order;
        assert!(order > ballot, "the promise was broken (rule R6)");
    }
}

/// Calls by name and device.
type RecordedCalls = Arc<Mutex<Vec<(CallKind, DeviceId)>>>;

fn watched(devices: u32) -> (MultiNodeWorld, RecordedCalls) {
    let calls = RecordedCalls::default();
    let seen = calls.clone();
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(devices, clock, move |_, memory| {
        let seen = seen.clone();
        let choose = move |call: &Call<'_>| {
            seen.lock().push((call.op, call.device));
            Fault::None
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    (world, calls)
}

#[tokio::test]
async fn a_pass_over_devices_that_agree_costs_a_call_for_each_peer() {
    let (world, calls) = watched(5);
    for n in 0..200 {
        let write = world.write(&key(&format!("key-{n}")));
        world.write_on(&world.primaries(&write.key), &write).await;
    }
    let partitions = world.index().partitions().count();
    assert!(partitions <= BATCH_MAX as usize, "one batch is enough here");
    calls.lock().clear();
    let progress = run(&world).await;
    assert_eq!(progress.items, 5 * partitions as u64);
    let calls = std::mem::take(&mut *calls.lock());
    // Each of five queries itself and four peers.
    assert_eq!(calls.len(), 25, "{calls:?}");
    assert!(calls.iter().all(|(op, _)| *op == CallKind::Sums));
}

#[tokio::test]
async fn one_difference_costs_its_bin_and_many_cost_their_run() {
    let (world, calls) = watched(3);
    lost_writes(&world, 1).await;
    for n in 10..600 {
        let write = world.write(&key(&format!("key-{n}")));
        world.write_on(&world.primaries(&write.key), &write).await;
    }
    let walks = || calls.lock().iter().filter(|(op, _)| *op == CallKind::Walk).count();
    calls.lock().clear();
    run(&world).await;
    // Two pairs of devices see the difference, from both sides at most.
    assert!(walks() <= 8, "{}", walks());

    let world = MultiNodeWorld::new(3);
    lost_writes(&world, 1200).await;
    let progress = run(&world).await;
    assert_eq!(progress.repaired, 600);
}

#[tokio::test]
async fn devices_without_votes_are_left_to_the_sync() {
    let world = MultiNodeWorld::new(4);
    let writes = lost_writes(&world, 20).await;
    let wiped = DeviceId(1);
    world.wipe(wiped).await;
    let progress = run(&world).await;
    assert!(progress.kept > 0 && progress.backlog > 0);
    assert!(world.memory(wiped).registers(wiped).is_empty());
    for write in writes {
        for device in world.primaries(&write.key).into_iter().filter(|it| *it != wiped) {
            // A write whose other copies were all on the wiped device equals one never made.
            let held = world.held(device, &write.key).await.entry;
            assert_eq!(held.map(|entry| entry.write_id), Some(write.entry.write_id));
        }
    }
}

#[tokio::test]
async fn collectable_tombstones_are_no_difference() {
    let world = MultiNodeWorld::new(3);
    let mut write = world.write(&key("k"));
    write.entry.value = Value::Tombstone;
    let primaries = world.primaries(&write.key);
    world.write_on(&primaries, &write).await;
    let marks = [(write.key.clone(), write.entry.order)];
    for device in &primaries {
        world.memory(*device).mark_collectable(*device, &marks).await.unwrap();
    }
    let up_to = write.entry.order;
    let drop = RegisterDrop { key: write.key.clone(), up_to, collectable: true };
    world.memory(primaries[0]).drop_registers(primaries[0], &[drop]).await.unwrap();
    assert_eq!(run(&world).await.repaired, 0);
    assert!(world.held(primaries[0], &write.key).await.entry.is_none());
}

#[tokio::test]
async fn a_stray_is_brought_to_its_primaries_and_then_let_go() {
    let world = MultiNodeWorld::new(5);
    let older = world.write(&key("k"));
    let primaries = world.primaries(&older.key);
    let stray = world.handoff(&older.key);
    world.write_on(&primaries, &older).await;
    let write = world.inline(&older.key);
    world.write_on(&[stray], &write).await;
    world.promise_on(&[stray], &write.key, world.stamps.issue_above(write.entry.order)).await;

    // Silence keeps it, though the other members accept it.
    world.memory(primaries[2]).set_offline(primaries[2], true);
    run(&world).await;
    assert!(world.held(stray, &write.key).await.entry.is_some());
    world.memory(primaries[2]).set_offline(primaries[2], false);
    let progress = run(&world).await;
    assert!(is_everywhere(&world, &write).await);
    assert!(world.memory(stray).registers(stray).is_empty());
    assert!(progress.done > 0);
}

#[tokio::test]
async fn a_ring_that_moved_leaves_no_strays_behind() {
    let world = MultiNodeWorld::new(6);
    world.edit(|parts| parts.index = Arc::new(ring(0..5)));
    let writes = lost_writes(&world, 100).await;
    world.edit(|parts| parts.index = Arc::new(ring(0..6)));
    run(&world).await;
    run(&world).await;
    let mut held = 0;
    for device in (0..6).map(DeviceId) {
        held += world.memory(device).registers(device).len();
    }
    assert_eq!(held, 300);
    for write in &writes {
        assert!(is_everywhere(&world, write).await, "{:?}", write.key);
    }
}

#[tokio::test]
async fn a_device_without_the_newest_term_releases_nothing() {
    let world = MultiNodeWorld::new(5);
    let write = world.write(&key("k"));
    world.write_on(&world.primaries(&write.key), &write).await;
    let stray = world.handoff(&write.key);
    world.write_on(&[stray], &write).await;
    let change = world.index().change();
    let term = Term::of(change, Phase::New);
    for device in (0..5).map(DeviceId).filter(|device| *device != stray) {
        world.memory(device).raise_term(device, term).await.unwrap();
    }
    run(&world).await;
    assert!(world.held(stray, &write.key).await.entry.is_some(), "an old quorum may count on it");
    world.memory(stray).raise_term(stray, term).await.unwrap();
    run(&world).await;
    assert!(world.held(stray, &write.key).await.entry.is_none());

    // A change is in progress for which this process has no ring: its holders are unknown.
    world.write_on(&[stray], &write).await;
    let later = Term::of(change + 1, Phase::Joint);
    for device in (0..5).map(DeviceId) {
        world.memory(device).raise_term(device, later).await.unwrap();
    }
    run(&world).await;
    assert!(world.held(stray, &write.key).await.entry.is_some());
}

#[tokio::test(start_paused = true)]
async fn slow_sums_are_requested_in_smaller_batches() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, |_, memory| {
        let choose = |call: &Call<'_>| match call.op {
            CallKind::Sums => Fault::Delay(Duration::from_secs(2)),
            _ => Fault::None,
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    let mut worker = worker(&world);
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(worker.step().await.unwrap().items);
    }
    assert_eq!((worker.batch, steps), (64, vec![256, 0, 256]));
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(worker.step().await.unwrap().items);
    }
    assert_eq!((worker.batch, steps), (4, vec![0, 64, 16]));
}

/// Makes six devices, five of them in the ring until the last is added; calls chosen by `fails`
/// fail.
async fn with_strays(fails: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) -> MultiNodeWorld {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let fails = Arc::new(fails);
    let world = MultiNodeWorld::wrapped(6, clock, move |_, memory| {
        let fails = fails.clone();
        let choose = move |call: &Call<'_>| {
            if fails(call) { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.edit(|parts| parts.index = Arc::new(ring(0..5)));
    // Registers of old holders are strays where the new device took over.
    for n in 0..200 {
        let write = world.write(&key(&format!("old-{n}")));
        world.write_on(&world.primaries(&write.key), &write).await;
    }
    world.edit(|parts| parts.index = Arc::new(ring(0..6)));
    world
}

/// Returns true if all primaries but `out` hold each of these writes.
async fn is_everywhere_but(world: &MultiNodeWorld, out: DeviceId, writes: &[EntryWrite]) -> bool {
    let mut all = true;
    for write in writes {
        for device in world.primaries(&write.key).into_iter().filter(|it| *it != out) {
            let held = world.held(device, &write.key).await.entry;
            all &= held.is_some_and(|entry| entry.write_id == write.entry.write_id);
        }
    }
    all
}

#[tokio::test]
async fn a_new_member_that_does_not_answer_keeps_nothing_from_the_others() {
    let silent = DeviceId(5);
    let world = with_strays(move |call| call.device == silent && call.op != CallKind::Sums).await;
    let writes = lost_writes(&world, 200).await;
    let missed =
        |world: &MultiNodeWorld, write: &EntryWrite| world.primaries(&write.key).contains(&silent);
    let shared: Vec<EntryWrite> =
        writes.into_iter().filter(|write| !missed(&world, write)).collect();
    // Registers that the silent device should have too, with their holders.
    let mut kept = Vec::new();
    for key in (0..200).map(|n| key(&format!("old-{n}"))) {
        if world.primaries(&key).contains(&silent) {
            for device in (0..5).map(DeviceId) {
                let is_held = world.held(device, &key).await.entry.is_some();
                kept.extend(is_held.then(|| (device, key.clone())));
            }
        }
    }
    let progress = run(&world).await;
    assert!(progress.kept > 0 && kept.len() > 50);
    for (device, key) in kept {
        assert!(world.held(device, &key).await.entry.is_some(), "it went without a word of one");
    }
    assert!(is_everywhere_but(&world, silent, &shared).await);
}

#[tokio::test]
async fn a_peer_with_failing_walks_delays_no_other() {
    let silent = DeviceId(0);
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let world = MultiNodeWorld::wrapped(4, clock, move |_, memory| {
        let counted = counted.clone();
        let choose = move |call: &Call<'_>| match call.op {
            CallKind::Walk | CallKind::Bins if call.device == silent => {
                counted.fetch_add(1, Ordering::SeqCst);
                Fault::Refuse(ErrorKind::Unavailable)
            }
            _ => Fault::None,
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    let writes = lost_writes(&world, 300).await;
    let progress = run(&world).await;
    assert!(is_everywhere_but(&world, silent, &writes).await);
    assert!(progress.kept > 0 && progress.backlog > 0);
    // A few for each device and batch: it is not queried about everything that it shares.
    assert!(calls.load(Ordering::SeqCst) <= 4 * 3, "{calls:?}");
}

/// Every write and promise from a given call on fails, or the reply to that call is lost.
async fn cut_at(at: u64, fault: Fault) -> bool {
    let count = Arc::new(AtomicU64::new(0));
    let healed = Arc::new(AtomicU64::new(0));
    let (calls, whole) = (count.clone(), healed.clone());
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |_, memory| {
        let (calls, whole) = (calls.clone(), whole.clone());
        let choose = move |call: &Call<'_>| {
            let changes =
                matches!(call.op, CallKind::Write | CallKind::Promise | CallKind::DropStrays);
            if !changes || whole.load(Ordering::SeqCst) > 0 {
                return Fault::None;
            }
            match calls.fetch_add(1, Ordering::SeqCst) {
                n if n < at => Fault::None,
                n if n == at => fault,
                _ => Fault::Refuse(ErrorKind::Unavailable),
            }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    let mut writes = lost_writes(&world, 4).await;
    let stray = world.inline(&key("stray"));
    world.write_on(&[world.handoff(&stray.key)], &stray).await;
    let promised = world.primaries(&stray.key)[1];
    world.promise_on(&[promised], &stray.key, world.stamps.issue_above(stray.entry.order)).await;
    writes.push(stray);
    let held = |world: &MultiNodeWorld| {
        let devices = (0..4).map(DeviceId);
        let all = devices.flat_map(|device| world.memory(device).registers(device));
        all.map(|(_, entry)| entry.write_id).collect::<BTreeSet<_>>()
    };
    let before = held(&world);
    run(&world).await;
    assert_eq!(held(&world), before, "cut at {at}: a write was lost");
    let was_cut = count.load(Ordering::SeqCst) > at;
    healed.store(1, Ordering::SeqCst);
    run(&world).await;
    run(&world).await;
    for write in &writes {
        assert!(is_everywhere(&world, write).await, "cut at {at}: {:?}", write.key);
    }
    was_cut
}

#[tokio::test]
async fn repairs_that_are_cut_anywhere_lose_nothing_and_come_to_their_end() {
    for fault in [Fault::Refuse(ErrorKind::Unavailable), Fault::LoseReply(ErrorKind::Unavailable)] {
        let mut at = 0;
        while cut_at(at, fault).await {
            at += 1;
        }
        assert!(at > 5, "{fault:?}: only {at} calls");
    }
}

#[tokio::test]
async fn entries_read_long_ago_are_not_sent() {
    // A process that is suspended between read and write finds its clock far ahead (rule T1).
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let stopped = clock.clone();
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let stopped = stopped.clone();
        let choose = move |call: &Call<'_>| {
            if call.op == CallKind::Read {
                stopped.advance_ms(3_600_000);
            }
            Fault::None
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    let write = world.write(&key("k"));
    world.write_on(&world.primaries(&write.key)[..2], &write).await;
    let progress = run(&world).await;
    assert_eq!(progress.repaired, 0);
    assert!(progress.kept > 0 && !is_everywhere(&world, &write).await);
}

/// Runs steps of all workers of a ring change until no work is left.
async fn to_the_end(world: &MultiNodeWorld) {
    let mut workers: Vec<Box<dyn Worker>> = vec![
        Box::new(SyncDevices::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)),
        Box::new(RingChange::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)),
        Box::new(worker(world)),
    ];
    for _ in 0..6 {
        world.clock.advance_ms(1000);
        for report in run_all_once(&mut workers, |_, _| ()).await {
            assert!(report.ended, "{report:?}");
        }
    }
}

#[tokio::test]
async fn a_previous_holder_lets_go_once_the_new_one_decides_and_not_before() {
    let world = MultiNodeWorld::new(5);
    let writes = lost_writes(&world, 60).await;
    run(&world).await;
    let ring = world.grow(5).await;
    let moving = world.key_moving_to(DeviceId(5));
    let partition = ring.partition(moving.placement());
    let previous = ring.moves().iter().find(|step| step.partition == partition).unwrap().previous;
    let write = world.inline(&moving);
    let mut holders = world.primaries(&moving);
    holders.retain(|device| *device != DeviceId(5));
    holders.push(previous);
    world.write_on(&holders, &write).await;
    for phase in [Phase::Old, Phase::Joint] {
        for device in (0..6).map(DeviceId) {
            world.memory(device).raise_term(device, Term::of(ring.change(), phase)).await.unwrap();
        }
        run(&world).await;
        assert!(world.held(previous, &moving).await.entry.is_some(), "{phase:?}");
    }

    to_the_end(&world).await;
    assert_eq!(world.term_of(previous).await, Term::of(ring.change(), Phase::New));
    assert!(world.held(previous, &moving).await.entry.is_none());
    assert!(is_everywhere(&world, &write).await);
    for write in &writes {
        assert!(is_everywhere(&world, write).await, "{:?}", write.key);
    }
    let held: usize = (0..6).map(DeviceId).map(|id| world.memory(id).registers(id).len()).sum();
    assert_eq!(held, 3 * (writes.len() + 1), "somebody has a stray");
}
