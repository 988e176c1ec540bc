//! Which extents a body consists of.

use futures::TryStreamExt;
use martlet_protocol::entry::{Body, Manifest};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Error, ErrorKind, PolicyId, Result};

use crate::cluster::Cluster;

/// The extents of a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyExtents {
    /// Where they lie, when there are any.
    pub(crate) policy: Option<PolicyId>,
    /// Those that hold the object's bytes.
    pub(crate) data: Vec<ExtentRef>,
    /// Those that hold the manifest, when it was too long for its entry.
    pub(crate) manifest: Vec<ExtentRef>,
}

impl BodyExtents {
    /// Finds the extents of a body, reading its manifest where it is spilled.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] only when every device of the policy says that an extent of the
    /// manifest is not there; any other error means that nobody can tell.
    pub(crate) async fn of(cluster: &Cluster, body: &Body) -> Result<Self> {
        match body {
            Body::Empty | Body::Inline { .. } => Ok(Self::default()),
            Body::Extents(manifest) => Ok(Self {
                policy: Some(manifest.policy),
                data: manifest.extents.clone(),
                manifest: Vec::new(),
            }),
            Body::Spilled { policy, manifest } => {
                let decoded = read_manifest(cluster, *policy, manifest).await?;
                Ok(Self {
                    policy: Some(*policy),
                    data: decoded.extents,
                    manifest: manifest.clone(),
                })
            }
        }
    }
}

async fn read_manifest(
    cluster: &Cluster,
    policy: PolicyId,
    pieces: &[ExtentRef],
) -> Result<Manifest> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(&read_anywhere(cluster, policy, piece).await?);
    }
    Manifest::decode(&bytes)
}

/// An extent from whichever device of the policy has a good copy.
async fn read_anywhere(cluster: &Cluster, policy: PolicyId, extent: &ExtentRef) -> Result<Vec<u8>> {
    let mut worst: Option<Error> = None;
    for device in cluster.holders_of(policy, extent.id)? {
        let node = match cluster.node(device) {
            Ok(node) => node,
            Err(error) => {
                worst = Some(error);
                continue;
            }
        };
        let read = async {
            let stream = node.read_extent(device, extent.id, 0..u64::from(extent.length)).await?;
            stream
                .try_fold(Vec::new(), |mut all, chunk| async move {
                    all.extend_from_slice(&chunk);
                    Ok(all)
                })
                .await
        };
        match read.await {
            Ok(bytes) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => worst = Some(error),
        }
    }
    Err(worst.unwrap_or_else(|| Error::not_found(format!("no device has extent {}", extent.id))))
}
