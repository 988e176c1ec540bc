//! Return of a device's votes, and conditions that delay it.

use martlet_protocol::backend::{BucketFence, EntryWrite, PromiseReply};
use martlet_protocol::entry::Body;
use martlet_protocol::{BackendExt, Phase, RegisterKey};

use super::*;
use crate::run_once;
use crate::testing::multi_node::{MultiNodeWorld, key, write};

mod late;
mod storm;

fn worker(world: &MultiNodeWorld) -> SyncDevices {
    SyncDevices::new(world.shared.clone(), world.clock.clone(), DeviceScope::All)
}

async fn run(world: &MultiNodeWorld) -> StepProgress {
    world.clock.advance_ms(1000);
    run_once(&mut worker(world)).await.unwrap()
}

/// Returns a key of which a device is a primary.
fn key_on(world: &MultiNodeWorld, device: DeviceId) -> RegisterKey {
    let keys = (0..).map(|number| key(&format!("on {number}")));
    keys.into_iter().find(|key| world.primaries(key).contains(&device)).unwrap()
}

fn others(world: &MultiNodeWorld, key: &RegisterKey, device: DeviceId) -> Vec<DeviceId> {
    world.primaries(key).into_iter().filter(|id| *id != device).collect()
}

const WIPED: DeviceId = DeviceId(2);

#[tokio::test]
async fn a_wiped_device_gets_all_fences_however_many_there_are() {
    const FENCES: u16 = 300;
    let world = MultiNodeWorld::new(4);
    let key = key_on(&world, WIPED);
    world.write_on(&world.primaries(&key), &world.write(&key)).await;
    let peer = others(&world, &key, WIPED)[0];
    for number in 0..FENCES {
        let mut bucket = [9; 16];
        bucket[..2].copy_from_slice(&number.to_be_bytes());
        let fence = BucketFence::of_deleted(martlet_protocol::BucketId(bucket));
        world.memory(peer).fence(peer, fence).await.unwrap();
    }
    world.wipe(WIPED).await;
    assert_eq!(run(&world).await.done, 1);
    let fences = world.memory(WIPED).fences(WIPED).await.unwrap();
    assert_eq!(fences.len(), usize::from(FENCES));
}

#[tokio::test]
async fn a_wiped_device_gets_its_votes_with_everything_that_belongs_on_it() {
    let world = MultiNodeWorld::new(5);
    let mut written = Vec::new();
    for number in 0..700 {
        let key = key(&format!("k{number}"));
        let write = if number % 3 == 0 { world.inline(&key) } else { world.write(&key) };
        world.write_on(&world.primaries(&key), &write).await;
        written.push(write);
    }
    let bucket = written[0].key.bucket;
    let fence = BucketFence { bucket, generation: 3, open: true };
    world.memory(DeviceId(0)).fence(DeviceId(0), fence).await.unwrap();
    world.wipe(WIPED).await;
    let progress = run(&world).await;
    assert_eq!((progress.done, progress.backlog, progress.kept), (1, 0, 0));
    assert!(world.is_voting(WIPED).await);
    let mut held = 0;
    for write in &written {
        let view = world.held(WIPED, &write.key).await;
        if world.primaries(&write.key).contains(&WIPED) {
            assert_eq!((view.entry.as_ref(), &view.inline), (Some(&write.entry), &write.inline));
            held += 1;
        } else {
            assert_eq!(view.entry, None, "it does not belong there");
        }
    }
    assert!(held > 300, "{held}");
    assert_eq!(world.memory(WIPED).fences(WIPED).await.unwrap(), [fence]);
    assert_eq!(run(&world).await.items, 0, "nothing is left to do");
}

#[tokio::test]
async fn a_floor_stands_on_all_peers_and_on_the_device_before_it_votes() {
    let world = MultiNodeWorld::new(5);
    let key = key_on(&world, WIPED);
    world.write_on(&world.primaries(&key), &world.write(&key)).await;
    let before = world.stamps.issue();
    // A proxy with a fast clock may hold this promise of this device alone, and use it after the
    // device forgot it.
    let far = Stamp::at_ms(world.clock.now_ms() + CLOCK_SKEW_MS_MAX);
    world.promise_on(&[WIPED], &key, far).await;
    world.wipe(WIPED).await;
    run(&world).await;
    assert!(world.is_voting(WIPED).await);
    for device in world.primaries(&key) {
        let absent = RegisterKey { name: "absent".into(), ..key.clone() };
        let reply = world.memory(device).promise(device, &absent, before, Term::ANY).await.unwrap();
        assert!(matches!(reply, PromiseReply::Behind(floor) if floor > before), "{device}");
    }
    let reply = world.memory(WIPED).promise(WIPED, &key, far, Term::ANY).await.unwrap();
    assert!(matches!(reply, PromiseReply::Behind(floor) if floor > far));
}

#[tokio::test]
async fn without_all_of_two_peers_nothing_happens() {
    for silent in [true, false] {
        let world = MultiNodeWorld::new(5);
        let key = key_on(&world, WIPED);
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
        world.wipe(WIPED).await;
        let peer = others(&world, &key, WIPED)[0];
        if silent {
            world.memory(peer).set_offline(peer, true);
        } else {
            world.wipe(peer).await;
        }
        let progress = run(&world).await;
        let waiting = if silent { 1 } else { 2 };
        assert_eq!((progress.done, progress.kept, progress.backlog), (0, 1, waiting));
        assert!(!world.is_voting(WIPED).await);
        assert_eq!(world.held(WIPED, &key).await.entry, None);
        if silent {
            world.memory(peer).set_offline(peer, false);
            assert_eq!(run(&world).await.done, 1);
        }
    }
}

#[tokio::test]
async fn a_device_under_the_first_ring_is_left_to_its_founders_for_a_while() {
    let world = MultiNodeWorld::new(5);
    world.wipe(WIPED).await;
    let mut sync = worker(&world).after_founding(5_000);
    for (waited_ms, done) in [(0, 0), (4_999, 0), (1, 1)] {
        world.clock.advance_ms(waited_ms);
        let progress = run_once(&mut sync).await.unwrap();
        assert_eq!((progress.done, progress.kept), (done, 1 - done), "after {waited_ms} ms");
        assert_eq!(world.is_voting(WIPED).await, done > 0);
    }
    // After another wipe it has another identity, and waits again.
    world.wipe(WIPED).await;
    assert_eq!(run_once(&mut sync).await.unwrap().done, 0);
    world.clock.advance_ms(5_000);
    assert_eq!(run_once(&mut sync).await.unwrap().done, 1);
}

/// This worker doesn't found clusters: no device here remembers anything.
#[tokio::test]
async fn devices_that_are_all_new_stay_without_votes() {
    let world = MultiNodeWorld::new(4);
    for device in 0..4 {
        world.wipe(DeviceId(device)).await;
    }
    assert_eq!(run(&world).await.backlog, 4);
    for device in 0..4 {
        assert!(!world.is_voting(DeviceId(device)).await);
    }
}

#[tokio::test]
async fn differences_of_replicas_are_settled_under_their_write_id() {
    let world = MultiNodeWorld::new(5);
    let key = key_on(&world, WIPED);
    let peers = others(&world, &key, WIPED);
    let (older, newer) = (world.write(&key), world.inline(&key));
    world.write_on(&peers, &older).await;
    // Acknowledged by a peer and by the device that will forget it.
    world.write_on(&[peers[0], WIPED], &newer).await;
    world.wipe(WIPED).await;
    assert_eq!(run(&world).await.done, 1);
    for device in world.primaries(&key) {
        let view = world.held(device, &key).await;
        let entry = view.entry.unwrap();
        assert_eq!((entry.write_id, view.inline), (newer.entry.write_id, newer.inline.clone()));
        assert!(entry.order > newer.entry.order, "at a fresh ballot");
    }
}

#[tokio::test]
async fn writes_that_came_first_hand_meanwhile_stay() {
    let world = MultiNodeWorld::new(5);
    let key = key_on(&world, WIPED);
    let (old, new) = (world.write(&key), world.write(&key));
    world.write_on(&world.primaries(&key), &old).await;
    world.wipe(WIPED).await;
    world.give_fences(WIPED).await;
    world.write_on(&world.primaries(&key), &new).await;
    assert_eq!(run(&world).await.done, 1);
    assert_eq!(world.read_on(WIPED, &key).await, Some(new.entry));
}

#[tokio::test]
async fn a_session_that_ended_between_floor_and_votes_is_made_good() {
    let world = MultiNodeWorld::new(5);
    let key = key_on(&world, WIPED);
    let old = world.write(&key);
    world.write_on(&world.primaries(&key), &old).await;
    world.wipe(WIPED).await;
    // State after a worker died after the floor: old orders can't be copied unchanged.
    world.clock.advance_ms(10);
    world.memory(WIPED).raise_floor(WIPED, world.stamps.issue()).await.unwrap();
    assert_eq!(run(&world).await.done, 1);
    for device in world.primaries(&key) {
        let entry = world.read_on(device, &key).await.unwrap();
        assert_eq!(entry.write_id, old.entry.write_id);
    }
}

#[tokio::test]
async fn a_peer_that_forgets_meanwhile_ends_the_session() {
    let world = MultiNodeWorld::new(4);
    for number in 0..600 {
        let key = key(&format!("k{number}"));
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
    }
    world.wipe(WIPED).await;
    let mut sync = worker(&world);
    world.clock.advance_ms(1000);
    assert_eq!(sync.step().await.unwrap().kept, 0);
    world.wipe(DeviceId(0)).await;
    let progress = run_once(&mut sync).await.unwrap();
    assert_eq!((progress.done, progress.backlog), (0, 2));
    assert!(!world.is_voting(WIPED).await && !world.is_voting(DeviceId(0)).await);
}

#[tokio::test]
async fn a_device_that_stands_in_for_others_only_needs_no_peers() {
    let world = MultiNodeWorld::new(4);
    let ring = crate::testing::multi_node::ring_of([(0, 1.0), (1, 1.0), (2, 1.0), (3, 0.0)]);
    world.edit(|parts| parts.index = Arc::new(ring));
    world.wipe(DeviceId(3)).await;
    assert_eq!(run(&world).await.done, 1);
    assert!(world.is_voting(DeviceId(3)).await);
}

#[tokio::test]
async fn an_entry_without_its_bytes_is_never_brought() {
    let world = MultiNodeWorld::new(4);
    let order = world.stamps.issue();
    let whole = write(&key("a"), order, 0, Body::Empty);
    assert!(crate::identity::Candidate::of(view(whole)).is_some());
    let broken = write(&key("a"), order, 3, Body::Inline { crc32c: 1 });
    assert!(crate::identity::Candidate::of(view(broken)).is_none());
}

fn view(write: EntryWrite) -> martlet_protocol::backend::RegisterView {
    let EntryWrite { entry, inline, .. } = write;
    martlet_protocol::backend::RegisterView { promise: Stamp::ZERO, entry: Some(entry), inline }
}

/// Registers that calls on each device returned, and devices that were asked.
type Reads = Arc<parking_lot::Mutex<Vec<(DeviceId, martlet_protocol::backend::CallKind, u64)>>>;

/// A node that counts the registers it returns.
struct Counting {
    inner: Arc<martlet_protocol::testing::MemoryBackend>,
    reads: Reads,
}

#[async_trait]
impl martlet_protocol::Backend for Counting {
    async fn call(
        &self,
        device: DeviceId,
        call: martlet_protocol::backend::Call<'_>,
    ) -> Result<martlet_protocol::backend::Reply> {
        let kind = call.kind();
        let reply = martlet_protocol::Backend::call(&*self.inner, device, call).await?;
        let registers = match &reply {
            martlet_protocol::backend::Reply::Registers(page) => page.len() as u64,
            martlet_protocol::backend::Reply::View(_) => 1,
            _ => 0,
        };
        self.reads.lock().push((device, kind, registers));
        Ok(reply)
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: martlet_protocol::backend::NewExtent,
        body: martlet_protocol::ByteStream,
    ) -> Result<martlet_protocol::extent::ExtentRef> {
        self.inner.write_extent(device, extent, body).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: martlet_protocol::ExtentId,
        range: std::ops::Range<u64>,
    ) -> Result<martlet_protocol::ByteStream> {
        self.inner.read_extent(device, id, range).await
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.inner.devices().await
    }
}

/// A cluster of five nodes with this number of keys on them, whose calls are counted.
async fn counted(keys: usize) -> (MultiNodeWorld, Reads) {
    let reads = Reads::default();
    let counted = reads.clone();
    let clock = Arc::new(martlet_protocol::ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(5, clock, move |_, inner| {
        Arc::new(Counting { inner, reads: counted.clone() })
    });
    for number in 0..keys {
        let key = crate::testing::growth::key_of(number as u64);
        let write = if number % 2 == 0 { world.inline(&key) } else { world.write(&key) };
        world.write_on(&world.primaries(&key), &write).await;
    }
    (world, reads)
}

/// Number of registers that devices other than the wiped one returned, and that it holds.
async fn read_and_owned(world: &MultiNodeWorld, reads: &Reads) -> (u64, u64) {
    let read = reads.lock().iter().filter(|(at, ..)| *at != WIPED).map(|(.., count)| count).sum();
    let memory = world.memory(WIPED);
    let held = BackendExt::registers(&*memory, WIPED, None, usize::MAX).await.unwrap();
    (read, held.len() as u64)
}

#[tokio::test]
async fn a_wiped_device_reads_each_register_once() {
    let (world, reads) = counted(2000).await;
    world.wipe(WIPED).await;
    reads.lock().clear();
    assert_eq!(run(&world).await.done, 1);
    let (read, owned) = read_and_owned(&world, &reads).await;
    assert!(owned > 800 && read * 10 <= owned * 12, "{read} read for {owned}");
    for number in 0..2000 {
        let key = crate::testing::growth::key_of(number);
        if world.primaries(&key).contains(&WIPED) {
            let view = world.held(WIPED, &key).await;
            assert_eq!((view.entry.is_some(), view.inline.is_some()), (true, number % 2 == 0));
        }
    }
}

#[tokio::test]
async fn a_sync_that_is_interrupted_goes_on_where_it_was() {
    let (world, reads) = counted(2000).await;
    world.wipe(WIPED).await;
    reads.lock().clear();
    // The process ends after each step.
    let mut steps = 0;
    while !world.is_voting(WIPED).await {
        world.clock.advance_ms(1000);
        worker(&world).step().await.unwrap();
        steps += 1;
        assert!(steps < 20, "it begins at zero again and again");
    }
    assert!(steps > 3, "{steps}");
    let (read, owned) = read_and_owned(&world, &reads).await;
    assert!(owned > 800 && read * 10 <= owned * 12, "{read} read for {owned}");
}

#[tokio::test]
async fn a_device_that_never_ends_delays_no_other() {
    let stuck = DeviceId(0);
    let clock = Arc::new(martlet_protocol::ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(30, clock, move |device, inner| {
        use martlet_protocol::backend::CallKind;
        use martlet_protocol::testing::{Fault, FaultyBackend};
        Arc::new(FaultyBackend::new(inner, move |call| {
            let fails = device == stuck && call.op == CallKind::Write;
            if fails {
                Fault::Refuse(martlet_protocol::ErrorKind::Unavailable)
            } else {
                Fault::None
            }
        }))
    });
    world.follow(Arc::new(crate::testing::growth::small_ring(30)));
    let index = world.index();
    // Two devices without a common partition: each has all of its peers.
    let share = |one: DeviceId, other: DeviceId| {
        let has = |device| move |holders: &Vec<DeviceId>| holders.contains(&device);
        let all = index.partitions().map(|at| index.primaries(at).collect::<Vec<_>>());
        all.filter(has(one)).any(|holders| has(other)(&holders))
    };
    let other = (1..30).map(DeviceId).find(|id| !share(stuck, *id)).unwrap();
    for device in [stuck, other] {
        let mut keys = (0..).map(crate::testing::growth::key_of);
        let key = keys.find(|key| world.primaries(key).contains(&device)).unwrap();
        world.write_on(&world.primaries(&key), &world.write(&key)).await;
        world.wipe(device).await;
    }
    let mut sync = worker(&world);
    for _ in 0..20 {
        world.clock.advance_ms(BEGIN_EVERY_MS);
        sync.step().await.unwrap();
    }
    assert!(world.is_voting(other).await && !world.is_voting(stuck).await);
}

/// By the next ring the device holds more, which a process without that ring would not bring it.
#[tokio::test]
async fn g2_a_process_without_the_ring_of_a_change_in_progress_gives_no_votes() {
    let world = MultiNodeWorld::new(5);
    let before = world.index();
    let drained = world.drain(DeviceId(4));
    let moved = world.key_moving_to(WIPED);
    world.follow(before);
    world.write_on(&world.primaries(&moved), &world.write(&moved)).await;
    world.wipe(WIPED).await;
    let joint = Term::of(drained.change(), Phase::Joint);
    world.memory(DeviceId(0)).raise_term(DeviceId(0), joint).await.unwrap();
    let progress = run(&world).await;
    assert_eq!((progress.done, progress.kept, progress.backlog), (0, 1, 1));
    assert!(!world.is_voting(WIPED).await);
    world.follow(drained);
    assert_eq!(run(&world).await.done, 1);
    assert!(world.is_voting(WIPED).await);
    assert!(world.held(WIPED, &moved).await.entry.is_some());
}
