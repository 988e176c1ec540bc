//! A device whose disk hangs, beside a healthy device: the healthy device must not be affected.

use martlet_protocol::backend::{EntryWrite, ListRequest, ListStart, Want, WriteReply};
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{RegisterKey, RegisterKind, Shard, Stamp, Term};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::device::pool::{QUEUED_MAX, THREADS_MAX};
use crate::disk::{FolderGate, GatedDisk};

const HUNG: DeviceId = DeviceId(0);
const WELL: DeviceId = DeviceId(1);
/// Number of hung calls: more than a device has threads and queue slots.
const CALLS: usize = 2000;
const NOW_MS: u64 = 1_700_000_000_000;
const BUCKET: BucketId = BucketId([1; 16]);

const PATIENCE: Patience = Patience {
    opening: Duration::from_mins(1),
    calls: Duration::from_secs(3),
    closing: Duration::from_secs(5),
};

/// A clock at which one index's committer hangs, and the other committer panics on request.
#[derive(Debug, Default)]
struct HangingClock {
    gate: FolderGate,
    bomb: AtomicBool,
}

impl Clock for HangingClock {
    fn now_ms(&self) -> u64 {
        match std::thread::current().name() {
            Some("commit-d0") => self.gate.pass(),
            Some("commit-d1") => {
                assert!(!self.bomb.swap(false, Ordering::SeqCst), "the clock was to panic");
            }
            _ => {}
        }
        NOW_MS
    }
}

/// Two devices. The disk or the index of the first hangs on request.
struct HungFixture {
    folders: [tempfile::TempDir; 2],
    disk: Arc<FolderGate>,
    clock: Arc<HangingClock>,
}

impl HungFixture {
    fn new() -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        Self { folders, disk: Arc::default(), clock: Arc::default() }
    }

    fn open(&self, patience: Patience) -> Arc<StorageNode> {
        let configs = [HUNG, WELL].into_iter().zip(&self.folders).map(|(id, folder)| {
            DeviceConfig { reserve: Reserve::Bytes(0), ..DeviceConfig::new(id, folder.path()) }
        });
        let disk = GatedDisk::new(self.folders[0].path(), self.disk.clone());
        let options = NodeOptions {
            disk: Arc::new(disk),
            clock: self.clock.clone(),
            patience,
            ..NodeOptions::default()
        };
        Arc::new(StorageNode::open(configs.collect(), options).unwrap())
    }

    fn is_clean(&self, device: usize) -> bool {
        self.folders[device].path().join("clean").is_file()
    }

    /// Uses the healthy device meanwhile: extents, registers, listings, maintenance.
    async fn the_other_is_well(&self, node: &StorageNode) {
        for (byte, length) in [(10, 70_000), (11, 2_000_000)] {
            soon(put_on(node, WELL, byte, length)).await.unwrap();
            soon(get_on(node, WELL, byte, length)).await.unwrap();
        }
        assert_eq!(soon(node.write(WELL, write("a"))).await.unwrap(), WriteReply::Stored);
        assert_eq!(soon(node.list(WELL, &everything())).await.unwrap().entries.len(), 1);
        // Its monitor opens the device again after a fault.
        self.clock.bomb.store(true, Ordering::SeqCst);
        soon(node.set_joined(WELL, 8)).await.unwrap_err();
        becomes_on(node, WELL, |_| node.metrics().devices[1].reopened == 1).await;
        becomes_on(node, WELL, |health| *health == DeviceHealth::Ready).await;
        soon(get_on(node, WELL, 11, 2_000_000)).await.unwrap();
        soon(node.set_joined(WELL, 8)).await.unwrap();
    }
}

impl Drop for HungFixture {
    fn drop(&mut self) {
        // Release all waiting threads if a test failed.
        self.disk.open();
        self.clock.gate.open();
    }
}

/// Awaits a future that must end long before any timeout of a hung disk.
async fn soon<F: Future>(future: F) -> F::Output {
    timeout(Duration::from_secs(20), future).await.expect("it waits for a disk that hangs")
}

fn key(name: &str) -> RegisterKey {
    RegisterKey::object(BUCKET, 1, name)
}

fn write(name: &str) -> EntryWrite {
    let order = Stamp::at_ms(NOW_MS);
    EntryWrite {
        key: key(name),
        entry: Entry { order, write_id: WriteId::random(), value: Value::Tombstone },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

fn everything() -> ListRequest {
    ListRequest {
        bucket: BUCKET,
        shards: vec![Shard(0)],
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: 1000,
        fold: None,
        term: Term::ANY,
    }
}

fn is_suspect(health: &DeviceHealth) -> bool {
    matches!(health, DeviceHealth::Suspect(reason) if reason.contains("has not answered"))
}

/// Waits for calls that hung. Calls may fail only because the queue is full.
async fn end_well<T: 'static>(mut calls: JoinSet<Result<T>>) {
    while let Some(outcome) = soon(calls.join_next()).await {
        if let Err(error) = outcome.unwrap() {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_harms_itself_alone() {
    let bed = HungFixture::new();
    let node = bed.open(PATIENCE);
    put_on(&node, HUNG, 1, 2_000_000).await.unwrap();
    bed.disk.shut();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let node = node.clone();
        calls.spawn(async move { get_on(&node, HUNG, 1, 2_000_000).await });
    }
    for _ in 0..CALLS - THREADS_MAX - QUEUED_MAX {
        let refused = soon(calls.join_next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
    bed.the_other_is_well(&node).await;
    becomes_on(&node, HUNG, is_suspect).await;
    let error = soon(get_on(&node, HUNG, 1, 2_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = soon(put_on(&node, HUNG, 2, 70_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    bed.disk.open();
    end_well(calls).await;
    becomes_on(&node, HUNG, |health| *health == DeviceHealth::Ready).await;
    soon(get_on(&node, HUNG, 1, 2_000_000)).await.unwrap();
    soon(put_on(&node, HUNG, 2, 70_000)).await.unwrap();
    assert_eq!(node.metrics().devices[0].reopened, 0, "nothing failed");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_accepts_writes_after_its_index_recovers() {
    let bed = HungFixture::new();
    let node = bed.open(PATIENCE);
    assert_eq!(node.write(HUNG, write("before")).await.unwrap(), WriteReply::Stored);
    bed.clock.gate.shut();
    let mut calls = JoinSet::new();
    for at in 0..CALLS {
        let node = node.clone();
        calls.spawn(async move { node.write(HUNG, write(&at.to_string())).await });
    }
    bed.the_other_is_well(&node).await;
    becomes_on(&node, HUNG, is_suspect).await;
    let error = soon(node.write(HUNG, write("after"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let view = soon(node.read(HUNG, &key("before"), Want::Entry, Term::ANY)).await.unwrap();
    assert!(view.entry.is_some(), "what is in memory is read all the same");

    bed.clock.gate.open();
    end_well(calls).await;
    becomes_on(&node, HUNG, |health| *health == DeviceHealth::Ready).await;
    assert_eq!(node.write(HUNG, write("after")).await.unwrap(), WriteReply::Stored);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_while_it_is_opened_joins_later() {
    let bed = HungFixture::new();
    let node = bed.open(PATIENCE);
    put_on(&node, HUNG, 1, 70_000).await.unwrap();
    node.shutdown().await.unwrap();
    drop(node);
    bed.disk.shut();
    let (began, opening) = (Instant::now(), Duration::from_millis(500));
    let node = bed.open(Patience { opening, ..PATIENCE });
    assert!(began.elapsed() >= opening, "it was given its time");
    let error = soon(get_on(&node, HUNG, 1, 70_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    becomes_on(&node, HUNG, |health| matches!(health, DeviceHealth::Suspect(_))).await;
    bed.the_other_is_well(&node).await;

    bed.disk.open();
    becomes_on(&node, HUNG, |health| *health == DeviceHealth::Ready).await;
    soon(get_on(&node, HUNG, 1, 70_000)).await.unwrap();
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_hangs_keeps_no_other_from_closing() {
    let bed = HungFixture::new();
    let closing = Duration::from_secs(3);
    let node = bed.open(Patience { closing, calls: Duration::from_mins(1), ..PATIENCE });
    put_on(&node, HUNG, 1, 2_000_000).await.unwrap();
    bed.disk.shut();
    let reader = tokio::spawn({
        let node = node.clone();
        async move { get_on(&node, HUNG, 1, 2_000_000).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let error = soon(node.shutdown()).await.unwrap_err();
    assert!(error.to_string().contains("device d0 did not close within 3 s"), "{error}");
    assert!(bed.is_clean(1), "the other one is closed in good order");
    assert!(!bed.is_clean(0));
    soon(node.shutdown()).await.unwrap();

    bed.disk.open();
    soon(reader).await.unwrap().unwrap();
    let closed = async {
        while !bed.is_clean(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(closed).await;
}
