//! Copies and fragments of objects on the devices: their files and offsets, so that a test can
//! damage them, and checks that fragments agree with their manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ::bytes::Bytes;
use futures::TryStreamExt;
use martlet_erasure::{Code, Codec, Encoder, Geometry};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{
    Backend, BackendExt, DeviceId, Entry, ExtentId, PolicyId, Redundancy, Result,
};
use rand::Rng;
use rand::rngs::SmallRng;

use super::census::named;
use super::fragments::places;
use super::member::ClusterMember;
use super::ring_files::INDEX;
use super::running::TestCluster;

/// A copy or a fragment on a device.
#[derive(Clone, Debug)]
pub struct StoredPiece {
    /// Key of the object.
    pub key: String,
    /// The extent, as manifests name it.
    pub extent: ExtentRef,
    /// Id under which the device stores the copy or fragment.
    pub id: ExtentId,
    /// The device.
    pub device: DeviceId,
    /// File of the bytes.
    pub path: PathBuf,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl StoredPiece {
    /// Number of the fragment.
    pub fn number(&self) -> u8 {
        self.id.fragment_number()
    }

    /// Flips a random bit in every block of 64 KiB in the file, without the node's knowledge.
    pub fn flip(&self, chance: &mut SmallRng) {
        let file = OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        for begin in (0..self.length).step_by(64 << 10) {
            let end = self.length.min(begin + (64 << 10));
            let at = self.offset + chance.random_range(begin..end);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << chance.random_range(0..8)], at).unwrap();
        }
        file.sync_all().unwrap();
    }
}

impl TestCluster {
    /// Returns the newest entries, among all nodes, of objects whose keys begin with `prefix`.
    async fn newest(&self, prefix: &str) -> BTreeMap<String, Entry> {
        let mut newest: BTreeMap<String, Entry> = BTreeMap::new();
        for node in 0..self.nodes.len() {
            for (key, entry) in self.held(node, prefix).await {
                let known = newest.entry(key).or_insert_with(|| entry.clone());
                if known.order < entry.order {
                    *known = entry;
                }
            }
        }
        newest
    }

    /// Returns the extents of objects whose keys begin with `prefix`, each with its policy.
    async fn extents(&self, prefix: &str) -> Vec<(String, PolicyId, ExtentRef)> {
        let newest = self.newest(prefix).await.into_iter();
        let named = newest.map(|(key, entry)| (key, named(&entry)));
        named.flat_map(|(key, it)| it.into_iter().map(move |(a, b)| (key.clone(), a, b))).collect()
    }

    /// Returns all copies and fragments of these objects that lie where the rings place them.
    pub async fn pieces(&self, prefix: &str) -> Vec<StoredPiece> {
        let (rings, mut pieces) = (self.rings.of_policies(), Vec::new());
        for (key, policy, extent) in self.extents(prefix).await {
            for place in places(&rings[&policy], &extent) {
                for device in place.homes {
                    let backend = self.backend(self.node_of(device));
                    let Ok(stat) = backend.stat_extent(device, place.id).await else { continue };
                    let (key, id) = (key.clone(), place.id);
                    let (path, offset) = (stat.location.path, stat.location.offset);
                    let length = stat.location.length;
                    pieces.push(StoredPiece { key, extent, id, device, path, offset, length });
                }
            }
        }
        pieces
    }

    /// Number of the node that a device belongs to.
    pub fn node_of(&self, device: DeviceId) -> usize {
        let ring = self.rings.ring(INDEX);
        let device =
            ring.devices().iter().find(|it| it.id == device).expect("a device of the ring");
        let of = |node: &ClusterMember| node.name == device.node.name;
        self.nodes.iter().position(of).expect("a node of the cluster")
    }

    /// Reads every fragment of these objects from its primary. Returns the extents that differ from
    /// their manifests, or whose parity does not match their data.
    pub async fn disagreeing(&self, prefix: &str) -> BTreeSet<String> {
        let (rings, mut wrong) = (self.rings.of_policies(), BTreeSet::new());
        for (key, policy, extent) in self.extents(prefix).await {
            let ring = &rings[&policy];
            let Redundancy::Erasure { k, m } = ring.identity().redundancy else { continue };
            let (mut found, code) = (Vec::new(), Code::new(k, m).unwrap());
            for place in places(ring, &extent) {
                let mut bytes = Bytes::new();
                for device in place.homes {
                    match whole(self, device, place.id, place.length).await {
                        Ok(read) => bytes = read,
                        Err(error) => {
                            wrong.insert(format!("{key}: {} on {device}: {error}", place.id));
                        }
                    }
                }
                found.push(bytes);
            }
            wrong.extend(
                disagreement(code, &extent, &found)
                    .map(|what| format!("{key}: the {what} of {}", extent.id)),
            );
        }
        wrong
    }
}

async fn whole(
    cluster: &TestCluster,
    device: DeviceId,
    id: ExtentId,
    length: u64,
) -> Result<Bytes> {
    let backend = cluster.backend(cluster.node_of(device));
    let pieces: Vec<Bytes> =
        backend.read_extent(device, id, 0..length).await?.try_collect().await?;
    Ok(pieces.concat().into())
}

/// Returns the wrong part of an extent's fragments: `data` or `parity`. `found` is in the order of
/// their numbers.
fn disagreement(code: Code, extent: &ExtentRef, found: &[Bytes]) -> Option<&'static str> {
    let (data, rest) = found.split_at(usize::from(code.k()));
    let data: Bytes = data.concat().into();
    if data.len() != extent.length as usize || *blake3::hash(&data).as_bytes() != extent.blake3 {
        return Some("data");
    }
    (parity(code, &data) != rest).then_some("parity")
}

/// Computes the parity fragments of an extent.
fn parity(code: Code, data: &Bytes) -> Vec<Bytes> {
    let geometry = Geometry::new(code, data.len() as u64).unwrap();
    let codec = Codec::new(code);
    let mut encoder = Encoder::new(&codec, &geometry).unwrap();
    let mut blocks = encoder.push(data).unwrap();
    blocks.extend(encoder.finish().unwrap().0);
    let of = |number| {
        let own = blocks.iter().filter(|block| block.fragment.0 == number);
        own.map(|block| &block.bytes[..]).collect::<Vec<_>>().concat().into()
    };
    (code.k()..code.total()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::body;

    /// Fragments of a 140,000-byte extent under 4+2: two whole data fragments, a short one, an
    /// empty one, and parity.
    fn fragments(extent: &ExtentRef) -> Vec<Bytes> {
        let data = body("an extent", extent.length as usize);
        let whole = 65_536;
        let mut found = vec![data.slice(..whole), data.slice(whole..2 * whole)];
        found.extend([data.slice(2 * whole..), Bytes::new()]);
        found.extend(parity(Code::new(4, 2).unwrap(), &data));
        found
    }

    #[test]
    fn one_wrong_byte_in_any_fragment_is_reported() {
        let (code, length) = (Code::new(4, 2).unwrap(), 140_000);
        let blake3 = *blake3::hash(&body("an extent", length as usize)).as_bytes();
        let extent = ExtentRef { id: ExtentId([0; 16]), length, blake3 };
        let whole = fragments(&extent);
        assert_eq!(disagreement(code, &extent, &whole), None);
        for (at, expected) in [(0, "data"), (2, "data"), (4, "parity"), (5, "parity")] {
            let mut bytes = whole[at].to_vec();
            bytes[7] ^= 1;
            let mut found = whole.clone();
            found[at] = bytes.into();
            assert_eq!(disagreement(code, &extent, &found), Some(expected), "{at}");
        }
        let mut exchanged = whole.clone();
        exchanged.swap(0, 1);
        assert_eq!(disagreement(code, &extent, &exchanged), Some("data"));
        let mut lost = whole;
        lost[4] = Bytes::new();
        assert_eq!(disagreement(code, &extent, &lost), Some("parity"));
    }
}
