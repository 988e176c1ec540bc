//! Rings that change while clients write, run ballots and read; coordinators that die at any step.

use super::*;
use crate::testing::storm::Storm;
use crate::update::Update;
use crate::worker::Worker;

const SEEDS: u64 = 40;

/// Workers of two processes. Each may die at any step and restart without state.
struct WorkerCrew<'a> {
    storm: &'a Storm,
    changes: [RingChange; 2],
    sync: SyncDevices,
    update: Update,
}

impl<'a> WorkerCrew<'a> {
    fn new(storm: &'a Storm) -> Self {
        let (shared, clock) = (storm.world.shared.clone(), storm.world.clock.clone());
        let sync = SyncDevices::new(shared.clone(), clock.clone(), DeviceScope::All);
        let update = Update::new(shared, clock, DeviceScope::All);
        Self { storm, changes: [worker(&storm.world), worker(&storm.world)], sync, update }
    }

    async fn step(&mut self) {
        let [first, second] = &mut self.changes;
        let (first, second) = tokio::join!(first.step(), second.step());
        first.unwrap();
        second.unwrap();
        self.sync.step().await.unwrap();
        self.update.step().await.unwrap();
        if self.storm.roll(10) == 0 {
            let at = usize::try_from(self.storm.roll(2)).unwrap();
            self.changes[at] = worker(&self.storm.world);
        }
        self.storm.rest(20).await;
    }

    /// Runs steps until every device has recorded the end of the ring's change.
    async fn bring_to_an_end(&mut self, mut disturb: impl AsyncFnMut(u64)) {
        for step in 0..2000 {
            disturb(step).await;
            self.step().await;
            for device in self.storm.world.devices().into_iter().filter(|_| step > 200) {
                self.storm.world.memory(device).set_offline(device, false);
            }
            let cluster = self.storm.world.step();
            let over = Term::of(cluster.index().change(), Phase::New);
            let mut behind = 0;
            for device in cluster.index_devices() {
                let is_over = self.storm.world.term_of(device).await >= over;
                behind += u64::from(!is_over || !self.storm.world.is_voting(device).await);
            }
            if behind == 0 {
                return;
            }
        }
        self.storm.blame("a ring change never came to its end".into());
    }
}

/// Adds a device, drains one, and adds another.
async fn change_all(storm: &Storm, mut crew: WorkerCrew<'_>, disturb: impl AsyncFn(&Storm, u64)) {
    crew.bring_to_an_end(async |_| {}).await;
    for change in 0..3 {
        tokio::time::sleep(Duration::from_millis(300 + storm.roll(500))).await;
        match change {
            0 => storm.world.grow(4).await,
            1 => storm.world.drain(DeviceId(0)),
            _ => storm.world.grow(5).await,
        };
        crew.bring_to_an_end(async |step| disturb(storm, step).await).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for device in storm.world.devices() {
        storm.world.memory(device).set_offline(device, false);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_see_all_that_was_acknowledged_while_rings_change_and_coordinators_die() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let wrong = Storm::rage(seed, 4, async |storm| {
            change_all(storm, WorkerCrew::new(storm), async |_, _| {}).await;
        });
        let wrong = wrong.await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

/// Runs the storm while one device after another is silent, or forgets.
#[tokio::test(start_paused = true)]
async fn the_same_holds_while_devices_are_silent_or_forget() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let wrong = Storm::rage(seed, 4, async |storm| {
            let disturb = async |storm: &Storm, step: u64| {
                if step > 200 {
                    return;
                }
                let device = DeviceId(u32::try_from((step / 12) % 5).unwrap());
                if !storm.world.devices().contains(&device) {
                    return;
                }
                let everyone = storm.world.step().index_devices();
                match step % 12 {
                    2 if storm.roll(2) == 0 => {
                        storm.world.memory(device).set_offline(device, true);
                    }
                    8 => storm.world.memory(device).set_offline(device, false),
                    9 if storm.roll(3) == 0 && everyone.contains(&device) => {
                        let mut mute = 0;
                        for id in everyone {
                            mute += u64::from(!storm.world.is_voting(id).await);
                        }
                        if mute == 0 {
                            storm.world.wipe(device).await;
                        }
                    }
                    _ => {}
                }
            };
            change_all(storm, WorkerCrew::new(storm), disturb).await;
        });
        let wrong = wrong.await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

/// The checker detects new holders that falsely report that they have joined.
#[tokio::test(start_paused = true)]
async fn a_device_that_joins_without_copying_is_noticed() {
    let mut noticed = 0;
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let wrong = Storm::rage(seed, 4, async |storm| {
            let lie = async |storm: &Storm, _| {
                let cluster = storm.world.step();
                for device in cluster.index_devices() {
                    let memory = storm.world.memory(device);
                    memory.set_joined(device, cluster.index().change()).await.unwrap();
                }
            };
            change_all(storm, WorkerCrew::new(storm), lie).await;
        });
        noticed += u64::from(!wrong.await.is_empty());
    }
    eprintln!("{noticed} of {SEEDS} storms were noticed");
    assert!(noticed > SEEDS / 5, "{noticed} of {SEEDS} storms were noticed");
}
