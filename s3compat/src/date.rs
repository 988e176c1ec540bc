//! Timestamps of requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::format_description::well_known::{Rfc2822, Rfc3339};
use time::macros::format_description;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime};

use crate::decimal::put;

/// A time at or after 1970, with millisecond resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl Timestamp {
    /// Converts from milliseconds since 1970.
    pub fn from_unix_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// Days since 1970.
    pub(crate) fn day(self) -> u32 {
        u32::try_from(self.0 / DAY_MS).unwrap_or(u32::MAX)
    }

    pub(crate) fn system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0)
    }

    /// Parses `20130524T000000Z`, and no other form.
    pub fn parse_basic(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' {
            return None;
        }
        let date = parse_day(&bytes[..8])?;
        let [hour, minute, second] = [9, 11, 13].map(|at| digits(&bytes[at..at + 2]));
        let time = date.with_hms(small(hour?)?, small(minute?)?, small(second?)?).ok()?;
        Self::from_date_time(time.assume_utc())
    }

    /// Parses `2013-05-24T00:00:00Z`, with or without fractions of a second.
    pub(crate) fn parse_iso(text: &str) -> Option<Self> {
        let is_utc = text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T');
        let time = OffsetDateTime::parse(text, &Rfc3339).ok().filter(|_| is_utc)?;
        Self::from_date_time(time)
    }

    /// Parses a `Date` header: RFC 1123, asctime, or the basic form that some clients send.
    pub fn parse_header(text: &str) -> Option<Self> {
        const ASCTIME: &[time::format_description::BorrowedFormatItem<'_>] = format_description!(
            "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]"
        );
        if let Some(basic) = Self::parse_basic(text) {
            return Some(basic);
        }
        if let Ok(time) = OffsetDateTime::parse(text, &Rfc2822) {
            return Self::from_date_time(time);
        }
        let time = PrimitiveDateTime::parse(text, ASCTIME).ok()?;
        Self::from_date_time(time.assume_utc())
    }

    fn from_date_time(time: OffsetDateTime) -> Option<Self> {
        let seconds = u64::try_from(time.unix_timestamp()).ok()?;
        Some(Self(seconds * 1000))
    }

    /// Formats as `20130524T000000Z`.
    pub(crate) fn to_basic(self) -> String {
        let time = self.date_time();
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        let (hour, minute, second) = time.to_hms();
        let mut text = *b"19700101T000000Z";
        put(&mut text[..4], year.unsigned_abs());
        for (at, number) in [(4, month), (6, day), (9, hour), (11, minute), (13, second)] {
            put(&mut text[at..at + 2], number);
        }
        str::from_utf8(&text).expect("digits and letters are UTF-8").to_owned()
    }

    /// Formats as `2013-05-24T00:00:00Z`.
    pub(crate) fn to_iso(self) -> String {
        let time = self.date_time();
        let (hour, minute, second) = time.to_hms();
        format!("{}T{hour:02}:{minute:02}:{second:02}Z", time.date())
    }

    fn date_time(self) -> OffsetDateTime {
        let seconds = i64::try_from(self.0 / 1000).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// True if the time is on `day`, such as `20130524`.
    pub(crate) fn is_on(self, day: &str) -> bool {
        day.len() == 8
            && parse_day(day.as_bytes())
                .and_then(|date| Self::from_date_time(date.midnight().assume_utc()))
                .is_some_and(|midnight| midnight.day() == self.day())
    }
}

fn parse_day(bytes: &[u8]) -> Option<Date> {
    let year = i32::try_from(digits(&bytes[..4])?).ok()?;
    let month = Month::try_from(small(digits(&bytes[4..6])?)?).ok()?;
    Date::from_calendar_date(year, month, small(digits(&bytes[6..8])?)?).ok()
}

fn small(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

/// Parses ASCII digits only: no sign, no spaces.
fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0u32, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_basic_form_is_exact() {
        assert_eq!(
            Timestamp::parse_basic("20130524T000000Z").unwrap().unix_ms(),
            1_369_353_600_000
        );
        let time = Timestamp::parse_basic("20130524T010203Z").unwrap();
        assert_eq!(time.to_basic(), "20130524T010203Z");
        assert_eq!(time.to_iso(), "2013-05-24T01:02:03Z");
        for wrong in [
            "",
            "20130524T000000",
            "20130524 000000Z",
            "20130532T000000Z",
            "20130524T240000Z",
            "+0130524T000000Z",
            "20130524T00000\u{e9}",
            "19690101T000000Z",
        ] {
            assert_eq!(Timestamp::parse_basic(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn date_headers_come_in_several_forms() {
        let expected = Timestamp::from_unix_ms(784_111_777_000);
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun Nov  6 08:49:37 1994",
            "19941106T084937Z",
        ] {
            assert_eq!(Timestamp::parse_header(form), Some(expected), "{form}");
        }
        assert_eq!(Timestamp::parse_header("yesterday"), None);
    }

    #[test]
    fn a_day_holds_its_moments() {
        let time = Timestamp::parse_basic("20130524T235959Z").unwrap();
        assert!(time.is_on("20130524"));
        assert!(!time.is_on("20130525"));
        assert!(!time.is_on("2013052"));
        assert!(!time.is_on("2013o524"));
    }
}
