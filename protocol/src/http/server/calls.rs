//! Index calls over HTTP, and what they share with calls of channels: postcard in, postcard out.
//!
//! Each call has a timeout, taken from the request's deadline header if present. After the timeout,
//! or when the client disconnects, the work is dropped.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use super::body;
use super::guard::Mismatch;
use super::handler::HandlerState;
use crate::backend::{Call, CallKind};
use crate::error::{Error, Result};
use crate::http::call_codec::{decode_call, encode_reply};
use crate::http::calls::{DEADLINE, REQUEST_BYTES_MAX};
use crate::http::fault;
use crate::id::DeviceId;

pub(super) async fn devices(State(served): State<HandlerState>, headers: HeaderMap) -> Response {
    let answer = async { encode_reply(&served.backend.devices().await?) };
    respond(in_time(&served, &headers, answer).await)
}

pub(super) async fn call(
    State(served): State<HandlerState>,
    Path((device, kind)): Path<(u32, CallKind)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = async {
        let call = decode_call(kind, &body::gather(body, REQUEST_BYTES_MAX).await?)?;
        served.answer(DeviceId(device), call).await
    };
    respond(in_time(&served, &headers, answer).await)
}

async fn in_time(
    served: &HandlerState,
    headers: &HeaderMap,
    answer: impl Future<Output = Result<Bytes>>,
) -> Result<Bytes> {
    let requested = headers.get(DEADLINE).and_then(|value| value.to_str().ok()?.parse().ok());
    let limit = requested.map_or(served.options.call, Duration::from_millis);
    served.in_time(limit, answer).await
}

impl HandlerState {
    /// Performs a call and encodes its result.
    pub(super) async fn answer(&self, device: DeviceId, call: Call<'static>) -> Result<Bytes> {
        encode_reply(&self.backend.call(device, call).await?)
    }

    /// Drops the work after the caller's timeout.
    pub(super) async fn in_time(
        &self,
        requested: Duration,
        answer: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        let answer = timeout(requested.min(self.options.idle), answer).await;
        answer.unwrap_or_else(|_| Err(Error::unavailable("the call took longer than its timeout")))
    }
}

fn respond(answer: Result<Bytes>) -> Response {
    match answer {
        Ok(body) => Response::new(Body::from(body)),
        Err(error) if is_mismatch(&error) => {
            fault::refusal(StatusCode::FORBIDDEN, &error.to_string())
        }
        Err(error) => fault::reply(&error),
    }
}

fn is_mismatch(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<Mismatch>)
}
