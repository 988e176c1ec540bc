//! Target of a request on an upload: the register, the bucket, and the values in it.

use std::sync::Arc;

use martlet_protocol::backend::RegisterView;
use martlet_protocol::entry::{
    Attributes, Bucket, ChecksumAlgorithm, ChecksumKind, Entry, Mark, Upload, Value,
};
use martlet_protocol::usage::Usage;
use martlet_protocol::{Level, RegisterKey, UploadId, WriteId};
use tokio::time::Instant;

use crate::api::UploadInfo;
use crate::context::RequestContext;
use crate::encryption::ObjectAddress;
use crate::error::{Error, Result};
use crate::index::Intent;

/// An upload named by a request.
#[derive(Clone, Copy)]
pub(crate) struct UploadName<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    pub(crate) id: UploadId,
}

/// Register of the upload that a request names, and its bucket as last read.
pub(crate) struct UploadTarget<'a> {
    pub(super) context: &'a Arc<RequestContext>,
    pub(super) name: &'a str,
    pub(super) object_key: &'a str,
    pub(super) id: UploadId,
    pub(super) bucket: Arc<Bucket>,
    pub(super) key: RegisterKey,
    /// A time at or before the start of the operation.
    pub(super) began: Instant,
}

impl UploadTarget<'_> {
    /// Bucket and key of the future object, which the encryption of the upload is bound to.
    pub(super) fn address(&self) -> ObjectAddress<'_> {
        ObjectAddress { bucket: self.bucket.id, key: self.object_key }
    }

    /// Register of the upload's future object.
    pub(super) fn object_register(&self) -> RegisterKey {
        RegisterKey::object(self.bucket.id, self.bucket.index_shards, self.object_key)
    }

    pub(super) fn intent(&self, write_id: WriteId, commit_by_ms: u64) -> Intent<'_> {
        Intent {
            key: &self.key,
            write_id,
            generation: self.bucket.generation,
            commit_by_ms,
            level: self.level(),
            claim: None,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.context.level(&self.bucket)
    }
}

pub(super) fn upload_of(view: &RegisterView) -> Option<&Upload> {
    match &view.entry.as_ref()?.value {
        Value::Upload(upload) => Some(upload),
        _ => None,
    }
}

pub(super) fn info(upload: Upload) -> UploadInfo {
    let index_bytes = Usage::of_attributes(&upload.key, &upload.attributes).index;
    UploadInfo {
        index_bytes,
        etags: upload.etags(),
        key: upload.key,
        id: upload.id,
        initiated_ms: upload.initiated_ms,
        storage_class: upload.attributes.storage_class,
        marks: upload.attributes.marks,
        checksum: upload.checksum,
    }
}

/// Attributes of the future object. The initiator and the kind of ETags belong only to the upload.
pub(super) fn attributes_of(upload: &Upload) -> Attributes {
    let mut attributes = upload.attributes.clone();
    attributes.marks.remove(Mark::Initiator);
    attributes.marks.remove(Mark::OpaqueETags);
    attributes
}

/// Refuses invalid kinds of checksum. Only CRCs of parts can be combined; CRC64NVME always covers
/// the whole object.
pub(super) fn check_kind(checksum: Option<(ChecksumAlgorithm, ChecksumKind)>) -> Result<()> {
    match checksum {
        Some((algorithm, ChecksumKind::FullObject)) if !algorithm.is_joinable() => Err(
            Error::InvalidRequest(format!("{algorithm:?} of parts can't cover the full object")),
        ),
        Some((ChecksumAlgorithm::Crc64Nvme, ChecksumKind::Composite)) => {
            Err(Error::InvalidRequest("CRC64NVME covers the full object only".into()))
        }
        _ => Ok(()),
    }
}

/// A new id that sorts by time, so that uploads of one key list in order of creation.
pub(super) fn new_id(now_ms: u64) -> UploadId {
    let UploadId(mut bytes) = UploadId::random();
    bytes[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
    UploadId(bytes)
}

/// One write of a part: its number, register and entry.
pub(super) struct ListedPart {
    pub(super) number: u16,
    pub(super) register: RegisterKey,
    pub(super) entry: Entry,
}
