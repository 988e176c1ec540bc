//! Devices that are wiped one after another while clients write, run ballots and read.
//!
//! What is checked: a read that began after a write was acknowledged sees that write or a later one;
//! reads of one reader never go back; a ballot never finds less than what was acknowledged. What is
//! not: time, and more than one device without votes at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::backend::{RegisterView, WriteReply};
use martlet_protocol::entry::Value;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Fault, FaultyBackend, chance::Seeded};
use martlet_protocol::{ErrorKind, ManualClock};
use parking_lot::Mutex;

use super::*;
use crate::identity::{Candidate, Voters, settle};
use crate::update::Update;

const SEEDS: u64 = 60;
const KEYS: usize = 8;
const QUORUM: usize = 2;

/// Splitmix: small, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What is going on, and what was found wrong.
struct Storm {
    world: Many,
    chance: Arc<Mutex<Chance>>,
    faults: Arc<AtomicBool>,
    over: AtomicBool,
    /// The highest write of each key that was acknowledged.
    acknowledged: Vec<AtomicU64>,
    acks: AtomicU64,
    reads: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Storm {
    fn new(seed: u64) -> Arc<Self> {
        let chance = Arc::new(Mutex::new(Chance(seed)));
        let faults = Arc::new(AtomicBool::new(true));
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let (dice, on, ticking) = (chance.clone(), faults.clone(), clock.clone());
        let world = Many::wrapped(4, clock, move |_, memory| {
            let (dice, on, ticking) = (dice.clone(), on.clone(), ticking.clone());
            Arc::new(FaultyBackend::new(memory, move |_| {
                ticking.advance_ms(1);
                let mut dice = dice.lock();
                match dice.below(100) {
                    _ if !on.load(Ordering::Relaxed) => Fault::None,
                    0..3 => Fault::Refuse(ErrorKind::Unavailable),
                    3..6 => Fault::LoseReply(ErrorKind::Unavailable),
                    _ => Fault::Delay(Duration::from_millis(dice.below(20))),
                }
            }))
        });
        Arc::new(Self {
            world,
            chance,
            faults,
            over: AtomicBool::new(false),
            acknowledged: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            acks: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            wrong: Mutex::new(Vec::new()),
        })
    }

    fn roll(&self, bound: u64) -> u64 {
        self.chance.lock().below(bound)
    }

    async fn rest(&self, up_to_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.roll(up_to_ms))).await;
    }

    fn check(&self, what: &str, at: usize, least: u64, found: u64) {
        if found < least {
            self.wrong.lock().push(format!("{what} of key {at} found {found} after {least}"));
        }
    }

    /// The primaries without one of them: no quorum may rest on more than it needs.
    fn any_two(&self, key: &RegisterKey) -> Vec<DeviceId> {
        let mut primaries = self.world.primaries(key);
        let left_out = usize::try_from(self.roll(3)).unwrap();
        primaries.remove(left_out);
        primaries
    }

    /// What a quorum of primaries holds; none when there is no quorum.
    async fn read_quorum(&self, key: &RegisterKey) -> Option<Vec<RegisterView>> {
        let cluster = self.world.shared.get();
        let reads = self.any_two(key).into_iter().map(|device| {
            let cluster = cluster.clone();
            async move { cluster.node(device)?.read(device, key, Want::EntryAndInline).await }
        });
        let views: Vec<RegisterView> = join_all(reads).await.into_iter().flatten().collect();
        (views.len() >= QUORUM).then_some(views)
    }

    /// A plain write (rule R3): whether it was acknowledged.
    async fn put(&self, key: &RegisterKey, number: u64) -> bool {
        let Some(views) = self.read_quorum(key).await else { return false };
        let order = |view: &RegisterView| view.entry.as_ref().map_or(Stamp::ZERO, |it| it.order);
        let floor = views.iter().map(|view| order(view).max(view.promise)).max();
        let order = self.world.stamps.issue_above(floor.unwrap_or_default());
        let put = write(key, order, number, Body::Empty);
        let primaries = match self.roll(2) {
            0 => self.world.primaries(key),
            _ => self.any_two(key),
        };
        let stored = self.send(&primaries, &put).await;
        if stored > 0 && stored < QUORUM {
            // Short of a quorum the rest is left to a handoff (rule A2).
            let (cluster, handoff) = (self.world.shared.get(), self.world.handoff(key));
            let _ = cluster.nodes[&handoff].keep_hint(handoff, put).await;
        }
        stored >= QUORUM
    }

    /// A conditional write (rule R7): whether it was acknowledged.
    async fn swap(&self, at: usize, key: &RegisterKey, number: u64) -> bool {
        let least = self.acknowledged[at].load(Ordering::Relaxed);
        let cluster = self.world.shared.get();
        let ballot = self.world.stamps.issue();
        let promises = self.any_two(key).into_iter().map(|device| {
            let cluster = cluster.clone();
            async move {
                let reply = cluster.node(device)?.promise(device, key, ballot).await?;
                Ok::<_, Error>((device, reply))
            }
        });
        let mut promised = Vec::new();
        for (device, reply) in join_all(promises).await.into_iter().flatten() {
            if let PromiseReply::Promised(view) = reply {
                promised.push((device, number_of(&view)));
            }
        }
        if promised.len() < QUORUM {
            return false;
        }
        let found = promised.iter().map(|(_, found)| *found).max().unwrap_or(0);
        self.check("a ballot", at, least, found);
        let mut accept = write(key, ballot, number, Body::Empty);
        accept.mode = WriteMode::Accept;
        let devices: Vec<DeviceId> = promised.into_iter().map(|(device, _)| device).collect();
        self.send(&devices, &accept).await >= QUORUM
    }

    /// How many took a write.
    async fn send(&self, devices: &[DeviceId], write: &EntryWrite) -> usize {
        let cluster = self.world.shared.get();
        let sent = devices.iter().map(|device| {
            let (cluster, write) = (cluster.clone(), write.clone());
            async move { cluster.node(*device)?.write(*device, write).await }
        });
        let replies = join_all(sent).await.into_iter().flatten();
        replies.filter(|reply| *reply == WriteReply::Stored).count()
    }

    /// A quorum read (rule R5): what it found, if it could say.
    async fn get(&self, key: &RegisterKey) -> Option<u64> {
        let views = self.read_quorum(key).await?;
        let held = |view: &RegisterView| view.entry.as_ref().map(|it| (it.order, it.write_id));
        if views.iter().all(|view| held(view) == held(&views[0])) {
            return Some(number_of(&views[0]));
        }
        let (cluster, primaries) = (self.world.shared.get(), self.world.primaries(key));
        let voters = Voters { devices: &primaries, quorum: QUORUM };
        let known = views.into_iter().map(Candidate::of).fold(None, crate::identity::newest);
        let settled = settle(&cluster, &self.world.stamps, key, voters, known, Stamp::ZERO).await;
        let entry = settled.ok()??.entry;
        Some(number_of(&RegisterView { entry: Some(entry), ..RegisterView::default() }))
    }

    async fn writer(self: Arc<Self>, at: usize) {
        let key = key(&format!("k{at}"));
        for number in 1.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let done = match self.roll(3) {
                0 => self.swap(at, &key, number).await,
                _ => self.put(&key, number).await,
            };
            if done {
                self.acknowledged[at].store(number, Ordering::Relaxed);
                self.acks.fetch_add(1, Ordering::Relaxed);
            }
            self.rest(pause_ms(at)).await;
        }
    }

    async fn reader(self: Arc<Self>, at: usize) {
        let key = key(&format!("k{at}"));
        let mut last = 0;
        while !self.over.load(Ordering::Relaxed) {
            let least = self.acknowledged[at].load(Ordering::Relaxed).max(last);
            if let Some(found) = self.get(&key).await {
                self.check("a read", at, least, found);
                last = found.max(last);
                self.reads.fetch_add(1, Ordering::Relaxed);
            }
            self.rest(pause_ms(at)).await;
        }
    }

    /// Wipes each device once, and waits until `revive` has given it its votes back.
    async fn wipe_all(&self, revive: impl AsyncFn(&Self, DeviceId)) {
        for device in (0..4).map(DeviceId) {
            tokio::time::sleep(Duration::from_millis(500 + self.roll(500))).await;
            self.world.wipe(device).await;
            self.rest(100).await;
            revive(self, device).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Some keys are busy all the time; others lie for long as a write left them, on two of three.
fn pause_ms(at: usize) -> u64 {
    if at.is_multiple_of(2) { 30 } else { 1500 }
}

fn number_of(view: &RegisterView) -> u64 {
    match view.entry.as_ref().map(|entry| &entry.value) {
        Some(Value::Object(object)) => object.size,
        _ => 0,
    }
}

/// Steps the workers until a device votes.
async fn sync(storm: &Storm, device: DeviceId) {
    let (shared, clock) = (storm.world.shared.clone(), storm.world.clock.clone());
    let mut sync = SyncDevices::new(shared.clone(), clock.clone(), Scope::All);
    let mut update = Update::new(shared, clock, Scope::All);
    for _ in 0..2000 {
        sync.step().await.unwrap();
        update.step().await.unwrap();
        if storm.world.is_voting(device).await {
            return;
        }
        storm.rest(20).await;
    }
    storm.wrong.lock().push(format!("device {device} never got its votes"));
}

/// Runs a storm to its end and says what was wrong.
async fn rage(seed: u64, revive: impl AsyncFn(&Storm, DeviceId)) -> Vec<String> {
    let _seeded = Seeded::new(seed);
    let storm = Storm::new(seed);
    let mut clients = tokio::task::JoinSet::new();
    for at in 0..KEYS {
        clients.spawn(storm.clone().writer(at));
        clients.spawn(storm.clone().reader(at));
        clients.spawn(storm.clone().reader(at));
    }
    storm.wipe_all(revive).await;
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    storm.faults.store(false, Ordering::Relaxed);
    any_two_know_all(&storm).await;
    let (acks, reads) = (storm.acks.load(Ordering::Relaxed), storm.reads.load(Ordering::Relaxed));
    assert!(acks > 40 && reads > 100, "seed {seed}: {acks} writes, {reads} reads");
    std::mem::take(&mut *storm.wrong.lock())
}

/// Whichever two primaries are asked, they know what was acknowledged.
async fn any_two_know_all(storm: &Storm) {
    for at in 0..KEYS {
        let key = key(&format!("k{at}"));
        let mut numbers: HashMap<DeviceId, u64> = HashMap::new();
        for device in storm.world.primaries(&key) {
            numbers.insert(device, number_of(&storm.world.held(device, &key).await));
        }
        let mut sorted: Vec<u64> = numbers.values().copied().collect();
        sorted.sort_unstable();
        let least = storm.acknowledged[at].load(Ordering::Relaxed);
        storm.check("two of three at the end", at, least, sorted[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_quorum_never_sees_an_older_state_while_devices_are_wiped_and_sync() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let wrong = rage(seed, sync).await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

/// The checker is worth something: it notices a device that votes without having synced.
#[tokio::test(start_paused = true)]
async fn a_device_that_votes_at_once_is_noticed() {
    let at_once = async |storm: &Storm, device: DeviceId| {
        storm.world.memory(device).set_voting(device, true).await.unwrap();
    };
    let mut noticed = 0;
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        noticed += u64::from(!rage(seed, at_once).await.is_empty());
    }
    eprintln!("{noticed} of {SEEDS} storms were noticed");
    assert!(noticed > SEEDS / 5, "{noticed} of {SEEDS} storms were noticed");
}
