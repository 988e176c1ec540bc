//! Clients that write, run ballots and read while the devices change.
//!
//! Checked: a read that began after a write was acknowledged sees that write or one with a higher
//! stamp. Reads of one reader never go back. A ballot never finds less than the acknowledged
//! writes. A write that failed may take effect late: it counts by the order that it was sent with,
//! even if a ballot raised its order. Not checked: time, and concurrent clients that write to one
//! key.
//!
//! Every client has its own ring and term, and gets newer ones from refusals.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use martlet_protocol::backend::{EntryWrite, PromiseReply, RegisterView, Want, WriteReply};
use martlet_protocol::entry::{Body, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Fault, FaultyBackend, seeded_ids::SeededIds};
use martlet_protocol::{
    BackendExt, DeviceId, Error, ErrorKind, ManualClock, RegisterKey, Stamp, Term,
};
use martlet_ring::{Ring, Sets};
use martlet_topology::KnownTerm;
use parking_lot::Mutex;

use super::growth::{key_of, small_ring};
use super::multi_node::{MultiNodeWorld, write};
use crate::identity::{Candidate, ReadCandidate, newest, run_round};

pub(crate) const KEYS: usize = 8;

/// `SplitMix` generator: small, and equal on all platforms.
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// State of a storm, and its errors.
pub(crate) struct Storm {
    pub(crate) world: MultiNodeWorld,
    chance: Arc<Mutex<SplitMix>>,
    faults: Arc<AtomicBool>,
    over: AtomicBool,
    keys: Vec<Mutex<KeyWrites>>,
    acks: AtomicU64,
    reads: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// Writes to a key.
#[derive(Default)]
struct KeyWrites {
    /// Order with which each write was sent, by its number.
    orders: HashMap<u64, Stamp>,
    /// Highest acknowledged order.
    acknowledged: Stamp,
}

/// One client, of one key.
struct StormClient {
    storm: Arc<Storm>,
    at: usize,
    key: RegisterKey,
    ring: Arc<Ring>,
    term: KnownTerm,
}

impl Storm {
    pub(crate) fn new(seed: u64, devices: u32) -> Arc<Self> {
        let chance = Arc::new(Mutex::new(SplitMix(seed)));
        let faults = Arc::new(AtomicBool::new(true));
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let (dice, on, ticking) = (chance.clone(), faults.clone(), clock.clone());
        let world = MultiNodeWorld::wrapped(devices, clock, move |_, memory| {
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
        world.follow(Arc::new(small_ring(devices)));
        let zeros = || AtomicU64::new(0);
        let (acks, reads, wrong) = (zeros(), zeros(), Mutex::new(Vec::new()));
        let keys = (0..KEYS).map(|_| Mutex::default()).collect();
        let over = AtomicBool::new(false);
        Arc::new(Self { world, chance, faults, over, keys, acks, reads, wrong })
    }

    pub(crate) fn roll(&self, bound: u64) -> u64 {
        self.chance.lock().below(bound)
    }

    pub(crate) async fn rest(&self, up_to_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.roll(up_to_ms))).await;
    }

    /// Records an error.
    pub(crate) fn blame(&self, what: String) {
        self.wrong.lock().push(what);
    }

    /// Returns the order of a found write, and records an error if it is below `least`.
    fn check(&self, what: &str, at: usize, least: Stamp, found: u64) -> Stamp {
        let order = self.keys[at].lock().orders.get(&found).copied().unwrap_or_default();
        if order < least {
            self.blame(format!("{what} of key {at} found {found}, sent at {order}, after {least}"));
        }
        order
    }

    fn acknowledged(&self, at: usize) -> Stamp {
        self.keys[at].lock().acknowledged
    }

    fn client(self: &Arc<Self>, at: usize) -> StormClient {
        let ring = self.world.index();
        let (key, term) = (key_of(at as u64), KnownTerm::default());
        StormClient { storm: self.clone(), at, key, ring, term }
    }

    /// Checks that every quorum of primaries knows the acknowledged writes.
    async fn any_quorum_knows_all(&self) {
        for at in 0..KEYS {
            let key = key_of(at as u64);
            let mut numbers = Vec::new();
            for device in self.world.primaries(&key) {
                numbers.push(number_of(&self.world.held(device, &key).await));
            }
            let least = self.acknowledged(at);
            let orders = &self.keys[at].lock().orders.clone();
            numbers.sort_unstable_by_key(|number| orders.get(number).copied());
            self.check("a quorum at the end", at, least, numbers[numbers.len() / 2]);
        }
    }

    /// Runs clients until `event` ends; returns the errors.
    pub(crate) async fn rage(seed: u64, devices: u32, event: impl AsyncFn(&Self)) -> Vec<String> {
        let _seeded = SeededIds::new(seed);
        let storm = Self::new(seed, devices);
        let together = async {
            let mut clients = tokio::task::JoinSet::new();
            for at in 0..KEYS {
                clients.spawn_local(storm.client(at).writer());
                clients.spawn_local(storm.client(at).reader());
                clients.spawn_local(storm.client(at).reader());
            }
            event(&storm).await;
            storm.over.store(true, Ordering::Relaxed);
            while let Some(ended) = clients.join_next().await {
                ended.unwrap();
            }
        };
        tokio::task::LocalSet::new().run_until(together).await;
        storm.faults.store(false, Ordering::Relaxed);
        storm.any_quorum_knows_all().await;
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (acks, reads) = (count(&storm.acks), count(&storm.reads));
        assert!(acks > 40 && reads > 100, "seed {seed}: {acks} writes, {reads} reads");
        std::mem::take(&mut *storm.wrong.lock())
    }
}

impl StormClient {
    /// Returns the deciding sets known to this client, and the term to name.
    fn sets(&mut self) -> Option<(Sets, Term)> {
        if self.ring.is_overtaken(self.term.get()) {
            self.ring = self.storm.world.index();
        }
        let named = self.ring.term_at(self.term.get())?;
        Some((self.ring.sets(self.ring.partition(self.key.placement()), self.term.get()), named))
    }

    /// Returns a minimal quorum: no quorum may depend on additional devices.
    fn bare_quorum(&self, sets: &Sets) -> Vec<DeviceId> {
        let mut left: BTreeSet<DeviceId> = sets.members().collect();
        let mut candidates: Vec<DeviceId> = left.iter().copied().collect();
        while !candidates.is_empty() {
            let at = usize::try_from(self.storm.roll(candidates.len() as u64)).unwrap();
            let one = candidates.swap_remove(at);
            left.remove(&one);
            if !sets.has_quorum(|id| left.contains(&id)) {
                left.insert(one);
            }
        }
        left.into_iter().collect()
    }

    /// Returns the answers of some devices.
    async fn query<T>(
        &self,
        devices: &[DeviceId],
        call: impl AsyncFn(&dyn martlet_protocol::Backend, DeviceId) -> Result<T, Error>,
    ) -> Vec<(DeviceId, T)> {
        let cluster = self.storm.world.step();
        let calls = devices.iter().map(|id| {
            let (cluster, call) = (cluster.clone(), &call);
            async move { Ok((*id, call(&**cluster.node(*id)?, *id).await?)) }
        });
        let mut answers = Vec::new();
        for answer in join_all(calls).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => self.term.learn(&error),
            }
        }
        answers
    }

    /// Returns the views of a quorum; none without a quorum.
    async fn read_quorum(&mut self) -> Option<Vec<RegisterView>> {
        let (sets, term) = self.sets()?;
        let key = &self.key;
        let queried = self.bare_quorum(&sets);
        let views = self
            .query(&queried, async |node, id| node.read(id, key, Want::EntryAndInline, term).await);
        let views = views.await;
        let is_quorum = sets.has_quorum(|id| views.iter().any(|(device, _)| *device == id));
        is_quorum.then(|| views.into_iter().map(|(_, view)| view).collect())
    }

    /// Does a plain write (rule R3); returns true if it was acknowledged.
    async fn put(&mut self, number: u64) -> bool {
        let Some(views) = self.read_quorum().await else { return false };
        let Some((sets, term)) = self.sets() else { return false };
        let order = |view: &RegisterView| view.entry.as_ref().map_or(Stamp::ZERO, |it| it.order);
        let floor = views.iter().map(|view| order(view).max(view.promise)).max();
        let order = self.storm.world.stamps.issue_above(floor.unwrap_or_default());
        let put = EntryWrite { term, ..write(&self.key, order, number, Body::Empty) };
        self.storm.keys[self.at].lock().orders.insert(number, order);
        let devices = match self.storm.roll(2) {
            0 => sets.members().collect(),
            _ => self.bare_quorum(&sets),
        };
        let stored = self.send(&devices, &put).await;
        let is_done = sets.has_quorum(|id| stored.contains(&id));
        if !stored.is_empty() && !is_done {
            // Without a quorum, a handoff stores the rest as a hint (rule A2).
            let world = &self.storm.world;
            let (cluster, handoff) = (world.step(), world.handoff(&self.key));
            let _ = cluster.node(handoff).unwrap().keep_hint(handoff, put).await;
        }
        is_done
    }

    /// Does a conditional write (rule R7); returns true if it was acknowledged.
    async fn swap(&mut self, number: u64) -> bool {
        let least = self.storm.acknowledged(self.at);
        let ballot = self.storm.world.stamps.issue();
        let Some((sets, term)) = self.sets() else { return false };
        let key = &self.key;
        let queried = self.bare_quorum(&sets);
        let replies =
            self.query(&queried, async |node, id| node.promise(id, key, ballot, term).await);
        let promised: Vec<(DeviceId, RegisterView)> = replies
            .await
            .into_iter()
            .filter_map(|(id, reply)| match reply {
                PromiseReply::Promised(view) => Some((id, view)),
                PromiseReply::Behind(_) => None,
            })
            .collect();
        if !sets.has_quorum(|id| promised.iter().any(|(device, _)| *device == id)) {
            return false;
        }
        let newest = promised.iter().max_by_key(|(_, view)| view.entry.as_ref().map(|it| it.order));
        let found = newest.map_or(0, |(_, view)| number_of(view));
        self.storm.check("a ballot", self.at, least, found);
        self.storm.keys[self.at].lock().orders.insert(number, ballot);
        let put = write(&self.key, ballot, number, Body::Empty);
        let accept = EntryWrite { mode: WriteMode::Accept, term, ..put };
        let devices: Vec<DeviceId> = promised.into_iter().map(|(device, _)| device).collect();
        // Some clients are slow: a phase may begin in between.
        self.storm.rest(60).await;
        let stored = self.send(&devices, &accept).await;
        sets.has_quorum(|id| stored.contains(&id))
    }

    /// Returns the devices that stored a write.
    async fn send(&self, devices: &[DeviceId], write: &EntryWrite) -> Vec<DeviceId> {
        let replies = self.query(devices, async |node, id| node.write(id, write.clone()).await);
        let stored = replies.await.into_iter().filter(|(_, it)| *it == WriteReply::Stored);
        stored.map(|(device, _)| device).collect()
    }

    /// Does a quorum read (rule R5); returns the number found, if the read succeeded.
    async fn get(&mut self) -> Option<u64> {
        let views = self.read_quorum().await?;
        let held = |view: &RegisterView| view.entry.as_ref().map(|it| (it.order, it.write_id));
        if views.iter().all(|view| held(view) == held(&views[0])) {
            return Some(number_of(&views[0]));
        }
        let world = &self.storm.world;
        let known = views.into_iter().map(Candidate::of).fold(None, newest);
        let known =
            known.map(|candidate| ReadCandidate { candidate, read_ms: world.stamps.now_ms() });
        let cluster = world.step();
        let settled = run_round(&cluster, &world.stamps, &self.key, known, Stamp::ZERO).await;
        let entry = settled.ok()??.entry;
        Some(number_of(&RegisterView { entry: Some(entry), ..RegisterView::default() }))
    }

    async fn writer(mut self) {
        for number in 1.. {
            if self.storm.over.load(Ordering::Relaxed) {
                return;
            }
            let done = match self.storm.roll(3) {
                0 => self.swap(number).await,
                _ => self.put(number).await,
            };
            if done {
                let mut sent = self.storm.keys[self.at].lock();
                sent.acknowledged = sent.acknowledged.max(sent.orders[&number]);
                drop(sent);
                self.storm.acks.fetch_add(1, Ordering::Relaxed);
            }
            self.storm.rest(pause_ms(self.at)).await;
        }
    }

    async fn reader(mut self) {
        let mut last = Stamp::ZERO;
        while !self.storm.over.load(Ordering::Relaxed) {
            let least = self.storm.acknowledged(self.at).max(last);
            if let Some(found) = self.get().await {
                last = self.storm.check("a read", self.at, least, found).max(last);
                self.storm.reads.fetch_add(1, Ordering::Relaxed);
            }
            self.storm.rest(pause_ms(self.at)).await;
        }
    }
}

/// Pause between writes. Some keys are always busy; others stay for long as a write left them, on
/// two of three devices.
fn pause_ms(at: usize) -> u64 {
    if at.is_multiple_of(2) { 30 } else { 1500 }
}

fn number_of(view: &RegisterView) -> u64 {
    match view.entry.as_ref().map(|entry| &entry.value) {
        Some(Value::Object(object)) => object.size,
        _ => 0,
    }
}
