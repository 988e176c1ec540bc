//! Names of files in a pickle, without executing it.
//!
//! The reader walks over the opcodes of protocols 0 to 5 by their argument lengths alone: it builds
//! no objects, imports nothing and calls nothing. It only collects string literals that end in a
//! suffix. Its memory is bounded by the number and length of the names.

use std::collections::BTreeSet;

/// Maximum number of names that a pickle may have.
pub(crate) const NAMES_MAX: usize = 100_000;
/// Longest name in bytes: that of a key.
pub(super) const NAME_BYTES_MAX: usize = martlet_protocol::limits::KEY_BYTES_MAX;

/// Reason why a pickle can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PickleError {
    /// It ends within an opcode, or without the last opcode.
    #[error("the pickle is cut off")]
    Cut,
    /// An opcode of no known protocol.
    #[error("the pickle has the unknown opcode {0:#04x}")]
    Unknown(u8),
    /// Too many names.
    #[error("the pickle names more than {NAMES_MAX} files")]
    TooMany,
}

/// Argument of an opcode.
enum Argument {
    Fixed(usize),
    /// Bytes after a little-endian length of so many bytes.
    Counted(usize),
    /// Text after such a length.
    Text(usize),
    Line,
    TextLine,
    /// Two lines: module and name.
    Lines,
    Stop,
}

fn argument_of(opcode: u8) -> Option<Argument> {
    use Argument::{Counted, Fixed, Line, Lines, Stop, Text, TextLine};
    Some(match opcode {
        b'.' => Stop,
        b'('
        | b'0'
        | b'1'
        | b'2'
        | b'N'
        | b'Q'
        | b'R'
        | b'a'
        | b'b'
        | b'd'
        | b'e'
        | b'l'
        | b'o'
        | b's'
        | b't'
        | b'u'
        | b'}'
        | b']'
        | b')'
        | 0x81
        | 0x85..=0x89
        | 0x8f
        | 0x90
        | 0x91
        | 0x92
        | 0x93
        | 0x94
        | 0x97
        | 0x98 => Fixed(0),
        b'K' | b'h' | b'q' | 0x80 | 0x82 => Fixed(1),
        b'M' | 0x83 => Fixed(2),
        b'J' | b'j' | b'r' | 0x84 => Fixed(4),
        b'G' | 0x95 => Fixed(8),
        b'C' | 0x8a => Counted(1),
        b'B' | 0x8b => Counted(4),
        0x8e | 0x96 => Counted(8),
        b'U' | 0x8c => Text(1),
        b'T' | b'X' => Text(4),
        0x8d => Text(8),
        b'F' | b'I' | b'L' | b'P' | b'g' | b'p' => Line,
        b'S' | b'V' => TextLine,
        b'c' | b'i' => Lines,
        _ => return None,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(PickleError::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn counted(&mut self, bytes: usize) -> Result<&'a [u8], PickleError> {
        let mut length = [0; 8];
        length[..bytes].copy_from_slice(self.take(bytes)?);
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| PickleError::Cut)?;
        self.take(length)
    }

    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let end = self.0.iter().position(|byte| *byte == b'\n').ok_or(PickleError::Cut)?;
        let line = self.take(end)?;
        self.take(1)?;
        Ok(line)
    }
}

/// Names in a pickle that end in `suffix`.
///
/// # Errors
/// The reason why the pickle can't be read; names found before it are not returned.
pub(crate) fn names_in(pickle: &[u8], suffix: &str) -> Result<BTreeSet<String>, PickleError> {
    let (mut reader, mut names) = (Reader(pickle), BTreeSet::new());
    loop {
        let opcode = reader.take(1)?[0];
        let text = match argument_of(opcode).ok_or(PickleError::Unknown(opcode))? {
            Argument::Stop => return Ok(names),
            Argument::Fixed(length) => {
                reader.take(length)?;
                continue;
            }
            Argument::Counted(bytes) => {
                reader.counted(bytes)?;
                continue;
            }
            Argument::Line => {
                reader.line()?;
                continue;
            }
            Argument::Lines => {
                reader.line()?;
                reader.line()?;
                continue;
            }
            Argument::Text(bytes) => reader.counted(bytes)?,
            Argument::TextLine => unquoted(reader.line()?),
        };
        if text.len() > NAME_BYTES_MAX || !text.ends_with(suffix.as_bytes()) {
            continue;
        }
        let Ok(name) = std::str::from_utf8(text) else { continue };
        if !names.contains(name) {
            if names.len() == NAMES_MAX {
                return Err(PickleError::TooMany);
            }
            names.insert(name.to_owned());
        }
    }
}

/// The text within the quotes of protocol 0.
fn unquoted(line: &[u8]) -> &[u8] {
    if let [b'\'', text @ .., b'\''] | [b'"', text @ .., b'"'] = line { text } else { line }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn names(pickle: &[u8]) -> Result<Vec<String>, PickleError> {
        Ok(names_in(pickle, ".distcp")?.into_iter().collect())
    }

    /// A short string of protocol 4.
    fn short(text: &str) -> Vec<u8> {
        let mut bytes = vec![0x8c, u8::try_from(text.len()).unwrap()];
        bytes.extend(text.as_bytes());
        bytes
    }

    fn pickle(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0x80, 4, 0x95, 1, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(parts.concat());
        bytes.push(b'.');
        bytes
    }

    #[test]
    fn names_are_strings_with_the_suffix() {
        let other = short("model.weight");
        let long = [&b"X\x0d\0\0\0"[..], b"__10_0.distcp"].concat();
        let longest = [&b"\x8d\x0c\0\0\0\0\0\0\0"[..], b"__2_0.distcp"].concat();
        let parts: [&[u8]; 8] = [
            &short("__0_0.distcp"),
            b"\x94",
            &other,
            &long,
            &longest,
            &short("__0_0.distcp"),
            b"K\x01M\x02\x03J\x01\x02\x03\x04N",
            b"C\x03abcG\0\0\0\0\0\0\0\0u",
        ];
        let found = names(&pickle(&parts)).unwrap();
        assert_eq!(found, ["__0_0.distcp", "__10_0.distcp", "__2_0.distcp"]);
    }

    #[test]
    fn old_protocols_have_lines() {
        let found = names(b"(dp0\nS'a.distcp'\np1\nV b.distcp\nI5\ncos\nsystem\ns.").unwrap();
        assert_eq!(found, [" b.distcp", "a.distcp"]);
    }

    #[test]
    fn names_inside_of_bytes_are_no_strings() {
        let hidden = [&b"C\x10\x8c\x0ex__0_0.distcp"[..], b"N"].concat();
        assert_eq!(names(&pickle(&[&hidden])).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn nothing_is_run() {
        // A pickle that would call os.system.
        let evil = b"cos\nsystem\n(S'touch x.distcp'\ntR.";
        assert_eq!(names(evil).unwrap(), ["touch x.distcp"]);
    }

    #[test]
    fn hostile_lengths_are_cut() {
        let huge = [&[0x8d][..], &u64::MAX.to_le_bytes()].concat();
        for bad in
            [&b""[..], b"\x80", b"X\xff\xff\xff\xffab", &huge[..], b"Vabc", b"cos\nsys", b"N"]
        {
            assert_eq!(names(bad), Err(PickleError::Cut), "{bad:?}");
        }
        assert_eq!(names(b"\xff."), Err(PickleError::Unknown(0xff)));
        let long = format!("V{}.distcp\n.", "x".repeat(2000));
        assert_eq!(names(long.as_bytes()).unwrap(), Vec::<String>::new());
        assert_eq!(names(b"U\x08\xff.distcp.").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut many = String::new();
        for at in 0..=NAMES_MAX {
            writeln!(many, "V{at}.distcp").unwrap();
        }
        many.push('.');
        assert_eq!(names(many.as_bytes()), Err(PickleError::TooMany));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = names(&bytes);
        }
    }
}
