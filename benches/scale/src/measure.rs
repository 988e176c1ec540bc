//! Opening, memory, look-ups, listings and writes of the devices.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use martlet_protocol::backend::{Detail, ListRequest, ListStart, RowKinds, RowSelection, Want};
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;
use martlet_protocol::{BackendExt, DeviceId, Error, RegisterKind, Result, Shard, Term};
use martlet_storage_node::StorageNode;
use serde_json::{Value, json};

use crate::objects::{self, BUCKET, SHARDS, scrambled};
use crate::process::ProcessFigures;
use crate::{Site, node, process};

const COLD_LOOKUPS: u32 = 500;
const WARM_LOOKUPS: u32 = 20_000;
/// Pages before those that are measured: they read parts of indexes and filters, which stay cached.
const PAGES_BEFORE: u32 = 300;
const PAGES: u32 = 200;
const PAGE: usize = 1000;
/// Time and rows after which a proxy returns an empty page.
const EMPTY_PAGE_TIME: Duration = Duration::from_millis(500);
const EMPTY_PAGE_ROWS: usize = 1_000_000;
const WRITERS: u64 = 16;
const PUT_BYTES: usize = 16 * 1024;
/// Time between two looks at a count.
const COUNT_STEP: Duration = Duration::from_millis(20);
/// Read calls and CPU seconds in half a second below which background work has ended.
const IDLE_READS: u64 = 20;
const IDLE_CPU_S: f64 = 0.03;
/// Half seconds without work after which it has ended, and those after which nothing waits longer.
const IDLE_STEPS: u32 = 4;
const IDLE_STEPS_MAX: u32 = 1200;

/// Arguments of `measure`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) site: Site,
    /// Seconds of writes
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Take one part alone
    #[arg(long)]
    only: Option<Part>,
    /// End without closing the devices, as a crash does
    #[arg(long)]
    crash: bool,
}

/// Part of the measures.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Open and close
    Open,
    /// List every name once, which fills the cache of the index, then random pages
    Lists,
    /// List names of which nothing but tombstones is left
    Tombstones,
}

/// Opens and measures the devices.
pub(crate) async fn run(args: &MeasureArgs) -> Result<Value> {
    let began = Instant::now();
    let node = node::open(&args.site).await?;
    let opened_s = began.elapsed().as_secs_f64();
    let [resident, peak] = process::resident_bytes();
    let mut figures = json!({
        "opened_s": opened_s,
        "resident_bytes": resident,
        "peak_bytes": peak,
    });
    counted(&node).await;
    figures["counted_s"] = json!(began.elapsed().as_secs_f64() - opened_s);
    let bench = Bench { node: node.clone(), site: args.site.clone() };
    if args.only == Some(Part::Lists) {
        idle().await;
        figures["list_all"] = bench.list_all().await?;
        figures["list_cached"] = bench.lists(4 << 32, PAGES).await?;
        figures["worked_bytes"] = json!(process::resident_bytes()[0]);
    } else if args.only == Some(Part::Tombstones) {
        idle().await;
        figures["cold_page"] = bench.empty_page(true).await?;
        figures["page"] = bench.empty_page(false).await?;
    } else if args.only.is_none() {
        idle().await;
        figures["cold"] = bench.lookups(COLD_LOOKUPS, 1, true).await?;
        bench.lookups(WARM_LOOKUPS, 2, false).await?;
        figures["warm"] = bench.lookups(WARM_LOOKUPS, 2, false).await?;
        // Names of each series are others, so that their blocks are on disk.
        figures["list_first"] = bench.lists(0, PAGES / 2).await?;
        bench.lists(1 << 32, PAGES_BEFORE).await?;
        figures["list"] = bench.lists(2 << 32, PAGES).await?;
        figures["list_on"] = bench.lists_on(PAGES).await?;
        let (before, time) = (args.seconds.div_ceil(2), Duration::from_secs(args.seconds));
        // Parts of the filters of extents are read by the first PUTs, in no order.
        bench.puts("before", Duration::from_secs(before)).await?;
        figures["put"] = bench.puts("put", time).await?;
        figures["worked_bytes"] = json!(process::resident_bytes()[0]);
    }
    if args.crash {
        println!("{figures}");
        std::process::exit(0);
    }
    let began = Instant::now();
    node.shutdown().await?;
    figures["closed_s"] = json!(began.elapsed().as_secs_f64());
    Ok(figures)
}

/// Waits until the extents of all devices are counted.
async fn counted(node: &StorageNode) {
    while node.metrics().devices.iter().any(|device| device.extents.is_counting) {
        tokio::time::sleep(COUNT_STEP).await;
    }
}

/// Waits until compactions after an opening have ended, for ten minutes at most.
async fn idle() {
    let mut steps = 0;
    for _ in 0..IDLE_STEPS_MAX {
        let before = process::now();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let after = process::now();
        let is_idle =
            after.reads - before.reads < IDLE_READS && after.cpu_s - before.cpu_s < IDLE_CPU_S;
        steps = if is_idle { steps + 1 } else { 0 };
        if steps == IDLE_STEPS {
            return;
        }
    }
}

struct Bench {
    node: Arc<StorageNode>,
    site: Site,
}

impl Bench {
    fn device(&self, seed: u64) -> DeviceId {
        DeviceId(u32::try_from(scrambled(seed) % u64::from(self.site.devices)).unwrap_or_default())
    }

    /// Reads entries of random keys, one after another.
    async fn lookups(&self, count: u32, salt: u64, cold: bool) -> Result<Value> {
        if cold {
            self.forget_pages();
        }
        let (began, before) = (Instant::now(), process::now());
        for at in 0..u64::from(count) {
            // Warm look-ups stay within keys whose blocks fit into the cache.
            let span = if cold { self.site.objects } else { self.site.objects.min(10_000) };
            let number = scrambled(at * 2 + salt) % span;
            let key = objects::key("data", number);
            let view = self.node.read(self.device(number), &key, Want::Entry, Term::ANY).await?;
            if view.entry.is_none() {
                return Err(Error::not_found(format!("object {number} is missing")));
            }
        }
        Ok(each(count, began, before))
    }

    /// Removes the files of the indexes from the page cache.
    fn forget_pages(&self) {
        for device in 0..self.site.devices {
            process::forget_pages(&node::folder(&self.site.dir, device).join("index"));
        }
    }

    /// Lists a page of a device. An error if a name is missing.
    async fn page(&self, device: DeviceId, after: u64) -> Result<()> {
        let request = list_request(ListStart::After(objects::name("data", after).into()));
        let rows = self.node.list(device, &request).await?.entries.len() as u64;
        let expected = (self.site.objects - after - 1).min(PAGE as u64);
        if rows != expected {
            return Err(Error::corrupt(format!("{rows} rows of {expected} after {after}")));
        }
        Ok(())
    }

    /// Returns a random name from which on a whole page follows, where there are so many.
    fn start(&self, seed: u64) -> u64 {
        scrambled(seed) % self.site.objects.saturating_sub(PAGE as u64).max(1)
    }

    /// Lists pages from random names on.
    async fn lists(&self, salt: u64, pages: u32) -> Result<Value> {
        self.forget_pages();
        let (began, before) = (Instant::now(), process::now());
        for page in 0..u64::from(pages) {
            let number = self.start(salt + page);
            self.page(self.device(number), number).await?;
        }
        Ok(each(pages, began, before))
    }

    /// Lists pages one after another from a random name on, as a client lists a bucket.
    async fn lists_on(&self, pages: u32) -> Result<Value> {
        self.forget_pages();
        let last = self.site.objects.saturating_sub(PAGE as u64).max(1);
        let (first, device) = (self.start(3 << 32), self.device(0));
        let (began, before) = (Instant::now(), process::now());
        for page in 0..u64::from(pages) {
            self.page(device, (first + page * PAGE as u64) % last).await?;
        }
        Ok(each(pages, began, before))
    }

    /// Lists all names of each device. Figures are those of a page.
    async fn list_all(&self) -> Result<Value> {
        let (began, before) = (Instant::now(), process::now());
        let pages = self.site.objects.div_ceil(PAGE as u64);
        for device in 0..self.site.devices {
            for page in 0..pages {
                let after = (page * PAGE as u64).min(self.site.objects.saturating_sub(2));
                self.page(DeviceId(device), after).await?;
            }
        }
        let pages = u32::try_from(pages).unwrap_or(u32::MAX).saturating_mul(self.site.devices);
        Ok(each(pages, began, before))
    }

    /// Lists from the first name on, as the first page of a LIST does where all objects were deleted: the
    /// device passes over tombstones, and the page ends empty after half a second or a million of them.
    async fn empty_page(&self, cold: bool) -> Result<Value> {
        if cold {
            self.forget_pages();
        }
        let objects = RowSelection { detail: Detail::Summary, kinds: RowKinds::Objects };
        let (began, before) = (Instant::now(), process::now());
        let (mut rows, mut start) = (0, ListStart::First);
        while began.elapsed() < EMPTY_PAGE_TIME && rows < EMPTY_PAGE_ROWS {
            let reply = self.node.list_rows(self.device(0), &list_request(start), objects).await?;
            let Some(position) = reply.position().cloned() else { break };
            rows += LIST_EMPTY_ROWS_MAX;
            start = ListStart::After(position);
        }
        let mut figures = each(1, began, before);
        figures["rows"] = json!(rows);
        Ok(figures)
    }

    /// Stores new objects of 16 KiB, each with an extent in a volume.
    async fn puts(&self, folder: &str, time: Duration) -> Result<Value> {
        let (began, before) = (Instant::now(), process::now());
        let folder = format!("{folder}{}", std::process::id());
        let writers = (0..WRITERS).map(|writer| {
            let (node, folder) = (self.node.clone(), folder.clone());
            let devices = u64::from(self.site.devices);
            tokio::spawn(async move {
                let bytes = Bytes::from(vec![7; PUT_BYTES]);
                let mut count = 0;
                while began.elapsed() < time {
                    let number = count * WRITERS + writer;
                    let device = DeviceId(u32::try_from(number % devices).unwrap_or_default());
                    node::put(&node, device, &folder, number, bytes.clone()).await?;
                    count += 1;
                }
                Ok::<u64, Error>(count)
            })
        });
        let mut count = 0;
        for writer in futures::future::join_all(writers).await {
            count += writer
                .map_err(|error| Error::internal("a writer panicked").with_source(error))??;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let mut figures = each(count, began, before);
        figures["per_s"] = json!(f64::from(count) / began.elapsed().as_secs_f64());
        Ok(figures)
    }
}

/// Returns the request for a page of a device.
fn list_request(start: ListStart) -> ListRequest {
    ListRequest {
        bucket: BUCKET,
        shards: (0..SHARDS).map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::from_static(b"data/"),
        start,
        limit: PAGE,
        fold: None,
        term: Term::ANY,
    }
}

/// Returns the costs of one of `count` operations.
fn each(count: u32, began: Instant, before: ProcessFigures) -> Value {
    let (after, count) = (process::now(), f64::from(count.max(1)));
    let reads = u32::try_from(after.reads - before.reads).unwrap_or(u32::MAX);
    json!({
        "ms": began.elapsed().as_secs_f64() * 1000.0 / count,
        "cpu_ms": (after.cpu_s - before.cpu_s) * 1000.0 / count,
        "system_ms": (after.system_s - before.system_s) * 1000.0 / count,
        "reads": f64::from(reads) / count,
    })
}
