//! GetObject and HeadObject.

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use martlet_protocol::entry::{Checksum, Object};
use martlet_proxy::{Error, ObjectName, ObjectRead, ReadAfter, Selection};
use s3s::dto::{ChecksumMode, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput};
use s3s::{S3Request, S3Response, S3Result};

use super::authorization::Authorization;
use super::lock::add_lock;
use super::response_stream::response_stream;
use super::versions::named;
use super::{Operations, ReplyStatus, parsed_headers};
use crate::attributes::{metadata, object_headers, validators};
use crate::auth::Query;
use crate::checksums;
use crate::errors::s3_error;
use crate::messages;
use crate::request_headers::ParsedHeaders;

const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
const PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
const RESPONSE_EXPIRES: &str = "response-expires";
const PARTS_MAX: i32 = martlet_protocol::limits::PARTS_MAX as i32;

impl Operations {
    pub(super) async fn get_object(
        &self,
        mut request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let parsed = parsed_headers(&mut request);
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let selection = selection(parsed.range, input.part_number)?;
        let bucket = &input.bucket;
        let asked = ReadRequest { bucket, name, parsed: &parsed, wants_bytes: true };
        let mut read = match self.read_range(&asked, selection).await {
            Ok(read) => read,
            Err(Error::NotModified(object)) => return Ok(not_modified(&object)),
            Err(error) => return Err(s3_error(error)),
        };
        let length = read.range.end - read.range.start;
        let output = GetObjectOutput {
            body: read.body.take().map(|bytes| response_stream(bytes, length)),
            metadata: metadata(&read.object.attributes),
            ..Default::default()
        };
        let overrides = HeaderOverrides {
            cache_control: input.response_cache_control,
            content_disposition: input.response_content_disposition,
            content_encoding: input.response_content_encoding,
            content_language: input.response_content_language,
            content_type: input.response_content_type,
            expires: as_sent(&request.uri, RESPONSE_EXPIRES),
        };
        let token = self.store.token(bucket, asked.name.key, read.stamp);
        let checksum_mode = input.checksum_mode.as_ref();
        let mut response = reply(output, (&read, token), checksum_mode, overrides)?;
        let authorization = request.extensions.get();
        self.tell_beside(&mut response.headers, &asked, &read.object, authorization).await?;
        Ok(response)
    }

    pub(super) async fn head_object(
        &self,
        mut request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let parsed = parsed_headers(&mut request);
        let input = request.input;
        let name = named(&input.key, input.version_id.as_deref())?;
        let selection = selection(parsed.range, input.part_number)?;
        let bucket = &input.bucket;
        let asked = ReadRequest { bucket, name, parsed: &parsed, wants_bytes: false };
        let read = match self.read_range(&asked, selection).await {
            Ok(read) => read,
            Err(Error::NotModified(object)) => return Ok(not_modified(&object)),
            Err(error) => return Err(s3_error(error)),
        };
        let output =
            HeadObjectOutput { metadata: metadata(&read.object.attributes), ..Default::default() };
        let overrides = HeaderOverrides {
            cache_control: input.response_cache_control,
            content_disposition: input.response_content_disposition,
            content_encoding: input.response_content_encoding,
            content_language: input.response_content_language,
            content_type: input.response_content_type,
            expires: as_sent(&request.uri, RESPONSE_EXPIRES),
        };
        let token = self.store.token(bucket, asked.name.key, read.stamp);
        let checksum_mode = input.checksum_mode.as_ref();
        let mut response = reply(output, (&read, token), checksum_mode, overrides)?;
        let authorization = request.extensions.get();
        self.tell_beside(&mut response.headers, &asked, &read.object, authorization).await?;
        Ok(response)
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
    /// Adds headers that are not in the object's entry, or depend on the reader's rights.
    async fn tell_beside(
        &self,
        headers: &mut HeaderMap,
        asked: &ReadRequest<'_>,
        object: &Object,
        authorization: Option<&Authorization>,
    ) -> S3Result<()> {
        let ObjectName { key, version } = asked.name;
        if version.is_none() {
            self.tell_expiration(headers, (asked.bucket, key), object).await;
        }
        add_lock(headers, authorization, (asked.name, object)).await
    }

    async fn read(
        &self,
        asked: &ReadRequest<'_>,
        selection: Selection,
    ) -> Result<ObjectRead, Error> {
        let ReadRequest { bucket, name, parsed, wants_bytes } = asked;
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
        asked: &ReadRequest<'_>,
        selection: Selection,
    ) -> Result<ObjectRead, Error> {
        let first = self.read(asked, selection).await;
        let if_range = asked.parsed.if_range.as_ref();
        let is_range = matches!(selection, Selection::From { .. } | Selection::Suffix { .. });
        let Some(if_range) = if_range.filter(|_| is_range) else { return first };
        match first {
            Ok(first) if if_range.is(&first.object) => Ok(first),
            Err(Error::InvalidRange { size }) => {
                let whole = self.read(asked, Selection::Whole).await?;
                let is_beyond = whole.object.size == size && if_range.is(&whole.object);
                if is_beyond { Err(Error::InvalidRange { size }) } else { Ok(whole) }
            }
            Ok(_) => self.read(asked, Selection::Whole).await,
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

/// `response-*`: reply headers that a signed request may override.
struct HeaderOverrides {
    cache_control: Option<String>,
    content_disposition: Option<String>,
    content_encoding: Option<String>,
    content_language: Option<String>,
    content_type: Option<String>,
    expires: Option<String>,
}

/// Value of a query key as sent, if not empty: s3s would reformat a date.
fn as_sent(uri: &Uri, name: &str) -> Option<String> {
    let query = Query::parse(uri.query()?).ok()?;
    query.get(name).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl HeaderOverrides {
    fn apply(self, headers: &mut HeaderMap) -> S3Result<()> {
        let texts = [
            (CACHE_CONTROL, self.cache_control),
            (CONTENT_DISPOSITION, self.content_disposition),
            (CONTENT_ENCODING, self.content_encoding),
            (CONTENT_LANGUAGE, self.content_language),
            (CONTENT_TYPE, self.content_type),
            (EXPIRES, self.expires),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            let Ok(value) = HeaderValue::try_from(text) else {
                return Err(messages::OVERRIDE_VALUE.named(format!("response-{name}")).into());
            };
            headers.insert(name, value);
        }
        Ok(())
    }
}

/// Builds the reply to a read: everything but user metadata and body, which are in `output`.
fn reply<T>(
    output: T,
    (read, token): (&ObjectRead, ReadAfter),
    checksum_mode: Option<&ChecksumMode>,
    overrides: HeaderOverrides,
) -> S3Result<S3Response<T>> {
    let object = &read.object;
    let mut headers = object_headers(object, token);
    headers.insert(CONTENT_LENGTH, (read.range.end - read.range.start).into());
    if let Some(parts) = read.parts {
        headers.insert(PARTS_COUNT, parts.into());
    }
    let wants_checksums =
        checksum_mode.is_some_and(|mode| mode.as_str().eq_ignore_ascii_case("ENABLED"));
    let told = match &read.checksum {
        Some(of_part) => std::slice::from_ref(of_part),
        None if read.partial => &[],
        None => &object.checksums,
    };
    if wants_checksums {
        checksum_headers(&mut headers, object, told);
    }
    overrides.apply(&mut headers)?;
    let mut response = S3Response::new(output);
    if read.partial {
        headers.insert(CONTENT_RANGE, content_range(read));
        response.extensions.insert(ReplyStatus(StatusCode::PARTIAL_CONTENT));
    }
    response.headers = headers;
    Ok(response)
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
fn checksum_headers(headers: &mut HeaderMap, object: &Object, told: &[Checksum]) {
    checksums::set_headers(headers, told, object.etag);
    if let Some(checksum) = told.first() {
        let own = object.checksums.first().map_or(checksum.kind, |own| own.kind);
        let kind = HeaderValue::from_static(checksums::kind_name(own));
        headers.insert(CHECKSUM_TYPE, kind);
    }
}

/// 304: only the headers that validate the client's copy.
fn not_modified<T: Default>(object: &Object) -> S3Response<T> {
    let mut response = S3Response::new(T::default());
    validators(&mut response.headers, object);
    response.extensions.insert(ReplyStatus(StatusCode::NOT_MODIFIED));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_asked_for_by_number_and_without_a_range() {
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
