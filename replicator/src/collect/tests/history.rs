//! Random histories of writes, deletes, missed writes, promises, hints, collections and late
//! deliveries: a deleted object never comes back.
//!
//! Checked: once a delete was acknowledged and nothing was written after it, no quorum read finds
//! an object. At the end, when all devices answer and have been compared, nothing of it is left.
//! Not checked: ring changes, and devices that forget (the storms check those).

use std::collections::HashMap;

use martlet_protocol::backend::{Walk, Want, WriteReply};
use martlet_protocol::register::WriteMode;
use martlet_protocol::tree::Span;
use martlet_protocol::{DeviceId, Entry, Stamp};

use super::*;
use crate::testing::storm::SplitMix;
use crate::update::Update;

const SEEDS: u64 = 200;
const KEYS: u64 = 6;
const STEPS: u64 = 250;

struct CollectHistory {
    world: MultiNodeWorld,
    chance: SplitMix,
    collect: Collect,
    update: Update,
    /// Newest acknowledged write of each key, and all writes sent.
    acknowledged: HashMap<u64, Entry>,
    sent: HashMap<u64, Vec<Entry>>,
    /// Drops old tombstones on answering devices without any query.
    hasty: bool,
    wrong: Vec<String>,
}

impl CollectHistory {
    fn new(seed: u64, hasty: bool) -> Self {
        let world = MultiNodeWorld::new(5);
        let update = Update::new(world.shared.clone(), world.clock.clone(), DeviceScope::All);
        let (chance, collect) = (SplitMix::new(seed), worker(&world));
        let (acknowledged, sent) = (HashMap::new(), HashMap::new());
        let wrong = Vec::new();
        Self { world, chance, collect, update, acknowledged, sent, hasty, wrong }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.chance.below(of.len() as u64)).unwrap()].clone()
    }

    /// Writes or deletes. Some replicas miss the write, and a handoff may store a hint.
    async fn write(&mut self, number: u64) {
        let key = key_of(number);
        let mut write = match self.chance.below(2) {
            0 => delete(&self.world, &key),
            _ => self.world.write(&key),
        };
        write.mode = WriteMode::Fresh;
        let (mut stored, mut missed) = (0, false);
        for device in self.world.primaries(&key) {
            let is_cut = self.chance.below(4) == 0;
            let reply = if is_cut {
                None
            } else {
                self.world.memory(device).write(device, write.clone()).await.ok()
            };
            stored += u32::from(matches!(reply, Some(WriteReply::Stored)));
            missed |= !matches!(reply, Some(WriteReply::Stored | WriteReply::Superseded));
        }
        if missed && self.chance.below(2) == 0 {
            let handoff = self.world.handoff(&key);
            let _ = self.world.memory(handoff).keep_hint(handoff, write.clone()).await;
        }
        self.sent.entry(number).or_default().push(write.entry.clone());
        if stored >= 2 {
            self.acknowledged.insert(number, write.entry);
        }
    }

    /// Copies the newest entry of any primary to all primaries, as replication does; marked
    /// tombstones are excluded.
    async fn compare(&self, number: u64) {
        let key = key_of(number);
        let mut newest: Option<Entry> = None;
        for device in self.world.primaries(&key) {
            let walk = Walk { span: Span::ALL, bin: None, want: Want::EntryAndInline };
            let Ok(all) = self.world.memory(device).walk(device, &walk, None, 1000).await else {
                return;
            };
            let held = all.into_iter().find(|(at, _)| *at == key).and_then(|(_, it)| it.entry);
            let is_newer = held.as_ref().map(|it| it.order) > newest.as_ref().map(|it| it.order);
            newest = if is_newer { held } else { newest };
        }
        let Some(entry) = newest else { return };
        for device in self.world.primaries(&key) {
            let write = EntryWrite {
                entry: entry.clone(),
                mode: WriteMode::Repair,
                ..self.world.write(&key)
            };
            let _ = self.world.memory(device).write(device, write).await;
        }
    }

    async fn collect_in_haste(&self, number: u64) {
        let key = key_of(number);
        let up_to = Stamp::at_ms(self.world.clock.now_ms().saturating_sub(AGE_MS));
        for device in self.world.primaries(&key) {
            let held = self.world.held_if_up(device, &key).await;
            if held.is_some_and(|entry| entry.value.is_tombstone()) {
                let drop = RegisterDrop { key: key.clone(), up_to, collectable: false };
                self.world.memory(device).drop_registers(device, &[drop]).await.unwrap();
            }
        }
    }

    /// Checks the entries of each pair of primaries.
    async fn check(&mut self, number: u64) {
        let key = key_of(number);
        let Some(last) = self.acknowledged.get(&number).cloned() else { return };
        let later = |entry: &Entry| entry.order >= last.order;
        let allowed: Vec<Entry> =
            self.sent[&number].iter().filter(|it| later(it)).cloned().collect();
        let mut views = Vec::new();
        for device in self.world.primaries(&key) {
            if let Ok(held) =
                self.world.memory(device).holdings(device, std::slice::from_ref(&key)).await
            {
                views.push(held[0].held);
            }
        }
        let pairs = match views[..] {
            [a, b] => vec![[a, b]],
            [a, b, c] => vec![[a, b], [a, c], [b, c]],
            _ => return,
        };
        for two in pairs {
            let newest = two.into_iter().flatten().max();
            let is_known = match newest {
                Some((_, id)) => allowed.iter().any(|entry| entry.write_id == id),
                // A delete that failed at first may have taken effect late.
                None => allowed.iter().any(|entry| entry.value.is_tombstone()),
            };
            if !is_known {
                self.wrong.push(format!("key {number} shows {newest:?} after {last:?}"));
            }
        }
    }

    async fn step(&mut self) {
        let number = self.chance.below(KEYS);
        let device = DeviceId(u32::try_from(self.chance.below(5)).unwrap());
        match self.chance.below(12) {
            0..4 => self.write(number).await,
            4 => self.world.clock.advance_ms(AGE_MS / 3),
            5 => self.world.memory(device).set_offline(device, true),
            6 | 7 => {
                for device in (0..5).map(DeviceId) {
                    self.world.memory(device).set_offline(device, false);
                }
            }
            8 => {
                let _ = self.update.step().await;
            }
            9 => self.compare(number).await,
            10 if self.chance.below(3) == 0 => self.collect = worker(&self.world),
            _ if self.hasty => self.collect_in_haste(number).await,
            _ => {
                for _ in 0..self.pick(&[1, 2, 12]) {
                    let _ = self.collect.step().await;
                }
            }
        }
    }
}

/// Runs a history; returns its errors, and the number of tombstones collected at the end.
async fn history(seed: u64, hasty: bool) -> (Vec<String>, u64) {
    let mut history = CollectHistory::new(seed, hasty);
    for _ in 0..STEPS {
        history.step().await;
        for number in 0..KEYS {
            history.check(number).await;
        }
    }
    let collected = end(&mut history, seed).await;
    (history.wrong, collected)
}

#[tokio::test]
async fn t1_a_deleted_object_never_comes_back() {
    let mut all = 0;
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let (wrong, collected) = history(seed, false).await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
        all += collected;
    }
    eprintln!("{all} tombstones were collected at the end");
    assert!(all > SEEDS, "{all} tombstones of {SEEDS} histories were collected");
}

/// The checker detects tombstones that are dropped without confirmation by all devices.
#[tokio::test]
async fn t1_collecting_in_haste_is_noticed() {
    let mut noticed = 0;
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        noticed += u64::from(!history(seed, true).await.0.is_empty());
    }
    eprintln!("{noticed} of {SEEDS} histories were noticed");
    assert!(noticed > SEEDS / 5, "{noticed} of {SEEDS} histories were noticed");
}

/// All devices answer, hints are delivered, all primaries are compared: deleted keys are empty, and
/// only they are.
async fn end(history: &mut CollectHistory, seed: u64) -> u64 {
    for device in (0..5).map(DeviceId) {
        history.world.memory(device).set_offline(device, false);
    }
    // A whole pass, from the first device on: the current pass may be at any position.
    let (shared, clock) = (history.world.shared.clone(), history.world.clock.clone());
    run_once(&mut Update::new(shared, clock, DeviceScope::All)).await.unwrap();
    for number in 0..KEYS {
        history.compare(number).await;
    }
    history.world.clock.advance_ms(AGE_MS + 1000);
    let collected = run(&history.world).await.done;
    for number in 0..KEYS {
        history.check(number).await;
        let (mut tombstones, mut objects) = (0, 0);
        for device in (0..5).map(DeviceId) {
            let view = history.world.held(device, &key_of(number)).await;
            match view.entry.map(|entry| entry.value.is_tombstone()) {
                Some(true) => tombstones += 1,
                Some(false) => objects += 1,
                None => {}
            }
        }
        assert!(
            history.hasty || tombstones == 0,
            "seed {seed}: key {number} leaves tombstones behind"
        );
        assert!(
            history.hasty || [0, 3].contains(&objects),
            "seed {seed}: key {number} is on {objects} devices"
        );
    }
    collected
}
