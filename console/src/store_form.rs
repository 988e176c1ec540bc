//! Forms to the S3 service of this process: actions of the token service and of IAM, and their replies.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Console;
use crate::objects::HOST;
use crate::s3_slot::S3Parts;
use crate::sign::{AccessKey, SignedService, SigningScope, UnsignedRequest};

const FORM_TYPE: &str = "application/x-www-form-urlencoded";
/// Maximum bytes of a reply.
const BYTES_MAX: usize = 64 * 1024;

/// Reply to a form.
pub(crate) struct FormReply {
    pub(crate) status: StatusCode,
    /// Document in XML.
    pub(crate) text: String,
}

impl Console {
    /// Sends a form, signed by a key if one is given. None if the form can't be signed, or the reply is
    /// longer than 64 KiB or breaks off.
    pub(crate) async fn send_form(
        &self,
        s3: &S3Parts,
        form: String,
        signer: Option<(&AccessKey, SignedService)>,
        connection: &Extensions,
    ) -> Option<FormReply> {
        let mut headers = HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static(HOST)),
            (header::CONTENT_TYPE, HeaderValue::from_static(FORM_TYPE)),
        ]);
        if let Some((key, service)) = signer {
            let unsigned = UnsignedRequest {
                method: &Method::POST,
                uri: &format!("http://{HOST}/"),
                headers: &headers,
                body: Some(form.as_bytes()),
                service,
            };
            let scope = SigningScope { region: &s3.region, now_ms: self.clock.now_ms() };
            headers = key.sign(&unsigned, scope)?;
        }
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(form.len()));
        let mut request = Request::new(Body::from(form));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        *request.extensions_mut() = connection.clone();
        let reply = s3.ask(request).await;
        let status = reply.status();
        let body = to_bytes(reply.into_body(), BYTES_MAX).await.ok()?;
        Some(FormReply { status, text: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// Returns the text of the first element of a name, without the escapes of XML.
pub(crate) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(unescaped(rest.split_once('<')?.0))
}

/// Returns the time in the first element of a name, in milliseconds since 1970.
pub(crate) fn element_ms(text: &str, name: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(&element(text, name)?, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()?.checked_mul(1000)
}

fn unescaped(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (escape, char)| text.replace(escape, char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_once() {
        assert_eq!(unescaped("&lt;b&gt; &amp;lt;"), "<b> &lt;");
        let text = "<Message>the key&apos;s user</Message><At>2026-11-28T02:30:00Z</At>";
        assert_eq!(element(text, "Message").as_deref(), Some("the key's user"));
        assert_eq!(element_ms(text, "At"), Some(1_795_833_000_000));
        assert_eq!((element(text, "Code"), element_ms(text, "Message")), (None, None));
    }
}
