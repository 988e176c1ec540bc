//! Sixty devices in one process, of which one hangs: the other devices serve as before.

use martlet_protocol::backend::{EntryWrite, Want, WriteReply};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{RegisterKey, Stamp, Term};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::disk::{FolderGate, GatedDisk};

const DEVICES: u32 = 60;
const HUNG: DeviceId = DeviceId(17);
/// Number of hung calls: more than a device has threads and queue slots.
const CALLS: usize = 2000;

/// Opens the gate when a test ends.
struct OpenedAtEnd(Arc<FolderGate>);

impl Drop for OpenedAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn write(name: &str) -> EntryWrite {
    EntryWrite {
        key: RegisterKey::object(BucketId([1; 16]), 1, name),
        entry: Entry {
            order: Stamp::at_ms(SystemClock.now_ms()),
            write_id: WriteId::random(),
            value: Value::Tombstone,
        },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

/// Uses a device: extents in a volume and in a file, and a register.
async fn use_device(node: &StorageNode, device: DeviceId, round: u8) {
    for (byte, length) in [(round, 70_000), (round + 1, 1_200_000)] {
        put_on(node, device, byte, length).await.unwrap();
        get_on(node, device, byte, length).await.unwrap();
    }
    let write = write(&round.to_string());
    let key = write.key.clone();
    assert_eq!(node.write(device, write).await.unwrap(), WriteReply::Stored);
    assert!(node.read(device, &key, Want::Entry, Term::ANY).await.unwrap().entry.is_some());
}

/// Uses all devices but the hung one at once; returns the time of the slowest.
async fn use_others(node: &Arc<StorageNode>, round: u8) -> Duration {
    let mut uses = JoinSet::new();
    for device in (0..DEVICES).map(DeviceId).filter(|device| *device != HUNG) {
        let node = node.clone();
        uses.spawn(async move {
            let began = Instant::now();
            use_device(&node, device, round).await;
            began.elapsed()
        });
    }
    let all = timeout(Duration::from_mins(2), uses.join_all()).await;
    all.expect("a device waits for another that hangs").into_iter().max().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_sixty_devices_hangs_and_the_others_do_not_notice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: u32| folder.path().join(number.to_string());
    let configs = (0..DEVICES).map(|number| DeviceConfig {
        reserve: Reserve::Bytes(0),
        ..DeviceConfig::new(DeviceId(number), path(number))
    });
    let gate = Arc::<FolderGate>::default();
    let _opened = OpenedAtEnd(gate.clone());
    let patience = Patience {
        opening: Duration::from_mins(1),
        calls: Duration::from_secs(20),
        closing: Duration::from_secs(30),
    };
    let options = NodeOptions {
        disk: Arc::new(GatedDisk::new(&path(HUNG.0), gate.clone())),
        patience,
        ..NodeOptions::default()
    };
    let node = Arc::new(StorageNode::open(configs.collect(), options).unwrap());
    put_on(&node, HUNG, 1, 2_000_000).await.unwrap();
    let before = use_others(&node, 10).await;

    gate.shut();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let node = node.clone();
        calls.spawn(async move { get_on(&node, HUNG, 1, 2_000_000).await });
    }
    let meanwhile = use_others(&node, 20).await;
    eprintln!("59 devices: {before:?} before, {meanwhile:?} beside one that hangs");
    // A call that waits for the hung device waits for 20 s.
    assert!(meanwhile < 2 * before + Duration::from_secs(5), "{before:?}, then {meanwhile:?}");
    let statuses = node.devices().await.unwrap();
    assert_eq!(statuses.len(), DEVICES as usize);
    let ready = statuses.iter().filter(|status| status.health == DeviceHealth::Ready).count();
    assert!(ready + 1 >= DEVICES as usize, "{ready} devices are ready");

    gate.open();
    while let Some(outcome) = calls.join_next().await {
        if let Err(error) = outcome.unwrap() {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
    becomes_on(&node, HUNG, |health| *health == DeviceHealth::Ready).await;
    use_device(&node, HUNG, 30).await;
    node.shutdown().await.unwrap();
}
