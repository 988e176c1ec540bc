//! Calls of [`Backend`] over HTTP.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use http::{Method, Uri};

use super::HttpBackend;
use super::exchange::{SmallRequest, Target};
use super::remote_node::RemoteNode;
use crate::backend::{Backend, ByteStream, Call, CallKind, DeviceStatus, NewExtent, Reply};
use crate::error::{Error, Result};
use crate::extent::ExtentRef;
use crate::http::call_codec::{decode, decode_reply, encode_call};
use crate::http::calls::{GARBAGE_IDS_MAX, IDS_MAX, KEYS_MAX};
use crate::http::channel::is_short;
use crate::id::{DeviceId, ExtentId};
use crate::trace::{Span, SpanKind, SpannedStream, child, in_child};

impl RemoteNode {
    /// Sends a call and decodes its reply.
    async fn call(self: &Arc<Self>, device: DeviceId, call: &Call<'_>) -> Result<Reply> {
        let kind = call.kind();
        let reply = self.call_once(SmallRequest {
            target: Target::Call { device, kind, is_short: is_short(call) },
            body: encode_call(call)?,
            reply_bytes_max: kind.reply_bytes_max(),
            again: kind.is_read(),
            wait: if kind.reads_much() { self.options.finish } else { self.options.call },
        });
        decode_reply(kind, &reply.await?)
    }
}

/// Splits a call whose list is empty or too long for one request. Returns none for other calls.
fn split<'a>(call: &'a Call<'_>) -> Option<Vec<Call<'a>>> {
    match call {
        Call::DeleteExtents(ids) => chunks(ids, IDS_MAX, Call::DeleteExtents),
        Call::DeleteUnneeded { ids, condition } => {
            chunks(ids, IDS_MAX, |ids| Call::DeleteUnneeded { ids, condition: *condition })
        }
        Call::ReleaseExtents(ids) => chunks(ids, IDS_MAX, Call::ReleaseExtents),
        Call::Presence(ids) => chunks(ids, IDS_MAX, Call::Presence),
        Call::SeekExtents(ids) => chunks(ids, IDS_MAX, Call::SeekExtents),
        Call::FencesOf(buckets) => chunks(buckets, IDS_MAX, Call::FencesOf),
        Call::Sums(spans) => chunks(spans, IDS_MAX, Call::Sums),
        Call::Holdings(keys) => chunks(keys, KEYS_MAX, Call::Holdings),
        Call::MarkCollectable(marks) => chunks(marks, KEYS_MAX, Call::MarkCollectable),
        Call::DropRegisters(drops) => chunks(drops, KEYS_MAX, Call::DropRegisters),
        Call::ForgetGarbage(ids) => chunks(ids, GARBAGE_IDS_MAX, Call::ForgetGarbage),
        Call::ReleaseCopies { extents, condition } => chunks(extents, IDS_MAX, |extents| {
            Call::ReleaseCopies { extents, condition: Cow::Borrowed(condition) }
        }),
        Call::DropStrays { drops, condition } => {
            chunks(drops, KEYS_MAX, |drops| Call::DropStrays { drops, condition: *condition })
        }
        Call::PresenceBy { ids, rings } => {
            chunks(ids, IDS_MAX, |ids| Call::PresenceBy { ids, rings: Cow::Borrowed(rings) })
        }
        _ => None,
    }
}

fn chunks<'a, T: Clone>(
    items: &'a [T],
    items_max: usize,
    call: impl Fn(Cow<'a, [T]>) -> Call<'a>,
) -> Option<Vec<Call<'a>>> {
    let fits = (1..=items_max).contains(&items.len());
    (!fits).then(|| items.chunks(items_max).map(|some| call(Cow::Borrowed(some))).collect())
}

/// Returns the reply to a call with an empty list.
fn reply_to_nothing(kind: CallKind) -> Reply {
    match kind {
        CallKind::Presence | CallKind::PresenceBy => Reply::Presence(Vec::new()),
        CallKind::SeekExtents => Reply::Sought(Vec::new()),
        CallKind::FencesOf => Reply::Fences(Vec::new()),
        CallKind::Sums => Reply::Sums(Vec::new()),
        CallKind::Holdings => Reply::Holdings(Vec::new()),
        _ => Reply::Done(()),
    }
}

/// Appends the reply to the next part of a list.
fn append(whole: &mut Reply, next: Reply) -> Result<()> {
    match (whole, next) {
        (Reply::Done(()), Reply::Done(())) => {}
        (Reply::Presence(all), Reply::Presence(some)) => all.extend(some),
        (Reply::Sought(all), Reply::Sought(some)) => all.extend(some),
        (Reply::Fences(all), Reply::Fences(some)) => all.extend(some),
        (Reply::Sums(all), Reply::Sums(some)) => all.extend(some),
        (Reply::Holdings(all), Reply::Holdings(some)) => all.extend(some),
        _ => return Err(Error::internal("the replies belong to different calls")),
    }
    Ok(())
}

impl HttpBackend {
    /// Sends a call, in parts if it is too long for one request.
    async fn call_in_parts(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        let Some(parts) = split(&call) else { return self.0.call(device, &call).await };
        let mut whole = reply_to_nothing(call.kind());
        for part in parts {
            append(&mut whole, self.0.call(device, &part).await?)?;
        }
        Ok(whole)
    }

    /// Describes the span of a call.
    fn describe(&self, span: &Span, device: DeviceId) {
        span.set("martlet.device", device.0);
        span.set("server.address", self.0.address.clone());
    }
}

#[async_trait]
impl Backend for HttpBackend {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        let name = call.kind().name();
        let work = self.call_in_parts(device, call);
        in_child(SpanKind::Client, name, |span| self.describe(span, device), work).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        let (name, length) = (CallKind::WriteExtent.name(), extent.length);
        let describe = |span: &Span| {
            self.describe(span, device);
            if let Some(length) = length {
                span.set("martlet.bytes", length);
            }
        };
        let work = self.0.write_extent(device, &extent, body);
        in_child(SpanKind::Client, name, describe, work).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let length = range.end.saturating_sub(range.start);
        let work = self.0.read_extent(device, id, range);
        let Some(span) = child(SpanKind::Client, CallKind::ReadExtent.name()) else {
            return Ok(work.await?.boxed());
        };
        self.describe(&span, device);
        let opened = span.scope().clone().run(work.boxed()).await;
        if opened.is_err() {
            span.set_outcome(&opened);
        }
        Ok(SpannedStream::new(opened?.boxed(), length, span).boxed())
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let request = SmallRequest {
            target: Target::Path(Method::GET, Uri::from_static("/v1/devices")),
            body: bytes::Bytes::new(),
            reply_bytes_max: CallKind::Fences.reply_bytes_max(),
            again: true,
            wait: self.0.options.call,
        };
        decode(&self.0.call_once(request).await?)
    }
}
