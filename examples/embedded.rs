//! The object store inside another program, without HTTP: one node with two devices in a folder.
//!
//! `cargo run --example embedded -- FOLDER` keeps its objects in FOLDER.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use martlet_protocol::{Backend, DeviceId, PolicyId, Settings, SystemClock, entry::Attributes};
use martlet_proxy::{
    Cluster, ListObjects, NewBody, NewBucket, ObjectStore, PutObject, ReadConditions, Selection,
    StoreOptions, WriteConditions,
};
use martlet_ring::{Device, Node, Ring};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

const DEVICES: [DeviceId; 2] = [DeviceId(1), DeviceId(2)];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder for the objects")?;
    let (node, store) = open(Path::new(&folder)).await?;
    store_and_read(&store).await?;
    // Without this, the next opening checks all extents, as after a crash.
    Ok(node.shutdown().await?)
}

/// Opens a node, and a store that keeps two copies of everything on its devices.
async fn open(folder: &Path) -> Result<(Arc<StorageNode>, ObjectStore), Box<dyn Error>> {
    let path = |id: DeviceId| folder.join(format!("device-{}", id.0));
    let reserve = Reserve::Bytes(256 * 1024 * 1024);
    let config = |id| DeviceConfig { reserve, ..DeviceConfig::new(id, path(id)) };
    let configs = DEVICES.map(config).to_vec();
    let opening = move || StorageNode::open(configs, NodeOptions::default());
    let node = Arc::new(tokio::task::spawn_blocking(opening).await??);
    let device = |id: DeviceId| Device {
        id,
        region: 1,
        zone: 1,
        node: Node { name: "here".to_owned(), address: String::new() },
        name: format!("device-{}", id.0),
        weight: 1.0,
        meta: String::new(),
    };
    // One ring places the index entries, one the extents of each storage policy.
    let ring = Arc::new(Ring::of_devices(PolicyId(0), 2, &DEVICES.map(device))?);
    let nodes = DEVICES.map(|id| (id, node.clone() as Arc<dyn Backend>));
    let cluster = Cluster::new(ring.clone(), vec![ring], HashMap::from(nodes))?;
    let store = ObjectStore::new(cluster, Arc::new(SystemClock), StoreOptions::default());
    Ok((node, store))
}

/// Makes a bucket, writes an object into it, reads the object, and lists the bucket.
async fn store_and_read(store: &ObjectStore) -> martlet_proxy::Result<()> {
    let (owner, settings) = ("me".to_owned(), Settings::default());
    let new = NewBucket { owner, index_shards: 1, policy: None, settings };
    store.buckets().create("checkpoints", new).await?;

    let chunks = (0..16u8).map(|step| Ok(Bytes::from(vec![step; 1024 * 1024])));
    let body = NewBody {
        bytes: stream::iter(chunks).boxed(),
        size: Some(16 * 1024 * 1024),
        md5: None,
        compute: Vec::new(),
        expected: Box::new(|| Ok(Vec::new())),
    };
    let (attributes, conditions) = (Attributes::default(), WriteConditions::default());
    let put = PutObject { attributes, body, conditions };
    let written = store.put("checkpoints", "run-1/model.pt", put).await?;
    println!("wrote {} bytes with ETag {}", written.object.size, written.object.etag);

    let range = Selection::From { first: 3 * 1024 * 1024, last: None };
    let conditions = ReadConditions::default();
    let read = store.get("checkpoints", "run-1/model.pt", range, &conditions).await?;
    let chunks: Vec<Bytes> = read.body.expect("a GET has a body").try_collect().await?;
    let length: usize = chunks.iter().map(Bytes::len).sum();
    assert_eq!((length, chunks[0][0]), (13 * 1024 * 1024, 3));

    let page =
        store.list("checkpoints", ListObjects { limit: 10, ..ListObjects::default() }).await?;
    for (key, object) in page.objects {
        println!("{key}: {} bytes", object.size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread")]
    async fn an_object_is_written_read_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let (node, store) = super::open(folder.path()).await.unwrap();
        super::store_and_read(&store).await.unwrap();
        let again = super::store_and_read(&store).await;
        assert!(matches!(again, Err(martlet_proxy::Error::BucketExists { .. })));
        node.shutdown().await.unwrap();
    }
}
