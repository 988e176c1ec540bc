//! Parsing of storage policies, and a check of the CPU for erasure codes.
//!
//! * A policy is a ring of extents with a name, a number and a redundancy. Its code never changes,
//!   because existing fragments were encoded with it.
//! * A policy's name goes into HTTP headers: letters, digits, `-`, `_` and `.`. `STANDARD` is
//!   reserved for the storage class of requests without a policy.

use martlet_protocol::Redundancy;
use martlet_ring::Ring;
use martlet_ring_steps::policy::{FIRST_NAME, check_name, code};
use martlet_serving::Failure;
use martlet_topology::is_same_policy;
use serde::{Deserialize, Serialize};

/// Requested erasure-coded policy, such as `ec=4+2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedCode {
    pub(crate) name: String,
    pub(crate) code: Redundancy,
}

impl NamedCode {
    /// Parses the policies of flags and settings. Duplicate names are usage errors.
    pub(crate) fn parse_all<T: AsRef<str>>(texts: &[T]) -> Result<Vec<Self>, Failure> {
        let mut all: Vec<Self> = Vec::new();
        for text in texts {
            let policy = Self::parse(text.as_ref())?;
            if all.iter().any(|other| is_same_policy(&other.name, &policy.name)) {
                return Err(Failure::usage(format!("the policy {} is named twice", policy.name)));
            }
            all.push(policy);
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let (name, code_text) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!(
                "\"{text}\" is not a policy: write a name and a code, as in ec=4+2"
            ))
        })?;
        check_name(name)?;
        if is_same_policy(name, FIRST_NAME) {
            return Err(Failure::usage(format!(
                "\"{name}\" is the name of the first policy, which keeps copies: choose another \
                 name"
            )));
        }
        Ok(Self { name: name.to_owned(), code: code(code_text)? })
    }

    /// Number of devices that one stripe needs: k + m.
    pub(crate) fn devices(&self) -> usize {
        self.code.fragments().map_or(0, usize::from)
    }
}

/// Refuses erasure-coded rings on a machine whose CPU lacks the instructions for them.
pub(crate) fn check_cpu<'a>(rings: impl IntoIterator<Item = &'a Ring>) -> Result<(), Failure> {
    let is_coded = |ring: &Ring| ring.identity().redundancy.fragments().is_some();
    if !rings.into_iter().any(is_coded) {
        return Ok(());
    }
    martlet_erasure::check_cpu().map_err(|error| Failure::refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(texts: &[&str]) -> String {
        let Err(Failure::Usage(sentence)) = NamedCode::parse_all(texts) else {
            panic!("{texts:?} is allowed")
        };
        sentence
    }

    #[test]
    fn a_policy_is_a_name_and_a_code() {
        let all = NamedCode::parse_all(&["ec=4+2", "Archive_1.b=8+3"]).unwrap();
        assert_eq!((all[0].name.as_str(), all[0].code.to_string()), ("ec", "4+2".to_owned()));
        assert_eq!((all[0].devices(), all[1].devices()), (6, 11));
    }

    #[test]
    fn malformed_storage_policies_are_refused_with_the_reason() {
        for (texts, words) in [
            (&["4+2"][..], "as in ec=4+2"),
            (&["=4+2"], "is not a policy name"),
            (&["a b=4+2"], "is not a policy name"),
            (&["ec=4"], "erasure code such as \"4+2\""),
            (&["ec=replicated"], "not an erasure code such as 4+2"),
            (&["ec=31+2"], "at most 32"),
            (&["ec=0+2"], "at least 1 data fragment"),
            (&["Default=4+2"], "which keeps copies"),
            (&["standard=4+2"], "can't be named STANDARD"),
            (&["a-b=4+2", "A_B=2+1"], "named twice"),
        ] {
            let sentence = refusal(texts);
            assert!(sentence.contains(words), "{texts:?}: {sentence}");
        }
    }
}
