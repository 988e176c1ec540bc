//! Layout of an object: its extents and the nodes that hold them, from `LocateObject` of the store.
//!
//! The store decides by the policies of the session's key. Its reply has tokens, which read bytes
//! without a signature. They end here: a page receives the addresses of nodes alone.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use martlet_serving::operator::refuse;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Console;
use crate::objects::{AGENT, HOST, NO_KEY, NOT_OPEN, TOO_MANY};
use crate::own_request::{csrf_of, session_of};
use crate::sign::{AccessKey, SignedService, SigningScope, UnsignedRequest};
use crate::store_form::element;
use crate::target::{QUERY, S3Target, encode};

/// Maximum bytes of a reply of the store: a page of 1,000 extents with long tokens has less.
const BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of a refusal of the store.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Header by which replies of `LocateObject` are known.
const LOCATE: &str = "x-martlet-locate";
const OFF: &str = "no node of this store has a data port, so the store reports no places";
const UNREADABLE: &str = "the store's reply can't be read";

/// Object, and the first byte of the page of its layout.
#[derive(Deserialize)]
pub(crate) struct LayoutQuery {
    bucket: String,
    key: String,
    version: Option<String>,
    from: Option<u64>,
    /// ETag of the first page: later pages are of the same object.
    etag: Option<String>,
}

/// Page of a layout. Fields of the store's reply that are not named here are dropped.
#[derive(Serialize, Deserialize)]
struct Layout {
    size: u64,
    etag: String,
    direct: bool,
    /// Reason why an object can't be read in place: `inline`, `encrypted` or `rate-limited`.
    reason: Option<String>,
    extents: Vec<Extent>,
    /// First byte of the next page.
    next: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Extent {
    id: String,
    /// Place in the object, and length, in bytes.
    offset: u64,
    length: u64,
    blake3: String,
    code: Option<Code>,
    pieces: Vec<Piece>,
}

/// Erasure code of k data and m parity fragments.
#[derive(Serialize, Deserialize)]
struct Code {
    k: u8,
    m: u8,
}

/// Copy, or data fragment. Places are in the extent, in bytes.
#[derive(Serialize, Deserialize)]
struct Piece {
    #[serde(rename = "piece")]
    number: u8,
    id: String,
    from: u64,
    length: u64,
    holders: Vec<Holder>,
}

#[derive(Serialize, Deserialize)]
struct Holder {
    /// Scheme, host and port of the node's data port.
    #[serde(deserialize_with = "address")]
    url: String,
}

/// Reads a URL without its path and its query.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url: Uri = String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)?;
    let parts = url.scheme_str().zip(url.host());
    let (scheme, host) = parts.ok_or_else(|| serde::de::Error::custom("the URL has no host"))?;
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{scheme}://{host}{port}"))
}

/// Shows a page of the layout of an object.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Query(query): Query<LayoutQuery>,
    request: Request,
) -> Response {
    let headers = request.headers();
    let session = match session_of(&console, headers, csrf_of(headers)) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let Some(key) = session.rights.s3 else { return refuse(StatusCode::FORBIDDEN, NO_KEY) };
    match console.layout(&key, &query, request.extensions()).await {
        Ok(layout) => Json(layout).into_response(),
        Err(refusal) => *refusal,
    }
}

impl Console {
    async fn layout(
        &self,
        key: &AccessKey,
        query: &LayoutQuery,
        connection: &Extensions,
    ) -> Result<Layout, Box<Response>> {
        let refused = |status, sentence: &str| Box::new(refuse(status, sentence));
        let s3 = self.s3.get();
        let s3 = s3.ok_or_else(|| refused(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN))?;
        let too_many = || refused(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY);
        let _place = self.places.take(key.holder()).ok_or_else(too_many)?;
        let scope = SigningScope { region: &s3.region, now_ms: self.clock.now_ms() };
        let request = query.request(key, scope);
        let mut request = request.map_err(|sentence| refused(StatusCode::BAD_REQUEST, sentence))?;
        *request.extensions_mut() = connection.clone();
        let (head, body) = s3.ask(request).await.into_parts();
        if !head.status.is_success() {
            let body = to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
            let sentence = element(&String::from_utf8_lossy(&body), "Message");
            return Err(refused(head.status, &sentence_of(head.status, sentence)));
        }
        let unreadable = || refused(StatusCode::INTERNAL_SERVER_ERROR, UNREADABLE);
        // A store that doesn't know the request answers with the object itself.
        if !head.headers.contains_key(LOCATE) {
            return Err(unreadable());
        }
        let body = to_bytes(body, BYTES_MAX).await.map_err(|_| unreadable())?;
        serde_json::from_slice(&body).map_err(|_| unreadable())
    }
}

/// Sentence for a refusal of the store.
fn sentence_of(status: StatusCode, stores: Option<String>) -> String {
    match (status, stores) {
        (StatusCode::NOT_IMPLEMENTED, _) => OFF.to_owned(),
        (_, Some(stores)) => stores,
        (status, None) => format!("the store refused this with status {}", status.as_u16()),
    }
}

impl LayoutQuery {
    /// Makes the signed request to the store.
    ///
    /// # Errors
    /// A sentence for the page.
    fn request(&self, key: &AccessKey, scope: SigningScope<'_>) -> Result<Request, &'static str> {
        let target = S3Target::object(&self.bucket, &self.key);
        let target = target.ok_or("the bucket's name or the key is invalid")?;
        let mut path = format!("{}?locate=", target.s3_path());
        if let Some(version) = &self.version {
            path.push_str("&versionId=");
            path.push_str(&encode(version, QUERY));
        }
        let mut headers = HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static(HOST)),
            (header::USER_AGENT, HeaderValue::from_static(AGENT)),
        ]);
        if let Some(from) = self.from {
            let range = HeaderValue::try_from(format!("bytes={from}-"));
            headers.insert(header::RANGE, range.map_err(|_| "the first byte is invalid")?);
        }
        if let Some(etag) = &self.etag {
            let etag = HeaderValue::try_from(etag).map_err(|_| "the ETag is invalid")?;
            headers.insert(header::IF_MATCH, etag);
        }
        let unsigned = UnsignedRequest {
            method: &Method::GET,
            uri: &format!("http://{HOST}{path}"),
            headers: &headers,
            body: None,
            service: SignedService::S3,
        };
        let signed = key.sign(&unsigned, scope).zip(path.parse::<Uri>().ok());
        let (headers, uri) = signed.ok_or("the request can't be signed")?;
        let mut request = Request::new(Body::empty());
        (*request.headers_mut(), *request.uri_mut()) = (headers, uri);
        Ok(request)
    }
}
