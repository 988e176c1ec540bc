//! Requests and replies of routes: parameters, bodies, pages of lists, and refusals.

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::accounts::{DeletedLine, ListPage};
use martlet_proxy::{Error, Page};
use martlet_serving::access::TenantField;
use martlet_serving::operator::refuse;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum number of items in one page.
pub(crate) const PAGE_MAX: usize = 500;

/// Query parameter or field with the name of the tenant.
pub(crate) const OF_TENANT: TenantField = TenantField::Tenant("tenant");
/// Query parameter or field with the name of a tenant's bucket.
pub(crate) const OF_BUCKET: TenantField = TenantField::Bucket("bucket");
/// Query parameter or field with an access key of the tenant.
pub(crate) const OF_KEY: TenantField = TenantField::AccessKey("access_key");

/// Reply of a route, or its refusal.
pub(crate) type ApiResult = Result<Response, ApiError>;

/// Refusal, with its HTTP status and its sentence.
#[derive(Debug, PartialEq)]
pub(crate) struct ApiError(pub(crate) StatusCode, pub(crate) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        refuse(self.0, &self.1)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::NoSuchAccount(_) | Error::NoSuchBucket | Error::NoSuchKey => {
                StatusCode::NOT_FOUND
            }
            Error::AccountConflict(_) | Error::InvalidBucketState(_) => StatusCode::CONFLICT,
            Error::InvalidArgument(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl ApiError {
    /// Makes the refusal of a malformed request.
    pub(crate) fn bad(sentence: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, sentence.into())
    }

    /// Makes the refusal of a request for an item that doesn't exist.
    pub(crate) fn missing(sentence: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, sentence.into())
    }
}

/// Returns a required parameter.
pub(crate) fn named<'a>(name: Option<&'a String>, what: &str) -> Result<&'a str, ApiError> {
    name.map(String::as_str).ok_or_else(|| ApiError::bad(format!("missing parameter: {what}")))
}

/// Parses a request body. The error gives a column but quotes none of the body.
pub(crate) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::bad(format!("the request is malformed at column {}", error.column()))
    })
}

/// Makes a page of a reply, which names its last item if more follow.
pub(crate) fn list_page<T, L: Serialize>(
    page: Page<T>,
    name: impl Fn(&T) -> String,
    line: impl Fn(T) -> L,
) -> ListPage<L> {
    let next = page.items.last().filter(|_| page.is_truncated).map(name);
    ListPage { items: page.items.into_iter().map(line).collect(), next }
}

/// Makes the reply to a deletion.
pub(crate) fn deleted(what: &str) -> Response {
    Json(DeletedLine { deleted: what.to_owned() }).into_response()
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::accounts::KeyRequest;

    use super::*;

    #[test]
    fn a_request_that_does_not_parse_is_not_repeated() {
        let body = Bytes::from_static(br#"{"tenant": "t", "secret_key": "very secret", "x"#);
        let ApiError(status, sentence) = read::<KeyRequest>(&body).err().unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(!sentence.contains("secret"), "{sentence}");
    }

    #[test]
    fn a_page_has_the_start_of_the_next() {
        let page = |is_truncated| Page { items: vec![1, 2], is_truncated };
        let all = list_page(page(false), ToString::to_string, |it| it);
        assert_eq!((all.items, all.next), (vec![1, 2], None));
        let some = list_page(page(true), ToString::to_string, |it| it);
        assert_eq!(some.next.as_deref(), Some("2"));
    }
}
