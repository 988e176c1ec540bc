//! Bytes of a frame.
//!
//! ```text
//! 0   4  length of the frame with all of its fields, little-endian
//! 4   8  number: 0 for the first frame of its direction, then one more for each
//! 12  1  kind    1 call, 2 cancel; 3 reply, 4 goodbye
//! 13  4  id of the call; 0 in goodbye
//! 17  …  body: head and content
//! n  16  MAC: the first 16 bytes of the keyed BLAKE3 of all bytes before
//! ```
//!
//! A frame that was changed, repeated, left out, moved or made for the other direction isn't opened,
//! and no frame after it.

use subtle::ConstantTimeEq;

const NUMBER_AT: usize = 4;
const KIND_AT: usize = 12;
const CALL_AT: usize = 13;
const BODY_AT: usize = 17;
const MAC_BYTES: usize = 16;
/// Length of a frame without a body.
pub(in crate::http) const FRAME_BYTES_MIN: usize = BODY_AT + MAC_BYTES;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum FrameKind {
    /// A call, from a client.
    Call = 1,
    /// The client doesn't need the reply of a call.
    Cancel = 2,
    /// The reply of a call, from a node.
    Reply = 3,
    /// The node stops: a client sends no new calls, and closes the channel after its last reply.
    Goodbye = 4,
}

/// A frame, opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Frame<'a> {
    pub(in crate::http) kind: FrameKind,
    /// Id of the call, chosen by the client.
    pub(in crate::http) call: u32,
    pub(in crate::http) body: &'a [u8],
}

/// Reason not to open a frame. The connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum FrameError {
    #[error("a frame has a length that its direction doesn't have")]
    Length,
    #[error("a frame has a wrong MAC")]
    Mac,
    #[error("a frame was repeated or left out")]
    Number,
    #[error("a frame has an unknown kind")]
    Kind,
}

/// Writer of the frames of one direction.
pub(in crate::http) struct Sealer {
    key: [u8; 32],
    next: u64,
}

/// Verifier of the frames of one direction.
pub(in crate::http) struct Opener {
    key: [u8; 32],
    next: u64,
    bytes_max: usize,
}

impl Sealer {
    /// Creates the writer of a direction that begins.
    pub(in crate::http) fn new(key: [u8; 32]) -> Self {
        Self { key, next: 0 }
    }

    /// Appends a frame, whose body consists of these parts. The receiver refuses frames beyond the
    /// length of its direction.
    ///
    /// # Panics
    /// When the frame has 4 GiB or more.
    pub(in crate::http) fn seal(
        &mut self,
        out: &mut Vec<u8>,
        kind: FrameKind,
        call: u32,
        body: [&[u8]; 2],
    ) {
        self.seal_with(out, kind, call, |out| {
            for part in body {
                out.extend_from_slice(part);
            }
        });
    }

    /// Appends a frame, whose body `append_body` appends.
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub(in crate::http) fn seal_with(
        &mut self,
        out: &mut Vec<u8>,
        kind: FrameKind,
        call: u32,
        append_body: impl FnOnce(&mut Vec<u8>),
    ) {
        let begin = out.len();
        out.extend_from_slice(&[0; NUMBER_AT]);
        out.extend_from_slice(&self.next.to_le_bytes());
        out.push(kind as u8);
        out.extend_from_slice(&call.to_le_bytes());
        append_body(out);
        let length = out.len() - begin + MAC_BYTES;
        let announced = u32::try_from(length).expect("callers bound their frames");
        out[begin..begin + NUMBER_AT].copy_from_slice(&announced.to_le_bytes());
        let mac = mac(&self.key, &out[begin..]);
        out.extend_from_slice(&mac);
        self.next += 1;
    }
}

impl Opener {
    /// Creates the verifier of a direction that begins, with frames of at most `bytes_max` bytes.
    pub(in crate::http) fn new(key: [u8; 32], bytes_max: usize) -> Self {
        Self { key, next: 0, bytes_max }
    }

    /// Returns the length of the frame at the beginning of `bytes`. None if it isn't there yet.
    pub(in crate::http) fn length(&self, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some(announced) = bytes.first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*announced) as usize;
        let is_possible = (FRAME_BYTES_MIN..=self.bytes_max).contains(&length);
        if is_possible { Ok(Some(length)) } else { Err(FrameError::Length) }
    }

    /// Opens one whole frame of at least [`FRAME_BYTES_MIN`] bytes.
    pub(in crate::http) fn open<'a>(&mut self, frame: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let (covered, sent) = frame.split_at(frame.len() - MAC_BYTES);
        if !bool::from(mac(&self.key, covered).ct_eq(sent)) {
            return Err(FrameError::Mac);
        }
        if covered[NUMBER_AT..KIND_AT] != self.next.to_le_bytes() {
            return Err(FrameError::Number);
        }
        self.next += 1;
        let kind = match covered[KIND_AT] {
            1 => FrameKind::Call,
            2 => FrameKind::Cancel,
            3 => FrameKind::Reply,
            4 => FrameKind::Goodbye,
            _ => return Err(FrameError::Kind),
        };
        let call = covered[CALL_AT..BODY_AT].try_into().expect("a call's id has four bytes");
        Ok(Frame { kind, call: u32::from_le_bytes(call), body: &covered[BODY_AT..] })
    }
}

fn mac(key: &[u8; 32], bytes: &[u8]) -> [u8; MAC_BYTES] {
    let mut mac = [0; MAC_BYTES];
    mac.copy_from_slice(&blake3::keyed_hash(key, bytes).as_bytes()[..MAC_BYTES]);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];
    const MAX: usize = 1000;

    /// Frames of one direction, one after another.
    fn frames(bodies: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut sealer = Sealer::new(KEY);
        let seal = |body: &&[u8]| {
            let mut out = Vec::new();
            sealer.seal(&mut out, FrameKind::Call, 9, [&body[..1], &body[1..]]);
            out
        };
        bodies.iter().map(seal).collect()
    }

    fn opener() -> Opener {
        Opener::new(KEY, MAX)
    }

    #[test]
    fn frames_are_opened_in_their_order() {
        let mut opener = opener();
        for (bytes, body) in frames(&[b"one", b"two"]).iter().zip([b"one", b"two"]) {
            assert_eq!(opener.length(bytes), Ok(Some(bytes.len())));
            let frame = Frame { kind: FrameKind::Call, call: 9, body };
            assert_eq!(opener.open(bytes), Ok(frame));
        }
    }

    #[test]
    fn frames_have_the_bytes_of_their_layout() {
        let [_, second] = frames(&[b"one", b"body"]).try_into().unwrap();
        let mut expected = vec![37, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 9, 0, 0, 0];
        expected.extend_from_slice(b"body");
        expected.extend_from_slice(&mac(&KEY, &expected));
        assert_eq!(second, expected);
        // Frames that are sealed together have the same bytes.
        let (mut sealer, mut out) = (Sealer::new(KEY), Vec::new());
        for body in [b"one".as_slice(), b"body"] {
            sealer.seal_with(&mut out, FrameKind::Call, 9, |out| out.extend_from_slice(body));
        }
        assert!(out.ends_with(&expected) && out.len() == expected.len() * 2 - 1);
    }

    #[test]
    fn each_changed_byte_is_noticed() {
        let [sent] = frames(&[b"body"]).try_into().unwrap();
        for at in 0..sent.len() {
            let mut changed = sent.clone();
            changed[at] ^= 0x10;
            assert_eq!(opener().open(&changed), Err(FrameError::Mac), "byte {at}");
        }
        let mut other = Opener::new([8; 32], MAX);
        assert_eq!(other.open(&sent), Err(FrameError::Mac), "the key of the other direction");
    }

    #[test]
    fn repeated_moved_and_missing_frames_are_noticed() {
        let [first, second, third] = frames(&[b"a", b"b", b"c"]).try_into().unwrap();
        for order in [[&first, &first], [&first, &third]] {
            let mut opener = opener();
            assert!(opener.open(order[0]).is_ok());
            assert_eq!(opener.open(order[1]), Err(FrameError::Number));
        }
        assert_eq!(opener().open(&second), Err(FrameError::Number));
    }

    #[test]
    fn lengths_are_bounded_before_the_frame_is_read() {
        for (announced, expected) in [
            (0, Err(FrameError::Length)),
            (FRAME_BYTES_MIN - 1, Err(FrameError::Length)),
            (FRAME_BYTES_MIN, Ok(Some(FRAME_BYTES_MIN))),
            (MAX, Ok(Some(MAX))),
            (MAX + 1, Err(FrameError::Length)),
            (u32::MAX as usize, Err(FrameError::Length)),
        ] {
            let bytes = u32::try_from(announced).unwrap().to_le_bytes();
            assert_eq!(opener().length(&bytes), expected, "{announced}");
        }
        assert_eq!(opener().length(&[1, 0, 0]), Ok(None));
    }

    #[test]
    fn an_unknown_kind_ends_the_channel() {
        let mut bytes = Vec::new();
        Sealer::new(KEY).seal(&mut bytes, FrameKind::Call, 9, [b"", b""]);
        bytes.truncate(bytes.len() - MAC_BYTES);
        bytes[KIND_AT] = 5;
        let mac = mac(&KEY, &bytes);
        bytes.extend_from_slice(&mac);
        assert_eq!(opener().open(&bytes), Err(FrameError::Kind));
    }
}
