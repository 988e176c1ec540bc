//! Request ids on every reply, and complete error documents.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::body::ResponseBody;
use crate::messages;
use crate::refusal::{DETAIL, Refusal, read_detail};
use crate::reply::ReplyInfo;
use crate::xml_text::{push_char, push_element};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
const XML: HeaderValue = HeaderValue::from_static("application/xml");
const END: &[u8] = b"</Error>";

/// Id of one request, in its reply and in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestId(u64);

impl RequestId {
    /// The id as the value of a header.
    pub(super) fn header(self) -> HeaderValue {
        let mut digits = [0; 16];
        hex::encode_to_slice(self.0.to_be_bytes(), &mut digits).expect("16 digits are 8 bytes");
        digits.make_ascii_uppercase();
        HeaderValue::from_bytes(&digits).expect("digits are visible ASCII")
    }
}

/// Source of request ids, and of the host's id in replies.
#[derive(Debug)]
pub(super) struct Stamper {
    next: AtomicU64,
    host_id: HeaderValue,
}

/// Attributes of a request that its reply needs.
#[derive(Clone, Debug)]
pub(super) struct ReplyContext {
    /// Id of the request.
    pub(super) id: HeaderValue,
    /// Path as received, for error documents.
    pub(super) resource: Box<str>,
    pub(super) is_head: bool,
}

impl Stamper {
    pub(super) fn new() -> Self {
        let random: [u8; 32] = martlet_protocol::id::random_bytes();
        let seed = random.first_chunk().map_or(0, |seed| u64::from_be_bytes(*seed));
        let host_id = HeaderValue::from_str(&STANDARD.encode(&random[8..]))
            .expect("base64 is all visible ASCII");
        Self { next: AtomicU64::new(seed), host_id }
    }

    /// Id of this host.
    pub(super) fn host_id(&self) -> &HeaderValue {
        &self.host_id
    }

    /// Returns an id that no other request of this process has.
    pub(super) fn next_id(&self) -> RequestId {
        // Multiplication by an odd number maps each count to a different number.
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId(count.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Builds the reply to a refused request.
    pub(super) fn refuse(
        &self,
        context: &ReplyContext,
        refusal: &Refusal,
    ) -> Response<ResponseBody> {
        let mut document = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
        push_element(&mut document, "Code", refusal.code.as_str());
        push_element(&mut document, "Message", &refusal.message);
        for (name, text) in &refusal.details {
            push_element(&mut document, name, text);
        }
        document.push_str("</Error>");
        let mut response = Response::new(ResponseBody::from(document));
        *response.status_mut() = refusal.code.status();
        response.headers_mut().insert(CONTENT_TYPE, XML);
        if let Some((name, value)) = refusal.header {
            response
                .headers_mut()
                .insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        self.complete(context, response)
    }

    /// Adds the ids to a reply, and to its document if it is an error.
    pub(super) fn complete(
        &self,
        context: &ReplyContext,
        mut response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            note_code(&mut response);
        }
        if context.is_head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
        {
            if !status.is_success() {
                *response.body_mut() = ResponseBody::empty();
                response.headers_mut().remove(CONTENT_TYPE);
                response.headers_mut().remove(CONTENT_LENGTH);
            }
        } else if status.is_client_error() || status.is_server_error() {
            self.complete_document(context, &mut response);
        }
        let headers = response.headers_mut();
        headers.remove(DETAIL);
        headers.insert(REQUEST_ID, context.id.clone());
        headers.insert(HOST_ID, self.host_id.clone());
        response
    }

    fn complete_document(&self, context: &ReplyContext, response: &mut Response<ResponseBody>) {
        let Some(body) = response.body().document() else { return };
        let Some(head) = body.trim_ascii_end().strip_suffix(END) else { return };
        let Ok(head) = std::str::from_utf8(head) else { return };
        let mut document = clean(head);
        for detail in response.headers().get_all(DETAIL) {
            let Some((name, text)) = read_detail(detail) else { continue };
            push_element(&mut document, &name, &text);
        }
        let host_id = self.host_id.to_str().unwrap_or_default();
        let id = context.id.to_str().unwrap_or_default();
        // Every error has a sentence for people, besides the code for programs.
        let code = head.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.map_or("InternalError", |(code, _)| code);
        if matches!(message_of(head), Some(message) if message == code) {
            document = document.replace(
                &format!("<Message>{code}</Message>"),
                &format!("<Message>{}</Message>", code_text(code)),
            );
        }
        for (name, text) in [
            ("Message", code_text(code)),
            ("Resource", &*context.resource),
            ("RequestId", id),
            ("HostId", host_id),
        ] {
            if !head.contains(&format!("<{name}>")) {
                push_element(&mut document, name, text);
            }
        }
        document.push_str("</Error>");
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, XML);
        headers.remove(CONTENT_LENGTH);
        *response.body_mut() = document.into();
    }
}

/// Cleans a document of s3s. Characters that XML 1.0 cannot hold are spelt out, because texts of
/// requests return in errors. Apostrophes stay plain, as in S3.
fn clean(document: &str) -> String {
    let mut cleaned = String::with_capacity(document.len() + 256);
    for c in document.replace("&apos;", "'").chars() {
        push_char(&mut cleaned, c);
    }
    cleaned
}

/// Stores the code in an error document in the reply's info, for observers.
fn note_code(response: &mut Response<ResponseBody>) {
    let Some(document) = response.body().document() else { return };
    let Ok(document) = std::str::from_utf8(document) else { return };
    let code = document.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    if let Some((code, _)) = code {
        let code = Some(code.into());
        response.extensions_mut().get_or_insert_default::<ReplyInfo>().error = code;
    }
}

fn message_of(document: &str) -> Option<&str> {
    let (_, rest) = document.split_once("<Message>")?;
    rest.split_once("</Message>").map(|(message, _)| message)
}

/// Sentence for an error without a message of its own.
fn code_text(code: &str) -> &str {
    match code {
        "InvalidBucketName" => messages::BUCKET_NAME.text,
        "MalformedXML" => messages::MALFORMED_XML.text,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    #[test]
    fn documents_hold_any_text() {
        let context =
            ReplyContext { id: RequestId(1).header(), resource: "/b/<k>".into(), is_head: false };
        let refusal = Refusal::new(Code::InvalidArgument, "a<b>&\"\u{1}\r\n\u{85}")
            .with_detail("ArgumentName", "x");
        let response = Stamper::new().refuse(&context, &refusal);
        let text = std::str::from_utf8(response.body().document().unwrap()).unwrap();
        assert!(
            text.contains("<Message>a&lt;b&gt;&amp;&quot;\\u{1}&#13;\n\\u{85}</Message>"),
            "{text}"
        );
        assert!(text.contains("<Resource>/b/&lt;k&gt;</Resource>"), "{text}");
        assert!(text.contains("<RequestId>0000000000000001</RequestId>"), "{text}");
        assert_eq!(response.headers()[REQUEST_ID], "0000000000000001");
    }

    #[test]
    fn error_documents_are_rewritten_as_valid_xml() {
        let context =
            ReplyContext { id: RequestId(1).header(), resource: "/b/k".into(), is_head: false };
        let document = "<?xml version=\"1.0\"?><Error><Code>InvalidArgument</Code>\
                        <Message>the &apos;key&apos; \u{0}\u{1b}[2J\u{ffff} is &lt;wrong&gt;</Message></Error>";
        let mut response = Response::new(ResponseBody::from(document.to_owned()));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        let response = Stamper::new().complete(&context, response);
        let text = std::str::from_utf8(response.body().document().unwrap()).unwrap();
        let said = "<Message>the 'key' \\u{0}\\u{1b}[2J\\u{ffff} is &lt;wrong&gt;</Message>";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn no_two_requests_share_an_id() {
        let stamper = Stamper::new();
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| stamper.next_id()).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
