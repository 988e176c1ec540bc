//! Parts of an upload: UploadPart, `UploadPartCopy`, `ListParts`.

use std::io::Write;

use http::StatusCode;
use http::header::{ETAG, HeaderMap, HeaderName};
use martlet_protocol::entry::{
    Checksum, ChecksumAlgorithm, ChecksumKind, ETagKind, Part as StoredPart,
};
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{CopyPart, ObjectName, Selection};
use s3s::S3Result;
use s3s::dto::{Initiator, Owner, TimestampFormat};
use s3s::xml::{SerResult, Serialize, SerializeContent, Serializer};

use super::copy::{COPIED_VERSION, CopyDocument, copied_version, copy_source, source_of};
use super::initiator::initiator_of;
use super::multipart::{ABORT_DATE, ABORT_RULE, part_number, upload_id};
use super::operations::Operations;
use super::wire::{NAMESPACE, limit, wire_count, wire_size};
use super::write::incoming;
use crate::attributes::{etag_header, wire_class, wire_etag, wire_time};
use crate::body::RequestBody;
use crate::checksums;
use crate::checksums::elements::ChecksumElements;
use crate::errors::s3_error;
use crate::fields::{query_value, required_query, text};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::request_headers::parse_range;
use crate::target::Query;

const COPY_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");

impl Operations {
    pub(super) async fn upload_part(
        &self,
        request: &OperationRequest,
        body: RequestBody,
    ) -> S3Result<Reply> {
        let query = request.query()?;
        let number = requested_number(&query)?;
        request.refuse_conditions()?;
        let upload = upload_id(required_query(&query, "uploadId")?)?;
        let number = part_number(number)?;
        let body = incoming(&request.headers, &request.context.facts, body)?;
        let given = body.compute.clone();
        let part = self
            .store
            .uploads()
            .put_part(request.bucket(), request.key(), upload, number, body)
            .await;
        let part = part.map_err(s3_error)?;
        // The reply has the checksums that the client sent. ListParts adds those that the upload
        // needs.
        let is_returned = |sum: &&Checksum| given.is_empty() || given.contains(&sum.algorithm);
        let mut headers = HeaderMap::from_iter([(ETAG, etag_header(part.etag))]);
        checksums::set_headers(&mut headers, part.checksums.iter().filter(is_returned), part.etag);
        Ok(Reply::empty(StatusCode::OK).with_headers(headers))
    }

    pub(super) async fn upload_part_copy(&self, request: &OperationRequest) -> S3Result<Reply> {
        let parsed = request.conditions();
        let query = request.query()?;
        let (source, range) = (source_of(&request.headers)?, text(&request.headers, &COPY_RANGE)?);
        let number = requested_number(&query)?;
        parsed.refuse_conditions()?;
        let number = part_number(number)?;
        let (source, source_version) = copy_source(source)?;
        let upload = upload_id(required_query(&query, "uploadId")?)?;
        let authorization = request.authorization()?;
        let from = ObjectName { key: &source.1, version: source_version };
        let guard = authorization.check_source(&source.0, from, None).await?;
        let store = guard.map_or_else(|| self.store.clone(), |guard| self.store.guarded(guard));
        let selection = copy_range(range)?;
        let source_conditions = parsed.source_conditions;
        let copy = CopyPart { source, source_version, source_conditions, selection };
        let part =
            store.uploads().copy_part(request.bucket(), request.key(), upload, number, copy).await;
        let part = part.map_err(s3_error)?;
        let result = CopyDocument {
            root: "CopyPartResult",
            checksums: ChecksumElements { checksums: &part.checksums, etag: part.etag },
            kind: None,
            modified_ms: part.modified_ms,
        };
        let copied = copied_version(source_version, part.source_version);
        Reply::xml(&result)?.with_header(COPIED_VERSION, copied)
    }

    pub(super) async fn list_parts(&self, request: &OperationRequest) -> S3Result<Reply> {
        let query = request.query()?;
        let max_parts = query_value(&query, "max-parts")?;
        let marker: i32 = query_value(&query, "part-number-marker")?.unwrap_or(0);
        let id = required_query(&query, "uploadId")?;
        let upload = upload_id(id)?;
        let limit = limit(max_parts, LIST_KEYS_MAX, "max-parts")?;
        let after = u32::try_from(marker).map_err(|_| {
            messages::LIMIT
                .with_subject("part-number-marker")
                .with_detail("ArgumentName", "part-number-marker")
                .with_detail("ArgumentValue", marker.to_string())
        })?;
        let page = self
            .store
            .uploads()
            .list_parts(request.bucket(), request.key(), upload, after, limit)
            .await;
        let page = page.map_err(s3_error)?;
        let owner = self.owners_in(request.bucket()).await?.of(&page.upload.marks).await;
        let last = page.parts.last().map_or(after, |(number, _)| *number);
        let initiated_ms = page.upload.initiated_ms;
        let (abort_date, abort_rule_id) =
            self.abort_of(request.bucket(), request.key(), initiated_ms).await;
        let document = PartsDocument {
            request,
            upload_id: id,
            checksum: page.upload.checksum,
            initiator: initiator_of(&page.upload.marks, &owner),
            owner,
            is_truncated: page.truncated,
            limit,
            marker,
            next: i32::try_from(last).ok(),
            parts: &page.parts,
            etags: page.upload.etags,
            storage_class: wire_class(page.upload.storage_class.as_deref()),
        };
        Reply::xml(&document)?
            .with_date(ABORT_DATE, abort_date.as_ref())?
            .with_header(ABORT_RULE, abort_rule_id)
    }
}

/// Number of a part in the query.
fn requested_number(query: &Query<'_>) -> S3Result<i32> {
    required_query(query, "partNumber")?;
    Ok(query_value(query, "partNumber")?.unwrap_or_default())
}

/// Parts of an upload.
struct PartsDocument<'a> {
    request: &'a OperationRequest,
    upload_id: &'a str,
    checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    initiator: Initiator,
    owner: Owner,
    is_truncated: bool,
    limit: usize,
    marker: i32,
    next: Option<i32>,
    parts: &'a [(u32, Box<StoredPart>)],
    etags: ETagKind,
    storage_class: String,
}

impl Serialize for PartsDocument<'_> {
    fn serialize<W: Write>(&self, s: &mut Serializer<W>) -> SerResult {
        s.element_with_ns("ListPartsResult", NAMESPACE, |s| {
            s.content("Bucket", self.request.bucket())?;
            if let Some((algorithm, kind)) = self.checksum {
                s.content("ChecksumAlgorithm", checksums::name(algorithm))?;
                s.content("ChecksumType", checksums::kind_name(kind))?;
            }
            s.content("Initiator", &self.initiator)?;
            s.content("IsTruncated", &self.is_truncated)?;
            s.content("Key", self.request.key())?;
            s.content("MaxParts", &wire_count(self.limit))?;
            if let Some(next) = &self.next {
                s.content("NextPartNumberMarker", next)?;
            }
            s.content("Owner", &self.owner)?;
            s.content("PartNumberMarker", &self.marker)?;
            for (number, part) in self.parts {
                s.element("Part", |s| write_part(s, *number, part, self.etags))?;
            }
            s.content("StorageClass", &self.storage_class)?;
            s.content("UploadId", self.upload_id)
        })
    }
}

fn write_part<W: Write>(
    s: &mut Serializer<W>,
    number: u32,
    part: &StoredPart,
    etags: ETagKind,
) -> SerResult {
    let etag = etags.whole(part.tag);
    ChecksumElements { checksums: &part.checksums, etag }.serialize_content(s)?;
    s.content("ETag", &wire_etag(etag))?;
    s.timestamp("LastModified", &wire_time(part.modified_ms), TimestampFormat::DateTime)?;
    s.content("PartNumber", &wire_size(number.into()))?;
    s.content("Size", &wire_size(part.size))
}

/// Parses `x-amz-copy-source-range`, which must have both ends. Without the header selects the
/// whole source.
fn copy_range(header: Option<&str>) -> S3Result<Selection> {
    let Some(header) = header else { return Ok(Selection::Whole) };
    match parse_range(header) {
        Some(range @ Selection::From { last: Some(_), .. }) => Ok(range),
        _ => Err(messages::COPY_RANGE.argument("x-amz-copy-source-range", header).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_copy_has_both_ends() {
        assert_eq!(copy_range(None).unwrap(), Selection::Whole);
        let range = copy_range(Some("bytes=3-9")).unwrap();
        assert_eq!(range, Selection::From { first: 3, last: Some(9) });
        for wrong in ["", "bytes=3-", "bytes=-3", "bytes=9-3", "3-9", "bytes=0-1,3-4"] {
            assert_eq!(copy_range(Some(wrong)).unwrap_err().code().as_str(), "InvalidArgument");
        }
    }
}
