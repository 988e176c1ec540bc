//! Parsing of byte sizes and time spans as people write them.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Number of bytes: `4096`, `4KiB`, `64MiB`, `5GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = split(text).and_then(|(number, unit)| {
            let factor: u64 = match unit.to_ascii_lowercase().as_str() {
                "" | "b" => 1,
                "kib" | "k" => 1 << 10,
                "mib" | "m" => 1 << 20,
                "gib" | "g" => 1 << 30,
                "tib" | "t" => 1 << 40,
                "pib" | "p" => 1 << 50,
                "kb" => 1_000,
                "mb" => 1_000_000,
                "gb" => 1_000_000_000,
                "tb" => 1_000_000_000_000,
                "pb" => 1_000_000_000_000_000,
                _ => return None,
            };
            number.checked_mul(factor)
        });
        bytes.map(Self).ok_or_else(|| {
            format!("\"{text}\" is not a number of bytes: write 4096, 4KiB, 64MiB or 5GB")
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Parses a time span: `500ms`, `30s`, `5m`, `1h`, `7d`.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let ms = split(text).and_then(|(number, unit)| match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" | "min" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    });
    ms.map(Duration::from_millis)
        .ok_or_else(|| format!("\"{text}\" is not a duration: write 500ms, 30s, 5m, 1h or 7d"))
}

/// Splits a text into its leading number and its unit.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("4KiB", 4096),
            ("4k", 4096),
            ("64 MiB", 64 << 20),
            ("5GiB", 5 << 30),
            ("3kb", 3000),
            ("4TB", 4_000_000_000_000),
            ("2TiB", 2 << 40),
            ("1PiB", 1 << 50),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "KiB", "-1", "4 parsecs", "99999999999999999999", "99999999999GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn spans() {
        assert_eq!(parse_span("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_span("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(parse_span("1 h"), Ok(Duration::from_hours(1)));
        assert_eq!(parse_span("7d"), Ok(Duration::from_hours(168)));
        for text in ["", "s", "10", "1.5s", "18446744073709551615m"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }
}
