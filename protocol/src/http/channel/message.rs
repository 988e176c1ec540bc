//! Heads of calls and replies. The content follows: the postcard of the arguments, or of the
//! result, as over HTTP; or the message of an error.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::http::announce::{Announcement, NodeReport};
use crate::http::fault::Fault;

/// Length of most heads.
const HEAD_BYTES: usize = 64;

/// Head of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct CallHead<'a> {
    /// Id of the device in the rings.
    pub(in crate::http) device: u32,
    /// Name of the call's kind, as in paths.
    pub(in crate::http) kind: &'a str,
    /// Time that the caller waits, in milliseconds.
    pub(in crate::http) deadline_ms: u64,
    /// True for calls of background work.
    pub(in crate::http) is_background: bool,
    /// Id of the client's request that the call is made for.
    pub(in crate::http) request: Option<&'a [u8]>,
}

/// Head of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct ReplyHead<'a> {
    /// Milliseconds since 1970 by the node's clock.
    pub(in crate::http) now_ms: u64,
    /// Announcement of the node, if it differs from that of the reply before.
    #[serde(borrow)]
    pub(in crate::http) announced: Option<Announced<'a>>,
    /// Current duration of client requests at the node, in replies to background work.
    pub(in crate::http) clients_wait_us: Option<u64>,
    /// Kind of the error; none if the call succeeded.
    pub(in crate::http) fault: Option<Fault<'a>>,
}

/// Fields of an [`Announcement`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Announced<'a> {
    /// Tags of the rings, in header format.
    pub(in crate::http) rings: &'a [u8],
    /// Highest term of the node's devices.
    pub(in crate::http) term: u64,
    /// Data port, in header format.
    pub(in crate::http) data_port: Option<&'a [u8]>,
}

/// Encodes a head.
///
/// # Panics
/// Never: a head has no value that postcard can't encode.
pub(in crate::http) fn encode_head(head: &impl Serialize) -> Vec<u8> {
    let bytes = postcard::to_extend(head, Vec::with_capacity(HEAD_BYTES));
    bytes.expect("heads of numbers and bytes can be encoded")
}

/// Decodes a head; returns the content behind it too.
pub(in crate::http) fn decode_head<'a, T: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<(T, &'a [u8])> {
    postcard::take_from_bytes(body)
        .map_err(|error| Error::invalid("the head of a frame can't be decoded").with_source(error))
}

impl ReplyHead<'_> {
    /// State of the node, given its last announcement.
    pub(in crate::http) fn report(
        &self,
        announced: &Announcement,
        round_trip: Duration,
    ) -> NodeReport {
        let clients_wait = self.clients_wait_us.map(Duration::from_micros);
        NodeReport::announced(announced, self.now_ms, round_trip, clients_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_with_the_content_behind_them() {
        let call = CallHead {
            device: 3,
            kind: "read",
            deadline_ms: 5000,
            is_background: true,
            request: Some(b"00AB"),
        };
        let bytes = [encode_head(&call), b"content".to_vec()].concat();
        assert_eq!(decode_head::<CallHead<'_>>(&bytes).unwrap(), (call, &b"content"[..]));
        let announced = Announced { rings: b"index=1-00", term: 14, data_port: Some(b"http://n") };
        let error = Error::full("the device is full");
        for (announced, fault) in [(None, None), (Some(announced), Some(Fault::of(&error)))] {
            let head = ReplyHead { now_ms: 1, announced, clients_wait_us: Some(7), fault };
            let bytes = [encode_head(&head), b"content".to_vec()].concat();
            assert_eq!(decode_head::<ReplyHead<'_>>(&bytes).unwrap(), (head, &b"content"[..]));
        }
    }

    #[test]
    fn a_head_cut_short_is_an_error() {
        let call = CallHead {
            device: 3,
            kind: "read",
            deadline_ms: 1,
            is_background: false,
            request: None,
        };
        let bytes = encode_head(&call);
        for length in 0..bytes.len() {
            assert!(decode_head::<CallHead<'_>>(&bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
