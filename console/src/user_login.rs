//! Login by an access key of S3: one signed request to the token service, which names the key's
//! principal. Any policy allows that request.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use martlet_serving::operator::refuse;

use crate::Console;
use crate::login::WRONG;
use crate::objects::{HOST, NOT_OPEN};
use crate::sign::{AccessKey, SignedService, SigningScope, UnsignedRequest};

const FORM: &str = "Action=GetCallerIdentity&Version=2011-06-15";
pub(crate) const FORM_TYPE: &str = "application/x-www-form-urlencoded";
/// Maximum bytes of a reply of the token service.
pub(crate) const BYTES_MAX: usize = 16 * 1024;
/// Codes of the token service for an unknown key, a disabled key, and a wrong secret.
const WRONG_CODES: [&str; 3] =
    ["InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch"];

impl Console {
    /// Returns the access key, if its secret is right.
    pub(crate) async fn access_key(
        &self,
        id: &str,
        secret: &str,
        connection: &Extensions,
    ) -> Result<AccessKey, Box<Response>> {
        let wrong = || Box::new(refuse(StatusCode::UNAUTHORIZED, WRONG));
        let Some(s3) = self.s3.get() else {
            return Err(Box::new(refuse(StatusCode::SERVICE_UNAVAILABLE, NOT_OPEN)));
        };
        let headers = HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static(HOST)),
            (header::CONTENT_TYPE, HeaderValue::from_static(FORM_TYPE)),
        ]);
        let unsigned = UnsignedRequest {
            method: &Method::POST,
            uri: &format!("http://{HOST}/"),
            headers: &headers,
            body: Some(FORM.as_bytes()),
            service: SignedService::Sts,
        };
        let key = AccessKey::new(id.to_owned(), secret.to_owned());
        let scope = SigningScope { region: &s3.region, now_ms: self.clock.now_ms() };
        let signed = key.sign(&unsigned, scope).ok_or_else(wrong)?;
        let mut request = Request::new(Body::from(FORM));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = signed;
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(FORM.len()));
        *request.extensions_mut() = connection.clone();
        let reply = s3.ask(request).await;
        let status = reply.status();
        let body = to_bytes(reply.into_body(), BYTES_MAX).await.map_err(|_| wrong())?;
        let text = String::from_utf8_lossy(&body);
        if status.is_success() {
            return Ok(key.named(element(&text, "Arn").unwrap_or_default()));
        }
        match element(&text, "Code") {
            Some(code) if !WRONG_CODES.contains(&code) => {
                Err(Box::new(refuse(status, element(&text, "Message").unwrap_or(code))))
            }
            _ => Err(wrong()),
        }
    }
}

/// Text of the first element of a name.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once('<')?.0)
}
