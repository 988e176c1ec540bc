//! Properties of a connection that policies depend on. Other ways to the bytes of an object have to keep them.

use super::key::Key;

/// Properties of the client's connection that the evaluation of policies needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionNeeds {
    /// The client's address: `aws:SourceIp`.
    pub(crate) address: bool,
    /// TLS: `aws:SecureTransport`.
    pub(crate) tls: bool,
    /// The version of TLS: `s3:TlsVersion`.
    pub(crate) tls_version: bool,
}

impl ConnectionNeeds {
    /// Returns the needs of a key's value.
    pub(super) fn of_key(key: &Key) -> Self {
        Self {
            address: key.is_address(),
            tls: key.row.name == "aws:SecureTransport",
            tls_version: key.row.name == "s3:TlsVersion",
        }
    }

    /// Returns the needs of both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            address: self.address || other.address,
            tls: self.tls || other.tls,
            tls_version: self.tls_version || other.tls_version,
        }
    }
}

impl FromIterator<Self> for ConnectionNeeds {
    fn from_iter<T: IntoIterator<Item = Self>>(all: T) -> Self {
        all.into_iter().fold(Self::default(), Self::and)
    }
}
