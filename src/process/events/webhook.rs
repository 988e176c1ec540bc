//! A target that gets each message in a POST. Any 2xx acknowledges; redirects are not followed.
//!
//! Of what else it may answer, most 4xx are about the message. Those that are about who sends it, and
//! where to, would be the answer to any other message too: they are taken for trouble as all 5xx are.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::tries::Trouble;

/// From connecting to the head of the reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Until there is a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Answers of 4xx that are not about the message.
const NOT_ITS_FAULT: [StatusCode; 7] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Where messages go.
#[derive(Debug)]
pub(super) struct Webhook {
    address: Uri,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Webhook {
    pub(super) fn new(address: Uri) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        Self { address, client: Client::builder(TokioExecutor::new()).build(connector) }
    }

    /// Delivers a message, or says why it was not acknowledged.
    pub(super) async fn post(&self, message: Bytes) -> Result<(), Trouble> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.address.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(message))
            .map_err(|error| Trouble::Away(error.to_string()))?;
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request));
        match answer.await {
            Ok(Ok(response)) => judge(response.status()),
            Ok(Err(error)) if error.is_connect() => Err(Trouble::Away(chain(&error))),
            Ok(Err(error)) => Err(Trouble::Failed(chain(&error))),
            Err(_) => Err(Trouble::Failed(format!("it did not answer within {PATIENCE:?}"))),
        }
    }
}

/// What an answer means.
fn judge(status: StatusCode) -> Result<(), Trouble> {
    let said = format!("it answered {status}");
    match status {
        _ if status.is_success() => Ok(()),
        _ if status.is_client_error() && !NOT_ITS_FAULT.contains(&status) => {
            Err(Trouble::Refused(said))
        }
        _ => Err(Trouble::Failed(said)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_trouble() {
        let of = |status: u16| judge(StatusCode::from_u16(status).unwrap());
        assert!([200, 202, 204].iter().all(|status| of(*status) == Ok(())));
        for status in [400, 405, 409, 410, 413, 415, 422] {
            assert!(matches!(of(status), Err(Trouble::Refused(_))), "{status}");
        }
        for status in [301, 307, 401, 403, 404, 407, 408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(of(status), Err(Trouble::Failed(_))), "{status}");
        }
    }
}
