//! Devices that a pass asks, and passes over rings and terms that change.

use super::*;
use crate::testing::growth::{key_of, new_device, small_ring, successor};
use crate::testing::recorded::recorded;

/// A node of a large cluster shares partitions with few devices. No other device is asked, also if the
/// ring takes many batches.
#[tokio::test]
async fn a_pass_calls_only_devices_that_share_a_partition() {
    let (world, requests) = recorded(200, |reply| reply);
    world.edit(|parts| parts.index = Arc::new(small_ring(200)));
    let ring = world.index();
    // The first device with partitions, since 200 devices have 32 of them.
    let device = ring.primaries(martlet_protocol::Partition(0)).next().unwrap();
    let shared = ring.partitions().filter(|at| ring.primaries(*at).any(|id| id == device));
    let peers: BTreeSet<DeviceId> = shared.flat_map(|at| ring.primaries(at)).collect();
    assert!(peers.len() < 12, "{peers:?}");
    for batch in [BATCH_MAX, 4] {
        let scope = DeviceScope::Nodes(vec![format!("n{}", device.0)]);
        let mut worker = ReplicateRegisters::new(world.shared.clone(), world.clock.clone(), scope);
        worker.batch = batch;
        requests.lock().clear();
        let progress = run_once(&mut worker).await.unwrap();
        assert_eq!((progress.items, progress.kept), (32, 0));
        let requests = std::mem::take(&mut *requests.lock());
        assert!(requests.iter().all(|(asked, _)| peers.contains(asked)), "{requests:?}");
        let others = requests.iter().filter(|(asked, _)| *asked != device).count();
        let partitions = ring.partitions().filter(|at| ring.primaries(*at).any(|id| id == device));
        // State and sums of each peer, once for each batch that shares a partition with it.
        assert!(others <= 2 * 2 * partitions.count(), "{requests:?}");
    }
}

/// Steps a worker through a part of a pass, one partition at a time.
async fn begin_pass(world: &MultiNodeWorld, steps: u32) -> ReplicateRegisters {
    let mut worker = worker(world);
    for _ in 0..steps {
        worker.batch = 1;
        worker.step().await.unwrap();
    }
    worker
}

#[tokio::test]
async fn a_ring_that_changes_within_a_pass_leaves_no_difference_and_no_stray() {
    for steps in [0, 1, 100, 255, 256, 300, 1000] {
        let world = MultiNodeWorld::new(6);
        world.edit(|parts| parts.index = Arc::new(ring(0..5)));
        let writes = lost_writes(&world, 60).await;
        let mut worker = begin_pass(&world, steps).await;
        world.edit(|parts| parts.index = Arc::new(ring(0..6)));
        // The rest of the pass, and a whole one.
        for _ in 0..2 {
            run_once(&mut worker).await.unwrap();
        }
        for write in &writes {
            assert!(is_everywhere(&world, write).await, "after {steps} steps: {:?}", write.key);
        }
        let held = (0..6).map(DeviceId).map(|id| world.memory(id).registers(id).len());
        assert_eq!(held.sum::<usize>(), 180, "after {steps} steps");
    }
}

/// The new holder decides from the joint phase on: a pass that began before must not drop what the
/// holder has by then.
#[tokio::test]
async fn a_term_that_rises_within_a_pass_keeps_the_registers_of_new_holders() {
    for steps in 0..40 {
        let world = MultiNodeWorld::new(6);
        world.edit(|parts| parts.index = Arc::new(small_ring(5)));
        let grown = successor(&world.index(), |builder| {
            builder.add(new_device(5)).unwrap();
        });
        let change = grown.change();
        world.edit(|parts| parts.index = grown.clone());
        let raise = async |phase| {
            for device in (0..6).map(DeviceId) {
                let memory = world.memory(device);
                memory.raise_term(device, Term::of(change, phase)).await.unwrap();
            }
        };
        raise(Phase::Old).await;
        let mut worker = begin_pass(&world, steps).await;
        raise(Phase::Joint).await;
        let write = world.write(&world.key_moving_to(DeviceId(5)));
        let partition = grown.partition(write.key.placement());
        let term = Term::of(change, Phase::Joint);
        let members: Vec<DeviceId> = grown.sets(partition, term).members().collect();
        assert_eq!(members.len(), 4, "three holders, and one that takes over");
        world.write_on(&members, &write).await;
        run_once(&mut worker).await.unwrap();
        for device in members {
            let held = world.held(device, &write.key).await.entry;
            assert!(held.is_some(), "{device} lost it after {steps} steps");
        }
    }
}

/// A device that left most of its partitions holds strays in runs of foreign partitions.
#[tokio::test]
async fn strays_in_long_runs_are_found_a_part_at_a_time() {
    let (world, requests) = recorded(40, |reply| reply);
    world.edit(|parts| parts.index = Arc::new(small_ring(3)));
    // Each key has a bucket of its own, so that all partitions hold something.
    let writes: Vec<EntryWrite> = (0..200).map(|n| world.write(&key_of(n))).collect();
    for write in &writes {
        world.write_on(&world.primaries(&write.key), write).await;
    }
    world.edit(|parts| parts.index = Arc::new(small_ring(40)));
    let scope = DeviceScope::Nodes(vec!["n0".into(), "n1".into(), "n2".into()]);
    let mut worker = ReplicateRegisters::new(world.shared.clone(), world.clock.clone(), scope);
    for _ in 0..2 {
        run_once(&mut worker).await.unwrap();
    }
    for write in &writes {
        assert!(is_everywhere(&world, write).await, "{:?}", write.key);
    }
    let held = (0..40).map(DeviceId).map(|id| world.memory(id).registers(id).len());
    assert_eq!(held.sum::<usize>(), 600);
    requests.lock().clear();
    run_once(&mut worker).await.unwrap();
    let bins = requests.lock().iter().filter(|(_, op)| *op == Some(CallKind::Bins)).count();
    assert_eq!(bins, 0, "empty runs cost nothing but their sums");
}

/// Members that answer get the strays of a device although another member is silent. The device keeps
/// them for that one.
#[tokio::test]
async fn a_silent_member_keeps_no_stray_from_the_others() {
    let silent = DeviceId(0);
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(4, clock, move |_, memory| {
        let choose = move |call: &Call<'_>| match call.op {
            CallKind::Holdings if call.device == silent => Fault::Refuse(ErrorKind::Unavailable),
            _ => Fault::None,
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    let strays = (0..40).map(|at| world.inline(&key(&format!("stray {at}"))));
    let strays: Vec<_> = strays.filter(|it| world.handoff(&it.key) != silent).collect();
    for stray in &strays {
        world.write_on(&[world.handoff(&stray.key)], stray).await;
    }
    run(&world).await;
    assert!(is_everywhere_but(&world, silent, &strays).await);
    for stray in &strays {
        let handoff = world.handoff(&stray.key);
        let kept = world.memory(handoff).registers(handoff);
        let is_kept = kept.iter().any(|(_, entry)| entry.write_id == stray.entry.write_id);
        assert!(is_kept, "{:?} was dropped, and {silent} did not confirm", stray.key);
    }
}
