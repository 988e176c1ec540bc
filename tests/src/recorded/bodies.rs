//! Bodies that name their value.

use ::bytes::Bytes;

use crate::bytes::body;
use crate::checkers::Value;

/// Returns the body of a value: its name, its length, and bytes that only this value has.
pub(super) fn body_of(value: Value, length: usize) -> Bytes {
    let name = format!("{value} {length}\n");
    [name.as_bytes(), &body(&name, length)].concat().into()
}

/// Returns the value of a whole body.
pub(super) fn value_of(bytes: &[u8]) -> Option<Value> {
    let head = bytes.split(|byte| *byte == b'\n').next()?;
    let (number, length) = std::str::from_utf8(head).ok()?.strip_prefix('v')?.split_once(' ')?;
    let (value, length) = (Value(number.parse().ok()?), length.parse().ok()?);
    (*bytes == body_of(value, length)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_body_identifies_its_value() {
        for length in [0, 1, 100, 5_000] {
            let body = body_of(Value(7), length);
            assert_eq!(value_of(&body), Some(Value(7)));
            assert_eq!(value_of(&body[..body.len() - 1]), None);
            let longer = [&body[..], b"x"].concat();
            assert_eq!(value_of(&longer), None);
        }
        let mut mixed = body_of(Value(7), 100).to_vec();
        mixed[60] ^= 1;
        assert_eq!(value_of(&mixed), None);
        assert_eq!(value_of(b"anything else"), None);
    }
}
