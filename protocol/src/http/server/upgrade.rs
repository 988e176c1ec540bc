//! The request that opens a channel.
//!
//! The connection's task serves the channel after the reply 101, so that a channel counts as a
//! connection and ends with the server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::channel::ServedChannel;
use super::guard::Guard;
use super::handler::HandlerState;
use crate::error::{Error, Result};
use crate::http::channel::message::BodyLayout;
use crate::http::channel::session::{Nonce, SessionKeys};
use crate::http::channel::{CHANNEL, PROTOCOL};
use crate::http::fault;

/// Longest time from the reply 101 to the end of HTTP on the connection.
const UPGRADE_MAX: Duration = Duration::from_secs(5);

/// Place for the channel that a connection becomes. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct UpgradeSlot(Arc<Mutex<Option<AcceptedChannel>>>);

/// A channel whose client has proved its key.
pub(super) struct AcceptedChannel {
    upgrade: OnUpgrade,
    keys: SessionKeys,
    layout: BodyLayout,
    guard: Guard,
    served: HandlerState,
}

impl UpgradeSlot {
    /// Returns the channel, if the connection becomes one.
    pub(super) fn take(&self) -> Option<AcceptedChannel> {
        self.0.lock().take()
    }
}

impl AcceptedChannel {
    /// Serves the channel to its end. After `stop` is ready, the channel ends with its last call.
    pub(super) async fn serve(self, stop: impl Future<Output = ()>) {
        let Self { upgrade, keys, layout, guard, served } = self;
        let Ok(Ok(upgraded)) = timeout(UPGRADE_MAX, upgrade).await else { return };
        let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        ServedChannel::new(&keys, layout, guard, served).run(reader, writer, stop).await;
    }
}

/// Accepts a channel, by 101 with the node's proof of the key.
pub(super) async fn open(State(served): State<HandlerState>, request: Request) -> Response {
    accept(served, request).unwrap_or_else(|error| fault::reply(&error))
}

fn accept(served: HandlerState, mut request: Request) -> Result<Response> {
    let nonce = request.headers().get(CHANNEL).and_then(Nonce::of_header);
    let is_ours = request.headers().get(UPGRADE) == Some(&PROTOCOL);
    let client =
        nonce.filter(|_| is_ours).ok_or_else(|| Error::invalid("not a channel's request"))?;
    let guard = request.extensions_mut().remove::<Guard>();
    let slot = request.extensions_mut().remove::<UpgradeSlot>();
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let (Some(guard), Some(slot), Some(upgrade)) = (guard, slot, upgrade) else {
        return Err(Error::invalid("the connection can't become a channel"));
    };
    let layout = BodyLayout::of_version(guard.common_wire(request.headers())?);
    let node = Nonce::random();
    let keys = SessionKeys::new(&guard.key, client, node);
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, PROTOCOL);
    headers.insert(CHANNEL, keys.header(node));
    *slot.0.lock() = Some(AcceptedChannel { upgrade, keys, layout, guard, served });
    Ok(response)
}
