//! Files of the pages, embedded at build.

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use martlet_serving::operator::refuse;

/// Embedded file.
struct Asset {
    name: &'static str,
    plain: &'static [u8],
    /// The file, compressed by gzip.
    packed: &'static [u8],
}

const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));
const INDEX: &str = "index.html";
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <title>Martlet console</title><h1>This binary was built without the console</h1>\
    <p>Run <code>make console</code>, which needs Node.js and npm, and build the binary again. \
    <code>make build</code> does both.</p></html>";

/// Returns true if the pages are embedded.
pub(crate) fn is_built() -> bool {
    asset(INDEX).is_some()
}

/// Returns the name of the style sheet, if the pages are embedded.
pub(crate) fn style_sheet() -> Option<&'static str> {
    ASSETS.iter().map(|asset| asset.name).find(|name| name.rsplit('.').next() == Some("css"))
}

fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Sends a file. Each path without a dot is a page of the application.
pub(crate) async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "pages are read by GET");
    }
    let name = uri.path().trim_start_matches('/');
    let is_page = !name.contains('.');
    let name = if is_page { INDEX } else { name };
    let Some(asset) = asset(name) else {
        return if is_page {
            (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, media(INDEX))], NOT_BUILT)
                .into_response()
        } else {
            refuse(StatusCode::NOT_FOUND, "the console has no such file: load the page again")
        };
    };
    let cached = if is_hashed(name) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let head = [
        (header::CONTENT_TYPE, media(name)),
        (header::CACHE_CONTROL, cached),
        (header::VARY, "accept-encoding"),
    ];
    if accepts_gzip(&headers) {
        (head, [(header::CONTENT_ENCODING, "gzip")], asset.packed).into_response()
    } else {
        (head, asset.plain).into_response()
    }
}

/// Returns true for files whose name has a hash of their bytes: scripts and style sheets.
fn is_hashed(name: &str) -> bool {
    name.contains('-') && matches!(name.rsplit('.').next(), Some("js" | "css"))
}

fn media(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = accepted.filter_map(|value| value.to_str().ok());
    let mut names = accepted.flat_map(|value| value.split(','));
    names.any(|name| {
        let mut parts = name.split(';');
        let is_gzip = parts.next().is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| part.trim().replace(' ', "") == "q=0")
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_sent_to_browsers_that_accept_it() {
        let accepts = |value: &'static str| {
            let value = HeaderValue::from_static(value);
            accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)]))
        };
        assert!(accepts("br, gzip;q=0.5") && accepts("GZIP"));
        assert!(!accepts("br") && !accepts("gzip;q=0") && !accepts_gzip(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn pages_and_missing_files_differ() {
        let get =
            async |path: &str| serve(Method::GET, path.parse().unwrap(), HeaderMap::new()).await;
        let page = get("/devices").await;
        assert_eq!(page.headers()[header::CONTENT_TYPE], media(INDEX));
        assert_eq!(page.status() == StatusCode::OK, is_built());
        assert_eq!(get("/nothing.js").await.status(), StatusCode::NOT_FOUND);
        assert_eq!(get("/../Cargo.toml").await.status(), StatusCode::NOT_FOUND);
        for asset in ASSETS {
            assert!(asset.packed.starts_with(&[0x1f, 0x8b]), "{}", asset.name);
            assert_eq!(get(&format!("/{}", asset.name)).await.status(), StatusCode::OK);
        }
    }
}
