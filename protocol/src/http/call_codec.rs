//! Bytes of calls and replies, for both sides.
//!
//! A request's body is the postcard of the call's arguments as a tuple; a reply's body is the
//! postcard of the call's result. The kind of a call is in the path: the number that postcard
//! writes before the arguments of a [`Call`] stays at the client, and the server decodes without it.
//!
//! Both are [messages](super::message_codec): later releases append fields to them.

use bytes::{Buf, Bytes};
use serde::de::value::{EnumAccessDeserializer, U32Deserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer};
use serde::{Deserialize, Serialize};

use super::calls::{CLAIMS_MAX, IDS_MAX, PAGE_ITEMS_MAX, encode};
use super::message_codec::{Message, decode_message};
use crate::backend::{Call, CallKind, ListRequest, RegisterView, Reply};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::limits::{FENCES_MAX, INDEX_SHARDS_MAX};
use crate::stamp::Stamp;

// The number before the arguments takes one byte.
const _: () = assert!(CallKind::CALLS.len() < 128);

/// Encodes the arguments of a call.
pub(super) fn encode_call(call: &Call<'_>) -> Result<Bytes> {
    let mut numbered = encode(call)
        .map_err(|error| Error::internal("a request can't be encoded").with_source(error))?;
    numbered.advance(1);
    Ok(numbered)
}

/// Decodes a call from its arguments. Its page is limited, so that the reply fits into memory.
pub(super) fn decode_call(kind: CallKind, body: &[u8]) -> Result<Call<'static>> {
    let access = Arguments { kind, arguments: Message { bytes: body } };
    let call = Call::deserialize(EnumAccessDeserializer::new(access)).map_err(undecodable)?;
    bounded(call)
}

/// Encodes the result of a call.
pub(super) fn encode_reply(reply: &impl Serialize) -> Result<Bytes> {
    encode(reply).map_err(|error| Error::internal("a reply can't be encoded").with_source(error))
}

/// Decodes the result of a call of this kind.
pub(super) fn decode_reply(kind: CallKind, body: &Bytes) -> Result<Reply> {
    Ok(match kind {
        CallKind::Read | CallKind::ReadHint => Reply::View(decode_view(body)?),
        CallKind::Write | CallKind::KeepHint => Reply::Write(decode(body)?),
        CallKind::Promise => Reply::Promise(decode(body)?),
        CallKind::List | CallKind::ListRows | CallKind::ListHints => Reply::List(decode(body)?),
        CallKind::Registers | CallKind::Walk => Reply::Registers(decode(body)?),
        CallKind::Hints => Reply::Hints(decode(body)?),
        CallKind::Fences | CallKind::FencesAfter | CallKind::FencesOf => {
            Reply::Fences(decode(body)?)
        }
        CallKind::StatExtent => Reply::Stat(decode(body)?),
        CallKind::ListExtents => Reply::Extents(decode(body)?),
        CallKind::Presence | CallKind::PresenceBy => Reply::Presence(decode(body)?),
        CallKind::AuditExtents => Reply::ExtentAudit(decode(body)?),
        CallKind::Garbage | CallKind::GarbageAfter => Reply::Garbage(decode(body)?),
        CallKind::Sums => Reply::Sums(decode(body)?),
        CallKind::Bins => Reply::Bins(decode(body)?),
        CallKind::Holdings => Reply::Holdings(decode(body)?),
        CallKind::AuditRegisters => Reply::RegisterAudit(decode(body)?),
        CallKind::Claims => Reply::Claims(decode(body)?),
        CallKind::SeekExtents => Reply::Sought(decode(body)?),
        CallKind::Aged => Reply::Aged(decode(body)?),
        CallKind::ExtentSums => Reply::ExtentSums(decode(body)?),
        CallKind::Usage => Reply::Usage(decode(body)?),
        CallKind::OldRegisters => Reply::OldRegisters(decode(body)?),
        CallKind::HeldBuckets => Reply::HeldBuckets(decode(body)?),
        CallKind::HintArrivals => Reply::HintArrivals(decode(body)?),
        CallKind::Quarantine => Reply::Quarantine(decode(body)?),
        CallKind::Fence
        | CallKind::PurgeBucket
        | CallKind::DeleteExtents
        | CallKind::DeleteUnneeded
        | CallKind::ReleaseExtents
        | CallKind::ForgetGarbage
        | CallKind::ForgetHint
        | CallKind::RaiseFloor
        | CallKind::SetVoting
        | CallKind::MarkCollectable
        | CallKind::DropRegisters
        | CallKind::RaiseTerm
        | CallKind::SetJoined
        | CallKind::RaiseFloorOf
        | CallKind::SetVotingOf
        | CallKind::SetJoinedOf
        | CallKind::SetFencedOf
        | CallKind::ReleaseCopies
        | CallKind::DropStrays => Reply::Done(decode(body)?),
        CallKind::WriteExtent | CallKind::ReadExtent => {
            return Err(Error::internal("the reply of a stream isn't the reply of a call"));
        }
    })
}

/// Decodes the body of a reply.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    decode_message(body).map_err(unreadable)
}

/// Fields of a [`RegisterView`], with its inline bytes where they lie.
#[derive(Deserialize)]
struct ViewFields<'a> {
    promise: Stamp,
    entry: Option<Entry>,
    #[serde(borrow)]
    inline: Option<&'a [u8]>,
}

/// Decodes the view of a register. Its inline bytes share the memory of the body.
fn decode_view(body: &Bytes) -> Result<RegisterView> {
    let ViewFields { promise, entry, inline } = decode_message(body).map_err(unreadable)?;
    Ok(RegisterView { promise, entry, inline: inline.map(|bytes| body.slice_ref(bytes)) })
}

fn unreadable(error: postcard::Error) -> Error {
    Error::internal("the node's reply can't be read").with_source(error)
}

fn undecodable(error: postcard::Error) -> Error {
    Error::invalid("the request can't be decoded").with_source(error)
}

/// Limits a page, so that it fits into memory and a reply.
fn bounded(mut call: Call<'static>) -> Result<Call<'static>> {
    match &mut call {
        Call::ListExtents { limit, .. }
        | Call::Garbage { limit, .. }
        | Call::Hints { limit, .. }
        | Call::Registers { limit, .. }
        | Call::Bins { limit, .. }
        | Call::Walk { limit, .. }
        | Call::GarbageAfter { limit, .. }
        | Call::Aged { limit, .. }
        | Call::OldRegisters { limit, .. }
        | Call::HeldBuckets { limit, .. }
        | Call::HintArrivals { limit, .. }
        | Call::Quarantine { limit, .. } => *limit = PAGE_ITEMS_MAX.min(*limit),
        Call::List(request) | Call::ListRows { request, .. } | Call::ListHints(request) => {
            let request: &mut ListRequest = request.to_mut();
            if request.shards.len() > usize::from(INDEX_SHARDS_MAX) {
                return Err(Error::invalid("the bucket has fewer shards"));
            }
            request.limit = request.limit.min(PAGE_ITEMS_MAX);
        }
        Call::Claims(request) => {
            let claims = request.devices.iter().map(|of| of.claims.len());
            if claims.sum::<usize>() > CLAIMS_MAX {
                return Err(Error::invalid("the request has too many claims"));
            }
        }
        Call::FencesAfter { limit, .. } => *limit = FENCES_MAX.min(*limit),
        Call::FencesOf(buckets) if buckets.len() > IDS_MAX => {
            return Err(Error::invalid("the request has too many buckets"));
        }
        Call::Usage { runs, .. } if runs.len() > IDS_MAX => {
            return Err(Error::invalid("the request has too many runs"));
        }
        _ => {}
    }
    Ok(call)
}

/// Arguments of a call whose kind is known.
struct Arguments<'de> {
    kind: CallKind,
    arguments: Message<'de>,
}

impl<'de> EnumAccess<'de> for Arguments<'de> {
    type Error = postcard::Error;
    type Variant = Message<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> postcard::Result<(V::Value, Self::Variant)> {
        let number: U32Deserializer<postcard::Error> = (self.kind as u32).into_deserializer();
        Ok((seed.deserialize(number)?, self.arguments))
    }
}

#[cfg(test)]
mod tests;
