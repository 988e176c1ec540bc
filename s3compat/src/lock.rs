//! Object locks in requests and replies: headers, modes, dates, and condition keys for policies.

use http::{HeaderMap, HeaderName, HeaderValue};
use martlet_protocol::lock::{Lock, Retention, RetentionMode};
use s3s::S3Result;
use s3s::dto::{Timestamp, TimestampFormat};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::access::Context;
use crate::messages;

const MODE_NAME: &str = "x-amz-object-lock-mode";
const RETAIN_UNTIL_NAME: &str = "x-amz-object-lock-retain-until-date";
const LEGAL_HOLD_NAME: &str = "x-amz-object-lock-legal-hold";
const MODE: HeaderName = HeaderName::from_static(MODE_NAME);
const RETAIN_UNTIL: HeaderName = HeaderName::from_static(RETAIN_UNTIL_NAME);
const LEGAL_HOLD: HeaderName = HeaderName::from_static(LEGAL_HOLD_NAME);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Lock that the headers of a write request.
pub(crate) fn from_request(headers: &HeaderMap) -> S3Result<Lock> {
    let retention = match (text(headers, &MODE)?, text(headers, &RETAIN_UNTIL)?) {
        (None, None) => None,
        (Some(mode), Some(date)) => {
            let mode =
                mode_of(mode).ok_or_else(|| messages::LOCK_MODE.argument(MODE_NAME, mode))?;
            let until_ms = parse_ms(date)
                .ok_or_else(|| messages::LOCK_DATE.argument(RETAIN_UNTIL_NAME, date))?;
            Some(Retention { mode, until_ms })
        }
        (mode, _) => {
            // The error names the missing header.
            let name = if mode.is_none() { MODE_NAME } else { RETAIN_UNTIL_NAME };
            return Err(messages::LOCK_HALF.named(name).into());
        }
    };
    let legal_hold = match text(headers, &LEGAL_HOLD)? {
        None => None,
        Some(text) => {
            Some(hold_of(text).ok_or_else(|| messages::LOCK_HOLD.argument(LEGAL_HOLD_NAME, text))?)
        }
    };
    Ok(Lock { retention, legal_hold })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> S3Result<Option<&'a str>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(messages::HEADER_ASCII.named(name).into()),
    }
}

/// Adds a retention to the headers of a reply.
pub(crate) fn write_retention(headers: &mut HeaderMap, retention: Retention) {
    headers.insert(MODE, HeaderValue::from_static(mode_name(retention.mode)));
    let date = HeaderValue::try_from(date_text(retention.until_ms));
    headers.insert(RETAIN_UNTIL, date.expect("digits and dashes are a header value"));
}

/// Adds a legal hold to the headers of a reply.
pub(crate) fn write_hold(headers: &mut HeaderMap, is_on: bool) {
    headers.insert(LEGAL_HOLD, HeaderValue::from_static(hold_name(is_on)));
}

/// Mode of a name.
pub(crate) fn mode_of(name: &str) -> Option<RetentionMode> {
    [RetentionMode::Governance, RetentionMode::Compliance]
        .into_iter()
        .find(|mode| mode_name(*mode) == name)
}

/// The inverse of [`mode_of`].
pub(crate) fn mode_name(mode: RetentionMode) -> &'static str {
    match mode {
        RetentionMode::Governance => "GOVERNANCE",
        RetentionMode::Compliance => "COMPLIANCE",
    }
}

/// Legal hold of a name: `ON` or `OFF`.
pub(crate) fn hold_of(name: &str) -> Option<bool> {
    [true, false].into_iter().find(|is_on| hold_name(*is_on) == name)
}

/// The inverse of [`hold_of`].
pub(crate) fn hold_name(is_on: bool) -> &'static str {
    if is_on { "ON" } else { "OFF" }
}

/// Converts s3s's date to milliseconds since 1970; earlier dates become 1970.
pub(crate) fn ms_of(date: Timestamp) -> u64 {
    ms_since_1970(date.into())
}

/// The inverse of [`ms_of`].
pub(crate) fn wire_date(ms: u64) -> Timestamp {
    Timestamp::from(date_time(ms))
}

fn parse_ms(text: &str) -> Option<u64> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(ms_since_1970)
}

fn ms_since_1970(time: OffsetDateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
}

/// The calendar ends at year 9999; later times become its last second.
fn date_time(ms: u64) -> OffsetDateTime {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    time.unwrap_or(time::macros::datetime!(9999-12-31 23:59:59 UTC))
}

fn date_text(ms: u64) -> String {
    let mut text = Vec::with_capacity(24);
    let written = wire_date(ms).format(TimestampFormat::DateTime, &mut text);
    written.expect("years of the calendar have four digits");
    String::from_utf8_lossy(&text).into_owned()
}

/// Adds the condition keys of a new retention to the context.
pub(crate) fn add_retention(context: &mut Context, retention: Retention, now_ms: u64) {
    context.set("s3:object-lock-mode", mode_name(retention.mode));
    context.set("s3:object-lock-retain-until-date", date_text(retention.until_ms));
    add_days(context, retention.until_ms, now_ms);
}

/// Adds the condition key of a new legal hold to the context.
pub(crate) fn add_hold(context: &mut Context, is_on: bool) {
    context.set("s3:object-lock-legal-hold", hold_name(is_on));
}

/// Adds the remaining days of a write's retention to the context. The other keys are read from the
/// headers themselves.
pub(crate) fn add_remaining_days(context: &mut Context, headers: &HeaderMap, now_ms: u64) {
    let date = headers.get(RETAIN_UNTIL).and_then(|value| value.to_str().ok());
    if let Some(until_ms) = date.and_then(parse_ms) {
        add_days(context, until_ms, now_ms);
    }
}

/// A day that has begun counts as a whole day.
fn add_days(context: &mut Context, until_ms: u64, now_ms: u64) {
    let days = until_ms.saturating_sub(now_ms).div_ceil(DAY_MS);
    context.set("s3:object-lock-remaining-retention-days", days.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::{DETAIL, read_detail};

    fn lock_of(pairs: &[(&'static str, &'static str)]) -> Result<Lock, String> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let lock = from_request(&pairs.iter().map(pair).collect());
        lock.map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn the_fault_is_named() {
        let named = |pairs: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let error = from_request(&pairs.iter().map(pair).collect()).unwrap_err();
            let details = error.headers().unwrap().get_all(DETAIL).iter().filter_map(read_detail);
            details.map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(named(&[DATE, (MODE_NAME, "governance")]), [MODE_NAME, "governance"]);
        let unread = [(MODE_NAME, "GOVERNANCE"), (RETAIN_UNTIL_NAME, "tomorrow")];
        assert_eq!(named(&unread), [RETAIN_UNTIL_NAME, "tomorrow"]);
        assert_eq!(named(&[(LEGAL_HOLD_NAME, "on")]), [LEGAL_HOLD_NAME, "on"]);
        assert_eq!(named(&[DATE]), [MODE_NAME]);
        assert_eq!(named(&unread[..1]), [RETAIN_UNTIL_NAME]);
    }

    const DATE: (&str, &str) = ("x-amz-object-lock-retain-until-date", "2030-01-03T00:00:00Z");
    const DATE_MS: u64 = 1_893_628_800_000;

    #[test]
    fn headers_have_a_whole_retention_or_none() {
        assert_eq!(lock_of(&[]), Ok(Lock::default()));
        for (name, mode) in
            [("GOVERNANCE", RetentionMode::Governance), ("COMPLIANCE", RetentionMode::Compliance)]
        {
            let retention = Some(Retention { mode, until_ms: DATE_MS });
            let found = lock_of(&[DATE, ("x-amz-object-lock-mode", name)]);
            assert_eq!(found, Ok(Lock { retention, legal_hold: None }));
        }
        let invalid = Err("InvalidArgument".to_owned());
        for wrong in [
            &[DATE][..],
            &[("x-amz-object-lock-mode", "GOVERNANCE")],
            &[DATE, ("x-amz-object-lock-mode", "governance")],
            &[DATE, ("x-amz-object-lock-mode", "")],
            &[("x-amz-object-lock-mode", "GOVERNANCE"), (DATE.0, "tomorrow")],
            &[("x-amz-object-lock-legal-hold", "on")],
        ] {
            assert_eq!(lock_of(wrong), invalid, "{wrong:?}");
        }
        let held = lock_of(&[("x-amz-object-lock-legal-hold", "OFF")]).unwrap();
        assert_eq!(held.legal_hold, Some(false));
    }

    #[test]
    fn lock_headers_of_replies_equal_those_of_requests() {
        let retention = Retention { mode: RetentionMode::Compliance, until_ms: DATE_MS + 7 };
        let mut headers = HeaderMap::new();
        write_retention(&mut headers, retention);
        write_hold(&mut headers, true);
        assert_eq!(headers[RETAIN_UNTIL], "2030-01-03T00:00:00.007Z");
        let lock = Lock { retention: Some(retention), legal_hold: Some(true) };
        assert_eq!(from_request(&headers).unwrap(), lock);
    }

    #[test]
    fn dates_before_1970_and_beyond_the_calendar_have_their_nearest() {
        assert_eq!(parse_ms("1969-12-31T23:59:59Z"), Some(0));
        assert_eq!(parse_ms("2030-01-03T01:00:00.5+01:00"), Some(DATE_MS + 500));
        assert_eq!(date_text(u64::MAX), "9999-12-31T23:59:59.000Z");
        assert_eq!(ms_of(wire_date(DATE_MS)), DATE_MS);
    }

    #[test]
    fn remaining_retention_days_are_rounded_up_for_policies() {
        let mode = RetentionMode::Governance;
        for (left_ms, days) in [(0, "0"), (1, "1"), (DAY_MS, "1"), (DAY_MS + 1, "2")] {
            let mut context = Context::default();
            let retention = Retention { mode, until_ms: DATE_MS };
            add_retention(&mut context, retention, DATE_MS - left_ms);
            let expected = Context::default()
                .with("s3:object-lock-mode", "GOVERNANCE")
                .with("s3:object-lock-retain-until-date", "2030-01-03T00:00:00.000Z")
                .with("s3:object-lock-remaining-retention-days", days);
            assert_eq!(context, expected);
        }
        let mut over = Context::default();
        let headers = HeaderMap::from_iter([(RETAIN_UNTIL, HeaderValue::from_static(DATE.1))]);
        add_remaining_days(&mut over, &headers, DATE_MS + 5);
        assert_eq!(over, Context::default().with("s3:object-lock-remaining-retention-days", "0"));
    }
}
