//! A caller's connection to a node: a [`Backend`] that sends every call over the simulated network.
//!
//! * [`carry`]: the way of a call and its reply.
//! * [`deciding`]: the effects of planted bugs.
//! * This file: the calls of the trait.

mod carry;
mod deciding;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use martlet_protocol::backend::{Call, DeviceStatus, NewExtent, Reply};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::{Backend, ByteStream, DeviceId, ExtentId, Result};

pub(crate) use self::carry::Link;
use self::carry::whole;
use super::network::Caller;
use super::shown;

#[async_trait]
impl Backend for Link {
    async fn call(&self, device: DeviceId, call: Call<'_>) -> Result<Reply> {
        let what = shown::call(&call);
        let call = call.into_owned();
        if let Some(reply) = self.unasked(&call) {
            return Ok(reply);
        }
        self.unpin_early(&call).await;
        let (sent, effect) = (call.clone(), self.effect(&call));
        let reply = self.carry(what, move |node| {
            let (call, effect) = (sent.clone(), effect.clone());
            async move { effect.of(&*node, device, call).await }
        });
        match reply.await {
            Ok(reply) => Ok(reply),
            Err(error) => self.in_spite(error, &call).await,
        }
    }

    /// Reads the whole body first, so nothing arrives of a body that is dropped half-way.
    async fn write_extent(
        &self,
        device: DeviceId,
        extent: NewExtent,
        body: ByteStream,
    ) -> Result<ExtentRef> {
        self.living().await;
        let bytes = whole(body).await?;
        let what = format!("write extent {} of {} bytes", extent.id, bytes.len());
        self.carry(what, move |node| {
            let (extent, bytes) = (extent.clone(), bytes.clone());
            let body = stream::once(std::future::ready(Ok(bytes))).boxed();
            async move { node.write_extent(device, extent, body).await }
        })
        .await
    }

    async fn read_extent(
        &self,
        device: DeviceId,
        id: ExtentId,
        range: Range<u64>,
    ) -> Result<ByteStream> {
        let what = format!("read extent {id} {range:?}");
        let bytes = self.carry(what, move |node| {
            let range = range.clone();
            async move { whole(node.read_extent(device, id, range).await?).await }
        });
        Ok(self.stream(bytes.await?))
    }

    async fn devices(&self) -> Result<Vec<DeviceStatus>> {
        let Caller::Worker(_) = self.caller else {
            let statuses = |node: Arc<dyn Backend>| async move { node.devices().await };
            return self.carry("devices".into(), statuses).await;
        };
        self.statuses().await
    }
}
