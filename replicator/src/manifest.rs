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

/// Reads an extent from any device of the policy with a good copy, or from sufficient fragments.
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
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => worst = Some(error),
        }
    }
    Err(worst.unwrap_or_else(|| Error::not_found(format!("no device has extent {}", extent.id))))
}
