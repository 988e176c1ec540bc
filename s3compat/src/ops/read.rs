//! GetObject and HeadObject.

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use martlet_protocol::entry::{Checksum, Object};
use martlet_proxy::{Error, ObjectName, ObjectRead, ReadAfter, Selection};
use s3s::S3Result;
use s3s::dto::{Timestamp, TimestampFormat};

use super::lifecycle::add_expiration_header;
use super::lock::add_lock;
use super::operations::Operations;
use crate::attributes::{metadata, object_headers, validators};
use crate::body::ResponseBody;
use crate::checksums;
use crate::fields::{malformed_query, query_value, text};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::request_headers::ParsedHeaders;
use crate::target::Query;

const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
const RESPONSE_EXPIRES: &str = "response-expires";
const PARTS_MAX: i32 = martlet_protocol::limits::PARTS_MAX as i32;

impl Operations {
    pub(super) async fn get_object(&self, request: &OperationRequest) -> S3Result<Reply> {
        self.read_object(request, true).await
    }

    pub(super) async fn head_object(&self, request: &OperationRequest) -> S3Result<Reply> {
        self.read_object(request, false).await
    }

    async fn read_object(&self, request: &OperationRequest, wants_bytes: bool) -> S3Result<Reply> {
        let query = request.query()?;
        let part = query_value(&query, "partNumber")?;
        let overrides = HeaderOverrides::of(&query)?;
        let mode = text(&request.headers, &CHECKSUM_MODE)?;
        let parsed = request.conditions();
        let target = self.read_target(request, &query).await?;
        let (bucket, name) = (request.bucket(), target.name());
        let selection = selection(parsed.range, part)?;
        let read_request = ReadRequest { bucket, name, parsed: &parsed, wants_bytes };
        let mut read = match self.read_range(&read_request, selection).await {
            Ok(read) => read,
            Err(error) => return target.failed(error),
        };
        target.check(&read.object)?;
        let token = self.store.token(bucket, name.key, read.stamp);
        let mut headers = headers_of(&read, token);
        metadata::write(&mut headers, &read.object.attributes.user_metadata)?;
        if mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ENABLED")) {
            checksum_headers(&mut headers, &read);
        }
        overrides.apply(&mut headers)?;
        // Headers that are not in the object's entry, or depend on the reader's rights.
        if name.version.is_none() {
            add_expiration_header(&mut headers, request, name.key, &read.object);
        }
        add_lock(&mut headers, request.authorization.as_ref(), name, &read.object).await?;
        let status = if read.partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut reply = Reply::empty(status).with_headers(headers);
        if let Some(bytes) = read.body.take() {
            reply.body = ResponseBody::stream(bytes, read.range.end - read.range.start);
        }
        Ok(reply)
    }
}

/// A read, without its range or part.
struct ReadRequest<'a> {
    bucket: &'a str,
    name: ObjectName<'a>,
    parsed: &'a ParsedHeaders,
    wants_bytes: bool,
}

impl Operations {
    async fn read(
        &self,
        read_request: &ReadRequest<'_>,
        selection: Selection,
    ) -> Result<ObjectRead, Error> {
        let ReadRequest { bucket, name, parsed, wants_bytes } = read_request;
        if *wants_bytes {
            self.store.get(bucket, *name, selection, &parsed.conditions).await
        } else {
            self.store.head_by_key(bucket, *name, selection, &parsed.conditions).await
        }
    }

    /// Reads a range, or the whole object if `If-Range` does not match. Each result is judged by
    /// the object that it returns, because the object may change between two reads.
    async fn read_range(
        &self,
        read_request: &ReadRequest<'_>,
        selection: Selection,
    ) -> Result<ObjectRead, Error> {
        let first = self.read(read_request, selection).await;
        let if_range = read_request.parsed.if_range.as_ref();
        let is_range = matches!(selection, Selection::From { .. } | Selection::Suffix { .. });
        let Some(if_range) = if_range.filter(|_| is_range) else { return first };
        match first {
            Ok(first) if if_range.is(&first.object) => Ok(first),
            Err(Error::InvalidRange { size }) => {
                let whole = self.read(read_request, Selection::Whole).await?;
                let is_beyond = whole.object.size == size && if_range.is(&whole.object);
                if is_beyond { Err(Error::InvalidRange { size }) } else { Ok(whole) }
            }
            Ok(_) => self.read(read_request, Selection::Whole).await,
            Err(error) => Err(error),
        }
    }
}

/// Selects the bytes of a read. Refuses a range together with a part, and part numbers outside of
/// 1 to 10,000.
fn selection(range: Option<Selection>, part: Option<i32>) -> S3Result<Selection> {
    match (range, part) {
        (None, None) => Ok(Selection::Whole),
        (Some(range), None) => Ok(range),
        (None, Some(number)) => match u32::try_from(number) {
            Ok(number @ 1..) if number <= PARTS_MAX.unsigned_abs() => {
                Ok(Selection::Part { number })
            }
            _ => Err(messages::PART_NUMBER.argument("partNumber", number).into()),
        },
        (Some(_), Some(_)) => Err(messages::RANGE_AND_PART.error()),
    }
}

/// `response-*`: reply headers that a signed request may override, as sent.
struct HeaderOverrides<'a>([(HeaderName, Option<&'a str>); 6]);

impl<'a> HeaderOverrides<'a> {
    fn of(query: &'a Query<'_>) -> S3Result<Self> {
        let expires = query.get(RESPONSE_EXPIRES);
        if let Some(text) = expires
            && Timestamp::parse(TimestampFormat::HttpDate, text).is_err()
        {
            return Err(malformed_query(RESPONSE_EXPIRES, text));
        }
        Ok(Self([
            (CACHE_CONTROL, query.get("response-cache-control")),
            (CONTENT_DISPOSITION, query.get("response-content-disposition")),
            (CONTENT_ENCODING, query.get("response-content-encoding")),
            (CONTENT_LANGUAGE, query.get("response-content-language")),
            (CONTENT_TYPE, query.get("response-content-type")),
            (EXPIRES, expires),
        ]))
    }

    fn apply(self, headers: &mut HeaderMap) -> S3Result<()> {
        for (name, text) in self.0 {
            let Some(text) = text else { continue };
            let Ok(value) = HeaderValue::try_from(text) else {
                return Err(messages::OVERRIDE_VALUE.named(format!("response-{name}")).into());
            };
            headers.insert(name, value);
        }
        Ok(())
    }
}

/// Headers of the reply to a read, without checksums and user metadata.
fn headers_of(read: &ObjectRead, token: ReadAfter) -> HeaderMap {
    let mut headers = object_headers(&read.object, token);
    headers.insert(CONTENT_LENGTH, (read.range.end - read.range.start).into());
    if let Some(parts) = read.parts {
        headers.insert(PARTS_COUNT, parts.into());
    }
    if read.partial {
        headers.insert(CONTENT_RANGE, content_range(read));
    }
    headers
}

fn content_range(read: &ObjectRead) -> HeaderValue {
    let (range, size) = (&read.range, read.object.size);
    let text = match range.end.checked_sub(1) {
        Some(last) if last >= range.start => format!("bytes {}-{last}/{size}", range.start),
        // An empty part has no first byte.
        _ => format!("bytes */{size}"),
    };
    HeaderValue::try_from(text).expect("digits are a header value")
}

/// Adds the checksums of an object or a part, with the checksum type of the object.
fn checksum_headers(headers: &mut HeaderMap, read: &ObjectRead) {
    let object = &read.object;
    let returned: &[Checksum] = match &read.checksum {
        Some(of_part) => std::slice::from_ref(of_part),
        None if read.partial => &[],
        None => &object.checksums,
    };
    checksums::set_headers(headers, returned, object.etag);
    if let Some(checksum) = returned.first() {
        let own = object.checksums.first().map_or(checksum.kind, |own| own.kind);
        let kind = HeaderValue::from_static(checksums::kind_name(own));
        headers.insert(CHECKSUM_TYPE, kind);
    }
}

/// 304: only the headers that validate the client's copy.
pub(super) fn not_modified(object: &Object) -> Reply {
    let mut reply = Reply::empty(StatusCode::NOT_MODIFIED);
    validators(&mut reply.headers, object);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_requested_by_number_without_a_range() {
        assert_eq!(selection(None, None).unwrap(), Selection::Whole);
        assert_eq!(selection(None, Some(7)).unwrap(), Selection::Part { number: 7 });
        for number in [0, -1, 10_001] {
            assert_eq!(
                selection(None, Some(number)).unwrap_err().code().as_str(),
                "InvalidArgument"
            );
        }
        let range = Some(Selection::Suffix { length: 1 });
        assert_eq!(selection(range, None).unwrap(), Selection::Suffix { length: 1 });
        assert_eq!(selection(range, Some(1)).unwrap_err().code().as_str(), "InvalidRequest");
    }
}
