//! Extents of a body.

use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Error, ErrorKind, PolicyId, Result};

use crate::cluster::StepTopology;
use crate::coded::code_of_policy;
use crate::coded::read::{read, read_coded};

/// Extents under one policy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyExtents {
    pub(crate) policy: PolicyId,
    pub(crate) extents: Vec<ExtentRef>,
}

/// The extents of a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyExtents {
    /// Extents with the object's bytes, and their policy.
    pub(crate) data: PolicyExtents,
    /// Extents with the manifest, if it is spilled.
    pub(crate) manifest: PolicyExtents,
}

impl BodyExtents {
    /// Returns the extents of a body; reads its manifest if it is spilled.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] only if every device of the policy denies an extent of the manifest.
    /// Any other error means that the extents are unknown.
    pub(crate) async fn of(cluster: &StepTopology, body: &Body) -> Result<Self> {
        match body {
            Body::Empty | Body::Inline { .. } => Ok(Self::default()),
            Body::Extents(manifest) => Ok(Self {
                data: PolicyExtents { policy: manifest.policy, extents: manifest.extents.clone() },
                manifest: PolicyExtents::default(),
            }),
            Body::Spilled { policy, manifest } => {
                let Manifest { policy: under, extents, .. } =
                    read_manifest(cluster, *policy, manifest).await?;
                Ok(Self {
                    data: PolicyExtents { policy: under, extents },
                    manifest: PolicyExtents { policy: *policy, extents: manifest.clone() },
                })
            }
        }
    }
}

async fn read_manifest(
    cluster: &StepTopology,
    policy: PolicyId,
    pieces: &[ExtentRef],
) -> Result<Manifest> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(&read_anywhere(cluster, policy, piece).await?);
    }
    Manifest::decode(&bytes)
}

/// Reads an extent from any device of the policy with the bytes that `extent` names, or from
/// sufficient fragments.
async fn read_anywhere(
    cluster: &StepTopology,
    policy: PolicyId,
    extent: &ExtentRef,
) -> Result<Vec<u8>> {
    if code_of_policy(cluster, policy)?.is_some() {
        return read_coded(cluster, policy, extent).await;
    }
    let mut worst: Option<Error> = None;
    for device in cluster.holders_of(policy, extent.id)? {
        let whole = 0..u64::from(extent.length);
        match read(cluster, device, extent.id, whole).await {
            Ok(bytes) if *blake3::hash(&bytes).as_bytes() == extent.blake3 => return Ok(bytes),
            Ok(_) => {
                let sentence = format!("device {device} has other bytes of extent {}", extent.id);
                tracing::error!(%device, extent = %extent.id, "a copy differs from its manifest");
                worst = Some(Error::corrupt(sentence));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => worst = Some(error),
        }
    }
    Err(worst.unwrap_or_else(|| Error::not_found(format!("no device has extent {}", extent.id))))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use martlet_protocol::backend::NewExtent;
    use martlet_protocol::{Backend, BackendExt, DeviceId};

    use super::*;
    use crate::testing::World;

    /// A wrong manifest of the right form would let the sweep delete extents that the object needs.
    #[tokio::test]
    async fn a_copy_of_a_manifest_with_other_bytes_is_not_believed() {
        let world = World::new().await;
        let (right, wrong) = (world.spilled("a", 2).await, world.spilled("b", 2).await);
        let Body::Spilled { manifest, .. } = &right.body else { unreachable!("just spilled") };
        let Body::Spilled { manifest: others, .. } = &wrong.body else {
            unreachable!("just spilled")
        };
        let cluster = StepTopology::of(&world.cluster);
        let (piece, other) = (manifest[0], others[0]);
        let device_of = |id: martlet_protocol::ExtentId| DeviceId(u32::from(id.0[0] & 1));
        let (holder, source) = (device_of(piece.id), device_of(other.id));
        let bytes = read(&cluster, source, other.id, 0..u64::from(other.length)).await.unwrap();
        let owner = world.memory.stat_extent(holder, piece.id).await.unwrap().record.owner;
        let good = read(&cluster, holder, piece.id, 0..u64::from(piece.length)).await.unwrap();
        assert_eq!(bytes.len(), good.len());
        // Wherever the wrong copy lies, the right one is found; without it nothing is believed.
        for (wrong_on, right_on) in [(0, Some(1)), (1, Some(0)), (0, None)] {
            let copies = [(wrong_on, Some(&bytes)), (1 - wrong_on, right_on.map(|_| &good))];
            for (device, bytes) in copies.map(|(device, bytes)| (DeviceId(device), bytes)) {
                world.memory.release_extents(device, &[piece.id]).await.unwrap();
                let Some(bytes) = bytes else { continue };
                let new = NewExtent {
                    id: piece.id,
                    owner: owner.clone(),
                    length: None,
                    birth_ms: None,
                    layout: martlet_protocol::extent::Layout::default(),
                    hashes: None,
                };
                let body = stream::iter([Ok(Bytes::copy_from_slice(bytes))]).boxed();
                world.memory.write_extent(device, new, body).await.unwrap();
            }
            let found = BodyExtents::of(&cluster, &right.body).await;
            if let Some(right_on) = right_on {
                let extents = found.unwrap().data.extents;
                let ids: Vec<_> = extents.iter().map(|extent| extent.id).collect();
                assert_eq!(ids, right.ids[..2], "the right copy on device {right_on}");
            } else {
                assert_eq!(found.unwrap_err().kind(), ErrorKind::Corrupt);
            }
        }
    }
}
