//! Guard of all requests: headers of replies, names of this server, and requests of other sites.
//!
//! A page of another site may lead its own name to this server's address (DNS rebinding). Its
//! requests then have that name in `host`, and are refused. IP addresses can't be led elsewhere.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;

/// Policy of the pages: files of this server alone, nothing inline, and no text as a script. Images
/// may also be bytes that a page has read, which it shows if they are a raster image.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' \
    blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
/// Policy of objects: nothing runs, should a browser show an object in spite of its headers.
const OBJECT_POLICY: &str = "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const HEADERS: [(HeaderName, &str); 7] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("origin-agent-cluster"), "?1"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];
const FETCH_SITE: &str = "sec-fetch-site";

/// Names of this server.
#[derive(Debug)]
pub(crate) struct Names {
    hosts: Vec<String>,
    /// Origin of the console behind a proxy, which may send another host.
    origin: Option<String>,
}

impl Names {
    /// Accepts these names, and the host of `origin`, besides `localhost` and IP addresses.
    pub(crate) fn new(names: Vec<String>, origin: Option<&str>) -> Self {
        let origin = origin.map(|origin| origin.trim_end_matches('/').to_ascii_lowercase());
        let host = origin.as_deref().and_then(|origin| Some(name_of(origin.split_once("://")?.1)));
        let hosts = names.into_iter().map(|name| name.to_ascii_lowercase()).chain(host);
        Self { hosts: hosts.collect(), origin }
    }

    /// Returns true if `origin`, a value of the header, is that of this console at `host`.
    fn is_origin(&self, origin: &str, host: &str) -> bool {
        let is_own = origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host));
        is_own || self.origin.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(origin))
    }

    /// Returns true if `host`, a value of the header, names this server. Ports don't count.
    fn has(&self, host: &str) -> bool {
        if let Some(rest) = host.strip_prefix('[') {
            return rest.split_once(']').is_some_and(|(ip, _)| ip.parse::<IpAddr>().is_ok());
        }
        let name = name_of(host);
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }
}

/// Returns the name of a host without its port, in lower case.
fn name_of(host: &str) -> String {
    host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase()
}

/// Refuses requests with another name and changes of other sites. Adds headers to each reply.
pub(crate) async fn check(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_object = path == "/s3" || path.starts_with("/s3/");
    let is_api = is_object
        || ["/api/", "/login/", "/own/"].iter().any(|begin| path.starts_with(begin))
        || ["/session", "/links"].contains(&path);
    let mut reply = match refusal(&console.names, request.method(), request.headers()) {
        Some(sentence) => refuse(StatusCode::FORBIDDEN, &sentence),
        None => next.run(request).await,
    };
    let headers = reply.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static(if is_object { OBJECT_POLICY } else { POLICY });
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    reply
}

fn refusal(names: &Names, method: &Method, headers: &HeaderMap) -> Option<String> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    if headers.get_all(header::HOST).iter().count() != 1 || !names.has(host) {
        return Some(format!(
            "{host:?} is not a name of this console: open it by its IP address or localhost, or \
             add the name to console_hosts"
        ));
    }
    if *method == Method::GET || *method == Method::HEAD {
        return None;
    }
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_foreign = site.is_some_and(|site| site != b"same-origin");
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let is_other = origin.is_some_and(|origin| !names.is_origin(origin, host));
    (is_foreign || is_other).then(|| "changes come from pages of this console alone".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: &Method, headers: &[(&str, &str)]) -> bool {
        let origin = Some("https://Proxy.example.com:8443");
        let names = Names::new(vec!["Store.example.com".into()], origin);
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        refusal(&names, method, &headers.collect()).is_some()
    }

    #[test]
    fn other_names_are_refused() {
        let get = |host: &str| refused(&Method::GET, &[("host", host)]);
        for host in [
            "localhost:9003",
            "127.0.0.1",
            "[::1]:9003",
            "10.0.0.1:1",
            "STORE.example.com",
            "proxy.example.com",
        ] {
            assert!(!get(host), "{host}");
        }
        for host in [
            "evil.example.com:9003",
            "127.0.0.1.evil.example.com",
            "localhost.evil.com",
            "store.example.com.evil.com",
            "",
            "[evil]",
        ] {
            assert!(get(host), "{host}");
        }
        assert!(refused(&Method::GET, &[]));
    }

    #[test]
    fn changes_of_other_sites_are_refused() {
        let post = |more: (&str, &str)| refused(&Method::POST, &[("host", "localhost:1"), more]);
        assert!(!post(("origin", "http://localhost:1")));
        assert!(!post(("sec-fetch-site", "same-origin")));
        // A proxy keeps the origin of its browsers, and may send another host.
        assert!(!post(("origin", "https://proxy.example.com:8443")));
        assert!(post(("origin", "http://proxy.example.com:8443")));
        assert!(post(("origin", "https://proxy.example.com")));
        for more in [
            ("origin", "http://localhost:2"),
            ("origin", "null"),
            ("origin", "http://evil.example.com"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "none"),
        ] {
            assert!(post(more), "{more:?}");
        }
    }
}
