//! What a "not found" is about: S3 names the bucket, the key or the upload in the error's document.

use http::{HeaderValue, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use s3s::Body;

use crate::door::DETAIL;

/// Adds to a reply what the request for `uri`, `/bucket/key` with the operation's query, didn't find.
pub(crate) fn name(uri: &Uri, response: &mut Response<Body>) {
    if response.status() != StatusCode::NOT_FOUND {
        return;
    }
    let Some(document) = response.body().bytes() else { return };
    let Some(detail) = detail(uri, &document) else { return };
    // A key may hold what no header can: then its error does without.
    if let Ok(detail) = HeaderValue::from_bytes(detail.as_bytes()) {
        response.headers_mut().append(DETAIL, detail);
    }
}

fn detail(uri: &Uri, document: &[u8]) -> Option<String> {
    let document = std::str::from_utf8(document).ok()?;
    let (_, rest) = document.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let (bucket, key) = uri
        .path()
        .strip_prefix('/')?
        .split_once('/')
        .unwrap_or_else(|| (uri.path().trim_start_matches('/'), ""));
    let (element, encoded) = match code {
        "NoSuchBucket" => ("BucketName", bucket),
        "NoSuchKey" => ("Key", key),
        "NoSuchUpload" => {
            let mut pairs = uri.query()?.split('&');
            ("UploadId", pairs.find_map(|pair| pair.strip_prefix("uploadId="))?)
        }
        _ => return None,
    };
    let text = percent_decode_str(encoded).decode_utf8().ok()?;
    Some(format!("{element}={text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &str, uri: &'static str) -> Option<String> {
        let document = format!("<Error><Code>{code}</Code></Error>");
        let mut response = Response::new(Body::from(document));
        *response.status_mut() = StatusCode::NOT_FOUND;
        name(&Uri::from_static(uri), &mut response);
        let detail = response.headers().get(DETAIL)?;
        Some(String::from_utf8(detail.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn what_is_missing_is_named() {
        let uri = "/b/a%20b/%C3%BC=1?partNumber=1&uploadId=xyz";
        assert_eq!(named("NoSuchBucket", uri).as_deref(), Some("BucketName=b"));
        assert_eq!(named("NoSuchBucket", "/b?acl").as_deref(), Some("BucketName=b"));
        assert_eq!(named("NoSuchKey", uri).as_deref(), Some("Key=a b/\u{fc}=1"));
        assert_eq!(named("NoSuchUpload", uri).as_deref(), Some("UploadId=xyz"));
    }

    #[test]
    fn what_can_not_be_named_is_not() {
        assert_eq!(named("NoSuchTagSet", "/b/k"), None);
        assert_eq!(named("NoSuchUpload", "/b/k"), None);
        assert_eq!(named("NoSuchKey", "/b/a%0D%0Ab"), None);
        assert_eq!(named("NoSuchKey", "/b/%ff"), None);
    }
}
