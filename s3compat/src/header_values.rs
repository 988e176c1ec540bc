//! Dates and version ids as values of headers.

use http::{HeaderName, HeaderValue};
use martlet_protocol::VersionId;
use time::OffsetDateTime;

use crate::decimal::put;

/// Header with the version id of an object.
pub(crate) const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// Formats a version id as a header.
pub(crate) fn version_header(version: VersionId) -> HeaderValue {
    HeaderValue::try_from(version.to_string()).expect("letters and digits are a header value")
}

/// Time of a number of milliseconds since 1970, in whole seconds.
pub(crate) fn whole_seconds(ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    // The calendar ends at year 9999; no real clock is beyond it.
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Formats a time as a header.
pub(crate) fn http_date(ms: u64) -> HeaderValue {
    let time = whole_seconds(ms);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = usize::from(time.weekday().number_days_from_monday());
    let month = usize::from(u8::from(time.month())) - 1;
    text[..3].copy_from_slice(WEEKDAYS[weekday]);
    text[8..11].copy_from_slice(MONTHS[month]);
    put(&mut text[5..7], time.day());
    put(&mut text[12..16], time.year().unsigned_abs());
    let (hour, minute, second) = time.to_hms();
    for (at, number) in [(17, hour), (20, minute), (23, second)] {
        put(&mut text[at..at + 2], number);
    }
    HeaderValue::from_bytes(&text).expect("letters and digits are a header value")
}

const WEEKDAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

#[cfg(test)]
mod tests {
    use time::format_description::well_known::Rfc2822;

    use super::*;

    #[test]
    fn http_dates_are_those_of_the_calendar() {
        // Thousands of times, of all months and hours, up to the year 9999.
        for ms in (0..253_402_300_799_000).step_by(40_000_000_007) {
            let expected = whole_seconds(ms).format(&Rfc2822).unwrap().replace("+0000", "GMT");
            assert_eq!(http_date(ms), *expected, "{ms} ms");
        }
        assert_eq!(http_date(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
