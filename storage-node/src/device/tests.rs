//! Tests: one thread at a time attends a device, and the last reply of its peers counts.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use martlet_protocol::opening::{Incarnation, Uuid};
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Clock, ManualClock, VersionRange};
use parking_lot::Condvar;
use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::device::pulse::STALL_AFTER;
use crate::disk::PosixDisk;
use crate::index::Caches;

mod bad_sector;
mod unmounted;

const DEVICE: DeviceId = DeviceId(3);
const START_MS: u64 = 1_700_000_000_000;
const MOMENT: Duration = Duration::from_millis(100);

/// State of a new device: `peers` hold what it holds, and an `introduced` device has no votes until the
/// peers remember it.
#[derive(Clone, Copy)]
struct InitialState {
    peers: bool,
    introduced: bool,
    /// Format level of the node, and the newest level that its release knows.
    levels: [u16; 2],
}

impl InitialState {
    fn level(self) -> DeviceLevel {
        let [level, newest] = self.levels;
        DeviceLevel::new(level, VersionRange { oldest: 2, newest })
    }
}

fn device(root: &Path, clock: Arc<dyn Clock>, introduced: bool) -> Arc<Device> {
    device_of(root, clock, InitialState { peers: true, introduced, levels: [2, 2] })
}

fn device_of(root: &Path, clock: Arc<dyn Clock>, initial: InitialState) -> Arc<Device> {
    let config = DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(DEVICE, root) };
    let shared = SharedResources {
        clock,
        caches: Caches::default(),
        disk: Arc::new(PosixDisk),
        cluster: None,
        votes_when_new: !initial.peers,
        introduced: initial.introduced,
        tree_key: TreeKey::default(),
        level: Arc::new(initial.level()),
        lends: false,
        rings: None,
        stall_after: STALL_AFTER,
    };
    Arc::new(Device::new(config, shared))
}

/// An opening that no device made.
fn another() -> Incarnation {
    Incarnation { device: Uuid([7; 16]), generation: START_MS + 1, nonce: Uuid([8; 16]) }
}

/// Version in a device's `format.json`.
fn version(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("format.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["version"].as_u64().unwrap()
}

#[test]
fn a_release_raises_no_format_by_itself_and_refuses_those_beyond_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let open = |levels| {
        let initial = InitialState { peers: true, introduced: true, levels };
        let device = device_of(root, Arc::new(ManualClock::at(START_MS)), initial);
        device.open();
        device
    };
    // This release, the next one, and back.
    for levels in [[2, 2], [2, 3], [2, 2], [2, 3]] {
        let device = open(levels);
        assert_eq!((device.offline(), version(root)), (None, 2), "{levels:?}");
        device.close().unwrap();
    }
    let device = open([2, 3]);
    device.level().raise(3);
    device.raise_format().unwrap();
    assert_eq!(version(root), 3);
    device.close().unwrap();
    let before = fs::read(root.join("format.json")).unwrap();
    let refused = open([2, 2]).offline().unwrap();
    assert!(refused.contains("has format 3, and this release"), "{refused}");
    assert!(refused.contains("knows formats up to 2: start release"), "{refused}");
    assert_eq!(fs::read(root.join("format.json")).unwrap(), before, "nothing was changed");
    let device = open([2, 3]);
    assert_eq!((device.offline(), device.level().get()), (None, 3), "a device raises its node");
}

#[test]
fn a_device_that_was_not_open_is_raised_when_it_opens() {
    let folder = tempfile::tempdir().unwrap();
    let initial = InitialState { peers: true, introduced: true, levels: [2, 3] };
    let device = device_of(folder.path(), Arc::new(ManualClock::at(START_MS)), initial);
    device.open();
    device.close().unwrap();
    device.level().raise(3);
    device.raise_format().unwrap();
    assert_eq!(version(folder.path()), 2, "the device is closed");
    device.open();
    assert_eq!((device.offline(), version(folder.path())), (None, 3));
}

#[test]
fn a_device_locked_by_another_process_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(START_MS));
    let device = device(folder.path(), clock.clone(), false);
    let other = fs::File::create(folder.path().join("lock")).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    device.open();
    assert!(device.offline().unwrap().contains("in use"));
    for _ in 0..3 {
        clock.advance_ms(TRY_EVERY_MS);
        device.tend();
    }
    assert!(device.offline().unwrap().contains("in use"));
    assert_eq!(device.metrics().reopened, 0, "an attempt that fails is no reopening");
    drop(other);
    clock.advance_ms(TRY_EVERY_MS);
    device.tend();
    assert_eq!((device.offline(), device.metrics().reopened), (None, 1));
}

#[test]
fn a_call_that_hangs_delays_the_return_of_a_device_and_does_not_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path(), Arc::new(ManualClock::at(START_MS)), false);
    device.open();
    let hung = device.online().unwrap();
    hung.extents.give_up("it was to fail");
    let tending = thread::spawn({
        let device = device.clone();
        move || device.tend()
    });
    while device.online().is_ok() {
        thread::park_timeout(MOMENT / 10);
    }
    thread::park_timeout(MOMENT);
    assert_eq!(device.offline(), None, "it waits for the call");
    drop(hung);
    tending.join().unwrap();
    assert!(device.online().is_ok());
    assert_eq!(device.metrics().reopened, 1);
}

#[tokio::test]
async fn a_refusal_outlives_a_confirmation_that_hung() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path(), Arc::new(ManualClock::at(START_MS)), true);
    device.open();
    let opened = device.online().unwrap();
    opened.index.set_voting(true).await.unwrap();
    let current = device.opening().unwrap().current;
    let hung = opened.changing.lock();
    let confirming = thread::spawn({
        let device = device.clone();
        move || device.confirm(current)
    });
    thread::park_timeout(MOMENT);
    let refusing = thread::spawn({
        let device = device.clone();
        move || device.refuse(another())
    });
    thread::park_timeout(MOMENT);
    drop(hung);
    // The confirmation fails if the refusal came first.
    let _ = confirming.join().unwrap();
    refusing.join().unwrap().unwrap();
    let votes = opened.index.voting_snapshot();
    assert!(votes.has_votes && !votes.voting, "{votes:?}");
    assert_eq!(device.opening().unwrap().replaced_by, Some(another()));
}

/// A clock that blocks the thread that tends a device until the test releases it.
#[derive(Debug, Default)]
struct Keeper {
    keeps: Mutex<bool>,
    has_one: AtomicU64,
    changed: Condvar,
}

const KEPT: &str = "tending";

impl Clock for Keeper {
    fn now_ms(&self) -> u64 {
        if thread::current().name() == Some(KEPT) {
            let mut keeps = self.keeps.lock();
            while *keeps {
                self.has_one.store(1, Ordering::Release);
                self.changed.wait(&mut keeps);
            }
        }
        START_MS
    }
}

#[tokio::test]
async fn a_device_begins_anew_once_while_it_is_tended() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Keeper::default());
    let device = device(folder.path(), clock.clone(), true);
    device.open();
    device.online().unwrap().index.set_voting(true).await.unwrap();
    device.confirm(device.opening().unwrap().current).unwrap();
    device.refuse(another()).unwrap();
    *clock.keeps.lock() = true;
    let own = device.clone();
    let tending = thread::Builder::new().name(KEPT.to_owned()).spawn(move || own.tend()).unwrap();
    while clock.has_one.load(Ordering::Acquire) == 0 {
        thread::park_timeout(MOMENT / 10);
    }
    let own = device.clone();
    let beginning = thread::spawn(move || own.begin_anew(false));
    thread::park_timeout(MOMENT);
    assert!(device.online().is_ok(), "whoever tends the device has it to itself");
    *clock.keeps.lock() = false;
    clock.changed.notify_all();
    tending.join().unwrap();
    beginning.join().unwrap().unwrap();
    assert!(device.online().is_ok());
    assert_eq!(device.metrics().reopened, 1);
    assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 1);
}

#[test]
fn a_device_that_was_closed_does_not_begin_anew() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(folder.path(), Arc::new(ManualClock::at(START_MS)), true);
    device.open();
    device.refuse(another()).unwrap();
    let attending = device.attending.lock();
    let own = device.clone();
    let beginning = thread::spawn(move || own.begin_anew(false));
    thread::park_timeout(MOMENT);
    drop(device.take_away());
    drop(attending);
    beginning.join().unwrap().unwrap_err();
    assert!(device.offline().is_some());
}
