//! Connection of a request: the client's address, and TLS.

use std::net::IpAddr;

use http::Extensions;
use martlet_protocol::http::{Peer, TlsParameters};

/// Connection of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    /// Address of the client.
    pub(crate) peer: Option<IpAddr>,
    /// None without TLS.
    pub(crate) tls: Option<TlsParameters>,
}

impl Connection {
    /// Reads what the server added to a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let peer = extensions.get().map(|Peer(address)| *address);
        Self { peer, tls: extensions.get().copied() }
    }
}
