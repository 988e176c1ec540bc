//! Error replies of the admin API.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::ErrorReply;

/// Makes an error reply with this sentence.
pub fn refuse(status: StatusCode, sentence: &str) -> Response {
    (status, Json(ErrorReply { error: sentence.to_owned() })).into_response()
}
