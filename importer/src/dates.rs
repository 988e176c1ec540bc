//! Dates of S3: those of listings and those of headers, as milliseconds since 1970.

use time::format_description::well_known::{Rfc2822, Rfc3339};
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

/// Parses a date of a header: `Sat, 28 Nov 2026 01:02:03 GMT`.
pub(crate) fn http_date_ms(text: &str) -> Option<u64> {
    let format = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let date = PrimitiveDateTime::parse(text, format).map(PrimitiveDateTime::assume_utc);
    ms(date.ok().or_else(|| OffsetDateTime::parse(text, &Rfc2822).ok())?)
}

/// Parses a date of a listing: `2026-11-28T01:02:03.000Z`.
pub(crate) fn listed_date_ms(text: &str) -> Option<u64> {
    ms(OffsetDateTime::parse(text, &Rfc3339).ok()?)
}

fn ms(date: OffsetDateTime) -> Option<u64> {
    u64::try_from(date.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        assert_eq!(http_date_ms("Thu, 01 Jan 1970 00:01:00 GMT"), Some(60_000));
        assert_eq!(listed_date_ms("1970-01-01T00:01:00.250Z"), Some(60_250));
        assert_eq!(listed_date_ms("1970-01-01T00:01:00Z"), Some(60_000));
        assert_eq!(http_date_ms("yesterday"), None);
        assert_eq!(listed_date_ms(""), None);
    }
}
