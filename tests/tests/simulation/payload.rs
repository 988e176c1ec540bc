//! Bodies that identify their write in every byte.

use bytes::Bytes;
use futures::{StreamExt, stream};
use martlet_proxy::NewBody;
use martlet_tests::checkers::Value;

use super::chance::SharedRng;

/// Maximum length of a body. Bytes to hash go to a thread at 256 KiB, and the order of threads does
/// not repeat.
const BYTES_MAX: u64 = 60_000;
/// Maximum length of an inline body; longer ones are stored in extents.
const INLINE_BYTES_MAX: u64 = martlet_protocol::limits::INLINE_BYTES_MAX;

/// Draws a length: mostly inline, sometimes in extents.
pub(crate) fn size(chance: &SharedRng) -> usize {
    let bytes = match chance.below(10) {
        0..7 => chance.between(20, 400),
        7 => INLINE_BYTES_MAX + chance.below(2),
        _ => chance.between(INLINE_BYTES_MAX + 1, BYTES_MAX),
    };
    usize::try_from(bytes).expect("bodies are small")
}

/// The body of a write.
pub(crate) fn bytes(value: Value, size: usize) -> Bytes {
    let mut bytes = format!("{:>12};", value.0).into_bytes();
    let mut state = value.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size.max(13));
    bytes.into()
}

/// The marker of a distributed checkpoint: a pickle that names two shards, and its value.
pub(crate) fn marker(value: Value) -> Bytes {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("names are short");
        [&[b'\x8c', length], text.as_bytes()].concat()
    };
    let value = format!("{:>12}", value.0);
    let texts = ["__0_0.distcp", "__1_0.distcp", &value].map(text).concat();
    [b"\x80\x04", &texts[..], b"."].concat().into()
}

/// Returns the value of a marker, if the marker is whole.
fn value_of_marker(body: &[u8]) -> Option<Value> {
    let tail = body.strip_suffix(b".")?.last_chunk::<12>()?;
    let value = Value(std::str::from_utf8(tail).ok()?.trim_start().parse().ok()?);
    (marker(value) == body).then_some(value)
}

/// Returns the value of a body, if the body is whole.
pub(crate) fn value_of(body: &[u8]) -> Option<Value> {
    if let Some(value) = value_of_marker(body) {
        return Some(value);
    }
    let head = std::str::from_utf8(body.get(..12)?).ok()?;
    let value = Value(head.trim_start().parse().ok()?);
    (bytes(value, body.len()) == body).then_some(value)
}

/// An incoming body in chunks.
pub(crate) fn incoming(bytes: Bytes) -> NewBody {
    let size = Some(bytes.len() as u64);
    let mut rest = bytes;
    let pieces = std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(10_000))))
    });
    NewBody {
        bytes: stream::iter(pieces).boxed(),
        size,
        md5: None,
        compute: Vec::new(),
        expected: Box::new(|| Ok(Vec::new())),
    }
}

#[test]
fn bodies_identify_their_write() {
    for size in [13, 14, 100, 9000] {
        let body = bytes(Value(7), size);
        assert_eq!((value_of(&body), body.len()), (Some(Value(7)), size));
        let mut other = body.to_vec();
        other[size - 1] ^= 1;
        assert_eq!(value_of(&other), None);
        assert_eq!(value_of(&[&body[..], b"x"].concat()), None);
    }
    assert_eq!(value_of(b"short"), None);
    assert_eq!(value_of(&marker(Value(7))), Some(Value(7)));
    assert_eq!(value_of(&marker(Value(7))[1..]), None);
}
