//! Reads and writes of extents: streams that are never collected in memory.

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, header};
use http_body::Body as _;
use serde::Deserialize;

use super::body::ReceivedBody;
use super::handler::HandlerState;
use super::trailing_hashes::BodyWithHashes;
use crate::backend::{ByteStream, ExtentHashes, NewExtent, SentHashes};
use crate::error::{Error, Result};
use crate::http::frames::{FramedStream, framed_length};
use crate::http::message_codec::decode_message;
use crate::http::{calls, fault};
use crate::id::{DeviceId, ExtentId};
use crate::limits::EXTENT_BYTES_MAX;

/// Byte range of an extent.
#[derive(Debug, Deserialize)]
pub(super) struct Span {
    from: u64,
    to: u64,
}

pub(super) async fn write(
    State(served): State<HandlerState>,
    Path((device, id)): Path<(u32, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match take(&served, DeviceId(device), &id, &headers, body).await {
        Ok(reply) => reply,
        Err(error) => fault::reply(&error),
    }
}

async fn take(
    served: &HandlerState,
    device: DeviceId,
    id: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response> {
    let (claimed, exact) = (body.size_hint().lower(), body.size_hint().exact());
    // From here on a refusal drains the rest of the body.
    let inflow = ReceivedBody::new(body, served.options.idle);
    let mut extent = described(headers)?;
    if extent.id != parse(id)? {
        return Err(Error::invalid("the path and the head name different extents"));
    }
    let has_hashes = headers.contains_key(calls::HASHES);
    let hash_bytes = match extent.length.filter(|_| has_hashes) {
        Some(length @ ..=EXTENT_BYTES_MAX) => ExtentHashes::encoded_bytes(length),
        _ => 0,
    };
    if claimed.saturating_sub(hash_bytes) > EXTENT_BYTES_MAX
        || extent.length.is_some_and(|n| n > EXTENT_BYTES_MAX)
    {
        return Err(Error::invalid("the extent is too long"));
    }
    let announced = extent.length.map(|length| length + hash_bytes);
    if announced.is_some() && exact.is_some() && announced != exact {
        return Err(Error::invalid("the extent's length differs from the announced length"));
    }
    let inflow = match (extent.length, has_hashes) {
        (_, false) => inflow.boxed(),
        (None, true) => return Err(Error::invalid("an extent with hashes must have a length")),
        (Some(length), true) => {
            let hashes = SentHashes::default();
            extent.hashes = Some(hashes.clone());
            BodyWithHashes::new(inflow.with_trailer(hash_bytes), length, hashes).boxed()
        }
    };
    let reference = served.backend.write_extent(device, extent, inflow).await?;
    let body = postcard::to_stdvec(&reference)
        .map_err(|error| Error::internal("a reply can't be encoded").with_source(error))?;
    Ok(Response::new(Body::from(body)))
}

fn described(headers: &HeaderMap) -> Result<NewExtent> {
    let unclear = || Error::invalid("the request lacks a description of its extent");
    let described = headers.get(calls::EXTENT).ok_or_else(unclear)?;
    let bytes = hex::decode(described).map_err(|_| unclear())?;
    decode_message(&bytes).map_err(|_| unclear())
}

fn parse(id: &str) -> Result<ExtentId> {
    id.parse().map_err(|_| Error::invalid("an extent's id must be 32 hexadecimal digits"))
}

pub(super) async fn read(
    State(served): State<HandlerState>,
    Path((device, id)): Path<(u32, String)>,
    Query(span): Query<Span>,
) -> Response {
    match open(&served, DeviceId(device), &id, &span).await {
        Ok(reply) => reply,
        Err(error) => fault::reply(&error),
    }
}

/// Opens a read. The reply begins after the first bytes were verified, so that their errors keep
/// their kind. A later error can only cut the reply. The frames' checksums are computed from
/// verified bytes.
async fn open(served: &HandlerState, device: DeviceId, id: &str, span: &Span) -> Result<Response> {
    let id = parse(id)?;
    if span.from >= span.to || span.to > EXTENT_BYTES_MAX {
        return Err(Error::invalid(format!("extent {id} has no bytes {}..{}", span.from, span.to)));
    }
    let range = span.from..span.to;
    let mut stream = served.backend.read_extent(device, id, range.clone()).await?;
    let first = stream.next().await.unwrap_or_else(|| Err(Error::internal("an empty stream")))?;
    let whole: ByteStream = futures::stream::iter([Ok(first)]).chain(stream).boxed();
    let mut response = Response::new(Body::from_stream(FramedStream::new(whole, &range)));
    let length = HeaderValue::from(framed_length(&range));
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    Ok(response)
}
