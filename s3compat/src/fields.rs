//! Fields of a request: typed values of headers, of the query and of documents.
//!
//! A field that occurs twice is `InvalidRequest`, and a malformed value is `InvalidArgument`. An
//! empty header counts as absent.

use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::xml::{Deserialize, Deserializer};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use crate::target::Query;

fn malformed_header(name: &HeaderName, value: &HeaderValue) -> S3Error {
    s3_error!(InvalidArgument, "invalid header: {name}: {value:?}")
}

/// Value of a header that may occur once. None if it is absent or empty.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> S3Result<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(s3_error!(InvalidRequest, "duplicate header: {name}"));
    }
    Ok(value.filter(|value| !value.is_empty()))
}

/// Text of a header, in visible ASCII.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> S3Result<Option<&'a str>> {
    let Some(value) = header(headers, name)? else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| malformed_header(name, value))
}

/// Header that is `true` or `false`.
pub(crate) fn flag(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<bool>> {
    let Some(value) = header(headers, name)? else { return Ok(None) };
    match value.as_bytes() {
        b"true" | b"True" => Ok(Some(true)),
        b"false" | b"False" => Ok(Some(false)),
        _ => Err(malformed_header(name, value)),
    }
}

/// Header that is a number. The HTTP pipeline has checked its digits.
pub(crate) fn number<T: FromStr>(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<T>> {
    let Some(value) = header(headers, name)? else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| malformed_header(name, value))
}

/// Header that is a date of HTTP.
pub(crate) fn date(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<Timestamp>> {
    let Some(value) = header(headers, name)? else { return Ok(None) };
    let text = value.to_str().ok();
    let date = text.and_then(|text| Timestamp::parse(TimestampFormat::HttpDate, text).ok());
    date.map(Some).ok_or_else(|| malformed_header(name, value))
}

/// Text of a query key.
pub(crate) fn query_text(query: &Query<'_>, name: &str) -> Option<String> {
    query.get(name).map(str::to_owned)
}

/// Value of a query key that is a number or a flag.
pub(crate) fn query_value<T: FromStr>(query: &Query<'_>, name: &str) -> S3Result<Option<T>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| malformed_query(name, text))
}

/// Refusal of a query key with a malformed value.
pub(crate) fn malformed_query(name: &str, text: &str) -> S3Error {
    s3_error!(InvalidArgument, "invalid query: {name}: {text}")
}

/// Value of a query key that the operation requires.
pub(crate) fn required_query<'a>(query: &'a Query<'_>, name: &str) -> S3Result<&'a str> {
    query.get(name).ok_or_else(|| s3_error!(InvalidRequest, "missing query: {name}"))
}

/// Parses a document.
pub(crate) fn parse<T: for<'xml> Deserialize<'xml>>(document: &[u8]) -> S3Result<T> {
    let mut deserializer = Deserializer::new(document);
    let parsed = T::deserialize(&mut deserializer)
        .and_then(|parsed| deserializer.expect_eof().map(|()| parsed));
    parsed.map_err(|error| S3Error::with_source(S3ErrorCode::MalformedXML, Box::new(error)))
}
