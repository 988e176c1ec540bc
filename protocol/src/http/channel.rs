//! Channels: one authenticated connection that carries many short calls of a node at once.
//!
//! ```text
//! client                                             node
//!   ── GET /v1/channel, signed, with a nonce ──────▶   an ordinary internal request
//!   ◀─ 101, with a nonce and a proof of the key ────   then no more HTTP on this connection
//!   ── call 1, call 2, cancel 1, call 3 ───────────▶   frames, each with number and MAC
//!   ◀─ reply 3, reply 2, goodbye ───────────────────   in the order in which the replies are ready
//! ```
//!
//! * [`session`]: nonces, and the keys derived from them and the cluster key.
//! * [`frame`]: bytes of a frame; [`frame_reader`]: frames of a connection.
//! * [`message`]: heads of calls and replies within frames.
//!
//! A client that gets another reply than 101 uses HTTP for its calls, as before.

pub(super) mod frame;
pub(super) mod frame_reader;
pub(super) mod message;
pub(super) mod session;

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::sign::WINDOW_MS;
use crate::backend::Call;

/// Path of the request that opens a channel.
pub(super) const PATH: &str = "/v1/channel";
/// Protocol of the upgrade.
pub(super) const PROTOCOL: HeaderValue = HeaderValue::from_static("martlet-channel-1");
/// Nonce of the client; in the reply, nonce and proof of the node. Hexadecimal.
pub(super) const CHANNEL: HeaderName = HeaderName::from_static("x-martlet-channel");

/// Longest frame from a client to a node.
pub(super) const CALL_FRAME_BYTES_MAX: usize = 128 * 1024;
/// Longest frame from a node to a client: a reply about one register or extent, and its head.
pub(super) const REPLY_FRAME_BYTES_MAX: usize = 2 * 1024 * 1024 + 64 * 1024;
/// Longest body of a call in a channel; the rest of the frame is for the head of the call.
pub(super) const CALL_BYTES_MAX: usize = CALL_FRAME_BYTES_MAX - 4096;
/// Longest result in a channel, before its head.
pub(super) const RESULT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Age from which a client opens another channel for new calls.
pub(super) const CLIENT_AGE_MAX: Duration = Duration::from_mins(10);
/// Age at which a node cuts a channel: a frame is accepted as long as the request that opened the
/// channel.
pub(super) const NODE_AGE_MAX: Duration = Duration::from_millis(WINDOW_MS);

/// Most items of a page, and most extents sought, by one call of a channel.
const PAGE_ITEMS_MAX: usize = 32;
const SOUGHT_MAX: usize = 512;

/// Returns true if a call and its reply are short, so that others may wait behind them.
pub(super) fn is_short(call: &Call<'_>) -> bool {
    match call {
        Call::List(request) | Call::ListRows { request, .. } | Call::ListHints(request) => {
            request.limit <= PAGE_ITEMS_MAX
        }
        Call::SeekExtents(ids) => ids.len() <= SOUGHT_MAX,
        Call::FencesOf(buckets) => buckets.len() <= SOUGHT_MAX,
        Call::ListExtents { .. }
        | Call::Garbage { .. }
        | Call::GarbageAfter { .. }
        | Call::Hints { .. }
        | Call::HintArrivals { .. }
        | Call::Registers { .. }
        | Call::Fences
        | Call::FencesAfter { .. }
        | Call::Bins { .. }
        | Call::Walk { .. }
        | Call::Claims(_)
        | Call::Aged { .. }
        | Call::AuditExtents { .. }
        | Call::AuditRegisters(_)
        | Call::PurgeBucket(_) => false,
        _ => true,
    }
}

const _: () = {
    // The longest entry of a page takes 62 KiB, the record of an extent with the longest key 2 KiB.
    assert!(PAGE_ITEMS_MAX * 62 * 1024 < RESULT_BYTES_MAX);
    assert!(SOUGHT_MAX * 2048 < RESULT_BYTES_MAX);
    assert!(2 * crate::limits::INLINE_BYTES_MAX < CALL_BYTES_MAX as u64);
    assert!(RESULT_BYTES_MAX < REPLY_FRAME_BYTES_MAX);
    assert!(CLIENT_AGE_MAX.as_millis() < NODE_AGE_MAX.as_millis());
};
