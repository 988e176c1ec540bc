//! Heads of calls and replies. The content follows: the postcard of the arguments, or of the
//! result, as over HTTP; or the message of an error.
//!
//! ```text
//! version 0   head | content
//! version 1   length of the head (4, little-endian) | head | content
//! ```
//!
//! From version 1 a head is a [message](crate::http::message_codec): later releases append fields; to
//! calls, behind those of [`TracedCallHead`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::http::announce::{Announcement, NodeReport};
use crate::http::fault::Fault;
use crate::http::message_codec::decode_message;

/// Length of the field with the length of a head.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Layout of the bodies of a channel's frames. It follows from the version that both sides speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum BodyLayout {
    /// The content follows the last field of the head, so that no field can be added.
    Unframed,
    /// The length of the head precedes it.
    Framed,
}

impl BodyLayout {
    /// Returns the layout of a version of the internal protocol.
    pub(in crate::http) fn of_version(version: u16) -> Self {
        if version == 0 { Self::Unframed } else { Self::Framed }
    }
}

/// Head of a call. Fixed: it is a part of [`TracedCallHead`], to which later releases append.
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

/// Head of a call with the client's span, if its request is sampled. Releases before it send and
/// read a [`CallHead`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct TracedCallHead<'a> {
    #[serde(borrow)]
    pub(in crate::http) head: CallHead<'a>,
    /// Text of the span.
    #[serde(default)]
    pub(in crate::http) trace: Option<&'a [u8]>,
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

impl BodyLayout {
    /// Appends a head to the bytes of a frame.
    ///
    /// # Panics
    /// Never: a head has no value that postcard can't encode, and is shorter than its frame.
    pub(in crate::http) fn append_head(self, out: &mut Vec<u8>, head: &impl Serialize) {
        if self == Self::Framed {
            out.extend_from_slice(&[0; LENGTH_BYTES]);
        }
        let begin = out.len();
        let encoded = postcard::to_extend(head, std::mem::take(out));
        *out = encoded.expect("heads of numbers and bytes can be encoded");
        if self == Self::Framed {
            let length = u32::try_from(out.len() - begin).expect("a frame bounds its head");
            out[begin - LENGTH_BYTES..begin].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Appends the head of a call. The span is left out where no field can be added.
    pub(in crate::http) fn append_call(
        self,
        out: &mut Vec<u8>,
        head: &CallHead<'_>,
        trace: Option<&str>,
    ) {
        match trace.filter(|_| self == Self::Framed) {
            Some(trace) => {
                let trace = Some(trace.as_bytes());
                self.append_head(out, &TracedCallHead { head: *head, trace });
            }
            None => self.append_head(out, head),
        }
    }

    /// Encodes a head alone.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(in crate::http) fn encode_head(self, head: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_head(&mut bytes, head);
        bytes
    }

    /// Decodes the head of a call; returns the content behind it too.
    pub(in crate::http) fn decode_call(self, body: &[u8]) -> Result<(TracedCallHead<'_>, &[u8])> {
        match self {
            Self::Unframed => {
                let (head, content) = self.decode_head(body)?;
                Ok((TracedCallHead { head, trace: None }, content))
            }
            Self::Framed => self.decode_head(body),
        }
    }

    /// Decodes a head; returns the content behind it too.
    pub(in crate::http) fn decode_head<'a, T: Deserialize<'a>>(
        self,
        body: &'a [u8],
    ) -> Result<(T, &'a [u8])> {
        let decoded = match self {
            Self::Unframed => postcard::take_from_bytes(body),
            Self::Framed => {
                split_head(body).and_then(|(head, content)| Ok((decode_message(head)?, content)))
            }
        };
        decoded.map_err(|error| {
            Error::invalid("the head of a frame can't be decoded").with_source(error)
        })
    }
}

/// Splits a body into its head and its content.
fn split_head(body: &[u8]) -> postcard::Result<(&[u8], &[u8])> {
    let split = body.split_first_chunk().and_then(|(length, rest)| {
        rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
    });
    split.ok_or(postcard::Error::DeserializeUnexpectedEnd)
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

    const LAYOUTS: [BodyLayout; 2] = [BodyLayout::Unframed, BodyLayout::Framed];

    const CALL: CallHead<'_> = CallHead {
        device: 3,
        kind: "read",
        deadline_ms: 5000,
        is_background: true,
        request: Some(b"00AB"),
    };

    fn with_content(layout: BodyLayout, head: &impl Serialize) -> Vec<u8> {
        [layout.encode_head(head), b"content".to_vec()].concat()
    }

    #[test]
    fn heads_survive_with_the_content_behind_them() {
        let announced = Announced { rings: b"index=1-00", term: 14, data_port: Some(b"http://n") };
        let error = Error::full("the device is full");
        for layout in LAYOUTS {
            let bytes = with_content(layout, &CALL);
            let decoded = layout.decode_head::<CallHead<'_>>(&bytes).unwrap();
            assert_eq!(decoded, (CALL, &b"content"[..]));
            let announced = announced.clone();
            for (announced, fault) in [(None, None), (Some(announced), Some(Fault::of(&error)))] {
                let head = ReplyHead { now_ms: 1, announced, clients_wait_us: Some(7), fault };
                let bytes = with_content(layout, &head);
                let decoded = layout.decode_head::<ReplyHead<'_>>(&bytes).unwrap();
                assert_eq!(decoded, (head, &b"content"[..]));
            }
        }
    }

    #[test]
    fn a_head_cut_short_is_an_error() {
        for layout in LAYOUTS {
            let bytes = layout.encode_head(&CALL);
            for length in 0..bytes.len() {
                let decoded = layout.decode_head::<CallHead<'_>>(&bytes[..length]);
                assert!(decoded.is_err(), "{length} bytes of {layout:?}");
            }
        }
    }

    #[test]
    fn from_version_1_a_later_release_appends_fields_to_a_head() {
        #[derive(Serialize)]
        struct LaterHead<'a> {
            head: CallHead<'a>,
            priority: u8,
            zone: Option<&'a str>,
        }
        let later = LaterHead { head: CALL, priority: 7, zone: Some("z1") };
        let bytes = with_content(BodyLayout::Framed, &later);
        let decoded = BodyLayout::Framed.decode_head::<CallHead<'_>>(&bytes).unwrap();
        assert_eq!(decoded, (CALL, &b"content"[..]));
        let claims_more = [&u32::MAX.to_le_bytes()[..], b"head"].concat();
        assert!(BodyLayout::Framed.decode_head::<CallHead<'_>>(&claims_more).is_err());
        assert_eq!(BodyLayout::of_version(0), BodyLayout::Unframed);
        assert_eq!([1, 2].map(BodyLayout::of_version), [BodyLayout::Framed; 2]);
    }

    #[test]
    fn a_span_travels_where_fields_can_be_added() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for layout in LAYOUTS {
            let encoded = |trace| {
                let mut bytes = b"frame".to_vec();
                layout.append_call(&mut bytes, &CALL, trace);
                bytes.split_off(b"frame".len())
            };
            let plain = encoded(None);
            assert_eq!(plain, layout.encode_head(&CALL), "unsampled calls have no further byte");
            for (sent, is_sampled) in [(None, false), (Some(trace), layout == BodyLayout::Framed)] {
                let bytes = [encoded(sent), b"content".to_vec()].concat();
                let (decoded, content) = layout.decode_call(&bytes).unwrap();
                assert_eq!((decoded.head, content), (CALL, &b"content"[..]));
                assert_eq!(decoded.trace, is_sampled.then_some(trace.as_bytes()));
                let before = layout.decode_head::<CallHead<'_>>(&bytes).unwrap();
                assert_eq!(before, (CALL, &b"content"[..]), "as an earlier release reads it");
            }
        }
    }

    /// Bytes of both layouts, which releases of these versions must read.
    #[test]
    fn heads_have_the_bytes_of_their_versions() {
        let head = "0304726561648827010104".to_owned() + "30304142";
        assert_eq!(hex::encode(BodyLayout::Unframed.encode_head(&CALL)), head);
        assert_eq!(hex::encode(BodyLayout::Framed.encode_head(&CALL)), format!("0f000000{head}"));
    }
}
