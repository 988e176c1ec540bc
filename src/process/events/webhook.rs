//! A target that gets each message in a POST. Any 2xx acknowledges; redirects are not followed.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// From connecting to the head of the reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where messages go.
#[derive(Debug)]
pub(super) struct Webhook {
    address: Uri,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Webhook {
    pub(super) fn new(address: Uri) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Delivers a message, or says why it was not acknowledged.
    pub(super) async fn post(&self, message: Bytes) -> Result<(), String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.address.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(message))
            .map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request));
        match answer.await {
            Ok(Ok(response)) if response.status().is_success() => Ok(()),
            Ok(Ok(response)) => Err(format!("it answered {}", response.status())),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(format!("it did not answer within {PATIENCE:?}")),
        }
    }
}

/// An error with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
