//! Costs of extents on real files. Run with `--ignored --nocapture`; the figures are for reading.

use std::time::{Duration, Instant};

use super::*;
use crate::disk::PosixDisk;
use crate::index::ExtentTable;

const FILES: u8 = 16;
const LONG: usize = 64 * 1024 * 1024;
const WRITERS: u32 = 16;

/// Returns the CPU seconds of this process so far, including kernel time.
#[expect(clippy::cast_precision_loss, reason = "figures to read")]
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

struct Meter(&'static str, Instant, f64);

impl Meter {
    fn start(what: &'static str) -> Self {
        Self(what, Instant::now(), cpu())
    }

    #[expect(clippy::cast_precision_loss, reason = "figures to read")]
    fn bytes(self, bytes: u64) {
        let (wall, cpu) = (self.1.elapsed().as_secs_f64(), cpu() - self.2);
        let gib = bytes as f64 / f64::from(1 << 30);
        eprintln!("{}: {:.3} CPU s a GiB, {:.0} MiB/s", self.0, cpu / gib, gib * 1024.0 / wall);
    }

    #[expect(clippy::cast_precision_loss, reason = "figures to read")]
    fn count(self, count: u64) {
        let (wall, cpu) = (self.1.elapsed().as_secs_f64(), cpu() - self.2);
        let rate = count as f64 / wall;
        eprintln!("{}: {:.4} CPU ms, {rate:.0}/s", self.0, cpu * 1000.0 / count as f64);
    }
}

fn pieces(bytes: &Bytes, piece: usize) -> ByteStream {
    let pieces: Vec<_> = bytes.chunks(piece).map(|piece| Ok(bytes.slice_ref(piece))).collect();
    futures::stream::iter(pieces).boxed()
}

async fn drain(store: &ExtentStore, id: ExtentId, range: Range<u64>) -> u64 {
    let mut stream = store.read(id, range).await.unwrap();
    let mut bytes = 0;
    while let Some(piece) = stream.next().await {
        bytes += piece.unwrap().len() as u64;
    }
    bytes
}

#[test]
#[ignore = "measures for half a minute"]
fn extents() {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let table = ExtentTable::open(&folder.path().join("index")).unwrap();
        let clock = Arc::new(SystemClock);
        let options = ExtentOptions::default();
        let (store, _) =
            ExtentStore::open(folder.path(), Arc::new(PosixDisk), table, clock, &options).unwrap();
        files(&store).await;
        packed(Arc::new(store)).await;
    });
}

async fn files(store: &ExtentStore) {
    let bytes = pattern(ExtentId::random(), LONG);
    let ids: Vec<_> = (0..FILES).map(|_| ExtentId::random()).collect();
    for (what, half) in [("write 64 MiB", &ids[..8]), ("write 64 MiB, again", &ids[8..])] {
        let meter = Meter::start(what);
        for id in half {
            let new = new(*id, Some(LONG as u64));
            store.write(new, 1, pieces(&bytes, 128 * 1024)).await.unwrap();
        }
        meter.bytes(half.len() as u64 * LONG as u64);
    }
    for what in ["read 64 MiB, cold or not", "read 64 MiB", "read 64 MiB, again"] {
        let meter = Meter::start(what);
        let mut total = 0;
        for id in &ids {
            total += drain(store, *id, 0..LONG as u64).await;
        }
        meter.bytes(total);
    }
    let meter = Meter::start("read ranges of 1 MiB");
    let mut total = 0;
    for at in 0..2000_u64 {
        let from = at * 7919 % 63 * (1 << 20) + 1000;
        let id = ids[usize::try_from(at).unwrap() % ids.len()];
        total += drain(store, id, from..from + (1 << 20)).await;
    }
    meter.bytes(total);
    let usage = store.usage();
    eprintln!("{} chunks inline, {} blocking", usage.inline_reads, usage.blocking_reads);
    store.delete(&ids).await.unwrap();
}

async fn packed(store: Arc<ExtentStore>) {
    for (what, length) in [("put 4 KiB", 4096), ("put 32 KiB", 32 * 1024), ("put 1 MiB", 1 << 20)] {
        let bytes = pattern(ExtentId::random(), length);
        let (before, began) = (store.usage(), Instant::now());
        let meter = Meter::start(what);
        let writers = (0..WRITERS).map(|_| {
            let (store, bytes) = (store.clone(), bytes.clone());
            tokio::spawn(async move {
                let mut ids = Vec::new();
                while began.elapsed() < Duration::from_secs(3) {
                    let id = ExtentId::random();
                    let new = new(id, Some(bytes.len() as u64));
                    store.write(new, 1, pieces(&bytes, 128 * 1024)).await.unwrap();
                    ids.push(id);
                }
                ids
            })
        });
        let written = futures::future::join_all(writers).await;
        let ids: Vec<ExtentId> = written.into_iter().flat_map(Result::unwrap).collect();
        let count = ids.len() as u64;
        meter.count(count);
        let syncs = store.usage().syncs - before.syncs;
        eprintln!("  {syncs} syncs for {count} puts");
        let meter = Meter::start("  get, opened anew");
        for id in ids.iter().take(2000) {
            drain(&store, *id, 0..bytes.len() as u64).await;
        }
        meter.count(2000.min(count));
        let meter = Meter::start("  get, open");
        for at in 0..20_000 {
            drain(&store, ids[at % ids.len().min(500)], 0..bytes.len() as u64).await;
        }
        meter.count(20_000);
        let meter = Meter::start("  delete 1,000 at a time");
        for ids in ids.chunks(1000) {
            store.delete(ids).await.unwrap();
        }
        meter.count(count);
    }
}
