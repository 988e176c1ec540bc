//! CopyObject: the bytes of an object, written as another.

use std::sync::Arc;

use martlet_protocol::backend::Want;
use martlet_protocol::entry::{ChecksumAlgorithm, ChecksumKind, ETag, ETagKind, Object};
use martlet_protocol::limits::PUT_BYTES_MAX;

use crate::api::{CopyObject, NewBody, ObjectName, WrittenObject};
use crate::context::RequestContext;
use crate::encryption::Whose;
use crate::error::{Error, Result};
use crate::put::ObjectWriter;
use crate::read::{ObjectReader, no_source};

/// Copies of objects.
pub(crate) struct Copier {
    pub(crate) reader: Arc<ObjectReader>,
    pub(crate) writer: Arc<ObjectWriter>,
}

impl Copier {
    /// Copies an object. The copy has extents of its own (rule X1). The copied bytes are verified
    /// against the source's ETag and checksums.
    pub(crate) async fn copy(
        &self,
        context: &RequestContext,
        bucket: &str,
        key: &str,
        copy: CopyObject,
    ) -> Result<WrittenObject> {
        let (from_bucket, from_key) = (&copy.source.0, &copy.source.1);
        let unchanged = copy.attributes.is_none()
            && copy.tags.is_none()
            && copy.storage_class.is_none()
            && copy.checksum.is_none()
            && copy.source_version.is_none();
        if unchanged && !context.keys.has_parameters() && from_bucket == bucket && from_key == key {
            return Err(Error::InvalidRequest(
                "a copy of an object onto itself must change something".into(),
            ));
        }
        let target = self.writer.catalog.target(context, bucket, key).await?;
        let source = ObjectName { key: from_key, version: copy.source_version };
        let found = self.reader.find(context, from_bucket, source, Want::EntryAndInline).await;
        let found = found.map_err(no_source)?;
        let source: Arc<Object> = found.object.clone();
        let secret =
            context.keys.unlock(&self.reader.vault, found.locked.as_ref(), Whose::Source)?;
        copy.source_conditions.check_source(&source)?;
        if source.size > PUT_BYTES_MAX {
            return Err(Error::EntityTooLarge { size: source.size, maximum: PUT_BYTES_MAX });
        }
        let compute = match copy.checksum {
            Some(algorithm) => vec![algorithm],
            None => source.checksums.iter().map(|sum| sum.algorithm).collect(),
        };
        let expected = expected(&source, &compute);
        let is_opaque = target.bucket.etags() == ETagKind::Opaque;
        let body = NewBody {
            bytes: self.reader.bodies.open(&found, 0..source.size, secret).await?,
            size: Some(source.size),
            md5: match source.etag {
                // An opaque ETag needs no MD5, and a checksum of the source verifies as much.
                ETag::Md5(_) if is_opaque && !expected.is_empty() => None,
                ETag::Md5(md5) => Some(md5),
                ETag::Multipart { .. } | ETag::Opaque { .. } => None,
            },
            compute,
            expected: Box::new(move || Ok(expected)),
        };
        let tags = copy.tags.unwrap_or_else(|| source.attributes.tags.clone());
        let mut attributes = copy.attributes.unwrap_or_else(|| {
            let mut attributes = source.attributes.clone();
            attributes.website_redirect = None;
            attributes
        });
        attributes.tags = tags;
        attributes.marks = copy.marks;
        attributes.storage_class = copy.storage_class;
        let written = self.writer.put_at(target, key, body, attributes, &copy.conditions).await;
        let written = written.map(|it| WrittenObject { source_version: source.version, ..it });
        written.map_err(|error| match error {
            Error::BadDigest { .. } | Error::BadChecksum(_) | Error::Body(_) => {
                martlet_protocol::Error::corrupt("the source of the copy is corrupt").into()
            }
            other => other,
        })
    }
}

/// Checksums of the source that the copy computes again. They must be equal.
fn expected(source: &Object, compute: &[ChecksumAlgorithm]) -> Vec<(ChecksumAlgorithm, Vec<u8>)> {
    let whole = source.checksums.iter().filter(|sum| sum.kind == ChecksumKind::FullObject);
    let again = whole.filter(|sum| compute.contains(&sum.algorithm));
    again.map(|sum| (sum.algorithm, sum.value.clone())).collect()
}
