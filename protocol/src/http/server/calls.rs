//! Index calls: postcard in, postcard out.
//!
//! Each call has a timeout, taken from the request's deadline header if present. After the timeout,
//! or when the client disconnects, the work is dropped.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::guard::Mismatch;
use super::{HandlerState, body};
use crate::backend::{Backend, ListRequest, Walk, Want};
use crate::error::{Error, Result};
use crate::http::calls::{self, BackendCall, DEADLINE, PAGE_ITEMS_MAX, REQUEST_BYTES_MAX};
use crate::http::fault;
use crate::id::DeviceId;
use crate::key::RegisterKey;
use crate::limits::INDEX_SHARDS_MAX;
use crate::stamp::Stamp;
use crate::term::Term;

pub(super) async fn devices(State(served): State<HandlerState>, headers: HeaderMap) -> Response {
    let answer = async { encode(&served.backend.devices().await?) };
    respond(in_time(&served, &headers, answer).await)
}

pub(super) async fn call(
    State(served): State<HandlerState>,
    Path((device, call)): Path<(u32, BackendCall)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = async {
        let body = body::gather(body, REQUEST_BYTES_MAX).await?;
        dispatch(&*served.backend, DeviceId(device), call, &body).await
    };
    respond(in_time(&served, &headers, answer).await)
}

/// Drops the work after the caller's timeout.
async fn in_time(
    served: &HandlerState,
    headers: &HeaderMap,
    answer: impl Future<Output = Result<Bytes>>,
) -> Result<Bytes> {
    let asked = headers.get(DEADLINE).and_then(|value| value.to_str().ok()?.parse().ok());
    let longest = served.options.idle;
    let limit = asked.map_or(served.options.call, Duration::from_millis).min(longest);
    let answer = timeout(limit, answer).await;
    answer.unwrap_or_else(|_| Err(Error::unavailable("the call took longer than its timeout")))
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

/// Decodes and executes a call; matches the client's table of calls.
async fn dispatch(
    backend: &dyn Backend,
    device: DeviceId,
    call: BackendCall,
    body: &[u8],
) -> Result<Bytes> {
    match call {
        BackendCall::Read => {
            let (key, want, term) = decode::<(RegisterKey, Want, Term)>(body)?;
            encode(&backend.read(device, &key, want, term).await?)
        }
        BackendCall::Write => encode(&backend.write(device, decode(body)?).await?),
        BackendCall::Promise => {
            let (key, ballot, term) = decode::<(RegisterKey, Stamp, Term)>(body)?;
            encode(&backend.promise(device, &key, ballot, term).await?)
        }
        BackendCall::List => encode(&backend.list(device, &bounded(decode(body)?)?).await?),
        BackendCall::Fence => encode(&backend.fence(device, decode(body)?).await?),
        BackendCall::PurgeBucket => encode(&backend.purge_bucket(device, decode(body)?).await?),
        BackendCall::StatExtent => encode(&backend.stat_extent(device, decode(body)?).await?),
        BackendCall::DeleteExtents => {
            encode(&backend.delete_extents(device, &decode::<Vec<_>>(body)?).await?)
        }
        BackendCall::ListExtents => {
            let (after, limit) = decode(body)?;
            encode(&backend.list_extents(device, after, page(limit)).await?)
        }
        BackendCall::Garbage => {
            let (before_ms, limit) = decode(body)?;
            encode(&backend.garbage(device, before_ms, page(limit)).await?)
        }
        BackendCall::ForgetGarbage => {
            encode(&backend.forget_garbage(device, &decode::<Vec<_>>(body)?).await?)
        }
        BackendCall::KeepHint => encode(&backend.keep_hint(device, decode(body)?).await?),
        BackendCall::ReadHint => {
            let (key, want) = decode::<(RegisterKey, Want)>(body)?;
            encode(&backend.read_hint(device, &key, want).await?)
        }
        BackendCall::ListHints => {
            encode(&backend.list_hints(device, &bounded(decode(body)?)?).await?)
        }
        BackendCall::Hints => {
            let (after, limit) = decode::<(Option<RegisterKey>, usize)>(body)?;
            encode(&backend.hints(device, after.as_ref(), page(limit)).await?)
        }
        BackendCall::ForgetHint => {
            let (key, order) = decode::<(RegisterKey, Stamp)>(body)?;
            encode(&backend.forget_hint(device, &key, order).await?)
        }
        BackendCall::Registers => {
            let (after, limit) = decode::<(Option<RegisterKey>, usize)>(body)?;
            encode(&backend.registers(device, after.as_ref(), page(limit)).await?)
        }
        BackendCall::Fences => encode(&backend.fences(device).await?),
        BackendCall::RaiseFloor => encode(&backend.raise_floor(device, decode(body)?).await?),
        BackendCall::SetVoting => encode(&backend.set_voting(device, decode(body)?).await?),
        upkeep => dispatch_upkeep(backend, device, upkeep, body).await,
    }
}

/// Decodes and executes the calls of background workers.
async fn dispatch_upkeep(
    backend: &dyn Backend,
    device: DeviceId,
    call: BackendCall,
    body: &[u8],
) -> Result<Bytes> {
    match call {
        BackendCall::ReleaseExtents => {
            encode(&backend.release_extents(device, &decode::<Vec<_>>(body)?).await?)
        }
        BackendCall::Presence => encode(&backend.presence(device, &decode::<Vec<_>>(body)?).await?),
        BackendCall::AuditExtents => {
            let (after, bytes_max) = decode(body)?;
            encode(&backend.audit_extents(device, after, bytes_max).await?)
        }
        BackendCall::Sums => encode(&backend.sums(device, &decode::<Vec<_>>(body)?).await?),
        BackendCall::Bins => {
            let (span, after, limit) = decode(body)?;
            encode(&backend.bins(device, span, after, page(limit)).await?)
        }
        BackendCall::Walk => {
            let (walk, after, limit) = decode::<(Walk, Option<RegisterKey>, usize)>(body)?;
            encode(&backend.walk(device, &walk, after.as_ref(), page(limit)).await?)
        }
        BackendCall::Holdings => encode(&backend.holdings(device, &decode::<Vec<_>>(body)?).await?),
        BackendCall::MarkCollectable => {
            encode(&backend.mark_collectable(device, &decode::<Vec<_>>(body)?).await?)
        }
        BackendCall::DropRegisters => {
            encode(&backend.drop_registers(device, &decode::<Vec<_>>(body)?).await?)
        }
        BackendCall::AuditRegisters => {
            encode(&backend.audit_registers(device, decode(body)?).await?)
        }
        BackendCall::RaiseTerm => encode(&backend.raise_term(device, decode(body)?).await?),
        BackendCall::SetJoined => encode(&backend.set_joined(device, decode(body)?).await?),
        other => Err(Error::internal(format!("there is no handler for {}", other.name()))),
    }
}

/// Limits a page, so that it fits into memory and a reply.
fn page(limit: usize) -> usize {
    limit.min(PAGE_ITEMS_MAX)
}

fn bounded(request: ListRequest) -> Result<ListRequest> {
    if request.shards.len() > usize::from(INDEX_SHARDS_MAX) {
        return Err(Error::invalid("the bucket has fewer shards"));
    }
    Ok(ListRequest { limit: page(request.limit), ..request })
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let (value, rest) = postcard::take_from_bytes(body)
        .map_err(|error| Error::invalid("the request can't be decoded").with_source(error))?;
    if !rest.is_empty() {
        return Err(Error::invalid("the request has bytes after its call"));
    }
    Ok(value)
}

fn encode(value: &impl Serialize) -> Result<Bytes> {
    calls::encode(value)
        .map_err(|error| Error::internal("a reply can't be encoded").with_source(error))
}
