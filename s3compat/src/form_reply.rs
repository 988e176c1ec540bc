//! Reply to a form, in place of the reply to its PUT.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::body::ResponseBody;
use crate::reply::Reply;
use crate::xml_text::push_element;

/// All characters but those that need no encoding in a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Reply to send once the object is stored.
#[derive(Clone, Debug)]
pub(crate) struct FormReply {
    status: StatusCode,
    redirect: Option<String>,
    location: String,
    bucket: String,
    key: String,
}

/// Object that a form uploads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadedObject<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    /// Path of the object.
    pub(crate) path: &'a str,
}

impl FormReply {
    /// Reads the reply that the form requests. `field` returns fields by their lower-case names.
    pub(crate) fn new<'a>(
        field: impl Fn(&str) -> Option<&'a str>,
        headers: &HeaderMap,
        object: UploadedObject<'_>,
    ) -> Self {
        let UploadedObject { bucket, key, path } = object;
        let status = match field("success_action_status") {
            Some("200") => StatusCode::OK,
            Some("201") => StatusCode::CREATED,
            _ => StatusCode::NO_CONTENT,
        };
        let redirect = field("success_action_redirect").or_else(|| field("redirect"));
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let is_secure = headers.get("x-forwarded-proto").is_some_and(|it| it == "https");
        let scheme = if is_secure { "https" } else { "http" };
        Self {
            status,
            redirect: redirect.filter(|target| is_link(target)).map(str::to_owned),
            location: host
                .map_or_else(|| path.to_owned(), |host| format!("{scheme}://{host}{path}")),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        }
    }

    /// Converts the reply to a successful PUT to the form's reply.
    pub(crate) fn apply(self, reply: &mut Reply) {
        if reply.status != StatusCode::OK {
            return;
        }
        let etag = reply.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.unwrap_or_default().to_owned();
        let (status, location, document) = match &self.redirect {
            Some(target) => (StatusCode::SEE_OTHER, self.redirected(target, &etag), None),
            None if self.status == StatusCode::CREATED => {
                (self.status, self.location.clone(), Some(self.document(&etag)))
            }
            None => (self.status, self.location.clone(), None),
        };
        reply.status = status;
        let headers = &mut reply.headers;
        headers.remove(CONTENT_LENGTH);
        headers.remove(CONTENT_TYPE);
        if let Ok(location) = HeaderValue::from_str(&location) {
            headers.insert(LOCATION, location);
        }
        reply.body = ResponseBody::empty();
        if let Some(document) = document {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            reply.body = document.into();
        }
    }

    fn document(&self, etag: &str) -> String {
        let mut document =
            String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse>");
        push_element(&mut document, "Location", &self.location);
        push_element(&mut document, "Bucket", &self.bucket);
        push_element(&mut document, "Key", &self.key);
        push_element(&mut document, "ETag", etag);
        document.push_str("</PostResponse>");
        document
    }

    /// Requested link, with the stored object in its query.
    fn redirected(&self, target: &str, etag: &str) -> String {
        let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let separator = if target.contains('?') { '&' } else { '?' };
        let (bucket, key, etag) = (encode(&self.bucket), encode(&self.key), encode(etag));
        format!("{target}{separator}bucket={bucket}&key={key}&etag={etag}")
    }
}

/// Returns true if a text is a link for browsers. Other texts are ignored.
fn is_link(target: &str) -> bool {
    let uri = target.parse::<Uri>().ok();
    let scheme = uri.as_ref().and_then(Uri::scheme_str);
    matches!(scheme, Some("http" | "https")) && HeaderValue::from_str(target).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(pairs: &[(&str, &str)]) -> (u16, String, String) {
        use http_body_util::BodyExt;
        let field =
            |name: &str| pairs.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("s3:9000"));
        let mut reply = Reply::empty(StatusCode::OK);
        reply.body = "hello".to_owned().into();
        reply.headers.insert(ETAG, HeaderValue::from_static("\"ab\""));
        let object = UploadedObject { bucket: "b", key: "a&b", path: "/b/a%26b" };
        FormReply::new(field, &headers, object).apply(&mut reply);
        let (parts, body) = reply.into_parts().0.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let location = parts.headers[LOCATION].to_str().unwrap().to_owned();
        (parts.status.as_u16(), location, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn success_action_status_sets_the_reply_of_a_form() {
        let here = "http://s3:9000/b/a%26b".to_owned();
        for (requested, status) in [("200", 200), ("204", 204), ("404", 204), ("", 204)] {
            let reply = answer(&[("success_action_status", requested)]).await;
            assert_eq!(reply, (status, here.clone(), String::new()), "{requested}");
        }
        let (status, location, document) = answer(&[("success_action_status", "201")]).await;
        assert_eq!((status, location), (201, here));
        assert!(document.contains("<Bucket>b</Bucket><Key>a&amp;b</Key>"), "{document}");
    }

    #[tokio::test]
    async fn success_action_redirect_sends_the_browser_on() {
        let status = ("success_action_status", "201");
        let requested = [("success_action_redirect", "http://x/y?z=1"), status];
        let (status, location, document) = answer(&requested).await;
        assert_eq!((status, document.as_str()), (303, ""));
        assert_eq!(location, "http://x/y?z=1&bucket=b&key=a%26b&etag=%22ab%22");
        for none in ["javascript:alert(1)", "x", "http://a b"] {
            assert_eq!(answer(&[("redirect", none)]).await.0, 204, "{none}");
        }
    }
}
