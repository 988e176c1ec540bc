//! Name of the missing bucket, key or upload in a "not found" error document, as in S3.

use http::{Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use s3s::Body;

use crate::http::{DETAIL, detail};

/// Adds the name of the missing resource to a 404 reply. `uri` is `/bucket/key` with the
/// operation's query.
pub(crate) fn name(uri: &Uri, response: &mut Response<Body>) {
    if response.status() != StatusCode::NOT_FOUND {
        return;
    }
    let Some(document) = response.body().bytes() else { return };
    let Some((element, text)) = named(uri, &document) else { return };
    response.headers_mut().append(DETAIL, detail(element, text));
}

/// Element that names the missing resource, and its text.
fn named(uri: &Uri, document: &[u8]) -> Option<(&'static str, String)> {
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
    Some((element, text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_resource(code: &str, uri: &'static str) -> Option<String> {
        let document = format!("<Error><Code>{code}</Code></Error>");
        let mut response = Response::new(Body::from(document));
        *response.status_mut() = StatusCode::NOT_FOUND;
        name(&Uri::from_static(uri), &mut response);
        let (name, text) = crate::http::read_detail(response.headers().get(DETAIL)?)?;
        Some(format!("{name}={text}"))
    }

    #[test]
    fn what_is_missing_is_told() {
        let uri = "/b/a%20b/%C3%BC=1?partNumber=1&uploadId=xyz";
        assert_eq!(named_resource("NoSuchBucket", uri).as_deref(), Some("BucketName=b"));
        assert_eq!(named_resource("NoSuchBucket", "/b?acl").as_deref(), Some("BucketName=b"));
        assert_eq!(named_resource("NoSuchKey", uri).as_deref(), Some("Key=a b/\u{fc}=1"));
        assert_eq!(named_resource("NoSuchKey", "/b/a%0D%0A%25b").as_deref(), Some("Key=a\r\n%b"));
        assert_eq!(named_resource("NoSuchUpload", uri).as_deref(), Some("UploadId=xyz"));
    }

    #[test]
    fn what_can_not_be_named_is_not() {
        assert_eq!(named_resource("NoSuchTagSet", "/b/k"), None);
        assert_eq!(named_resource("NoSuchUpload", "/b/k"), None);
        assert_eq!(named_resource("NoSuchKey", "/b/%ff"), None);
    }
}
