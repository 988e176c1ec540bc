//! Replies of the token service, in its own XML.

use std::fmt::Write as _;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::body::ResponseBody;
use crate::refusal::{Code, Refusal};
use crate::xml_text::push_element;

/// Namespace of the token service's documents.
pub(crate) const STS: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// Namespace of documents about access keys.
pub(crate) const IAM: &str = "https://iam.amazonaws.com/doc/2010-05-08/";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// Error codes of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StsCode {
    AccessDenied,
    ExpiredToken,
    ExpiredTokenException,
    IdpCommunicationError,
    IdpRejectedClaim,
    IncompleteSignature,
    InvalidAction,
    InvalidClientTokenId,
    InvalidIdentityToken,
    LimitExceeded,
    MalformedInput,
    MalformedPolicyDocument,
    MissingAuthenticationToken,
    NoSuchEntity,
    RequestExpired,
    ServiceUnavailable,
    SignatureDoesNotMatch,
    ValidationError,
}

impl StsCode {
    /// Name and status.
    pub(crate) fn code_and_status(self) -> (&'static str, StatusCode) {
        let (bad, forbidden) = (StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN);
        match self {
            Self::AccessDenied => ("AccessDenied", forbidden),
            Self::ExpiredToken => ("ExpiredToken", forbidden),
            Self::ExpiredTokenException => ("ExpiredTokenException", bad),
            Self::IdpCommunicationError => ("IDPCommunicationError", bad),
            Self::IdpRejectedClaim => ("IDPRejectedClaim", forbidden),
            Self::IncompleteSignature => ("IncompleteSignature", bad),
            Self::InvalidAction => ("InvalidAction", bad),
            Self::InvalidClientTokenId => ("InvalidClientTokenId", forbidden),
            Self::InvalidIdentityToken => ("InvalidIdentityToken", bad),
            Self::LimitExceeded => ("LimitExceeded", StatusCode::CONFLICT),
            Self::MalformedInput => ("MalformedInput", bad),
            Self::MalformedPolicyDocument => ("MalformedPolicyDocument", bad),
            Self::MissingAuthenticationToken => ("MissingAuthenticationToken", forbidden),
            Self::NoSuchEntity => ("NoSuchEntity", StatusCode::NOT_FOUND),
            Self::RequestExpired => ("RequestExpired", bad),
            Self::ServiceUnavailable => ("ServiceUnavailable", StatusCode::SERVICE_UNAVAILABLE),
            Self::SignatureDoesNotMatch => ("SignatureDoesNotMatch", forbidden),
            Self::ValidationError => ("ValidationError", bad),
        }
    }
}

/// Reason for refusing a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StsError {
    pub(crate) code: StsCode,
    pub(crate) message: String,
}

impl StsError {
    pub(crate) fn new(code: StsCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Invalid parameters.
    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new(StsCode::ValidationError, message)
    }
}

impl From<Refusal> for StsError {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.code {
            Code::SignatureDoesNotMatch => StsCode::SignatureDoesNotMatch,
            Code::InvalidAccessKeyId | Code::InvalidToken => StsCode::InvalidClientTokenId,
            Code::ExpiredToken => StsCode::ExpiredToken,
            Code::RequestTimeTooSkewed => StsCode::RequestExpired,
            Code::AccessDenied => StsCode::AccessDenied,
            Code::ServiceUnavailable | Code::SlowDown => StsCode::ServiceUnavailable,
            Code::AuthorizationHeaderMalformed => StsCode::IncompleteSignature,
            _ => StsCode::ValidationError,
        };
        Self::new(code, refusal.message)
    }
}

/// Elements of a result, in order.
#[derive(Debug, Default)]
pub(crate) struct Elements(String);

impl Elements {
    /// Appends an element with text.
    pub(crate) fn text(mut self, name: &str, text: &str) -> Self {
        push_element(&mut self.0, name, text);
        self
    }

    /// Appends an element with inner elements.
    pub(crate) fn inner(mut self, name: &str, inner: &Self) -> Self {
        write!(self.0, "<{name}>{}</{name}>", inner.0).expect("writing to a String can't fail");
        self
    }
}

/// Reply to a successful action of the service with this namespace.
pub(crate) fn done(
    namespace: &str,
    action: &str,
    result: &Elements,
    id: &str,
) -> Response<ResponseBody> {
    let metadata = Elements::default().text("RequestId", id);
    let whole = Elements::default()
        .inner(&format!("{action}Result"), result)
        .inner("ResponseMetadata", &metadata);
    let text = format!("<{action}Response xmlns=\"{namespace}\">{}</{action}Response>\n", whole.0);
    document(StatusCode::OK, text, id)
}

/// Reply to a refused request of the service with this namespace.
pub(crate) fn refused(namespace: &str, error: &StsError, id: &str) -> Response<ResponseBody> {
    let (code, status) = error.code.code_and_status();
    let whose = if status.is_server_error() { "Receiver" } else { "Sender" };
    let inner =
        Elements::default().text("Type", whose).text("Code", code).text("Message", &error.message);
    let whole = Elements::default().inner("Error", &inner).text("RequestId", id);
    let text = format!("<ErrorResponse xmlns=\"{namespace}\">{}</ErrorResponse>\n", whole.0);
    document(status, text, id)
}

fn document(status: StatusCode, text: String, id: &str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_documents_of_sts() {
        let error = StsError::new(StsCode::IdpRejectedClaim, "a<b");
        let response = refused(STS, &error, "7");
        assert_eq!(response.status(), 403);
        let text = std::str::from_utf8(response.body().document().unwrap()).unwrap();
        for part in [
            "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>",
            "<Type>Sender</Type><Code>IDPRejectedClaim</Code><Message>a&lt;b</Message></Error>",
            "<RequestId>7</RequestId></ErrorResponse>",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn refusals_of_the_http_pipeline_have_names_here() {
        let converted = |code| StsError::from(Refusal::new(code, "x")).code.code_and_status();
        assert_eq!(
            converted(Code::SignatureDoesNotMatch),
            ("SignatureDoesNotMatch", StatusCode::FORBIDDEN)
        );
        assert_eq!(converted(Code::InvalidAccessKeyId).0, "InvalidClientTokenId");
        assert_eq!(converted(Code::ServiceUnavailable).1, 503);
        assert_eq!(converted(Code::InvalidUri), ("ValidationError", StatusCode::BAD_REQUEST));
    }
}
