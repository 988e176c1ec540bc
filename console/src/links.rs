//! Presigned links: made here, so that the page needs no secret.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use martlet_serving::operator::refuse;
use serde::{Deserialize, Serialize};

use crate::Console;
use crate::objects::NOT_OPEN;
use crate::own_request::{csrf_of, read_body, session_of};
use crate::sign::{SignedService, SigningScope, UnsignedRequest};
use crate::target::{QUERY, S3Target, encode};

/// Maximum lifetime of a link, as in S3: seven days.
const EXPIRES_S_MAX: u64 = 7 * 24 * 3600;
/// Maximum bytes of a request for a link.
const BYTES_MAX: usize = 16 * 1024;

/// Request for a link.
#[derive(Deserialize)]
struct LinkRequest {
    bucket: String,
    key: String,
    version_id: Option<String>,
    /// `GET` or `PUT`.
    method: String,
    expires_s: u64,
    /// URL of the S3 address for the link's users, such as `https://s3.example.com`.
    endpoint: String,
}

/// Link.
#[derive(Serialize)]
struct LinkReply {
    url: String,
    expires_ms: u64,
}

/// Makes a link in the name of the session's access key.
pub(crate) async fn make(State(console): State<Arc<Console>>, request: Request) -> Response {
    let session = match session_of(&console, request.headers(), csrf_of(request.headers())) {
        Ok(session) => session,
        Err(refusal) => return *refusal,
    };
    let Some(key) = session.rights.s3 else {
        return refuse(StatusCode::FORBIDDEN, "links need a session of an access key");
    };
    let Some(s3) = console.s3.get() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN);
    };
    let body = match read_body(request.into_body(), BYTES_MAX).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let Ok(wanted) = serde_json::from_slice::<LinkRequest>(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "the request for a link can't be read");
    };
    let parts = match LinkParts::of(&wanted) {
        Ok(parts) => parts,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, sentence),
    };
    let unsigned = UnsignedRequest {
        method: &parts.method,
        uri: &parts.uri,
        headers: &parts.headers,
        body: None,
        service: SignedService::S3,
    };
    let now_ms = console.clock.now_ms();
    let scope = SigningScope { region: &s3.region, now_ms };
    match key.link(&unsigned, scope, wanted.expires_s) {
        Some(url) => {
            // A link ends with the session of its key at the latest.
            let expires_ms = now_ms + wanted.expires_s * 1000;
            let expires_ms = key.expires_ms().map_or(expires_ms, |end| end.min(expires_ms));
            Json(LinkReply { url, expires_ms }).into_response()
        }
        None => refuse(StatusCode::BAD_REQUEST, "the link can't be signed"),
    }
}

/// Checked parts of a link.
struct LinkParts {
    method: Method,
    uri: String,
    headers: HeaderMap,
}

impl LinkParts {
    fn of(wanted: &LinkRequest) -> Result<Self, &'static str> {
        let method = match wanted.method.as_str() {
            "GET" => Method::GET,
            "PUT" => Method::PUT,
            _ => return Err("a link is for GET or PUT"),
        };
        if wanted.expires_s == 0 || wanted.expires_s > EXPIRES_S_MAX {
            return Err("a link is valid for one second at least, and seven days at most");
        }
        let target = S3Target::object(&wanted.bucket, &wanted.key);
        let target = target.ok_or("the bucket's name or the key is invalid")?;
        let authority = authority_of(&wanted.endpoint)
            .ok_or("the endpoint must be like https://s3.example.com, without a path")?;
        let host = HeaderValue::from_str(&authority).map_err(|_| "the endpoint is invalid")?;
        let endpoint = wanted.endpoint.trim_end_matches('/');
        let mut uri = format!("{endpoint}{}", target.s3_path());
        if let Some(version) = &wanted.version_id {
            uri.push_str("?versionId=");
            uri.push_str(&encode(version, QUERY));
        }
        Ok(Self { method, uri, headers: HeaderMap::from_iter([(header::HOST, host)]) })
    }
}

/// Returns host and port of an endpoint without a path, a query and a user.
fn authority_of(endpoint: &str) -> Option<String> {
    let uri: Uri = endpoint.parse().ok()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_bare = uri.path() == "/" && uri.query().is_none();
    let authority = uri.authority().filter(|it| is_http && is_bare && !it.as_str().contains('@'));
    // Clients leave the scheme's own port out of the header `host`.
    let authority = authority?.as_str();
    let own = if uri.scheme_str() == Some("https") { ":443" } else { ":80" };
    Some(authority.strip_suffix(own).unwrap_or(authority).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> LinkRequest {
        LinkRequest {
            bucket: "train".into(),
            key: "a/../b c".into(),
            version_id: Some("v+1".into()),
            method: "GET".into(),
            expires_s: EXPIRES_S_MAX,
            endpoint: "https://s3.example.com:443/".into(),
        }
    }

    #[test]
    fn links_are_bounded_and_of_one_object() {
        let parts = LinkParts::of(&wanted()).unwrap_or_else(|sentence| panic!("{sentence}"));
        let uri = "https://s3.example.com:443/train/a/../b%20c?versionId=v%2B1";
        assert_eq!((parts.uri.as_str(), &parts.method), (uri, &Method::GET));
        assert_eq!(parts.headers["host"], "s3.example.com");
        for refused in [
            LinkRequest { expires_s: 0, ..wanted() },
            LinkRequest { expires_s: EXPIRES_S_MAX + 1, ..wanted() },
            LinkRequest { method: "DELETE".into(), ..wanted() },
            LinkRequest { bucket: "../x".into(), ..wanted() },
            LinkRequest { key: String::new(), ..wanted() },
            LinkRequest { endpoint: "ftp://s3.example.com".into(), ..wanted() },
            LinkRequest { endpoint: "https://me@s3.example.com".into(), ..wanted() },
            LinkRequest { endpoint: "https://s3.example.com/x".into(), ..wanted() },
            LinkRequest { endpoint: "https://s3.example.com?x".into(), ..wanted() },
            LinkRequest { endpoint: "javascript:alert(1)".into(), ..wanted() },
        ] {
            assert!(LinkParts::of(&refused).is_err());
        }
    }
}
