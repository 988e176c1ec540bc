//! A node with many devices that share the memory for index writes.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::*;
use martlet_protocol::backend::WriteReply;
use martlet_protocol::{BackendExt, DeviceId};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

const DEVICES: u32 = 12;
const PUTS: u32 = 5000;
const WRITERS: u32 = 16;

/// Number of tables of all indexes.
fn tables(folder: &Path) -> usize {
    let index = |number: u32| folder.join(number.to_string()).join("index");
    let files = (0..DEVICES).flat_map(|number| fs::read_dir(index(number)).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|it| it == "sst")).count()
}

/// Half of the objects are inline, and half are packed.
async fn put(node: &StorageNode, number: u32) {
    let (device, name) = (DeviceId(number % DEVICES), number.to_string());
    if (number / DEVICES).is_multiple_of(2) {
        let stored = node.write(device, inline(&name, 2000)).await.unwrap();
        assert_eq!(stored, WriteReply::Stored);
    } else {
        put_extent_on(node, device, &name, 9000).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_active_devices_write_few_tables() {
    let folder = tempfile::tempdir().unwrap();
    let config = |number: u32| DeviceConfig {
        reserve: Reserve::Bytes(0),
        ..DeviceConfig::new(DeviceId(number), folder.path().join(number.to_string()))
    };
    let options = NodeOptions { write_buffer_bytes: 40 << 20, ..NodeOptions::default() };
    let node = Arc::new(StorageNode::open((0..DEVICES).map(config).collect(), options).unwrap());
    let before = tables(folder.path());
    let writers = (0..WRITERS).map(|writer| {
        let node = node.clone();
        tokio::spawn(async move {
            for number in (writer..PUTS).step_by(WRITERS as usize) {
                put(&node, number).await;
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    // All of it is less than 1 MiB for each device, and the memory is 8 MiB for each.
    let tables = tables(folder.path()) - before;
    assert!(tables <= 2 * DEVICES as usize, "{tables} tables for {PUTS} puts");
    node.shutdown().await.unwrap();
}
