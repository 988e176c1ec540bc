//! Events between the steps of a collection: copies that come, devices that go, rings that change.
//!
//! Each test runs one collection of one tombstone, and lets something happen right before the first
//! call of a later step.

use std::collections::BTreeSet;

use futures::FutureExt;
use martlet_protocol::backend::CallKind;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{Call, Fault, FaultyBackend};
use martlet_protocol::{Entry, ErrorKind, ManualClock};
use martlet_topology::Cluster;
use parking_lot::Mutex;

use super::*;
use crate::ReplicateRegisters;
use crate::rebuild::IndexLoss;
use crate::testing::growth::{new_device, successor};

/// Step before which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The primaries mark the tombstone.
    Mark,
    /// The primaries confirm the mark.
    Confirm,
    /// A device that is no primary is asked, after the marks.
    Everyone,
    /// Another device is asked, after this one has answered twice.
    AfterAnswers(DeviceId),
    /// The first holder drops the tombstone.
    Drop,
}

/// Moments at which everything that happens must still keep the tombstone.
const BEFORE_THE_ANSWERS: [Moment; 3] = [Moment::Mark, Moment::Confirm, Moment::Everyone];

type Event = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Recorder {
    calls: Vec<(CallKind, DeviceId)>,
    event: Option<(Moment, Event)>,
    primaries: Vec<DeviceId>,
    /// True once the event has happened.
    has_happened: bool,
    /// Number of calls after the event before one that fails, and its fault.
    failing: Option<(usize, Fault)>,
}

impl Recorder {
    /// Returns the event before a call.
    fn event_before(&mut self, call: &Call<'_>) -> Option<Event> {
        let is_marked = self.calls.iter().any(|(op, _)| *op == CallKind::MarkCollectable);
        let is_query = call.op == CallKind::Holdings && is_marked;
        let is_due = match self.event.as_ref()?.0 {
            Moment::Mark => call.op == CallKind::MarkCollectable,
            Moment::Confirm => is_query,
            Moment::Everyone => is_query && !self.primaries.contains(&call.device),
            Moment::AfterAnswers(device) => {
                let asked = self.calls.iter().filter(|it| **it == (CallKind::Holdings, device));
                call.op == CallKind::Holdings && call.device != device && asked.count() == 2
            }
            Moment::Drop => call.op == CallKind::DropStrays,
        };
        let event = self.event.take_if(|_| is_due).map(|(_, event)| event);
        self.has_happened |= event.is_some();
        event
    }

    /// Returns the fault of a call.
    fn fault(&mut self) -> Fault {
        match &mut self.failing {
            Some((0, fault)) if self.has_happened => {
                let fault = *fault;
                self.failing = None;
                fault
            }
            Some((left, _)) if self.has_happened => {
                *left -= 1;
                Fault::None
            }
            _ => Fault::None,
        }
    }
}

/// Five devices, three of which hold an old tombstone.
struct Interleaving {
    world: MultiNodeWorld,
    recorder: Arc<Mutex<Recorder>>,
    key: RegisterKey,
    primaries: Vec<DeviceId>,
}

impl Interleaving {
    async fn new() -> Self {
        let recorder = Arc::new(Mutex::new(Recorder::default()));
        let recorded = recorder.clone();
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let world = MultiNodeWorld::wrapped(5, clock, move |_, memory| {
            let recorded = recorded.clone();
            let choose = move |call: &Call<'_>| {
                let mut recorder = recorded.lock();
                let event = recorder.event_before(call);
                recorder.calls.push((call.op, call.device));
                let fault = recorder.fault();
                drop(recorder);
                if let Some(event) = event {
                    event();
                }
                fault
            };
            Arc::new(FaultyBackend::new(memory, choose))
        });
        delete_in(&world, 1).await;
        let key = key_of(0);
        let primaries = world.primaries(&key);
        recorder.lock().primaries.clone_from(&primaries);
        recorder.lock().calls.clear();
        Self { world, recorder, key, primaries }
    }

    /// Returns a device that is no primary.
    fn handoff(&self) -> DeviceId {
        self.world.handoff(&self.key)
    }

    /// Lets something happen in the next collection; returns the number of tombstones that its step
    /// drops.
    async fn collect_with(&self, moment: Moment, event: impl FnOnce() + Send + 'static) -> u64 {
        self.recorder.lock().event = Some((moment, Box::new(event)));
        let mut worker = worker(&self.world);
        loop {
            let progress = worker.step().await.unwrap();
            if self.recorder.lock().event.is_none() {
                return progress.done;
            }
            assert!(!progress.idle, "{moment:?} did not come");
        }
    }

    /// Returns an event: a copy older than the tombstone comes to a device, as a register or as a
    /// hint.
    fn older_copy_on(&self, device: DeviceId, as_hint: bool) -> impl FnOnce() + Send + 'static {
        let (memory, mut old) = (self.world.memory(device), self.world.write(&self.key));
        old.entry.order = Stamp::at_ms(1);
        old.mode = WriteMode::Repair;
        move || {
            let stored = if as_hint {
                memory.keep_hint(device, old).now_or_never().unwrap()
            } else {
                memory.write(device, old).now_or_never().unwrap()
            };
            assert_eq!(stored.unwrap(), martlet_protocol::backend::WriteReply::Stored);
        }
    }

    async fn has_tombstone(&self) -> bool {
        let mut all = true;
        for device in &self.primaries {
            let held: Option<Entry> = self.world.held(*device, &self.key).await.entry;
            all &= held.is_some_and(|entry| entry.value.is_tombstone());
        }
        all
    }

    /// Lets the other workers do their part, and collects.
    async fn settle(&self) -> u64 {
        let (shared, clock) = (self.world.shared.clone(), self.world.clock.clone());
        let mut update = crate::Update::new(shared.clone(), clock.clone(), DeviceScope::All);
        run_once(&mut update).await.unwrap();
        let mut compare = ReplicateRegisters::new(shared, clock, DeviceScope::All);
        run_once(&mut compare).await.unwrap();
        run(&self.world).await.done
    }
}

#[tokio::test]
async fn marks_are_confirmed_before_all_devices_are_queried_and_drops_come_last() {
    let it = Interleaving::new().await;
    assert_eq!(run(&it.world).await.done, 1);
    let calls = it.recorder.lock().calls.clone();
    let ops = |op| calls.iter().enumerate().filter(move |(_, (it, _))| *it == op);
    let last_mark = ops(CallKind::MarkCollectable).map(|(at, _)| at).max().unwrap();
    let first_drop = ops(CallKind::DropStrays).map(|(at, _)| at).min().unwrap();
    let asked: Vec<DeviceId> = ops(CallKind::Holdings)
        .filter(|(at, _)| (last_mark..first_drop).contains(at))
        .map(|(_, (_, device))| *device)
        .collect();
    let (confirming, everyone) = asked.split_at(3);
    assert!(confirming.iter().all(|device| it.primaries.contains(device)), "{calls:?}");
    let everyone: BTreeSet<DeviceId> = everyone.iter().copied().collect();
    assert_eq!((everyone.len(), asked.len()), (5, 8), "{calls:?}");
    let last_holding = ops(CallKind::Holdings).map(|(at, _)| at).max().unwrap();
    assert!(last_holding < first_drop, "{calls:?}");
    assert_eq!(holders(&it.world, &it.key).await, 0);
}

#[tokio::test]
async fn a_copy_that_comes_by_a_handoff_after_the_first_answers_keeps_the_tombstone() {
    for moment in BEFORE_THE_ANSWERS {
        for as_hint in [false, true] {
            let it = Interleaving::new().await;
            let event = it.older_copy_on(it.handoff(), as_hint);
            assert_eq!(it.collect_with(moment, event).await, 0, "{moment:?}, hint: {as_hint}");
            assert!(it.has_tombstone().await, "{moment:?}, hint: {as_hint}");
            assert_eq!(run(&it.world).await.done, 0, "it stays while the copy is there");
            assert_eq!(it.settle().await, 1, "{moment:?}, hint: {as_hint}");
            for device in (0..5).map(DeviceId) {
                assert_eq!(it.world.held(device, &it.key).await.entry, None);
            }
        }
    }
}

/// A device gets an older copy and is silent afterwards. It returns after a collection was tried.
#[tokio::test]
async fn a_holder_that_is_away_keeps_the_tombstone_until_it_has_answered() {
    for moment in BEFORE_THE_ANSWERS {
        let it = Interleaving::new().await;
        let (handoff, old) = (it.handoff(), it.older_copy_on(it.handoff(), false));
        let memory = it.world.memory(handoff);
        let away = memory.clone();
        let event = move || {
            old();
            away.set_offline(handoff, true);
        };
        assert_eq!(it.collect_with(moment, event).await, 0, "{moment:?}");
        assert_eq!(run(&it.world).await.done, 0, "{moment:?}: silent");
        memory.set_offline(handoff, false);
        assert_eq!(run(&it.world).await.done, 0, "{moment:?}: it has an older copy");
        assert!(it.has_tombstone().await, "{moment:?}");
        assert_eq!(it.settle().await, 1, "{moment:?}");
        assert_eq!(it.world.held(handoff, &it.key).await.entry, None);
    }
}

#[tokio::test]
async fn any_device_that_goes_before_the_last_answers_keeps_the_tombstone() {
    for moment in [Moment::Mark, Moment::Confirm] {
        for gone in (0..5).map(DeviceId) {
            let it = Interleaving::new().await;
            let memory = it.world.memory(gone);
            let away = memory.clone();
            let done = it.collect_with(moment, move || away.set_offline(gone, true)).await;
            memory.set_offline(gone, false);
            assert_eq!(done, 0, "{moment:?}, without {gone}");
            assert!(it.has_tombstone().await, "{moment:?}, without {gone}");
            assert_eq!(run(&it.world).await.done, 1, "{moment:?}, with {gone}");
        }
    }
}

/// Returns an event: the process gets a ring with one more device.
async fn larger_ring(it: &Interleaving) -> impl FnOnce() + Send + 'static {
    let new = DeviceId(5);
    it.world.set_up(new).await;
    it.world.memory(new).set_voting(new, true).await.unwrap();
    let grown = successor(&it.world.index(), |builder| {
        builder.add(new_device(5)).unwrap();
    });
    let (shared, cluster) = (it.world.shared.clone(), it.world.shared.cluster());
    let nodes = (0..6).map(DeviceId).filter_map(|id| Some((id, cluster.node(id).ok()?.clone())));
    let larger = Cluster::partial(grown, Vec::new(), nodes.collect()).unwrap();
    move || shared.set_cluster(larger)
}

#[tokio::test]
async fn a_ring_or_a_term_that_changes_within_a_collection_keeps_the_tombstone() {
    for moment in BEFORE_THE_ANSWERS {
        let it = Interleaving::new().await;
        let event = larger_ring(&it).await;
        assert_eq!(it.collect_with(moment, event).await, 0, "another ring, {moment:?}");
        assert!(it.has_tombstone().await, "{moment:?}");

        // The term is known to this process alone, or to one device alone.
        for is_local in [true, false] {
            let it = Interleaving::new().await;
            let term = Term::of(it.world.index().change() + 1, Phase::Old);
            let (shared, device) = (it.world.shared.clone(), it.handoff());
            let memory = it.world.memory(device);
            let event = move || {
                if is_local {
                    shared.raise_term(term);
                } else {
                    memory.raise_term(device, term).now_or_never().unwrap().unwrap();
                }
            };
            assert_eq!(it.collect_with(moment, event).await, 0, "{moment:?}, {is_local}");
            assert!(it.has_tombstone().await, "{moment:?}, {is_local}");
            assert_eq!(run(&it.world).await.done, 0, "the new holders are unknown");
        }
    }
}

#[tokio::test]
async fn x8_a_hold_that_begins_within_a_collection_keeps_the_tombstone() {
    for moment in BEFORE_THE_ANSWERS {
        let it = Interleaving::new().await;
        let (shared, clock) = (it.world.shared.clone(), it.world.clock.clone());
        let event = move || {
            let clock: Arc<dyn Clock> = clock;
            IndexLoss::hold(&shared, &clock).now_or_never().unwrap().unwrap();
        };
        assert_eq!(it.collect_with(moment, event).await, 0, "{moment:?}");
        assert!(it.has_tombstone().await, "{moment:?}");
        assert_eq!(run(&it.world).await.done, 0, "{moment:?}: held");
        let clock: Arc<dyn Clock> = it.world.clock.clone();
        IndexLoss::release(&it.world.shared, &clock).await.unwrap();
        assert_eq!(run(&it.world).await.done, 1, "{moment:?}: released");
    }
}

/// A mark is skipped without an error where the order is another one.
#[tokio::test]
async fn a_newer_write_is_kept_whenever_it_comes() {
    for moment in BEFORE_THE_ANSWERS.into_iter().chain([Moment::Drop]) {
        for primary in 0..3 {
            let it = Interleaving::new().await;
            let (device, newer) = (it.primaries[primary], it.world.write(&it.key));
            let (memory, write) = (it.world.memory(device), newer.clone());
            let event = move || {
                memory.write(device, write).now_or_never().unwrap().unwrap();
            };
            let done = it.collect_with(moment, event).await;
            // A device that has answered may get it: what is dropped elsewhere lies below.
            let may_drop = matches!(moment, Moment::Drop | Moment::Everyone);
            assert!(may_drop || done == 0, "{moment:?} on {device}");
            let held = it.world.held(device, &it.key).await.entry.unwrap();
            assert_eq!(held.write_id, newer.entry.write_id, "{moment:?} on {device}");
        }
    }
}

/// Calls that fail, or lose their reply, one in each run: any of those after a copy came.
#[tokio::test]
async fn one_failed_call_drops_no_tombstone_that_protects_from_a_copy() {
    let faults = [Fault::Refuse(ErrorKind::Unavailable), Fault::LoseReply(ErrorKind::Unavailable)];
    for (fault, has_copy) in faults.into_iter().flat_map(|fault| [(fault, true), (fault, false)]) {
        for moment in [Moment::Mark, Moment::Confirm] {
            let mut at = 0;
            loop {
                let it = Interleaving::new().await;
                let copy = it.older_copy_on(it.handoff(), false);
                let event = move || {
                    if has_copy {
                        copy();
                    }
                };
                it.recorder.lock().failing = Some((at, fault));
                it.collect_with(moment, event).await;
                let has_failed = it.recorder.lock().failing.take().is_none();
                assert!(!has_copy || it.has_tombstone().await, "{fault:?} of call {at}");
                it.settle().await;
                run(&it.world).await;
                assert_eq!(holders(&it.world, &it.key).await, 0, "{fault:?} of call {at}");
                if !has_failed {
                    break;
                }
                at += 1;
            }
            assert!(at > 5, "{fault:?}, {moment:?}: only {at} calls");
        }
    }
}

/// A drop that was cut off: one primary has nothing, and the others hold the tombstone marked. An older
/// copy moves to the empty primary after its answer, from a device that is asked later and then has
/// nothing any more.
#[tokio::test]
async fn a_copy_that_moves_to_an_empty_primary_between_answers_keeps_the_tombstone() {
    let it = Interleaving::new().await;
    let order = it.world.read_on(it.primaries[0], &it.key).await.unwrap().order;
    let marks = [(it.key.clone(), order)];
    for device in &it.primaries {
        it.world.memory(*device).mark_collectable(*device, &marks).await.unwrap();
    }
    let empty = *it.primaries.iter().min().unwrap();
    let drop = RegisterDrop { key: it.key.clone(), up_to: order, collectable: true };
    it.world.memory(empty).drop_registers(empty, &[drop]).await.unwrap();
    let event = it.older_copy_on(empty, false);
    assert_eq!(it.collect_with(Moment::AfterAnswers(empty), event).await, 0);
    for device in it.primaries.iter().filter(|device| **device != empty) {
        let held = it.world.held(*device, &it.key).await.entry;
        assert!(held.is_some_and(|entry| entry.value.is_tombstone()), "device {device}");
    }
    assert_eq!(run(&it.world).await.done, 0, "the older copy is there");
}
