//! Costs of a whole node, index and extents together. Run with `--ignored --nocapture`; the figures
//! are for reading.

#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(clippy::cast_precision_loss, reason = "figures to read")]

use martlet_protocol::Term;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::*;
use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::{Backend, ListRequest, ListStart, WriteReply};
use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::key::RegisterKind;
use martlet_protocol::testing::new_extent;
use martlet_protocol::{BackendExt, PolicyId, Shard};
use martlet_storage_node::StorageNode;

const WRITERS: usize = 16;
const TIME: Duration = Duration::from_secs(3);

/// Returns the CPU seconds of this process so far, including kernel time.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

async fn put(node: &StorageNode, name: &str, bytes: &Bytes) {
    let write = if bytes.len() <= 8192 {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
        let body = Body::Inline { crc32c: u32::try_from(crc).unwrap() };
        let mut write = write(name, object(bytes.len(), body));
        write.inline = Some(bytes.clone());
        write
    } else {
        let new = new_extent(BUCKET, name, Some(bytes.len() as u64));
        let pieces: Vec<_> =
            bytes.chunks(1 << 17).map(|piece| Ok(bytes.slice_ref(piece))).collect();
        let body = futures::stream::iter(pieces).boxed();
        let extents = vec![node.write_extent(DEVICE, new, body).await.unwrap()];
        let manifest = Manifest {
            policy: PolicyId(0),
            extents,
            parts: Vec::new(),
            part_checksums: Vec::new(),
        };
        write(name, object(bytes.len(), Body::Extents(manifest)))
    };
    assert_eq!(node.write(DEVICE, write).await.unwrap(), WriteReply::Stored);
}

#[test]
#[ignore = "measures for half a minute"]
fn puts_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let node = Arc::new(open(folder.path(), 0).unwrap());
        for (what, length) in [
            ("4 KiB", 4 << 10),
            ("16 KiB", 16 << 10),
            ("64 KiB", 64 << 10),
            ("1 MiB", 1 << 20),
            ("2 MiB", 2 << 20),
            ("8 MiB", 8 << 20),
        ] {
            puts(&node, what, length).await;
        }
        lists(&node).await;
    });
}

async fn puts(node: &Arc<StorageNode>, what: &'static str, length: usize) {
    let before = node.metrics().devices.remove(0);
    let (began, cpu_before) = (Instant::now(), cpu());
    let writers = (0..WRITERS).map(|writer| {
        let node = node.clone();
        let bytes = pattern(what, length);
        tokio::spawn(async move {
            let (mut count, mut slowest) = (0_u64, Duration::ZERO);
            while began.elapsed() < TIME {
                let start = Instant::now();
                put(&node, &format!("{what}-{writer}-{count}"), &bytes).await;
                slowest = slowest.max(start.elapsed());
                count += 1;
            }
            (count, slowest)
        })
    });
    let done = futures::future::join_all(writers).await;
    let (mut count, mut slowest) = (0, Duration::ZERO);
    for (puts, slow) in done.into_iter().map(Result::unwrap) {
        (count, slowest) = (count + puts, slowest.max(slow));
    }
    let cpu_ms = (cpu() - cpu_before) * 1000.0 / count as f64;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let after = node.metrics().devices.remove(0);
    let syncs = after.index.syncs - before.index.syncs + after.extents.syncs - before.extents.syncs;
    let syncs = syncs as f64 / count as f64;
    let ms = WRITERS as f64 * 1000.0 / rate;
    eprintln!(
        "put {what}: {rate:.0}/s, {cpu_ms:.3} CPU ms, {syncs:.3} syncs a put, mean {ms:.2} ms, \
         slowest {slowest:?}"
    );
}

async fn lists(node: &StorageNode) {
    let (began, cpu_before) = (Instant::now(), cpu());
    let rounds = 100;
    let mut entries = 0;
    for _ in 0..rounds {
        let request = ListRequest {
            bucket: BUCKET,
            shards: (0..4).map(Shard).collect(),
            kind: RegisterKind::Object,
            prefix: Bytes::new(),
            start: ListStart::After(Bytes::from_static(b"4 KiB-1-")),
            limit: 1000,
            fold: None,
            term: Term::ANY,
        };
        entries += node.list(DEVICE, &request).await.unwrap().entries.len();
    }
    let wall = began.elapsed().as_secs_f64() * 1000.0 / f64::from(rounds);
    let cpu_ms = (cpu() - cpu_before) * 1000.0 / f64::from(rounds);
    assert_eq!(entries, 1000 * usize::try_from(rounds).unwrap());
    eprintln!("list 1,000 keys: {wall:.2} ms, {cpu_ms:.2} CPU ms");
}
