//! The file `clean`, which a device has while it is closed in good order.
//!
//! Its text is the id of the formatting; then, if the free space was saved, a space and the hash of
//! the saved map in hexadecimal. Older versions wrote the id alone, and take a longer text for an
//! unclean closing.

use std::fmt::Write;

use martlet_protocol::opening::Uuid;

/// Trust that an orderly closing passes on to the next opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CleanMarker {
    /// Hash of the saved map of free space.
    pub(super) saved_space: Option<[u8; 32]>,
}

impl CleanMarker {
    pub(super) fn text(self, device: Uuid) -> String {
        let mut text = device.to_string();
        if let Some(hash) = self.saved_space {
            text.push(' ');
            for byte in hash {
                write!(text, "{byte:02x}").expect("a string takes all text");
            }
        }
        text
    }

    /// Reads the text of a marker; none if it belongs to another formatting.
    pub(super) fn parse(text: &str, device: Uuid) -> Option<Self> {
        let rest = text.strip_prefix(&device.to_string())?;
        if rest.is_empty() {
            return Some(Self::default());
        }
        // Text that this version can't read promises nothing.
        let saved_space = Some(hash(rest.strip_prefix(' ')?)?);
        Some(Self { saved_space })
    }
}

fn hash(digits: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written_and_nothing_else_is() {
        let (device, other) = (Uuid::random(), Uuid::random());
        let hash: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7).unwrap());
        for saved_space in [None, Some(hash)] {
            let marker = CleanMarker { saved_space };
            assert_eq!(CleanMarker::parse(&marker.text(device), device), Some(marker));
            assert_eq!(CleanMarker::parse(&marker.text(other), device), None);
        }
        assert_eq!(CleanMarker::default().text(device), device.to_string(), "as older versions");
        let text = CleanMarker { saved_space: Some(hash) }.text(device);
        for wrong in [&text[..text.len() - 1], &format!("{text}0"), &text.replace(' ', "\n"), ""] {
            assert_eq!(CleanMarker::parse(wrong, device), None, "{wrong:?}");
        }
        let wrong = text.replacen("07", "0é", 1);
        assert_eq!(CleanMarker::parse(&wrong, device), None);
    }
}
