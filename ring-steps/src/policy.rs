//! Names and codes of storage policies.

use martlet_protocol::{PolicyId, Redundancy};
use martlet_ring::RingSettings;
use martlet_serving::Failure;
use martlet_topology::is_same_policy;

/// Default name of policy 0.
pub const FIRST_NAME: &str = "default";
/// Policy name of rings of the index. Older rings of the index have the default name.
pub const INDEX_NAME: &str = "index";
const NAME_BYTES_MAX: usize = 64;

/// Refuses names that a request could not carry in its headers, and `STANDARD`.
///
/// # Errors
/// A usage error.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        return Err(Failure::usage(format!(
            "\"{name}\" is not a policy name: use 1 to {NAME_BYTES_MAX} letters, digits, -, _ and ."
        )));
    }
    if is_same_policy(name, "STANDARD") {
        return Err(Failure::usage(
            "a policy can't be named STANDARD, the storage class of the bucket's policy",
        ));
    }
    Ok(())
}

/// True if the rings may be those of the index, which nodes judge more strictly.
pub(crate) fn may_be_index(settings: &RingSettings) -> bool {
    settings.policy == PolicyId(0) && settings.redundancy == Redundancy::Replicated
}

/// Parses an erasure code such as `4+2`.
///
/// # Errors
/// A usage error.
pub fn code(text: &str) -> Result<Redundancy, Failure> {
    match text.parse() {
        Ok(code @ Redundancy::Erasure { .. }) => Ok(code),
        Ok(Redundancy::Replicated) => {
            Err(Failure::usage(format!("\"{text}\" is not an erasure code such as 4+2")))
        }
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

/// Returns advice for a code with `m` parity fragments; only m = 1 has any.
pub fn advice(m: u8) -> Option<String> {
    (m == 1).then(|| {
        "with one parity fragment, writes need all fragments on disk: use more devices than \
         fragments, or writes fail while one device is out"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_for_headers() {
        assert!(check_name(&"x".repeat(64)).is_ok() && check_name(&"x".repeat(65)).is_err());
        for name in ["", "a b", "ü", "standard", "STANDARD"] {
            assert!(matches!(check_name(name), Err(Failure::Usage(_))), "{name}");
        }
    }

    #[test]
    fn one_fragment_of_parity_is_worth_a_word() {
        assert!(advice(1).is_some_and(|words| words.contains("fail while one device is out")));
        assert_eq!(advice(2), None);
    }
}
