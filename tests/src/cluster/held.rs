//! Requests to the nodes' internal ports: the content of their devices, and offers of rings.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::bytes::Bytes;
use futures::TryStreamExt;
use martlet_protocol::backend::{Presence, RegisterView};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::http::{ClientOptions, HttpBackend};
use martlet_protocol::key::{RegisterKey, RegisterKind};
use martlet_protocol::{Backend, BackendExt, DeviceId, Entry, Result};
use martlet_ring::Ring;

use super::internal::{CLUSTER_KEY, Request};
use super::ring_files::INDEX;
use super::running::TestCluster;

/// Registers or extents that one request to a node returns at most.
const PAGE: usize = 500;

impl TestCluster {
    /// Returns a backend for a node, as members of the cluster use.
    pub fn backend(&self, node: usize) -> HttpBackend {
        let (address, key) = (self.nodes[node].address, CLUSTER_KEY.parse().unwrap());
        let tls = self.certificates.as_ref().map(|certificates| certificates.tls.clone());
        let options = ClientOptions { tls, ..ClientOptions::default() };
        HttpBackend::new(address.to_string(), key, options, Arc::new(|_| ()))
    }

    /// Offers a ring to a node; returns true if the node accepts the ring.
    pub async fn push(&self, node: usize, name: &str, ring: &Ring) -> bool {
        let offer = Request::new("PUT", &format!("/v1/rings/{name}"), ring.encode());
        let reply = offer.send(self.nodes[node].address).await.unwrap();
        println!("{name} was offered to node {node}: {} {}", reply.status, reply.text());
        let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        answer["taken"].as_bool().unwrap()
    }

    /// Device ids of a node, from the newest index ring.
    pub fn devices(&self, node: usize) -> Vec<DeviceId> {
        let (ring, name) = (self.rings.ring(INDEX), &self.nodes[node].name);
        let own = ring.devices().iter().filter(|device| device.node.name == *name);
        own.map(|device| device.id).collect()
    }

    /// Returns the extents that a node can't return whole, in words. The read finds damaged
    /// extents.
    pub async fn unreadable(&self, node: usize) -> Vec<String> {
        let (backend, mut unreadable) = (self.backend(node), Vec::new());
        for device in self.devices(node) {
            let mut after = None;
            loop {
                let page = backend.list_extents(device, after, PAGE).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.extent.id);
                for extent in page.into_iter().map(|record| record.extent) {
                    let Err(error) = read_whole(&backend, device, extent).await else { continue };
                    // A listed extent may have been deleted since.
                    let presence = backend.presence(device, &[extent.id]).await.unwrap();
                    if presence == [Presence::Here] {
                        unreadable.push(format!("{}: {error}", extent.id));
                    }
                }
            }
        }
        unreadable
    }

    /// Returns a node's entries of objects whose keys begin with `prefix`, in all buckets.
    /// Tombstones are included.
    pub async fn held(&self, node: usize, prefix: &str) -> BTreeMap<String, Entry> {
        let (backend, mut held) = (self.backend(node), BTreeMap::new());
        for device in self.devices(node) {
            let mut after: Option<RegisterKey> = None;
            loop {
                let page = backend.registers(device, after.as_ref(), PAGE).await.unwrap();
                let Some((last, _)) = page.last() else { break };
                after = Some(last.clone());
                held.extend(page.into_iter().filter_map(|(key, view)| named(&key, view, prefix)));
            }
        }
        held
    }
}

async fn read_whole(backend: &HttpBackend, device: DeviceId, extent: ExtentRef) -> Result<()> {
    let stream = backend.read_extent(device, extent.id, 0..u64::from(extent.length)).await?;
    let bytes: Vec<Bytes> = stream.try_collect().await?;
    assert_eq!(*blake3::hash(&bytes.concat()).as_bytes(), extent.blake3, "{} is served", extent.id);
    Ok(())
}

fn named(key: &RegisterKey, view: RegisterView, prefix: &str) -> Option<(String, Entry)> {
    let name = String::from_utf8(key.name.to_vec()).ok()?;
    let wanted = key.kind == RegisterKind::Object && name.starts_with(prefix);
    view.entry.filter(|_| wanted).map(|entry| (name, entry))
}
