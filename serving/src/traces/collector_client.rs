//! One request to the collector, and the meaning of its reply: OTLP/HTTP 1.10, "Failures".
//!
//! Invariant: the headers of the file are read for each request, so that the file may be replaced
//! at any time. Their values appear in no log and no error.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use rustls::ClientConfig;
use rustls::crypto::ring;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::time::timeout;

use super::settings::{TraceSettings, endpoint_of};
use crate::failure::Failure;
use crate::trust::client_config;

/// Path of the signal, behind the path of the endpoint.
const PATH: &str = "/v1/traces";
const MEDIA: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// Timeout of a connection, and of a whole request.
const CONNECT_MAX: Duration = Duration::from_secs(3);
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Idle time after which a connection is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Most bytes of a reply that are read.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Most headers of the file.
const HEADERS_MAX: usize = 16;

/// Client of one collector.
pub(super) struct CollectorClient {
    uri: Uri,
    headers_file: Option<PathBuf>,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Reason why the collector didn't accept a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExportError {
    /// The batch may be sent again, after this time if the collector named one.
    Passing(String, Option<Duration>),
    /// The collector refuses the batch.
    Refused(String),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Passing(reason, _) | Self::Refused(reason)) = self;
        f.write_str(reason)
    }
}

impl CollectorClient {
    pub(super) fn new(endpoint: &str, settings: &TraceSettings) -> Result<Self, Failure> {
        let base = endpoint_of(endpoint)?;
        let unusable = |_| Failure::usage("the otlp_endpoint can't be used in requests");
        let uri = format!("{}{PATH}", endpoint.trim_end_matches('/')).parse().map_err(unusable)?;
        let tls = if base.scheme_str() == Some("https") {
            client_config(settings.otlp_ca_file.as_deref(), "otlp_ca_file")?
        } else {
            Arc::new(no_authority())
        };
        if let Some(path) = &settings.otlp_headers_file {
            read_headers(path).map_err(Failure::usage)?;
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_MAX));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(Arc::unwrap_or_clone(tls))
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self { uri, headers_file: settings.otlp_headers_file.clone(), http })
    }

    /// Sends a batch. Returns the number of its spans that the collector refused.
    pub(super) async fn send(&self, body: Bytes) -> Result<u64, ExportError> {
        let passing = |reason: String| ExportError::Passing(reason, None);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        if let Some(path) = self.headers_file.clone() {
            let read = tokio::task::spawn_blocking(move || read_headers(&path)).await;
            let read = read.map_err(|error| passing(error.to_string()))?;
            headers.extend(read.map_err(passing)?);
        }
        headers.insert(CONTENT_TYPE, MEDIA);
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                passing(format!("{error}{}", cause.unwrap_or_default()))
            })?;
            outcome_of(response).await
        };
        let late = || passing(format!("no reply within {} s", REQUEST_MAX.as_secs()));
        timeout(REQUEST_MAX, exchange).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Reads a reply.
async fn outcome_of(response: Response<Incoming>) -> Result<u64, ExportError> {
    let (head, body) = response.into_parts();
    let reason = || format!("the collector answered {}", head.status);
    match head.status {
        status if status.is_success() => {
            let body = Limited::new(body, REPLY_BYTES_MAX).collect().await;
            Ok(body.map_or(0, |body| refused_spans(&body.to_bytes())))
        }
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            Err(ExportError::Passing(reason(), retry_after(&head.headers)))
        }
        _ => Err(ExportError::Refused(reason())),
    }
}

/// Returns the number of spans that an accepted batch lost.
fn refused_spans(reply: &[u8]) -> u64 {
    let reply = ExportTraceServiceResponse::decode(reply).unwrap_or_default();
    let refused = reply.partial_success.map_or(0, |partial| partial.rejected_spans);
    u64::try_from(refused).unwrap_or_default()
}

/// Returns the pause that a reply asks for: a number of seconds, or the time of its end.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = OffsetDateTime::parse(value, &Rfc2822).ok()?;
    let sent = OffsetDateTime::parse(headers.get("date")?.to_str().ok()?, &Rfc2822).ok()?;
    (at - sent).try_into().ok()
}

/// Reads a file with one header on each line. Empty lines and those with `#` first are passed over.
fn read_headers(path: &Path) -> Result<HeaderMap, String> {
    let unusable = |why: &dyn fmt::Display| {
        format!("the otlp_headers_file {} can't be used: {why}", path.display())
    };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let mut headers = HeaderMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || unusable(&format_args!("line {} must be NAME: VALUE", number + 1));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(name, value);
        if headers.len() > HEADERS_MAX {
            return Err(unusable(&format_args!("it has more than {HEADERS_MAX} headers")));
        }
    }
    Ok(headers)
}

/// Returns the TLS settings of a client that makes no connections over TLS.
fn no_authority() -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn pauses_are_seconds_or_times() {
        let pause = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            retry_after(&pairs.collect())
        };
        assert_eq!(pause(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        let later = ("retry-after", "Wed, 21 Oct 2015 07:29:30 GMT");
        assert_eq!(pause(&[date, later]), Some(Duration::from_secs(90)));
        let earlier = ("retry-after", "Wed, 21 Oct 2015 07:27:30 GMT");
        for none in [&[][..], &[later], &[date, earlier], &[("retry-after", "soon")]] {
            assert_eq!(pause(none), None, "{none:?}");
        }
    }

    #[test]
    fn replies_count_refused_spans() {
        let reply = |rejected_spans| {
            let partial = ExportTracePartialSuccess { rejected_spans, error_message: "no".into() };
            ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!([refused_spans(&reply(3)), refused_spans(&reply(-1))], [3, 0]);
        assert_eq!([refused_spans(b""), refused_spans(b"\xff\xff")], [0, 0]);
    }

    #[test]
    fn headers_are_read_from_a_file_and_never_repeated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read_headers(file.path())
        };
        let headers = read("# of the collector\n\nAuthorization: Bearer s3cret\nx-scope: a\n");
        let headers = headers.unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["authorization"], "Bearer s3cret");
        assert!(!format!("{headers:?}").contains("s3cret"));
        for wrong in ["authorization Bearer s3cret", "a b: s3cret", ": s3cret", "a: s3\u{1}cret"] {
            let refusal = read(wrong).unwrap_err();
            assert!(refusal.contains("line 1") && !refusal.contains("cret"), "{refusal}");
        }
        assert!(read(&"a: b\n".repeat(HEADERS_MAX + 1)).unwrap_err().contains("more than"));
        assert!(read_headers(Path::new("/nowhere/headers")).unwrap_err().contains("/nowhere"));
    }
}
