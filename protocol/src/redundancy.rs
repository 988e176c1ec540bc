//! Redundancy of a storage policy: whole copies, or coded fragments.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits::FRAGMENTS_MAX;

/// Redundancy of an extent on its partition's devices. Fixed for the life of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Redundancy {
    /// A copy on each device; the ring's replica count is the number of copies.
    #[default]
    Replicated,
    /// A fragment on each device: replica i of a partition holds fragment i of its extents.
    Erasure {
        /// Number of data fragments; any `k` fragments restore an extent.
        k: u8,
        /// Number of parity fragments; any `m` fragments may be lost.
        m: u8,
    },
}

impl Redundancy {
    /// Creates the code `k+m`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) unless 1 ≤ k, 1 ≤ m and k+m ≤ 32.
    pub fn erasure(k: u8, m: u8) -> Result<Self> {
        let total = u16::from(k) + u16::from(m);
        if k == 0 || m == 0 || total > u16::from(FRAGMENTS_MAX) {
            return Err(Error::invalid(format!(
                "{k}+{m} is not an erasure code: use at least 1 data fragment and 1 parity \
                 fragment, and at most {FRAGMENTS_MAX} in all"
            )));
        }
        Ok(Self::Erasure { k, m })
    }

    /// True if devices hold copies.
    pub fn is_replicated(&self) -> bool {
        *self == Self::Replicated
    }

    /// Returns the number of fragments of an extent, for an erasure code.
    pub fn fragments(self) -> Option<u8> {
        match self {
            Self::Replicated => None,
            Self::Erasure { k, m } => Some(k + m),
        }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicated => f.write_str("replicated"),
            Self::Erasure { k, m } => write!(f, "{k}+{m}"),
        }
    }
}

impl From<Redundancy> for String {
    fn from(redundancy: Redundancy) -> Self {
        redundancy.to_string()
    }
}

impl TryFrom<String> for Redundancy {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// Parses the format of `Display`.
impl FromStr for Redundancy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "replicated" {
            return Ok(Self::Replicated);
        }
        let parts =
            text.split_once('+').and_then(|(k, m)| Some((k.parse().ok()?, m.parse().ok()?)));
        let (k, m) = parts.ok_or_else(|| {
            let message = "is neither \"replicated\" nor an erasure code such as \"4+2\"";
            Error::invalid(format!("\"{text}\" {message}"))
        })?;
        Self::erasure(k, m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for redundancy in [Redundancy::Replicated, Redundancy::erasure(4, 2).unwrap()] {
            assert_eq!(redundancy.to_string().parse::<Redundancy>().unwrap(), redundancy);
        }
        assert_eq!("30+2".parse::<Redundancy>().unwrap().fragments(), Some(32));
        for text in
            ["", "4", "4+", "+2", "0+2", "4+0", "31+2", "255+255", "4 + 2", "Replicated", "copies"]
        {
            assert!(text.parse::<Redundancy>().is_err(), "{text}");
        }
    }
}
