//! Target that receives each message in a POST. Any 2xx acknowledges; redirects are not followed.
//!
//! Most 4xx replies refuse the message. Some 4xx are about the sender or the URL and would follow
//! any message. These count as failures, like all 5xx.
//!
//! Invariant: the token is read for each message, so that its file may be replaced at any time. The
//! token appears in no log and no `Debug` output.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use martlet_serving::Failure;

use super::retry::DeliveryFailure;
use super::webhook_stream::Connector;

/// Timeout from the connection to the head of the reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// 4xx replies that are not about the message.
const NOT_ITS_FAULT: [StatusCode; 7] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Webhook with its URL, token file and connections.
pub(super) struct Webhook {
    address: Uri,
    token_file: Option<PathBuf>,
    client: Client<Connector, Full<Bytes>>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Webhook").field(&self.address).finish()
    }
}

impl Webhook {
    /// Makes a webhook at `url`. `ca_file` holds the authorities of its certificate, `token_file`
    /// the token that authenticates the sender.
    pub(super) fn new(
        url: &str,
        ca_file: Option<&Path>,
        token_file: Option<&Path>,
    ) -> Result<Self, Failure> {
        let address = address(url)?;
        let is_tls = address.scheme_str() == Some("https");
        if ca_file.is_some() && !is_tls {
            return Err(Failure::usage(format!(
                "ca_file needs an https:// webhook, not \"{url}\""
            )));
        }
        if let Some(path) = token_file {
            bearer(path).map_err(Failure::usage)?;
        }
        let host = address.host().unwrap_or_default();
        let connector = if is_tls { Connector::tls(host, ca_file)? } else { Connector::plain() };
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { address, token_file: token_file.map(Path::to_owned), client })
    }

    /// Returns the `Authorization` header, if a token is set.
    async fn authorization(&self) -> Result<Option<HeaderValue>, DeliveryFailure> {
        let Some(path) = self.token_file.clone() else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || bearer(&path)).await;
        read.expect("the blocking task does not panic").map(Some).map_err(DeliveryFailure::Away)
    }

    /// Delivers a message, or returns the cause of its failure.
    pub(super) async fn post(&self, message: Bytes) -> Result<(), DeliveryFailure> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.address.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(message))
            .map_err(|error| DeliveryFailure::Away(error.to_string()))?;
        if let Some(bearer) = self.authorization().await? {
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request));
        match answer.await {
            Ok(Ok(response)) => classify_status(response.status()),
            Ok(Err(error)) if error.is_connect() => Err(DeliveryFailure::Away(chain(&error))),
            Ok(Err(error)) => Err(DeliveryFailure::Failed(chain(&error))),
            Err(_) => Err(DeliveryFailure::Failed(format!("no answer within {PATIENCE:?}"))),
        }
    }
}

fn address(url: &str) -> Result<Uri, Failure> {
    let refused = || {
        Failure::usage(format!(
            "the webhook \"{url}\" must have the form http://host:port/path or https://host/path"
        ))
    };
    let address = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
    let address = address.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let address = address.ok_or_else(refused)?;
    if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(Failure::usage("a webhook's URL must not contain credentials: use token_file"));
    }
    Ok(address)
}

/// Reads the token of a file, as an `Authorization` header.
fn bearer(path: &Path) -> Result<HeaderValue, String> {
    let failure =
        |why: &dyn fmt::Display| format!("the token_file {} can't be used: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failure(&error))?;
    let token = text.trim();
    let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.is_empty() || !is_plain {
        return Err(failure(&"it must contain one token, without spaces"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| failure(&"the token is not valid in a header"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Maps a reply's status to an outcome.
fn classify_status(status: StatusCode) -> Result<(), DeliveryFailure> {
    let reason = format!("the webhook answered {status}");
    match status {
        _ if status.is_success() => Ok(()),
        _ if status.is_client_error() && !NOT_ITS_FAULT.contains(&status) => {
            Err(DeliveryFailure::Refused(reason))
        }
        _ => Err(DeliveryFailure::Failed(reason)),
    }
}

/// Formats an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
