//! Bit rot is found, quarantined and repaired, at the configured rate.

use martlet_protocol::backend::{CallKind, Presence};
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{Backend, BackendExt, ErrorKind, ManualClock};

use super::*;
use crate::run_once;
use crate::testing::multi_node::MultiNodeWorld;

fn worker(world: &MultiNodeWorld, options: AuditOptions) -> Audit {
    Audit::new(world.shared.clone(), DeviceScope::All, options)
}

async fn is_good(world: &MultiNodeWorld, device: DeviceId, id: ExtentId) -> bool {
    world.memory(device).read_extent(device, id, 0..16).await.is_ok()
}

#[tokio::test]
async fn corrupt_extents_are_put_aside_and_brought_back() {
    let world = MultiNodeWorld::new(4);
    let ids = world.extents(30).await;
    let spoilt: Vec<(DeviceId, ExtentId)> =
        ids.iter().step_by(3).map(|id| (world.data_primaries(*id)[1], *id)).collect();
    for (device, id) in &spoilt {
        world.memory(*device).corrupt(*device, *id);
        assert!(!is_good(&world, *device, *id).await);
    }
    let progress = run_once(&mut worker(&world, AuditOptions::default())).await.unwrap();
    assert_eq!((progress.items, progress.copied, progress.kept), (90, 10, 0));
    for (device, id) in &spoilt {
        assert!(is_good(&world, *device, *id).await);
    }
    assert!(world.is_in_place(4, &ids));
}

#[tokio::test]
async fn the_only_copy_stays_in_quarantine_and_is_reported() {
    let world = MultiNodeWorld::new(4);
    let id = world.extents(1).await[0];
    let primaries = world.data_primaries(id);
    for device in &primaries[1..] {
        world.memory(*device).release_extents(*device, &[id]).await.unwrap();
    }
    world.memory(primaries[0]).corrupt(primaries[0], id);
    let mut worker = worker(&world, AuditOptions::default());
    let progress = run_once(&mut worker).await.unwrap();
    assert_eq!((progress.copied, progress.kept, progress.backlog), (0, 1, 1));
    let said = world.memory(primaries[0]).presence(primaries[0], &[id]).await.unwrap();
    assert_eq!(said, [Presence::Missing], "bytes that are wrong are served to nobody");
}

#[tokio::test]
async fn a_stray_that_decayed_is_not_brought_back() {
    let world = MultiNodeWorld::new(4);
    let id = world.extents(1).await[0];
    let primaries = world.data_primaries(id);
    let stray = (0..4).map(DeviceId).find(|device| !primaries.contains(device)).unwrap();
    world.extent_on(&[stray], id, "object").await;
    world.memory(stray).corrupt(stray, id);
    run_once(&mut worker(&world, AuditOptions::default())).await.unwrap();
    assert!(world.is_in_place(4, &[id]));
}

#[tokio::test]
async fn the_rate_bounds_bytes_in_time_and_a_pass_goes_on_after_a_restart() {
    let world = MultiNodeWorld::new(3);
    world.extents(200).await;
    let options = AuditOptions { bytes_per_second: 1600, rest: Duration::from_secs(99) };
    let cursors: Arc<dyn Cursors> = Arc::new(MemoryCursors::default());
    let mut first = worker(&world, options).with_cursors(cursors.clone());
    // Registers of all devices come first, then their extents.
    assert_eq!(first.step().await.unwrap().items, 0);
    assert_eq!(first.idle_pause(Duration::from_millis(20)), Duration::from_secs(99));
    drop(first);
    let mut second = worker(&world, options).with_cursors(cursors.clone());
    let step = second.step().await.unwrap();
    assert_eq!((step.items, step.idle), (600, false), "no register was read again");
    // Each of three devices has 3200 bytes, at a third of the rate.
    assert_eq!(second.planned.as_secs(), 6);
    let usual = Duration::from_millis(20);
    assert!(second.busy_pause(usual) <= second.planned.max(usual));
    // The copies are compared last, at the same rate.
    let step = second.step().await.unwrap();
    assert_eq!((step.items, step.idle), (0, true));
    assert_eq!(second.planned.as_secs(), 200 * 1024 / 533);
    let whole = run_once(&mut worker(&world, options).with_cursors(cursors)).await.unwrap();
    assert_eq!(whole.items, 600);
}

#[test]
fn a_large_device_is_read_in_thirty_days_beside_small_ones() {
    let world = MultiNodeWorld::new(3);
    let mut audit = worker(&world, AuditOptions::default());
    audit.positions.follow(&(0..60).map(DeviceId).collect(), 0);
    let rate = |bytes| audit.rate(DeviceSize { extents: 1, bytes });
    let (large, days) = (16_000_000_000_000, Duration::from_hours(30 * 24).as_secs());
    assert!(rate(large) * days > large, "16 TB take {} days", large / rate(large) / 86_400);
    assert!(rate(large) * STEP_SECONDS <= STEP_BYTES_MAX, "a step does not limit the rate");
    assert_eq!(rate(0), AuditOptions::default().bytes_per_second / 60);
}

#[tokio::test]
async fn the_oldest_unverified_byte_is_as_old_as_the_last_complete_pass() {
    let world = MultiNodeWorld::new(3);
    world.extents(10).await;
    let clock = world.clock.clone();
    let mut audit = worker(&world, AuditOptions::default()).with_clock(clock.clone());
    let began_ms = clock.now_ms();
    run_once(&mut audit).await.unwrap();
    clock.advance_ms(5000);
    world.memory(DeviceId(1)).set_offline(DeviceId(1), true);
    let progress = run_once(&mut audit).await.unwrap();
    assert_eq!(progress.oldest_age_ms, clock.now_ms() - began_ms, "a device was not read");
    world.memory(DeviceId(1)).set_offline(DeviceId(1), false);
    clock.advance_ms(5000);
    let progress = run_once(&mut audit).await.unwrap();
    assert_eq!(progress.oldest_age_ms, 5000, "the pass of the others began then");
    clock.advance_ms(1000);
    assert_eq!(run_once(&mut audit).await.unwrap().oldest_age_ms, 1000);
}

#[tokio::test]
async fn registers_that_cannot_be_audited_keep_no_extent_from_being() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let world = MultiNodeWorld::wrapped(3, clock, |device, memory| {
        let choose = move |call: &martlet_protocol::testing::Call<'_>| match call.op {
            CallKind::AuditRegisters if device == DeviceId(1) => {
                Fault::Refuse(ErrorKind::Unavailable)
            }
            _ => Fault::None,
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    let ids = world.extents(10).await;
    world.memory(DeviceId(1)).corrupt(DeviceId(1), ids[9]);
    let progress = run_once(&mut worker(&world, AuditOptions::default())).await.unwrap();
    assert_eq!((progress.items, progress.copied), (30, 1));
    assert_eq!(progress.kept, u64::from(TRIES));
    assert!(is_good(&world, DeviceId(1), ids[9]).await);
}

#[tokio::test]
async fn a_silent_device_delays_no_other() {
    let world = MultiNodeWorld::new(3);
    let ids = world.extents(10).await;
    world.memory(DeviceId(1)).set_offline(DeviceId(1), true);
    let progress = run_once(&mut worker(&world, AuditOptions::default())).await.unwrap();
    let uncompared = ids.iter().filter(|id| world.data_primaries(**id)[0] != DeviceId(1)).count();
    let kept = 2 * u64::from(TRIES) + uncompared as u64;
    assert_eq!((progress.items, progress.kept), (20, kept));
}

#[tokio::test]
async fn a_stretch_that_fails_once_is_tried_again_where_it_was() {
    let clock = Arc::new(ManualClock::at(1_000_000_000));
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let world = MultiNodeWorld::wrapped(3, clock, move |_, memory| {
        let fails = fails.clone();
        let choose = move |call: &martlet_protocol::testing::Call<'_>| {
            let once = call.op == CallKind::AuditExtents
                && fails.swap(false, std::sync::atomic::Ordering::SeqCst);
            if once { Fault::Refuse(ErrorKind::Unavailable) } else { Fault::None }
        };
        Arc::new(FaultyBackend::new(memory, choose))
    });
    world.extents(10).await;
    let progress = run_once(&mut worker(&world, AuditOptions::default())).await.unwrap();
    assert_eq!((progress.items, progress.kept), (30, 1));
}
