//! CopyObject, and the source of a copy.

use std::io::Write;

use http::{HeaderMap, HeaderName};
use martlet_protocol::entry::{ChecksumKind, Marks};
use martlet_protocol::{Version, VersionId};
use martlet_proxy::{CopyObject, ObjectName};
use s3s::dto::{CopySource, TimestampFormat};
use s3s::xml::{SerResult, Serialize, SerializeContent, Serializer};
use s3s::{S3Result, s3_error};

use super::checkpoints::with_outcome;
use super::lifecycle::add_expiration_header;
use super::operations::Operations;
use crate::attributes::{
    from_request, names_redirect, names_storage_class, stamp_headers, storage_class_of, tags_of,
    wire_etag, wire_new_version, wire_time,
};
use crate::checksums;
use crate::checksums::elements::ChecksumElements;
use crate::encryption::Encryption;
use crate::errors::s3_error;
use crate::events::{Event, ObjectEvents};
use crate::fields::text;
use crate::header_values::VERSION_ID;
use crate::lock;
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::version_ids::version;

const METADATA_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");
const TAGGING_DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-tagging-directive");
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
/// Header with the version that was copied.
pub(super) const COPIED_VERSION: HeaderName =
    HeaderName::from_static("x-amz-copy-source-version-id");

impl Operations {
    pub(super) async fn copy_object(&self, request: &OperationRequest) -> S3Result<Reply> {
        let parsed = request.conditions();
        let headers = &request.headers;
        let (source, source_version) = copy_source(source_of(headers)?)?;
        let authorization = request.authorization()?;
        let directive = text(headers, &METADATA_DIRECTIVE)?;
        let new_metadata = replaces(directive, METADATA_DIRECTIVE.as_str())?;
        let directive = text(headers, &TAGGING_DIRECTIVE)?;
        let new_tags = replaces(directive, TAGGING_DIRECTIVE.as_str())?;
        let tags_to = (!new_tags).then_some(request.key());
        let from = ObjectName { key: &source.1, version: source_version };
        let guard = authorization.check_source(&source.0, from, tags_to).await?;
        let store = guard.map_or_else(|| self.store.clone(), |guard| self.store.guarded(guard));
        let onto_itself =
            source.0 == request.bucket() && source.1 == request.key() && source_version.is_none();
        check_purpose(headers, onto_itself, new_metadata)?;
        let attributes = from_request(headers, &parsed)?;
        let mut marks = Marks::default();
        lock::from_request(headers)?.write(&mut marks);
        self.mark_owner(authorization, headers, &mut marks).await?;
        let copy = CopyObject {
            source,
            source_version,
            source_conditions: parsed.source_conditions.clone(),
            attributes: new_metadata.then_some(attributes),
            tags: if new_tags { Some(tags_of(headers)?.unwrap_or_default()) } else { None },
            marks,
            storage_class: storage_class_of(headers)?,
            checksum: checksums::requested_algorithm(headers)?,
            conditions: parsed.write_conditions()?,
        };
        let written = store.copy(request.bucket(), request.key(), copy).await.map_err(s3_error)?;
        let token = self.store.token(request.bucket(), request.key(), written.stamp);
        let mut headers = stamp_headers(token);
        add_expiration_header(&mut headers, request, request.key(), &written.object);
        let copied = copied_version(source_version, written.source_version);
        let object = &written.object;
        let document = CopyDocument {
            root: "CopyObjectResult",
            checksums: ChecksumElements::of(object),
            kind: object.checksums.first().map(|checksum| checksum.kind),
            modified_ms: object.modified_ms,
        };
        let reply = Reply::xml(&document)?
            .with_headers(headers)
            .with_header(COPIED_VERSION, copied)?
            .with_header(VERSION_ID, wire_new_version(&written.object))?;
        let reply = with_outcome(reply, written.checkpoint.as_ref())?;
        Ok(reply.with_events(ObjectEvents::wrote(Event::Copy, request.key(), &written)))
    }
}

/// Result of a copy.
pub(super) struct CopyDocument<'a> {
    pub(super) root: &'static str,
    pub(super) checksums: ChecksumElements<'a>,
    /// None for parts.
    pub(super) kind: Option<ChecksumKind>,
    pub(super) modified_ms: u64,
}

impl Serialize for CopyDocument<'_> {
    fn serialize<W: Write>(&self, s: &mut Serializer<W>) -> SerResult {
        s.element(self.root, |s| {
            self.checksums.serialize_content(s)?;
            if let Some(kind) = self.kind {
                s.content("ChecksumType", checksums::kind_name(kind))?;
            }
            s.content("ETag", &wire_etag(self.checksums.etag))?;
            let modified = wire_time(self.modified_ms);
            s.timestamp("LastModified", &modified, TimestampFormat::DateTime)
        })
    }
}

/// Version that was copied: the requested one, or the current one of a bucket with versions.
pub(super) fn copied_version(
    requested: Option<VersionId>,
    found: Option<Version>,
) -> Option<String> {
    requested.or_else(|| found.map(Version::name)).map(|version| version.to_string())
}

/// Returns true if a directive is REPLACE. COPY is the default.
fn replaces(directive: Option<&str>, name: &str) -> S3Result<bool> {
    match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(given) => {
            let what = if TAGGING_DIRECTIVE == name { "tagging" } else { "metadata" };
            let wrong = messages::DIRECTIVE.with_subject(what).with_detail("ArgumentName", name);
            Err(wrong.with_detail("ArgumentValue", given).into())
        }
    }
}

/// Refuses a copy onto itself that changes nothing, and a redirect without new metadata.
fn check_purpose(headers: &HeaderMap, onto_itself: bool, new_metadata: bool) -> S3Result<()> {
    if new_metadata {
        return Ok(());
    }
    if names_redirect(headers) {
        return Err(s3_error!(
            NotImplemented,
            "A copy with a website redirect must replace the metadata"
        ));
    }
    if onto_itself && !names_storage_class(headers) && !Encryption::changes_copy(headers) {
        return Err(messages::COPY_ONTO_ITSELF.error());
    }
    Ok(())
}

/// Source in the headers of a copy.
pub(super) fn source_of(headers: &HeaderMap) -> S3Result<CopySource> {
    let Some(value) = headers.get(COPY_SOURCE).filter(|value| !value.is_empty()) else {
        return Err(s3_error!(InvalidRequest, "missing header: {COPY_SOURCE}"));
    };
    let source = value.to_str().ok().and_then(|text| CopySource::parse(text).ok());
    source.ok_or_else(|| s3_error!(InvalidArgument, "invalid header: {COPY_SOURCE}: {value:?}"))
}

/// Bucket, key and version of a copy's source.
pub(super) fn copy_source(source: CopySource) -> S3Result<((String, String), Option<VersionId>)> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => {
            let version = version(version_id.as_deref())?;
            if key.is_empty() || key.contains('\0') {
                return Err(messages::COPY_SOURCE_KEY.argument("x-amz-copy-source", key).into());
            }
            Ok(((bucket.into(), key.into()), version))
        }
        CopySource::AccessPoint { .. } | CopySource::Outpost { .. } => {
            Err(s3_error!(NotImplemented, "Access points are not implemented"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::{DETAIL, read_detail};

    fn source(header: &str) -> Result<(String, String), String> {
        let source = CopySource::parse(header).map_err(|error| error.to_string())?;
        let source = copy_source(source).map_err(|error| error.code().as_str().to_owned());
        source.map(|(source, _)| source)
    }

    fn pair(bucket: &str, key: &str) -> (String, String) {
        (bucket.to_owned(), key.to_owned())
    }

    #[test]
    fn a_source_is_bucket_and_key_percent_encoded() {
        assert_eq!(source("bucket/key").unwrap(), pair("bucket", "key"));
        assert_eq!(source("/bucket/a%20b/%C3%BC%2B+%3F").unwrap(), pair("bucket", "a b/ü++?"));
        assert_eq!(source("bucket%2Fkey%25").unwrap(), pair("bucket", "key%"));
        assert_eq!(source("/bucket//a/../b").unwrap(), pair("bucket", "/a/../b"));
    }

    #[test]
    fn a_source_that_is_none_is_refused() {
        assert_eq!(source("bucket/"), Err("InvalidArgument".into()));
        assert_eq!(source("bucket/a%00b"), Err("InvalidArgument".into()));
        assert_eq!(source("bucket/k?versionId=3"), Err("InvalidArgument".into()));
        assert_eq!(source("bucket/k?versionId=null").unwrap(), pair("bucket", "k"));
        assert!(source("bucket").is_err());
        assert!(source("bucket/%ff").is_err());
        assert!(source("/").is_err());
    }

    #[test]
    fn a_source_that_is_none_is_named() {
        let source = CopySource::parse("bucket/a%00b").unwrap();
        let error = copy_source(source).unwrap_err();
        assert_eq!(error.message(), Some("Invalid copy source object key"));
        let details = error.headers().unwrap().get_all(DETAIL).iter().filter_map(read_detail);
        let details: Vec<String> = details.map(|(_, text)| text).collect();
        assert_eq!(details, ["x-amz-copy-source", "a\0b"]);
    }

    #[test]
    fn directives_are_two() {
        assert!(!replaces(None, "x").unwrap());
        assert!(!replaces(Some("COPY"), "x").unwrap());
        assert!(replaces(Some("REPLACE"), "x").unwrap());
        assert!(replaces(Some("MERGE"), "x").is_err());
    }

    #[test]
    fn a_copy_onto_itself_needs_a_purpose() {
        let none = HeaderMap::new();
        assert!(check_purpose(&none, false, false).is_ok());
        assert!(check_purpose(&none, true, true).is_ok());
        let error = check_purpose(&none, true, false).unwrap_err();
        assert_eq!(error.code().as_str(), "InvalidRequest");
        let class = [("x-amz-storage-class".parse().unwrap(), "STANDARD".parse().unwrap())];
        assert!(check_purpose(&HeaderMap::from_iter(class), true, false).is_ok());
    }
}
