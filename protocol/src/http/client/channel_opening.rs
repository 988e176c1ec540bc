//! Opening of a channel: a signed request, and the node's proof of the key.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::channel::Channel;
use super::channel_slot::OpenedChannel;
use super::connection::Connection;
use super::exchange::ReplyHead;
use super::remote_node::RemoteNode;
use super::upload::RequestBody;
use crate::http::channel::message::BodyLayout;
use crate::http::channel::session::{Nonce, SessionKeys};
use crate::http::channel::{CHANNEL, PATH, PROTOCOL};

impl RemoteNode {
    /// Returns the node's channel for a short call, if one is open. Begins to open one otherwise.
    pub(super) fn channel_for_call(self: &Arc<Self>) -> Option<Arc<Channel>> {
        if !self.options.channels {
            return None;
        }
        let (channel, is_due) = self.channel.count_call();
        if is_due {
            let opening = Opening { node: self.clone(), outcome: OpenedChannel::Unreached };
            tokio::spawn(opening.run());
        }
        channel
    }

    /// Opens a channel. None if the connection ends.
    async fn open_channel(&self) -> Option<OpenedChannel> {
        let nonce = Nonce::random();
        let mut request = Request::new(RequestBody::Whole(Bytes::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = Uri::from_static(PATH);
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, PROTOCOL);
        headers.insert(CHANNEL, nonce.header());
        self.seal(&mut request);
        let connection = Connection::open(&self.address, &self.options).await.ok()?;
        let sent = self.send(connection, request).await.ok()?;
        let ReplyHead { response, mut connection } = sent;
        let is_ours = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let proof = response.headers().get(CHANNEL).filter(|_| is_ours);
        let keys = proof.and_then(|proof| SessionKeys::of_header(&self.key, nonce, proof));
        let Some(keys) = keys else { return Some(OpenedChannel::Refused) };
        let layout = BodyLayout::of_version(self.common_wire(response.headers()).ok()?);
        let upgraded = connection.driving(hyper::upgrade::on(response)).await.ok()?;
        let observer = self.report_observer.clone();
        let channel = Channel::start(&keys, layout, TokioIo::new(upgraded), observer);
        Some(OpenedChannel::Open(channel))
    }
}

/// Opening that sets the slot when it ends, even early with its runtime.
struct Opening {
    node: Arc<RemoteNode>,
    outcome: OpenedChannel,
}

impl Opening {
    async fn run(mut self) {
        let node = self.node.clone();
        let limit = node.options.connect + node.options.call;
        if let Ok(Some(outcome)) = timeout(limit, node.open_channel()).await {
            self.outcome = outcome;
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, OpenedChannel::Unreached);
        self.node.channel.opened(outcome);
    }
}
