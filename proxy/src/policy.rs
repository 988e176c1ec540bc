//! Storage policies of buckets and objects.
//!
//! A bucket has a policy from its creation. Its objects use that policy, unless their storage class
//! names another. Stored objects keep their policy when the bucket's changes: manifests and uploads
//! record theirs.
//!
//! * Names of policies match in any case, and `-` equals `_`. Storage classes are upper case:
//!   `ARCHIVE_EC` for `archive-ec`.

use martlet_protocol::PolicyId;
use martlet_protocol::entry::{Attributes, Bucket};

use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// The storage class of objects under their bucket's policy; also the default.
const STANDARD: &str = "STANDARD";

/// Returns true if two names denote one policy.
pub fn is_same_policy(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}

impl Cluster {
    /// The policy with this name; of several, that with the lowest number.
    pub fn policy_called(&self, name: &str) -> Option<PolicyId> {
        let mut identities = self.policies().map(martlet_ring::Ring::identity);
        identities.find(|it| is_same_policy(&it.policy_name, name)).map(|it| it.policy)
    }

    /// Name of a policy, if it has a ring.
    pub fn policy_name(&self, policy: PolicyId) -> Option<&str> {
        self.data(policy).ok().map(|ring| ring.identity().policy_name.as_str())
    }

    /// Names of all policies, as part of a message.
    pub fn policy_names(&self) -> String {
        let names = self.policies().map(|ring| ring.identity().policy_name.as_str());
        format!("there are {}", names.collect::<Vec<_>>().join(", "))
    }

    /// The policy named by a request; the default if it names none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an unknown name.
    pub fn policy_asked(&self, name: Option<&str>) -> Result<PolicyId> {
        let Some(name) = name else { return Ok(self.default_policy()) };
        self.policy_called(name).ok_or_else(|| {
            let names = self.policy_names();
            Error::InvalidArgument(format!("\"{name}\" is not a storage policy: {names}"))
        })
    }

    /// The policy of a new object with these attributes.
    ///
    /// # Errors
    /// [`Error::InvalidStorageClass`].
    pub(crate) fn policy_of(&self, bucket: &Bucket, attributes: &Attributes) -> Result<PolicyId> {
        match attributes.storage_class.as_deref() {
            None | Some(STANDARD) => Ok(bucket.policy),
            Some(class) => self.policy_called(class).ok_or_else(|| {
                let names = self.policy_names();
                Error::InvalidStorageClass(format!(
                    "A storage class is STANDARD or the name of a storage policy, and {names}"
                ))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_policy;

    #[test]
    fn names_are_the_same_in_capitals_and_with_underscores() {
        for (one, other) in [("ec", "EC"), ("archive-ec", "ARCHIVE_EC"), ("a_b", "a-B")] {
            assert!(is_same_policy(one, other), "{one} {other}");
        }
        for (one, other) in [("ec", "ec2"), ("a-b", "ab"), ("", "x"), ("a-b", "a.b")] {
            assert!(!is_same_policy(one, other), "{one} {other}");
        }
    }
}
