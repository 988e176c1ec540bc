//! Parts of an upload: UploadPart, `UploadPartCopy`, `ListParts`.

use http::HeaderMap;
use martlet_protocol::entry::{
    Checksum, ChecksumAlgorithm, ETag as StoredETag, Part as StoredPart,
};
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{CopyPart, ObjectName, ReadConditions, Selection, Session};
use s3s::dto::{
    CopyPartResult, ListPartsInput, ListPartsOutput, Part, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Request, S3Response, S3Result};

use super::authorization::Authorization;
use super::copy::{copied_version, copy_source};
use super::initiator::initiator_of;
use super::multipart::{part_number, upload_id};
use super::write::incoming;
use super::{Operations, limit, parsed_headers, wire_count, wire_size};
use crate::attributes::{wire_class, wire_etag, wire_time};
use crate::checksums::{self, carried, set_checksums, wire_algorithm, wire_kind};
use crate::errors::s3_error;
use crate::messages;
use crate::request_headers::parse_range;

impl Operations {
    pub(super) async fn upload_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        parsed_headers(&mut request).refuse_conditions()?;
        let mut input = request.input;
        let upload = upload_id(&input.upload_id)?;
        let number = part_number(input.part_number)?;
        let body = incoming(&request.headers, &request.extensions, input.body.take())?;
        let given = body.compute.clone();
        let part = self.store.upload_part(&input.bucket, &input.key, upload, number, body).await;
        let part = part.map_err(s3_error)?;
        let output = UploadPartOutput { e_tag: Some(wire_etag(part.etag)), ..Default::default() };
        // The reply has the checksums that the client sent. ListParts adds those that the upload
        // needs.
        let told = |sum: &&Checksum| given.is_empty() || given.contains(&sum.algorithm);
        let mut headers = HeaderMap::new();
        checksums::set_headers(&mut headers, part.checksums.iter().filter(told), part.etag);
        Ok(S3Response::with_headers(output, headers))
    }

    pub(super) async fn upload_part_copy(
        &self,
        mut request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let parsed = parsed_headers(&mut request);
        parsed.refuse_conditions()?;
        let input = request.input;
        let number = part_number(input.part_number)?;
        let (source, source_version) = copy_source(input.copy_source)?;
        let upload = upload_id(&input.upload_id)?;
        let authorization = Authorization::find(&request.extensions)?;
        let from = ObjectName { key: &source.1, version: source_version };
        let guard = authorization.check_source((&source.0, from), None).await?;
        let store = guard.map_or_else(|| self.store.clone(), |guard| self.store.guarded(guard));
        let selection = copy_range(input.copy_source_range.as_deref())?;
        check_copy_range(&store, (&source.0, from), selection).await?;
        let source_conditions = parsed.source_conditions;
        let copy = CopyPart { source, source_version, source_conditions, selection };
        let part = store.copy_part(&input.bucket, &input.key, upload, number, copy).await;
        let part = part.map_err(s3_error)?;
        let mut result = CopyPartResult {
            e_tag: Some(wire_etag(part.etag)),
            last_modified: Some(wire_time(part.modified_ms)),
            ..Default::default()
        };
        set_checksums!(result, &part.checksums, part.etag);
        let output = UploadPartCopyOutput {
            copy_part_result: Some(result),
            copy_source_version_id: copied_version(source_version, part.source_version),
            ..Default::default()
        };
        let mut response = S3Response::new(output);
        carried::collect(&mut response.extensions, &part.checksums);
        Ok(response)
    }

    pub(super) async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let input = request.input;
        let upload = upload_id(&input.upload_id)?;
        let limit = limit(input.max_parts, LIST_KEYS_MAX, "max-parts")?;
        let marker = input.part_number_marker.unwrap_or(0);
        let after = u32::try_from(marker).map_err(|_| {
            messages::LIMIT
                .with_subject("part-number-marker")
                .with_detail("ArgumentName", "part-number-marker")
                .with_detail("ArgumentValue", marker.to_string())
        })?;
        let page = self.store.list_parts(&input.bucket, &input.key, upload, after, limit).await;
        let page = page.map_err(s3_error)?;
        let owner = self.owners_in(&input.bucket).await?.of(&page.upload.marks).await;
        let last = page.parts.last().map_or(after, |(number, _)| *number);
        let checksum = page.upload.checksum;
        let place = (input.bucket.as_str(), input.key.as_str());
        let (abort_date, abort_rule_id) = self.abort_of(place, page.upload.initiated_ms).await;
        let output = ListPartsOutput {
            abort_date,
            abort_rule_id,
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            checksum_algorithm: checksum.map(|(algorithm, _)| wire_algorithm(algorithm)),
            checksum_type: checksum.map(|(_, kind)| wire_kind(kind)),
            initiator: Some(initiator_of(&page.upload.marks, &owner)),
            owner: Some(owner),
            is_truncated: Some(page.truncated),
            max_parts: Some(wire_count(limit)),
            part_number_marker: Some(marker),
            next_part_number_marker: i32::try_from(last).ok(),
            parts: Some(page.parts.iter().map(|(number, part)| wire_part(*number, part)).collect()),
            storage_class: Some(wire_class(page.upload.storage_class.as_deref()).into()),
            ..Default::default()
        };
        let mut response = S3Response::new(output);
        let checksums = page.parts.iter().flat_map(|(_, part)| &part.checksums);
        carried::collect(&mut response.extensions, checksums);
        Ok(response)
    }
}

/// Refuses a copy range that ends beyond the source. Reads shorten such ranges; copies must not.
async fn check_copy_range(
    store: &Session,
    (bucket, name): (&str, ObjectName<'_>),
    selection: Selection,
) -> S3Result<()> {
    let Selection::From { last: Some(last), .. } = selection else { return Ok(()) };
    let unconditionally = ReadConditions::default();
    let source = store.head(bucket, name, Selection::Whole, &unconditionally).await;
    let size = source.map_err(s3_error)?.object.size;
    if last < size {
        return Ok(());
    }
    Err(s3_error(martlet_proxy::Error::InvalidRange { size }))
}

fn wire_part(number: u32, part: &StoredPart) -> Part {
    let etag = StoredETag::Md5(part.md5);
    let mut wire = Part {
        e_tag: Some(wire_etag(etag)),
        last_modified: Some(wire_time(part.modified_ms)),
        part_number: i32::try_from(number).ok(),
        size: Some(wire_size(part.size)),
        ..Default::default()
    };
    set_checksums!(wire, &part.checksums, etag);
    wire
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
