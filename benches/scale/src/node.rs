//! The node that has the measured devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::{Backend, DeviceHealth, NewExtent, WriteReply};
use martlet_protocol::extent::Layout;
use martlet_protocol::{BackendExt, DeviceId, Error, ExtentId, Result, WriteId};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

use crate::Site;
use crate::objects;

const MIB: usize = 1024 * 1024;
/// Bytes of index writes for each device, as a server gives them where `memory` allows. A node has
/// those of four devices at least.
const INDEX_WRITE_BYTES_PER_DEVICE: usize = 16 * MIB;

/// Returns the folder of a device.
pub(crate) fn folder(dir: &Path, device: u32) -> PathBuf {
    dir.join(device.to_string())
}

/// Opens the devices. An error if one of them doesn't open.
pub(crate) async fn open(site: &Site) -> Result<Arc<StorageNode>> {
    let configs = (0..site.devices).map(|number| DeviceConfig {
        reserve: Reserve::Bytes(0),
        ..DeviceConfig::new(DeviceId(number), folder(&site.dir, number))
    });
    let options = NodeOptions {
        block_cache_bytes: site.cache_mib * MIB,
        write_buffer_bytes: INDEX_WRITE_BYTES_PER_DEVICE * site.devices.max(4) as usize,
        ..NodeOptions::default()
    };
    let node = Arc::new(StorageNode::open(configs.collect(), options)?);
    let statuses = node.devices().await?;
    match statuses.iter().find(|status| status.health != DeviceHealth::Ready) {
        None => Ok(node),
        Some(status) => Err(Error::unavailable(format!("{:?}", status.health))),
    }
}

/// Stores an object of `bytes` on a device, as a PUT does: its extent, then its entry.
pub(crate) async fn put(
    node: &StorageNode,
    device: DeviceId,
    folder: &str,
    number: u64,
    bytes: Bytes,
) -> Result<()> {
    let write_id = WriteId::random();
    let new = NewExtent {
        id: ExtentId::random(),
        owner: objects::owner(folder, number, write_id),
        length: Some(bytes.len() as u64),
        birth_ms: None,
        layout: Layout::default(),
        hashes: None,
    };
    let body = futures::stream::iter([Ok(bytes)]).boxed();
    let extent = node.write_extent(device, new, body).await?;
    let reply = node.write(device, objects::write(folder, number, write_id, extent)).await?;
    if reply == WriteReply::Stored || reply == WriteReply::Superseded {
        return Ok(());
    }
    Err(Error::conflict(format!("a write was answered with {reply:?}")))
}
