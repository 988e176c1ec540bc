//! `ListMultipartUploads`.

use martlet_protocol::UploadId;
use martlet_protocol::limits::LIST_KEYS_MAX;
use martlet_proxy::{ListUploads, UploadInfo, UploadPage};
use s3s::S3Result;
use s3s::dto::{CommonPrefix, ListMultipartUploadsOutput, MultipartUpload, Owner};

use super::encoding::Encoding;
use super::initiator::initiator_of;
use super::operations::Operations;
use super::wire::{limit, wire_count};
use crate::attributes::{wire_class, wire_time};
use crate::checksums::{wire_algorithm, wire_kind};
use crate::errors::s3_error;
use crate::fields::{query_text, query_value};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

impl Operations {
    pub(super) async fn list_multipart_uploads(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let query = request.query()?;
        let max_uploads = query_value(&query, "max-uploads")?;
        let encoding = Encoding::requested(query.get("encoding-type"))?;
        let limit = limit(max_uploads, LIST_KEYS_MAX, "max-uploads")?;
        let prefix = query_text(&query, "prefix").unwrap_or_default();
        let delimiter = query_text(&query, "delimiter").filter(|it| !it.is_empty());
        let key_marker = query_text(&query, "key-marker").filter(|marker| !marker.is_empty());
        let id_marker = query_text(&query, "upload-id-marker").filter(|it| !it.is_empty());
        // S3 ignores an id without a key, and does not repeat it.
        let id_marker = id_marker.filter(|_| key_marker.is_some());
        let list = ListUploads {
            prefix: prefix.clone(),
            delimiter: delimiter.clone(),
            after_key: key_marker.clone(),
            after_id: after_id(key_marker.as_deref(), id_marker.as_deref())?,
            limit,
        };
        let page = self.uploads_of(request.bucket(), list).await?;
        let mut owners = self.owners_in(request.bucket()).await?;
        let mut uploads = Vec::with_capacity(page.uploads.len());
        for upload in page.uploads {
            let owner = owners.of(&upload.marks).await;
            uploads.push(wire_upload(upload, encoding, owner));
        }
        let prefixes = page.prefixes.into_iter();
        let (next_key, next_id) = page.next.map_or((None, None), |(key, id)| (Some(key), id));
        Reply::xml(&ListMultipartUploadsOutput {
            bucket: Some(request.bucket().to_owned()),
            common_prefixes: Some(
                prefixes
                    .map(|prefix| CommonPrefix { prefix: Some(encoding.write(prefix)) })
                    .collect(),
            ),
            delimiter: delimiter.map(|delimiter| encoding.write(delimiter)),
            encoding_type: encoding.wire(),
            is_truncated: Some(next_key.is_some()),
            key_marker: Some(encoding.write(key_marker.unwrap_or_default())),
            max_uploads: Some(wire_count(limit)),
            next_key_marker: next_key.map(|key| encoding.write(key)),
            next_upload_id_marker: next_id.map(|id| id.to_string()),
            prefix: Some(encoding.write(prefix)),
            request_charged: None,
            upload_id_marker: Some(id_marker.unwrap_or_default()),
            uploads: Some(uploads),
        })
    }

    async fn uploads_of(&self, bucket: &str, list: ListUploads) -> S3Result<UploadPage> {
        if list.limit == 0 {
            self.store.bucket(bucket).await.map_err(s3_error)?;
            return Ok(UploadPage::default());
        }
        self.store.uploads().list(bucket, list).await.map_err(s3_error)
    }
}

/// Id of the upload after which the page begins. None without a key.
fn after_id(key: Option<&str>, id: Option<&str>) -> S3Result<Option<UploadId>> {
    match (key, id) {
        (Some(_), Some(id)) => {
            let wrong = |_| messages::UPLOAD_ID_MARKER.argument("upload-id-marker", id).into();
            id.parse().map(Some).map_err(wrong)
        }
        _ => Ok(None),
    }
}

fn wire_upload(upload: UploadInfo, encoding: Encoding, owner: Owner) -> MultipartUpload {
    MultipartUpload {
        checksum_algorithm: upload.checksum.map(|(algorithm, _)| wire_algorithm(algorithm)),
        checksum_type: upload.checksum.map(|(_, kind)| wire_kind(kind)),
        initiated: Some(wire_time(upload.initiated_ms)),
        initiator: Some(initiator_of(&upload.marks, &owner)),
        key: Some(encoding.write(upload.key)),
        owner: Some(owner),
        storage_class: Some(wire_class(upload.storage_class.as_deref()).into()),
        upload_id: Some(upload.id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_counts_beside_a_key_only() {
        let id = UploadId::random();
        let text = id.to_string();
        assert_eq!(after_id(Some("k"), Some(&text)).unwrap(), Some(id));
        assert_eq!(after_id(None, Some("nonsense")).unwrap(), None);
        assert_eq!(after_id(Some("k"), None).unwrap(), None);
        assert!(after_id(Some("k"), Some("nonsense")).is_err());
    }
}
