//! Which storage policy things go under.
//!
//! A bucket has a policy from its creation on; an object goes under its bucket's unless its storage
//! class names another. What was written stays where it is, whatever the bucket's policy is later:
//! manifests and uploads say theirs.
//!
//! * A policy is called by its name in any case, with `-` and `_` for each other: storage classes are
//!   written in capitals, `ARCHIVE_EC` for `archive-ec`.

use martlet_protocol::PolicyId;
use martlet_protocol::entry::{Attributes, Bucket};

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::store::Inner;

/// The storage class of what goes under its bucket's policy, as nothing does that names none.
const STANDARD: &str = "STANDARD";

/// Whether requests that name the one policy mean the other, too.
pub fn is_same_policy(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}

impl Cluster {
    /// The policy that is called so; of two, the one of the lower number.
    pub fn policy_called(&self, name: &str) -> Option<PolicyId> {
        let mut identities = self.policies().map(martlet_ring::Ring::identity);
        identities.find(|it| is_same_policy(&it.policy_name, name)).map(|it| it.policy)
    }

    /// What a policy is called, if there is a ring of it.
    pub fn policy_name(&self, policy: PolicyId) -> Option<&str> {
        self.data(policy).ok().map(|ring| ring.identity().policy_name.as_str())
    }

    /// The names of all policies, as a sentence says them.
    pub fn policy_names(&self) -> String {
        let names = self.policies().map(|ring| ring.identity().policy_name.as_str());
        format!("there are {}", names.collect::<Vec<_>>().join(", "))
    }

    /// The policy that a request asks for by name; the default where it asks for none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when none is called so.
    pub fn policy_asked(&self, name: Option<&str>) -> Result<PolicyId> {
        let Some(name) = name else { return Ok(self.default_policy()) };
        self.policy_called(name).ok_or_else(|| {
            let names = self.policy_names();
            Error::InvalidArgument(format!("\"{name}\" is no storage policy: {names}"))
        })
    }
}

impl Inner {
    /// The policy of an object to be written with these attributes.
    pub(crate) fn policy_of(&self, bucket: &Bucket, attributes: &Attributes) -> Result<PolicyId> {
        match attributes.storage_class.as_deref() {
            None | Some(STANDARD) => Ok(bucket.policy),
            Some(class) => self.cluster.policy_called(class).ok_or_else(|| {
                let names = self.cluster.policy_names();
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
