//! Overwrites of random objects, and deletes of what they replace.
//!
//! A working set of objects with bytes lies among the objects without bytes. Writers overwrite
//! random objects of the set by others of random length. Meanwhile the records of garbage are taken
//! page by page, their extents deleted, and the records forgotten, as `reclaim` does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use martlet_protocol::backend::Want;
use martlet_protocol::entry::Body;
use martlet_protocol::limits::ALIGN_BYTES;
use martlet_protocol::{BackendExt, DeviceId, Error, Result, Term};
use martlet_storage_node::StorageNode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::objects::{self, length, scrambled};
use crate::{Site, node, process};

const WRITERS: u64 = 16;
/// Records of garbage in a page.
const PAGE: usize = 1024;
const FOLDER: &str = "churn";

/// Arguments of `churn`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ChurnArgs {
    #[command(flatten)]
    pub(crate) site: Site,
    /// Seconds of overwrites
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Objects with bytes, on all devices
    #[arg(long, default_value_t = 8000)]
    working_set: u64,
}

/// State that all writers share.
struct Churn {
    node: Arc<StorageNode>,
    devices: u64,
    working_set: u64,
    done: AtomicU64,
    is_over: AtomicBool,
}

/// Fills the working set, and overwrites it.
pub(crate) async fn run(args: &ChurnArgs) -> Result<Value> {
    let node = node::open(&args.site).await?;
    let churn = Arc::new(Churn {
        node: node.clone(),
        devices: u64::from(args.site.devices),
        working_set: args.working_set,
        done: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let before = volumes_bytes(&args.site);
    each_writer(&churn, |churn, writer| async move { churn.fill(writer).await }).await?;
    let filled = volumes_bytes(&args.site) - before;
    churn.done.store(0, Ordering::Relaxed);
    let time = Duration::from_secs(args.seconds);
    let reclaiming = tokio::spawn(churn.clone().reclaim());
    let sampling = tokio::spawn(churn.clone().sample(time));
    each_writer(&churn, move |churn, writer| async move { churn.overwrite(writer, time).await })
        .await?;
    churn.is_over.store(true, Ordering::Release);
    let panicked = |error| Error::internal("a task panicked").with_source(error);
    reclaiming.await.map_err(panicked)??;
    let rates = sampling.await.map_err(panicked)?;
    // The last deletes and the tidying of the devices.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let now = volumes_bytes(&args.site) - before;
    let live = churn.live_bytes().await?;
    let [resident, _] = process::resident_bytes();
    node.shutdown().await?;
    Ok(json!({
        "rate_start": rates.first(),
        "rate_end": rates.last(),
        "rates": rates,
        "filled_bytes": filled,
        "allocated_bytes": now,
        "live_bytes": live,
        "resident_bytes": resident,
    }))
}

fn volumes_bytes(site: &Site) -> u64 {
    let folder = |device| node::folder(&site.dir, device).join("volumes");
    (0..site.devices).map(|device| process::allocated_bytes(&folder(device))).sum()
}

async fn each_writer<F>(churn: &Arc<Churn>, work: impl Fn(Arc<Churn>, u64) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(work(churn.clone(), writer));
    }
    while let Some(outcome) = writers.join_next().await {
        outcome.map_err(|error| Error::internal("a writer panicked").with_source(error))??;
    }
    Ok(())
}

impl Churn {
    fn device(&self, number: u64) -> DeviceId {
        DeviceId(u32::try_from(number % self.devices).unwrap_or_default())
    }

    async fn put(&self, number: u64, seed: u64) -> Result<()> {
        let bytes = usize::try_from(length(seed)).unwrap_or_default();
        let bytes = Bytes::from(vec![7; bytes]);
        node::put(&self.node, self.device(number), FOLDER, number, bytes).await?;
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn fill(&self, writer: u64) -> Result<()> {
        let mut number = writer;
        while number < self.working_set {
            self.put(number, number).await?;
            number += WRITERS;
        }
        Ok(())
    }

    async fn overwrite(&self, writer: u64, time: Duration) -> Result<()> {
        let (began, mut at) = (Instant::now(), 0);
        // A writer has numbers of its own, so that no write is superseded by a later one.
        let own = self.working_set.div_ceil(WRITERS).max(1);
        while began.elapsed() < time {
            let seed = scrambled((at * WRITERS + writer) ^ 0x5eed);
            let number = (seed % own) * WRITERS + writer;
            if number < self.working_set {
                self.put(number, seed).await?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Deletes the extents of replaced entries until the churn is over and no garbage is left.
    async fn reclaim(self: Arc<Self>) -> Result<()> {
        loop {
            let is_over = self.is_over.load(Ordering::Acquire);
            let mut records = 0;
            for device in 0..self.devices {
                records += self.reclaim_page(self.device(device)).await?;
            }
            if records == 0 && is_over {
                return Ok(());
            }
            if records < PAGE / 4 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }

    async fn reclaim_page(&self, device: DeviceId) -> Result<usize> {
        let garbage = self.node.garbage(device, u64::MAX, PAGE).await?;
        let extents = garbage.iter().filter_map(|record| match &record.body {
            Body::Extents(manifest) => Some(manifest.extents.iter().map(|extent| extent.id)),
            _ => None,
        });
        let extents: Vec<_> = extents.flatten().collect();
        if !extents.is_empty() {
            self.node.delete_extents(device, &extents).await?;
        }
        let ids: Vec<_> = garbage.into_iter().map(|record| record.id).collect();
        if !ids.is_empty() {
            self.node.forget_garbage(device, &ids).await?;
        }
        Ok(ids.len())
    }

    /// Returns the overwrites a second of each tenth of the time.
    async fn sample(self: Arc<Self>, time: Duration) -> Vec<f64> {
        let (mut rates, mut before) = (Vec::new(), 0);
        for _ in 0..10 {
            let began = Instant::now();
            tokio::time::sleep(time / 10).await;
            let done = self.done.load(Ordering::Relaxed);
            let count = u32::try_from(done - before).unwrap_or(u32::MAX);
            rates.push(f64::from(count) / began.elapsed().as_secs_f64());
            before = done;
        }
        rates
    }

    /// Returns the bytes that the extents of the working set take in volumes, headers included.
    async fn live_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for number in 0..self.working_set {
            let key = objects::key(FOLDER, number);
            let view = self.node.read(self.device(number), &key, Want::Entry, Term::ANY).await?;
            let body = view.entry.and_then(|entry| entry.value.body().cloned());
            if let Some(Body::Extents(manifest)) = body {
                let record = |length: u32| u64::from(length).next_multiple_of(ALIGN_BYTES);
                bytes +=
                    manifest.extents.iter().map(|it| ALIGN_BYTES + record(it.length)).sum::<u64>();
            }
        }
        Ok(bytes)
    }
}
