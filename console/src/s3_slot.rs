//! S3 service of this process, which the console reaches in process once the store is open.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use martlet_serving::audit::AuditLog;
use tower::ServiceExt;

use crate::id_tokens::IdTokens;

/// S3 service of a process.
pub struct S3Parts {
    /// Routes of the S3 address. They read the client's address from the extensions of a request.
    pub routes: Router,
    /// Region of signatures.
    pub region: String,
    /// Bound address of the S3 port.
    pub address: SocketAddr,
    /// True if clients connect to the S3 port over TLS.
    pub is_secure: bool,
    /// Verifier of the tokens of the identity provider, if there is one.
    pub id_tokens: Option<Arc<dyn IdTokens>>,
    /// Audit log of logins by an identity provider, if the process has one.
    pub audit: Option<Arc<AuditLog>>,
}

impl S3Parts {
    /// Makes the parts of a service without an identity provider and without an audit log.
    pub fn new(routes: Router, region: String, address: SocketAddr, is_secure: bool) -> Self {
        Self { routes, region, address, is_secure, id_tokens: None, audit: None }
    }
}

/// Place of the S3 service: empty until the store is open. Clones share it.
#[derive(Clone, Default)]
pub struct S3Slot(Arc<OnceLock<S3Parts>>);

impl S3Slot {
    /// Fills the place. A second call changes nothing.
    pub fn open(&self, parts: S3Parts) {
        let _ = self.0.set(parts);
    }

    /// Returns the service, or `None` until the store is open.
    pub(crate) fn get(&self) -> Option<&S3Parts> {
        self.0.get()
    }
}

impl S3Parts {
    /// Sends a signed request.
    pub(crate) async fn ask(&self, request: Request) -> Response {
        match self.routes.clone().oneshot(request).await {
            Ok(reply) => reply,
            Err(never) => match never {},
        }
    }

    /// URL by which a browser that reached the console as `host` reaches the S3 port.
    pub(crate) fn endpoint(&self, host: &str) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        if !self.address.ip().is_unspecified() {
            return format!("{scheme}://{}", self.address);
        }
        // Names in brackets are IPv6 addresses, whose colons begin no port.
        let end = host.find(']').map_or_else(|| host.find(':'), |at| Some(at + 1));
        let name = &host[..end.unwrap_or(host.len())];
        format!("{scheme}://{name}:{}", self.address.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_an_address_that_browsers_reach() {
        let endpoint = |address: &str, is_secure, host: &str| {
            let (routes, region) = (Router::new(), String::new());
            S3Parts::new(routes, region, address.parse().unwrap(), is_secure).endpoint(host)
        };
        assert_eq!(endpoint("127.0.0.1:9000", false, "x:9003"), "http://127.0.0.1:9000");
        assert_eq!(endpoint("0.0.0.0:9000", true, "n1.example:9003"), "https://n1.example:9000");
        assert_eq!(endpoint("[::]:9000", false, "[2001:db8::1]:9003"), "http://[2001:db8::1]:9000");
        assert_eq!(endpoint("[::]:9000", false, "localhost"), "http://localhost:9000");
    }
}
