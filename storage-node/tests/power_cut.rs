//! A device whose power is cut has everything that was acknowledged, and says so in time.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use martlet_protocol::backend::{Backend, DeviceHealth};
use support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_power_cut() {
    let Some(mut image) = Image::new("a power cut", 256) else { return };
    let root = image.path().join("device");
    let mut acknowledged = Vec::new();
    for round in 0..3u64 {
        let node = Arc::new(open(&root, 1024 * 1024).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..8)
            .map(|writer| tokio::spawn(write_until(node.clone(), stop.clone(), round, writer)))
            .collect();
        tokio::time::sleep(Duration::from_millis(300 + 170 * round)).await;
        if !image.cut_power() {
            eprintln!("SKIPPED a power cut: python3 could not shut the file system down");
            stop.store(true, Ordering::Relaxed);
            return;
        }
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        assert!(node.write(DEVICE, inline("after", 10)).await.is_err());
        wait_for_health(&node, |health| matches!(health, DeviceHealth::Offline(_))).await;
        drop(node);
        image.unmount();
        assert!(image.mount());
    }
    assert!(acknowledged.len() > 100, "only {} writes", acknowledged.len());
    let node = open(&root, 1024 * 1024).unwrap();
    for (name, length) in &acknowledged {
        let bytes = get(&node, name).await.unwrap();
        assert!(bytes.is_some_and(|bytes| bytes == pattern(name, *length)), "{name} is not whole");
    }
    drop(node);
}

/// Writes until a write fails, and returns what was acknowledged.
async fn write_until(
    node: Arc<martlet_storage_node::StorageNode>,
    stop: Arc<AtomicBool>,
    round: u64,
    writer: u64,
) -> Vec<(String, usize)> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let name = format!("{round}-{writer}-{number}");
        let (length, outcome) = match number % 4 {
            0 => (70_000, put_object(&node, &name, 70_000).await),
            _ => (2000, node.write(DEVICE, inline(&name, 2000)).await),
        };
        if outcome.is_err() || stop.load(Ordering::Relaxed) {
            break;
        }
        acknowledged.push((name, length));
    }
    acknowledged
}
