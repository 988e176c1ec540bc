//! Multipart uploads: `CreateMultipartUpload`, CompleteMultipartUpload, `AbortMultipartUpload`.

use http::header::HOST;
use http::{HeaderMap, HeaderName, StatusCode};
use martlet_protocol::UploadId;
use martlet_protocol::limits::PARTS_MAX;
use martlet_proxy::{CompleteUpload, NamedPart, NewUpload};
use s3s::dto::CreateMultipartUploadOutput;
use s3s::{S3Error, S3Result};

use super::checkpoints::with_outcome;
use super::completion::{CompletedDocument, RequestedPart, RequestedParts};
use super::encoding::path_of;
use super::initiator::mark_initiator;
use super::lifecycle::add_expiration_header;
use super::operations::Operations;
use crate::attributes::{from_request, stamp_headers, wire_new_version};
use crate::checksums;
use crate::errors::s3_error;
use crate::events::{Event, ObjectEvents};
use crate::fields::{number, required_query};
use crate::header_values::VERSION_ID;
use crate::lock;
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

/// Headers with the abortion of an upload by a lifecycle rule.
pub(super) const ABORT_DATE: HeaderName = HeaderName::from_static("x-amz-abort-date");
pub(super) const ABORT_RULE: HeaderName = HeaderName::from_static("x-amz-abort-rule-id");
const CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
const OBJECT_SIZE: HeaderName = HeaderName::from_static("x-amz-mp-object-size");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

impl Operations {
    pub(super) async fn create_multipart_upload(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let parsed = request.conditions();
        parsed.refuse_conditions()?;
        let checksum = checksums::of_upload(&request.headers)?;
        let mut attributes = from_request(&request.headers, &parsed)?;
        lock::from_request(&request.headers)?.write(&mut attributes.marks);
        let authorization = request.authorization()?;
        self.mark_owner(authorization, &request.headers, &mut attributes.marks).await?;
        mark_initiator(&mut attributes.marks, authorization);
        let new = NewUpload { attributes, checksum: checksum.or(Some(checksums::DEFAULT)) };
        let upload = self
            .store
            .uploads()
            .create(request.bucket(), request.key(), new)
            .await
            .map_err(s3_error)?;
        let (abort_date, abort_rule_id) =
            self.abort_of(request.bucket(), request.key(), upload.initiated_ms).await;
        let output = CreateMultipartUploadOutput {
            bucket: Some(request.bucket().to_owned()),
            key: Some(request.key().to_owned()),
            upload_id: Some(upload.id.to_string()),
            ..Default::default()
        };
        let (algorithm, kind) = checksum.unzip();
        Reply::xml(&output)?
            .with_date(ABORT_DATE, abort_date.as_ref())?
            .with_header(ABORT_RULE, abort_rule_id)?
            .with_header(CHECKSUM_ALGORITHM, algorithm.map(checksums::name))?
            .with_header(CHECKSUM_TYPE, kind.map(checksums::kind_name))
    }

    pub(super) async fn complete_multipart_upload(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let parsed = request.conditions();
        let query = request.query()?;
        let size = number(&request.headers, &OBJECT_SIZE)?;
        let requested: RequestedParts = request.parse_whole_document()?;
        let upload = upload_id(required_query(&query, "uploadId")?)?;
        let complete = CompleteUpload {
            parts: named_parts(requested)?,
            conditions: parsed.write_conditions()?,
            checksum: checksums::in_headers(&request.headers, checksums::decode_whole)?,
            checksum_kind: checksums::kind(&request.headers)?,
            object_size: object_size(size)?,
        };
        let written = self
            .store
            .uploads()
            .complete(request.bucket(), request.key(), upload, complete)
            .await
            .map_err(s3_error)?;
        let token = self.store.token(request.bucket(), request.key(), written.stamp);
        let object = &written.object;
        let mut headers = stamp_headers(token);
        add_expiration_header(&mut headers, request, request.key(), object);
        let happened = ObjectEvents::wrote(Event::CompleteMultipartUpload, request.key(), &written);
        let document = CompletedDocument {
            request,
            object,
            location: location(&request.headers, request.bucket(), request.key()),
        };
        let reply = Reply::xml(&document)?
            .with_headers(headers)
            .with_header(VERSION_ID, wire_new_version(object))?;
        let reply = with_outcome(reply, written.checkpoint.as_ref())?;
        // An event would announce an object that is not there.
        Ok(if written.is_gone { reply } else { reply.with_events(happened) })
    }

    pub(super) async fn abort_multipart_upload(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        request.refuse_conditions()?;
        let query = request.query()?;
        let upload = upload_id(required_query(&query, "uploadId")?)?;
        self.store
            .uploads()
            .abort(request.bucket(), request.key(), upload)
            .await
            .map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

/// Parses an upload id. Refuses malformed ids with `NoSuchUpload`.
pub(super) fn upload_id(text: &str) -> S3Result<UploadId> {
    text.parse().map_err(|_| s3_error(martlet_proxy::Error::NoSuchUpload))
}

/// Validates the number of a part: 1 to 10,000.
pub(super) fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number)
        .ok()
        .filter(|number| (1..=u32::from(PARTS_MAX)).contains(number))
        .ok_or_else(|| messages::PART_NUMBER.argument("partNumber", number).into())
}

fn malformed() -> S3Error {
    messages::MALFORMED_XML.error()
}

/// Parts that a CompleteMultipartUpload names: 1 to 10,000.
pub(super) fn named_parts(RequestedParts(parts): RequestedParts) -> S3Result<Vec<NamedPart>> {
    if parts.is_empty() || parts.len() > usize::from(PARTS_MAX) {
        return Err(malformed());
    }
    let mut named: Vec<NamedPart> = Vec::with_capacity(parts.len());
    for part in parts {
        let part = named_part(part)?;
        // A part that was uploaded twice may be named by both ETags: the last one counts.
        if named.last().is_some_and(|last| last.number == part.number && last.etag != part.etag) {
            named.pop();
        }
        named.push(part);
    }
    Ok(named)
}

fn named_part(part: RequestedPart) -> S3Result<NamedPart> {
    let number = part.number.ok_or_else(malformed)?;
    if number < 1 {
        return Err(messages::PART_NUMBER_OF_COMPLETE.argument("PartNumber", number).into());
    }
    let number = part_number(number)?;
    let etag = part.etag.ok_or_else(malformed)?.value().to_owned();
    let mut checksums = Vec::new();
    for (algorithm, text) in part.checksums {
        let value = checksums::decode(algorithm, &text).filter(|_| checksums.is_empty());
        let Some(value) = value else {
            return Err(messages::PART_CHECKSUM.argument("Checksum", text).into());
        };
        checksums.push((algorithm, value));
    }
    Ok(NamedPart { number, etag, checksums })
}

fn object_size(size: Option<i64>) -> S3Result<Option<u64>> {
    size.map(u64::try_from)
        .transpose()
        .map_err(|_| messages::OBJECT_SIZE_NEGATIVE.with_subject(size.unwrap_or_default()).into())
}

/// URL of the object, from the `Host` and `X-Forwarded-Proto` headers.
fn location(headers: &HeaderMap, bucket: &str, key: &str) -> String {
    let path = format!("/{bucket}/{}", path_of(key));
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = match text(FORWARDED_PROTO) {
        Some(scheme) if scheme.eq_ignore_ascii_case("https") => "https",
        _ => "http",
    };
    text(HOST).map_or_else(|| path.clone(), |host| format!("{scheme}://{host}{path}"))
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::ChecksumAlgorithm;
    use s3s::dto::ETag;

    use super::*;

    fn part(number: Option<i32>, etag: Option<&str>) -> RequestedPart {
        let etag = etag.map(|etag| ETag::Strong(etag.to_owned()));
        RequestedPart { number, etag, checksums: Vec::new() }
    }

    fn parts_of(parts: Vec<RequestedPart>) -> Result<Vec<NamedPart>, String> {
        named_parts(RequestedParts(parts)).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn parts_have_numbers_and_tags() {
        let named = parts_of(vec![part(Some(2), Some("abc"))]).unwrap();
        assert_eq!((named[0].number, named[0].etag.as_str()), (2, "abc"));
        for wrong in [vec![], vec![part(None, Some("a"))], vec![part(Some(1), None)]] {
            assert_eq!(parts_of(wrong).unwrap_err(), "MalformedXML");
        }
        assert_eq!(parts_of(vec![part(Some(0), Some("a"))]).unwrap_err(), "InvalidArgument");
        let many = (1..=10_001).map(|number| part(Some(number), Some("a"))).collect();
        assert_eq!(parts_of(many).unwrap_err(), "MalformedXML");
    }

    #[test]
    fn of_a_part_that_was_sent_twice_the_last_counts() {
        let numbered = |parts: &[(i32, &str)]| {
            let parts = parts.iter().map(|(number, etag)| part(Some(*number), Some(etag)));
            let named = parts_of(parts.collect()).unwrap();
            named.into_iter().map(|part| (part.number, part.etag)).collect::<Vec<_>>()
        };
        let pair = |number, etag: &str| (number, etag.to_owned());
        assert_eq!(numbered(&[(1, "a"), (1, "b"), (2, "c")]), [pair(1, "b"), pair(2, "c")]);
        // A repeated part with one ETag stays: it is an error in the order of parts.
        assert_eq!(numbered(&[(1, "a"), (1, "a")]), [pair(1, "a"), pair(1, "a")]);
        assert_eq!(numbered(&[(1, "a"), (2, "b"), (1, "c")]).len(), 3);
    }

    #[test]
    fn checksums_of_parts_are_read() {
        let with_all = |checksums: &[(ChecksumAlgorithm, &str)]| RequestedPart {
            checksums: checksums.iter().map(|(it, text)| (*it, (*text).to_owned())).collect(),
            ..part(Some(1), Some("a"))
        };
        let with = |text: &str| with_all(&[(ChecksumAlgorithm::Crc32, text)]);
        let named = parts_of(vec![with("AAAAAA==")]).unwrap();
        assert_eq!(named[0].checksums, [(ChecksumAlgorithm::Crc32, vec![0; 4])]);
        assert_eq!(parts_of(vec![with("?")]).unwrap_err(), "InvalidArgument");
        let other = |text: &str| with_all(&[(ChecksumAlgorithm::Xxhash3, text)]);
        let named = parts_of(vec![other("AAAAAAAAAAA=")]).unwrap();
        assert_eq!(named[0].checksums, [(ChecksumAlgorithm::Xxhash3, vec![0; 8])]);
        assert_eq!(parts_of(vec![other("AAAAAA==")]).unwrap_err(), "InvalidArgument");
        let sha1 = (ChecksumAlgorithm::Sha1, "Kq5sNclPz7QV2+lfQIuc6R7oRu0=");
        let both = with_all(&[(ChecksumAlgorithm::Crc32, "AAAAAA=="), sha1]);
        assert_eq!(parts_of(vec![both]).unwrap_err(), "InvalidArgument");
    }

    #[test]
    fn malformed_upload_ids_return_no_such_upload() {
        assert!(upload_id(&UploadId::random().to_string()).is_ok());
        for wrong in ["", "abc", &"z".repeat(32), &"a".repeat(33)] {
            assert_eq!(upload_id(wrong).unwrap_err().code().as_str(), "NoSuchUpload");
        }
    }

    #[test]
    fn the_location_is_a_url() {
        let host = HeaderMap::from_iter([(HOST, "h:9000".parse().unwrap())]);
        assert_eq!(location(&host, "b", "a b/c"), "http://h:9000/b/a%20b/c");
        assert_eq!(location(&HeaderMap::new(), "b", "k"), "/b/k");
        let mut behind_tls = host.clone();
        behind_tls.insert(FORWARDED_PROTO, "HTTPS".parse().unwrap());
        assert_eq!(location(&behind_tls, "b", "k"), "https://h:9000/b/k");
    }
}
