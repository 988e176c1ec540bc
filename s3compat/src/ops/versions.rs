//! Versions of objects: `PutBucketVersioning`, `GetBucketVersioning`, `ListObjectVersions`.

use http::StatusCode;
use martlet_protocol::backend::Detail;
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_protocol::{VersionId, Versioning};
use martlet_proxy::{ListVersions, ListedVersion, VersionPage};
use s3s::dto::{
    BucketVersioningStatus, CommonPrefix, DeleteMarkerEntry, GetBucketVersioningOutput,
    ListObjectVersionsOutput, MFADelete, ObjectVersion, Owner, VersioningConfiguration,
};
use s3s::{S3Result, s3_error};

use super::encoding::Encoding;
use super::operations::Operations;
use super::wire::{limit, wire_count, wire_size};
use crate::attributes::{wire_class, wire_etag, wire_time};
use crate::checksums::{wire_algorithm, wire_kind};
use crate::errors::s3_error;
use crate::fields::{query_text, query_value};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::version_ids::version_in;

const VERSION_ID_MARKER: &str = "version-id-marker";

impl Operations {
    pub(super) async fn get_bucket_versioning(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let state = self.store.buckets().versioning(request.bucket()).await.map_err(s3_error)?;
        let status = match state {
            // A bucket that never had versions returns no status.
            Versioning::Off | Versioning::Preparing => None,
            Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
            Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
        };
        let status = status.map(BucketVersioningStatus::from_static);
        Reply::xml(&GetBucketVersioningOutput { status, ..Default::default() })
    }

    pub(super) async fn put_bucket_versioning(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let configuration: VersioningConfiguration = request.parse_document()?;
        request.refuse_conditions()?;
        if configuration.mfa_delete.as_ref().map(MFADelete::as_str) == Some("Enabled") {
            return Err(s3_error!(NotImplemented, "MFA delete is not implemented"));
        }
        let is_on = match configuration.status.as_ref().map(BucketVersioningStatus::as_str) {
            Some(BucketVersioningStatus::ENABLED) => true,
            Some(BucketVersioningStatus::SUSPENDED) => false,
            Some(_) => {
                return Err(messages::MALFORMED_XML.error());
            }
            None => {
                return Err(messages::VERSIONING_STATUS.error());
            }
        };
        self.store.buckets().set_versioning(request.bucket(), is_on).await.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::OK))
    }

    pub(super) async fn list_object_versions(&self, request: &OperationRequest) -> S3Result<Reply> {
        let query = request.query()?;
        let max_keys = query_value(&query, "max-keys")?;
        let encoding = Encoding::requested(query.get("encoding-type"))?;
        let limit = limit(max_keys, LIST_KEYS_MAX, "max-keys")?;
        let prefix = query_text(&query, "prefix").unwrap_or_default();
        let delimiter = query_text(&query, "delimiter").filter(|it| !it.is_empty());
        let key_marker = query_text(&query, "key-marker").filter(|marker| !marker.is_empty());
        let version_marker = query_text(&query, "version-id-marker");
        let after_version = after_version(key_marker.as_deref(), version_marker.as_deref())?;
        let marker = key_marker.as_deref().unwrap_or_default();
        let after_key = self.position_of(request.bucket(), marker);
        let list = ListVersions {
            prefix: prefix.clone(),
            delimiter: delimiter.clone(),
            after_key,
            after_version,
            limit,
            detail: Detail::Summary,
        };
        let page = self.store.versions().list(request.bucket(), list).await.map_err(s3_error)?;
        let mut owners = self.owners_in(request.bucket()).await?;
        let VersionPage { versions, prefixes, next } = page;
        let next = next.map(|(key, id)| (self.marker_of(request.bucket(), &key), id));
        let (next_key, next_version) = next.map_or((None, None), |(key, id)| (Some(key), id));
        let (mut listed, mut markers) = (Vec::new(), Vec::new());
        for version in versions {
            if let Some(object) = &version.object {
                let owner = owners.of(&object.attributes.marks).await;
                listed.extend(wire_version(version, encoding, owner));
            } else {
                markers.push(wire_marker(version, encoding, owners.of_bucket()));
            }
        }
        let prefixes = prefixes.into_iter();
        Reply::xml(&ListObjectVersionsOutput {
            common_prefixes: Some(
                prefixes
                    .map(|prefix| CommonPrefix { prefix: Some(encoding.write(prefix)) })
                    .collect(),
            ),
            delete_markers: Some(markers),
            delimiter: delimiter.map(|delimiter| encoding.write(delimiter)),
            encoding_type: encoding.wire(),
            is_truncated: Some(next_key.is_some()),
            key_marker: Some(encoding.write(key_marker.unwrap_or_default())),
            max_keys: Some(wire_count(limit)),
            name: Some(request.bucket().to_owned()),
            next_key_marker: next_key.map(|key| encoding.write(key)),
            next_version_id_marker: next_version.map(|id| id.to_string()),
            prefix: Some(encoding.write(prefix)),
            request_charged: None,
            version_id_marker: Some(version_marker.unwrap_or_default()),
            versions: Some(listed),
        })
    }
}

/// Version after which a page begins, among the versions of its key. Refuses a version without a
/// key.
fn after_version(key: Option<&str>, version_id: Option<&str>) -> S3Result<Option<VersionId>> {
    match (key, version_id.filter(|id| !id.is_empty())) {
        (None, Some(id)) => Err(messages::VERSION_ID_MARKER.argument(VERSION_ID_MARKER, id).into()),
        (_, id) => version_in(VERSION_ID_MARKER, id),
    }
}

fn wire_version(version: ListedVersion, encoding: Encoding, owner: Owner) -> Option<ObjectVersion> {
    let object = version.object?;
    let checksum = object.checksums.first();
    Some(ObjectVersion {
        checksum_algorithm: checksum.map(|checksum| vec![wire_algorithm(checksum.algorithm)]),
        checksum_type: checksum.map(|checksum| wire_kind(checksum.kind)),
        e_tag: Some(wire_etag(object.etag)),
        is_latest: Some(version.is_latest),
        key: Some(encoding.write(version.key)),
        last_modified: Some(wire_time(version.modified_ms)),
        owner: Some(owner),
        restore_status: None,
        size: Some(wire_size(object.size)),
        storage_class: Some(wire_class(object.attributes.storage_class.as_deref()).into()),
        version_id: Some(version.id.to_string()),
    })
}

fn wire_marker(version: ListedVersion, encoding: Encoding, owner: &Owner) -> DeleteMarkerEntry {
    DeleteMarkerEntry {
        is_latest: Some(version.is_latest),
        key: Some(encoding.write(version.key)),
        last_modified: Some(wire_time(version.modified_ms)),
        owner: Some(owner.clone()),
        version_id: Some(version.id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::{DETAIL, read_detail};
    use crate::version_ids::version;

    fn code<T: std::fmt::Debug>(outcome: S3Result<T>) -> String {
        outcome.unwrap_err().code().as_str().to_owned()
    }

    #[test]
    fn a_version_is_named_or_it_is_not() {
        assert_eq!(version(None).unwrap(), None);
        assert_eq!(version(Some("null")).unwrap(), Some(VersionId::Null));
        let id = "0f".repeat(24);
        assert_eq!(version(Some(&id)).unwrap().unwrap().to_string(), id);
        for wrong in ["", "1", "Null", "zz", &id[1..]] {
            assert_eq!(code(version(Some(wrong))), "InvalidArgument", "{wrong}");
        }
    }

    fn argument(outcome: S3Result<Option<VersionId>>) -> Vec<String> {
        let error = outcome.unwrap_err();
        let details = error.headers().unwrap().get_all(DETAIL).iter().filter_map(read_detail);
        details.map(|(_, text)| text).collect()
    }

    #[test]
    fn errors_name_the_argument_that_has_the_version() {
        assert_eq!(argument(version(Some("1"))), ["versionId", "1"]);
        assert_eq!(argument(after_version(Some("k"), Some("1"))), ["version-id-marker", "1"]);
        assert_eq!(argument(after_version(None, Some("null"))), ["version-id-marker", "null"]);
    }

    #[test]
    fn a_marker_of_versions_needs_a_key() {
        assert_eq!(code(after_version(None, Some("null"))), "InvalidArgument");
        assert_eq!(after_version(None, Some("")).unwrap(), None);
        assert_eq!(after_version(Some("k"), None).unwrap(), None);
        assert_eq!(after_version(Some("k"), Some("")).unwrap(), None);
        assert_eq!(after_version(Some("k"), Some("null")).unwrap(), Some(VersionId::Null));
    }
}
