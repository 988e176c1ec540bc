//! Names of storage policies.
//!
//! * Names match in any case, and `-` equals `_`. Storage classes are upper case: `ARCHIVE_EC` for
//!   `archive-ec`.

use martlet_protocol::PolicyId;
use martlet_ring::Ring;

use crate::cluster::Cluster;

/// Returns true if two names denote one policy.
pub fn is_same_policy(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}

impl Cluster {
    /// The policy with this name; of several, that with the lowest number.
    pub fn policy_called(&self, name: &str) -> Option<PolicyId> {
        let mut identities = self.policies().map(Ring::identity);
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
