//! A real disk that hangs beside a healthy disk: the healthy device goes on.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use martlet_protocol::backend::{Backend, DeviceHealth, ListRequest, ListStart, Want, WriteReply};
use martlet_protocol::{BackendExt, DeviceId, Error, ErrorKind, RegisterKind, Shard, Term};
use martlet_storage_node::{DeviceConfig, NodeOptions, Patience, Reserve, StorageNode};
use tokio::time::timeout;

use crate::support::*;

const WELL: DeviceId = DeviceId(1);
const WRITES: usize = 3000;
const MIB: u64 = 1024 * 1024;

/// A frozen file system: writes block until this is dropped.
struct FrozenFilesystem(PathBuf);

impl FrozenFilesystem {
    fn new(path: PathBuf) -> Self {
        assert!(fsfreeze("-f", &path), "{} can't be frozen", path.display());
        Self(path)
    }
}

impl Drop for FrozenFilesystem {
    fn drop(&mut self) {
        fsfreeze("-u", &self.0);
    }
}

fn fsfreeze(how: &str, path: &std::path::Path) -> bool {
    Command::new("fsfreeze").arg(how).arg(path).status().is_ok_and(|status| status.success())
}

async fn health_of(node: &StorageNode, device: DeviceId) -> DeviceHealth {
    let statuses = node.devices().await.unwrap();
    statuses.into_iter().find(|status| status.device == device).unwrap().health
}

async fn keys(node: &StorageNode, device: DeviceId) -> usize {
    let request = ListRequest {
        bucket: BUCKET,
        shards: (0..4).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: 10 * WRITES,
        fold: None,
        term: Term::ANY,
    };
    node.list(device, &request).await.unwrap().entries.len()
}

/// Writes objects to the healthy device, and reads and lists them.
async fn go_on(node: &StorageNode, from: usize) {
    for at in from..from + 100 {
        let name = format!("well {at}");
        let stored = node.write(WELL, inline(&name, 4000)).await.unwrap();
        assert_eq!(stored, WriteReply::Stored);
        let view = node.read(WELL, &key(&name), Want::EntryAndInline, Term::ANY).await.unwrap();
        assert_eq!(view.inline.unwrap(), pattern(&name, 4000));
    }
    assert_eq!(keys(node, WELL).await, from + 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_goes_on_while_the_disk_of_another_is_frozen() {
    let Some(image) = Image::new("a frozen disk", 512) else { return };
    let folder = tempfile::tempdir().unwrap();
    let paths = [image.path().join("device"), folder.path().to_path_buf()];
    let configs = [DEVICE, WELL].into_iter().zip(&paths).map(|(id, path)| DeviceConfig {
        reserve: Reserve::Bytes(8 * MIB),
        ..DeviceConfig::new(id, path)
    });
    let patience = Patience { calls: Duration::from_secs(2), ..Patience::default() };
    let options = NodeOptions { patience, ..NodeOptions::default() };
    let node = Arc::new(StorageNode::open(configs.collect(), options).unwrap());
    put_object(&node, "before", 3_000_000).await.unwrap();

    let frozen = FrozenFilesystem::new(image.path());
    let mut calls = tokio::task::JoinSet::new();
    for at in 0..WRITES {
        let node = node.clone();
        calls.spawn(async move {
            let name = format!("hung {at}");
            match at % 30 {
                0 => put_object(&node, &name, 1_200_000).await?,
                1..10 => put_object(&node, &name, 20_000).await?,
                _ => node.write(DEVICE, inline(&name, 4000)).await?,
            };
            Ok::<_, Error>(name)
        });
    }
    let (began, mut rounds) = (Instant::now(), 0);
    while !matches!(health_of(&node, DEVICE).await, DeviceHealth::Suspect(_)) || rounds < 5 {
        assert!(began.elapsed() < Duration::from_mins(1), "it hangs, and is not suspect");
        timeout(Duration::from_secs(20), go_on(&node, rounds * 100)).await.unwrap();
        rounds += 1;
    }
    assert_eq!(health_of(&node, WELL).await, DeviceHealth::Ready);
    let soon = Duration::from_secs(1);
    let error = timeout(soon, node.write(DEVICE, inline("more", 4000))).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = timeout(soon, put_extent(&node, "more", 70_000)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    drop(frozen);
    let outcomes = calls.join_all().await;
    wait_for_health(&node, |health| *health == DeviceHealth::Ready).await;
    assert_eq!(get(&node, "before").await.unwrap().unwrap(), pattern("before", 3_000_000));
    for outcome in outcomes {
        match outcome {
            Ok(name) => assert!(get(&node, &name).await.unwrap().is_some(), "{name}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
    node.shutdown().await.unwrap();
}
