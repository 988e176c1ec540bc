//! Dates and version ids as values of headers.

use http::{HeaderName, HeaderValue};
use martlet_protocol::VersionId;
use time::OffsetDateTime;

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
    let weekday = &time.weekday().to_string()[..3];
    let month = &time.month().to_string()[..3];
    let (day, year) = (time.day(), time.year());
    let (hour, minute, second) = time.to_hms();
    let text =
        format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
    HeaderValue::try_from(text).expect("letters and digits are a header value")
}
