//! Ranges of requests, in the form of the header `Range`.

use std::ops::Range;

/// A range as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// From a byte to a byte, included, or to the end.
    From { first: u64, last: Option<u64> },
    /// The last bytes.
    Suffix(u64),
}

impl RequestedRange {
    /// Parses `bytes=a-b`, `bytes=a-` or `bytes=-n`. Several ranges are none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let range = match (first, last) {
            ("", last) => Self::Suffix(number(last)?),
            (first, "") => Self::From { first: number(first)?, last: None },
            (first, last) => Self::From { first: number(first)?, last: Some(number(last)?) },
        };
        match range {
            Self::From { first, last: Some(last) } if last < first => None,
            range => Some(range),
        }
    }

    /// Bytes of a piece of `length` bytes; none if the range is outside of the piece.
    pub(crate) fn resolve(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::From { first, last } => {
                first..last.map_or(length, |last| last.saturating_add(1).min(length))
            }
            Self::Suffix(bytes) => length.saturating_sub(bytes)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

/// A number of digits alone: `parse` also takes a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Option<Range<u64>> {
        RequestedRange::parse(text)?.resolve(100)
    }

    #[test]
    fn ranges_are_read_as_http_writes_them() {
        for (text, range) in [
            ("bytes=0-0", 0..1),
            ("bytes=10-19", 10..20),
            ("bytes=90-", 90..100),
            ("bytes=90-200", 90..100),
            ("bytes=-10", 90..100),
            ("bytes=-200", 0..100),
            ("Bytes = 5-6", 5..7),
        ] {
            assert_eq!(resolved(text), Some(range), "{text}");
        }
    }

    #[test]
    fn unsatisfiable_and_malformed_ranges_are_none() {
        for text in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=5-4",
            "bytes=0-1,5-6",
            "bytes=+1-2",
            "bytes=-",
            "bytes",
            "lines=0-1",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(resolved(text), None, "{text}");
        }
    }
}
