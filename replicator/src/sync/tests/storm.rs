//! Devices that are wiped one after another while clients write, run ballots and read.

use super::*;
use crate::testing::storm::Storm;
use crate::update::Update;

const SEEDS: u64 = 60;

/// Wipes each device once, and waits until `revive` has returned its votes.
async fn wipe_all(storm: &Storm, revive: impl AsyncFn(&Storm, DeviceId)) {
    for device in (0..4).map(DeviceId) {
        tokio::time::sleep(Duration::from_millis(500 + storm.roll(500))).await;
        storm.world.wipe(device).await;
        storm.rest(100).await;
        revive(storm, device).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Runs the workers until a device votes.
async fn sync(storm: &Storm, device: DeviceId) {
    let (shared, clock) = (storm.world.shared.clone(), storm.world.clock.clone());
    let mut sync = SyncDevices::new(shared.clone(), clock.clone(), DeviceScope::All);
    let mut update = Update::new(shared, clock, DeviceScope::All);
    for _ in 0..2000 {
        sync.step().await.unwrap();
        update.step().await.unwrap();
        if storm.world.is_voting(device).await {
            return;
        }
        storm.rest(20).await;
    }
    storm.blame(format!("device {device} never got its votes"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_at_quorum_never_sees_an_older_state_while_devices_are_wiped_and_sync() {
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let wrong = Storm::rage(seed, 4, async |storm| wipe_all(storm, sync).await).await;
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
    }
}

/// The checker detects a device that votes without having synced.
#[tokio::test(start_paused = true)]
async fn a_device_that_votes_at_once_is_noticed() {
    let at_once = async |storm: &Storm, device: DeviceId| {
        storm.world.memory(device).set_voting(device, true).await.unwrap();
    };
    let mut noticed = 0;
    for seed in 0..SEEDS {
        eprintln!("seed {seed}");
        let wrong = Storm::rage(seed, 4, async |storm| wipe_all(storm, at_once).await).await;
        noticed += u64::from(!wrong.is_empty());
    }
    eprintln!("{noticed} of {SEEDS} storms were noticed");
    assert!(noticed > SEEDS / 5, "{noticed} of {SEEDS} storms were noticed");
}
