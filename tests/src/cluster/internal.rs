//! Requests to the internal port of a storage node, signed by hand. This is a second implementation
//! of the documented signature, so that an error common to client and server shows.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use ::bytes::Bytes;
use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use martlet_protocol::{Clock, SystemClock};

use crate::s3::{LostReply, Reply, exchange};

/// Content of the cluster key file.
pub const CLUSTER_KEY: &str = "6d6172746c65742d746573742d636c75737465722d6b65792d6d6172746c6574";

/// A request to an internal port.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// The body.
    pub body: Bytes,
    /// Time of the request in milliseconds since 1970.
    pub date_ms: u64,
    /// The cluster key, as in its file.
    pub key: String,
}

impl Request {
    /// Makes a request with the present time and the right key.
    pub fn new(method: &'static str, target: &str, body: impl Into<Bytes>) -> Self {
        let (target, date_ms, key) = (target.to_owned(), SystemClock.now_ms(), CLUSTER_KEY.into());
        Self { method, target, body: body.into(), date_ms, key }
    }

    /// Returns the required headers: date, digest, signature.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let digest = blake3::hash(&self.body).to_hex().to_string();
        let date = self.date_ms.to_string();
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let text = format!(
            "martlet-internal-1\n{}\n{path}\n{query}\n\
             x-martlet-date:{date}\nx-martlet-digest:{digest}\n",
            self.method
        );
        let time = UNIX_EPOCH + Duration::from_millis(self.date_ms);
        let key = generate_signing_key(&self.key, time, "martlet", "internal");
        let signature = calculate_signature(key, text.as_bytes());
        vec![
            ("x-martlet-date", date),
            ("x-martlet-digest", digest),
            ("x-martlet-signature", signature),
        ]
    }

    /// Sends the request with its required headers.
    pub async fn send(&self, address: SocketAddr) -> Result<Reply, LostReply> {
        self.send_with(address, &self.headers()).await
    }

    /// Sends the request with these headers in place of the required ones.
    pub async fn send_with(
        &self,
        address: SocketAddr,
        headers: &[(&'static str, String)],
    ) -> Result<Reply, LostReply> {
        let request = hyper::Request::builder().method(self.method).uri(&self.target);
        let request = request.header("host", address.to_string());
        let request = headers.iter().fold(request, |all, (name, value)| all.header(*name, value));
        exchange(address, request.body(self.body.clone().into()).unwrap()).await
    }
}
