//! Facts about a client's connection, which a port attaches to each request as extensions: the
//! client's address, its TLS, and the mark of connections that have had an authenticated request.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Address of the client. The server puts it into the extensions of each request; policies evaluate
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// TLS parameters of a connection. The server puts them into the extensions of each request that
/// comes over TLS, like [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsParameters {
    /// Version of the protocol.
    pub version: TlsVersion,
    /// OpenSSL's name of the cipher suite, if known.
    pub cipher: Option<&'static str>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    /// Version number for policies.
    pub const fn number(self) -> &'static str {
        match self {
            Self::V1_2 => "1.2",
            Self::V1_3 => "1.3",
        }
    }
}

/// Mark of one connection, set once a request on the connection was authenticated. The server puts
/// the mark into the extensions of each request, like [`Peer`], and may prefer
/// connections with a set mark.
#[derive(Clone, Debug, Default)]
pub struct AuthenticatedFlag(Arc<AtomicBool>);

impl AuthenticatedFlag {
    /// Marks the connection as authenticated.
    pub fn set(&self) {
        // Most requests find the mark set, and leave its cache line shared.
        if !self.is_set() {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Returns true if a request was authenticated.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
