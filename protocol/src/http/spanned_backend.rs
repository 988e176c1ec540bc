//! A backend whose calls are spans of the request that they are made for.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;

use super::request::current_request;
use crate::backend::{Backend, ByteStream, Call, CallKind, DeviceStatus, NewExtent, Reply};
use crate::error::Result;
use crate::extent::ExtentRef;
use crate::id::{DeviceId, ExtentId};
use crate::trace::{Span, SpanKind, SpannedStream, child, in_child};

/// Backend of a node that records a span for each call of a sampled request.
pub struct SpannedBackend {
    backend: Arc<dyn Backend>,
    kind: SpanKind,
}

impl SpannedBackend {
    /// Wraps the backend of a node, whose calls come from other processes.
    pub fn of_node(backend: Arc<dyn Backend>) -> Self {
        Self { backend, kind: SpanKind::Server }
    }

    /// Wraps a backend that this process itself calls.
    pub fn within(backend: Arc<dyn Backend>) -> Self {
        Self { backend, kind: SpanKind::Internal }
    }
}

/// Describes the span of a call.
fn describe(span: &Span, device: DeviceId) {
    span.set("martlet.device", device.0);
    if let Some(id) = current_request().as_ref().and_then(|id| id.to_str().ok()) {
        span.set("aws.request_id", id.to_owned());
    }
}

#[async_trait]
impl Backend for SpannedBackend {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        let name = call.kind().name();
        let work = self.backend.call(device, call);
        in_child(self.kind, name, |span| describe(span, device), work).await
    }

    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        let length = extent.length;
        let begin = |span: &Span| {
            describe(span, device);
            if let Some(length) = length {
                span.set("martlet.bytes", length);
            }
        };
        let work = self.backend.write_extent(device, extent, body);
        in_child(self.kind, CallKind::WriteExtent.name(), begin, work).await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let span = child(self.kind, CallKind::ReadExtent.name());
        let length = range.end.saturating_sub(range.start);
        let work = self.backend.read_extent(device, id, range);
        let Some(span) = span else { return work.await };
        describe(&span, device);
        let opened = span.scope().clone().run(work).await;
        if opened.is_err() {
            span.set_outcome(&opened);
        }
        Ok(SpannedStream::new(opened?, length, span).boxed())
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        self.backend.devices().await
    }
}
