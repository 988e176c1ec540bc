//! Storage policies of buckets and objects.
//!
//! A bucket has a policy from its creation. Its objects use that policy, unless their storage class
//! names another. Stored objects keep their policy when the bucket's changes: manifests and uploads
//! record theirs.

use martlet_protocol::PolicyId;
use martlet_protocol::entry::{Attributes, Bucket};
use martlet_topology::Cluster;

use crate::error::{Error, Result};

/// The storage class of objects under their bucket's policy; also the default.
const STANDARD: &str = "STANDARD";

/// The policy named by a request; the default if it names none.
///
/// # Errors
/// [`Error::InvalidArgument`] for an unknown name.
pub(crate) fn bucket_policy(cluster: &Cluster, name: Option<&str>) -> Result<PolicyId> {
    let Some(name) = name else { return Ok(cluster.default_policy()) };
    cluster.policy_called(name).ok_or_else(|| {
        let names = cluster.policy_names();
        Error::InvalidArgument(format!("\"{name}\" is not a storage policy: {names}"))
    })
}

/// The policy of a new object with these attributes.
///
/// # Errors
/// [`Error::InvalidStorageClass`].
pub(crate) fn object_policy(
    cluster: &Cluster,
    bucket: &Bucket,
    attributes: &Attributes,
) -> Result<PolicyId> {
    match attributes.storage_class.as_deref() {
        None | Some(STANDARD) => Ok(bucket.policy),
        Some(class) => cluster.policy_called(class).ok_or_else(|| {
            let names = cluster.policy_names();
            Error::InvalidStorageClass(format!(
                "A storage class is STANDARD or the name of a storage policy, and {names}"
            ))
        }),
    }
}
