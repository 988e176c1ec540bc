//! Measurement of the CPU time of a hop, both sides together. Not a test: prints its results.

use martlet_protocol::{BackendExt, Term};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::Backend;
use martlet_protocol::backend::{EntryWrite, Want};
use martlet_protocol::entry::{Attributes, Body, ETag, Object, Value};
use martlet_protocol::http::{ClientOptions, HttpBackend};

use crate::world::{DEVICE, TestNode, client, extent, memory, register, stream, write};

const CALLS: u32 = 5000;
const EXTENTS: u32 = 16;
const MIB: usize = 1024 * 1024;

/// CPU seconds of this process, in ticks of 10 ms.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let ticks = |at: usize| after.split_whitespace().nth(at).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

async fn measured(what: &str, times: u32, unit: &str, per: f64, work: impl AsyncFn()) {
    let (cpu, wall) = (cpu_s(), Instant::now());
    for _ in 0..times {
        work().await;
    }
    let n = f64::from(times);
    let (cpu, wall) = (cpu_s() - cpu, wall.elapsed().as_secs_f64());
    println!("{what}: {:.3} CPU {unit}, {:.3} wall {unit}", cpu * per / n, wall * per / n);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures"]
async fn cost_of_a_hop() {
    let memory = memory();
    let node = TestNode::start(memory.clone()).await;
    let client_with_channel = Arc::new(node.client());
    let key = register();
    let mut put = write(&key);
    put.entry.value = Value::Object(Box::new(Object {
        size: 4096,
        etag: ETag::Md5([7; 16]),
        modified_ms: 1,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body: Body::Inline { crc32c: 0 },
        version: None,
    }));
    put.inline = Some(Bytes::from(vec![7; 4096]));
    let over_http = client(node.address, ClientOptions { channels: false, ..Default::default() });
    calls(Arc::new(over_http), &put, "over HTTP").await;
    calls(client_with_channel.clone(), &put, "by a channel").await;
    assert!(client_with_channel.has_channel());
    measured("read 4 KiB in process", CALLS, "ms", 1e3, async || {
        memory.read(DEVICE, &key, Want::EntryAndInline, Term::ANY).await.unwrap();
    })
    .await;
    extents(&*client_with_channel, "over HTTP").await;
    extents(&*memory, "in process").await;
}

async fn calls(client: Arc<HttpBackend>, put: &EntryWrite, way: &str) {
    let key = &put.key;
    measured(&format!("write 4 KiB {way}"), CALLS, "ms", 1e3, async || {
        client.write(DEVICE, put.clone()).await.unwrap();
    })
    .await;
    measured(&format!("read 4 KiB {way}"), CALLS, "ms", 1e3, async || {
        client.read(DEVICE, key, Want::EntryAndInline, Term::ANY).await.unwrap();
    })
    .await;
    let all = 1e3 / f64::from(CALLS);
    measured(&format!("read 4 KiB, 16 at a time, {way}"), 1, "ms", all, async || {
        let readers = (0..16).map(|_| {
            let (client, key) = (client.clone(), key.clone());
            tokio::spawn(async move {
                for _ in 0..CALLS / 16 {
                    client.read(DEVICE, &key, Want::EntryAndInline, Term::ANY).await.unwrap();
                }
            })
        });
        futures::future::try_join_all(readers).await.unwrap();
    })
    .await;
}

async fn extents(backend: &dyn Backend, whither: &str) {
    let gib = 1024.0 / 64.0;
    let piece = Bytes::from(vec![7; MIB]);
    let pieces = || stream((0..64).map(|_| Ok(piece.clone())).collect());
    measured(&format!("write 64 MiB {whither}"), EXTENTS, "s/GiB", gib, async || {
        let new = extent(Some(64 * MIB as u64));
        let id = new.id;
        backend.write_extent(DEVICE, new, pieces()).await.unwrap();
        backend.delete_extents(DEVICE, &[id]).await.unwrap();
    })
    .await;
    let new = extent(None);
    let id = new.id;
    backend.write_extent(DEVICE, new, pieces()).await.unwrap();
    measured(&format!("read 64 MiB {whither}"), EXTENTS, "s/GiB", gib, async || {
        let mut stream = backend.read_extent(DEVICE, id, 0..64 * MIB as u64).await.unwrap();
        let mut length = 0;
        while let Some(piece) = stream.next().await {
            length += piece.unwrap().len();
        }
        assert_eq!(length, 64 * MIB);
    })
    .await;
}
