//! One request to a provider, bounded in bytes and in time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::error::OidcError;

/// Timeout for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a whole request with its reply.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a reply's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const AGENT: &str = "martlet";

/// HTTP client of a provider. Keeps no connection.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Reply with its whole body.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Fetcher {
    /// Makes a client that verifies servers by `tls`.
    pub(crate) fn new(tls: Arc<ClientConfig>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(Arc::unwrap_or_clone(tls))
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector);
        Self { client }
    }

    /// Sends a request and reads the reply, `bytes_max` bytes at most. `what` names the request in
    /// errors.
    ///
    /// # Errors
    /// [`OidcError::Unavailable`] without a whole reply in time.
    pub(crate) async fn send(
        &self,
        what: &str,
        request: Builder,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<Fetched, OidcError> {
        let failed = |why: &str| OidcError::unavailable(format!("{what}: {why}"));
        let request = request
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, AGENT)
            .body(Full::new(body))
            .map_err(|_| failed("the request can't be made"))?;
        let whole = self.read(request, bytes_max);
        match timeout(REQUEST_TIMEOUT, whole).await {
            Ok(outcome) => outcome.map_err(|why| failed(&why)),
            Err(_) => {
                Err(failed(&format!("there was no reply in {} s", REQUEST_TIMEOUT.as_secs())))
            }
        }
    }

    async fn read(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Fetched, String> {
        let reply = self.client.request(request).await.map_err(|error| causes(&error))?;
        let status = reply.status();
        let body = Limited::new(reply.into_body(), bytes_max).collect().await;
        let body = body.map_err(|error| {
            let is_long = error.is::<http_body_util::LengthLimitError>();
            if is_long {
                format!("the reply has more than {bytes_max} bytes")
            } else {
                causes(&*error)
            }
        })?;
        Ok(Fetched { status, body: body.to_bytes() })
    }
}

/// Returns an error with its causes. Errors of this client name no part of a request's body.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
