//! Loading of devices with objects without bytes, or with tombstones.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Error, Result};
use martlet_storage_node::BulkLoad;
use serde_json::{Value, json};

use crate::objects::{self, FREE_EVERY};
use crate::{Site, node, process};

/// Arguments of `generate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) site: Site,
    /// Load tombstones of deleted objects instead of objects
    #[arg(long)]
    tombstones: bool,
}

/// Formats and loads the devices.
pub(crate) async fn run(args: &GenerateArgs) -> Result<Value> {
    let (site, is_deleted) = (&args.site, args.tombstones);
    std::fs::create_dir_all(&site.dir)
        .map_err(|error| Error::internal("the folder can't be made").with_source(error))?;
    node::open(site).await?.shutdown().await?;
    let (began, before) = (Instant::now(), process::now());
    for device in 0..site.devices {
        let (path, count) = (node::folder(&site.dir, device), site.objects);
        let loading = tokio::task::spawn_blocking(move || load(&path, count, is_deleted));
        loading.await.map_err(|error| Error::internal("a load panicked").with_source(error))??;
    }
    let index = |device| process::allocated_bytes(&node::folder(&site.dir, device).join("index"));
    let index_bytes: u64 = (0..site.devices).map(index).sum();
    Ok(json!({
        "seconds": began.elapsed().as_secs_f64(),
        "cpu_s": process::now().cpu_s - before.cpu_s,
        "index_bytes": index_bytes,
    }))
}

fn load(path: &Path, count: u64, is_deleted: bool) -> Result<()> {
    let mut load = BulkLoad::begin(path, TreeKey::default())?;
    for number in 0..count {
        let object = if is_deleted { objects::deleted(number) } else { objects::bulk(number) };
        load.add(&object)?;
        if !is_deleted && number.is_multiple_of(FREE_EVERY) {
            load.leave_free(u64::from(objects::length(number)))?;
        }
        if number % 1_000_000 == 999_999 {
            eprintln!("{} of {count} objects", number + 1);
        }
    }
    load.finish()
}
