//! The object of the chosen parts of an upload: its manifest, ETag and checksums.
//!
//! Manifests of long parts are read while the object's manifest is built, a few at a time, and kept
//! nowhere else. So a completion holds its parts' extents once.

use std::sync::Arc;

use futures::{StreamExt, stream};
use martlet_protocol::entry::{
    Body, Checksum, ChecksumKind, ETagKind, Manifest, Mark, Object, Part, Upload,
};
use martlet_protocol::extent::{BodyFacts, ExtentRef, ExtentRole};
use martlet_protocol::limits::{OBJECT_BYTES_MAX, OBJECT_EXTENTS_MAX};
use martlet_protocol::{PolicyId, StampSource, WriteId};

use super::upload_target::{UploadTarget, attributes_of};
use crate::api::CompleteUpload;
use crate::bodies::BodyReader;
use crate::digest::{composite, joined, md5_of_md5s};
use crate::encryption::choose_parts;
use crate::error::{Error, Result};
use crate::orphan_guard::OrphanGuard;
use crate::put::ObjectWriter;
use crate::upload::{BodyWriter, Destination};

/// Manifests of parts that one completion reads at a time.
const MANIFESTS_AT_ONCE: usize = 8;

/// Checksum of the whole object, by the algorithm and kind that the upload announced.
fn checksum_of(upload: &Upload, chosen: &[Box<Part>]) -> Result<Option<Checksum>> {
    let Some((algorithm, kind)) = upload.checksum else { return Ok(None) };
    let mut values = Vec::with_capacity(chosen.len());
    for part in chosen {
        let found = part.checksums.iter().find(|sum| sum.algorithm == algorithm);
        let sum = found.ok_or_else(|| {
            Error::InvalidRequest(format!("a part has no {algorithm:?} checksum"))
        })?;
        values.push((sum.value.as_slice(), part.size));
    }
    let value = match kind {
        ChecksumKind::Composite => {
            Some(composite(algorithm, values.iter().map(|(value, _)| *value)))
        }
        ChecksumKind::FullObject => joined(algorithm, values.iter().copied()),
    };
    let value = value.ok_or_else(|| {
        Error::InvalidRequest(format!("{algorithm:?} of parts can't cover the full object"))
    })?;
    Ok(Some(Checksum { algorithm, kind, value }))
}

/// Checksums of the chosen parts by the announced algorithm; empty unless all parts have one.
fn part_checksums_of(upload: &Upload, chosen: &[Box<Part>]) -> Vec<Vec<u8>> {
    let Some((algorithm, _)) = upload.checksum else { return Vec::new() };
    let value = |part: &Part| {
        let found = part.checksums.iter().find(|sum| sum.algorithm == algorithm);
        found.map(|sum| sum.value.clone())
    };
    chosen.iter().map(|part| value(part)).collect::<Option<_>>().unwrap_or_default()
}

/// Checks the object's size against its bound and the size that the client announced.
fn check_size(size: u64, announced: Option<u64>) -> Result<()> {
    if size > OBJECT_BYTES_MAX {
        return Err(Error::EntityTooLarge { size, maximum: OBJECT_BYTES_MAX });
    }
    match announced.filter(|announced| *announced != size) {
        None => Ok(()),
        Some(announced) => Err(Error::InvalidRequest(format!(
            "The provided 'x-amz-mp-object-size' header value {announced} does not match what was \
             computed: {size}"
        ))),
    }
}

/// Extents of parts in order, up to [`OBJECT_EXTENTS_MAX`].
struct JoinedExtents {
    extents: Vec<ExtentRef>,
    extents_max: usize,
}

impl JoinedExtents {
    fn add(&mut self, part: &[ExtentRef]) -> Result<()> {
        let (count, maximum) = (self.extents.len() + part.len(), self.extents_max);
        if count > maximum {
            return Err(Error::InvalidRequest(format!(
                "the object would have more than {maximum} extents: use a storage policy with \
                 longer extents, or announce the length of each part"
            )));
        }
        self.extents.extend_from_slice(part);
        Ok(())
    }
}

/// Builder of objects from parts.
pub(super) struct Assembler {
    stamps: Arc<StampSource>,
    writer: Arc<BodyWriter>,
    bodies: Arc<BodyReader>,
}

impl Assembler {
    pub(super) fn new(objects: &ObjectWriter, bodies: Arc<BodyReader>) -> Self {
        let ObjectWriter { registers, writer, .. } = objects;
        Self { stamps: registers.stamps.clone(), writer: writer.clone(), bodies }
    }

    /// Builds the object of the chosen parts, whose bodies it takes, and stores its manifest if that is too long for an entry.
    pub(super) async fn assemble(
        &self,
        target: &UploadTarget<'_>,
        upload: &Upload,
        chosen: &mut [Box<Part>],
        complete: &CompleteUpload,
        write_id: WriteId,
    ) -> Result<(Object, OrphanGuard)> {
        let size: u64 = chosen.iter().map(|part| part.size).sum();
        check_size(size, complete.object_size)?;
        let checksum = checksum_of(upload, chosen)?;
        if let Some((algorithm, value)) = &complete.checksum {
            let same = |sum: &&Checksum| sum.algorithm == *algorithm && sum.value == *value;
            checksum.as_ref().filter(same).ok_or(Error::BadChecksum(*algorithm))?;
        }
        let bodies = chosen.iter_mut().map(|part| std::mem::replace(&mut part.body, Body::Empty));
        let bodies: Vec<Body> = bodies.collect();
        let manifest = Manifest {
            policy: upload.policy,
            extents: self.extents_of(bodies, upload.policy).await?,
            parts: chosen.iter().map(|part| part.size).collect(),
            part_checksums: part_checksums_of(upload, chosen),
        };
        let to = Destination {
            bucket: target.bucket.id,
            key: target.object_key,
            write_id,
            upload: Some(target.id),
            role: ExtentRole::Manifest,
            offset: 0,
            facts: Some(BodyFacts {
                is_encrypted: upload.attributes.marks.get(Mark::Encryption).is_some(),
                ..BodyFacts::default()
            }),
            policy: manifest.policy,
            inline_bytes_max: 0,
            etags: ETagKind::Opaque,
        };
        let (body, orphans) = self.writer.store_manifest(manifest, to).await?;
        let count = u16::try_from(chosen.len()).expect("the count of parts was checked");
        let tag = md5_of_md5s(chosen.iter().map(|part| &part.tag));
        let etag = upload.etags().multipart(tag, count);
        target.context.keys.report(&upload.attributes.marks, target.address())?;
        let mut attributes = attributes_of(upload);
        let numbers: Vec<u32> = complete.parts.iter().map(|part| part.number).collect();
        choose_parts(&mut attributes.marks, &numbers)?;
        let object = Object {
            size,
            etag,
            modified_ms: self.stamps.now_ms(),
            attributes,
            checksums: checksum.into_iter().collect(),
            upload: Some(upload.id),
            body,
            version: None,
        };
        Ok((object, orphans))
    }

    /// Returns the extents of parts in order. Fails if any part's manifest can't be read.
    async fn extents_of(&self, bodies: Vec<Body>, policy: PolicyId) -> Result<Vec<ExtentRef>> {
        let mut joined = JoinedExtents { extents: Vec::new(), extents_max: OBJECT_EXTENTS_MAX };
        let reads = stream::iter(bodies).map(|body| self.manifest_of(body));
        let mut reads = std::pin::pin!(reads.buffered(MANIFESTS_AT_ONCE));
        while let Some(manifest) = reads.next().await {
            let Some(manifest) = manifest? else { continue };
            if manifest.policy != policy {
                return Err(corrupt("a part lies under another policy than its upload"));
            }
            joined.add(&manifest.extents)?;
        }
        Ok(joined.extents)
    }

    async fn manifest_of(&self, body: Body) -> Result<Option<Manifest>> {
        match body {
            Body::Empty => Ok(None),
            Body::Inline { .. } => Err(corrupt("a part has inline bytes")),
            Body::Extents(manifest) => Ok(Some(manifest)),
            Body::Spilled { policy, manifest } => {
                Ok(Some(Box::pin(self.bodies.load_manifest(policy, &manifest)).await?))
            }
        }
    }
}

fn corrupt(message: &str) -> Error {
    martlet_protocol::Error::corrupt(message).into()
}

#[cfg(test)]
mod tests {
    use martlet_protocol::ExtentId;

    use super::*;

    #[test]
    fn extents_beyond_the_bound_are_refused_with_the_way_out() {
        let extent = ExtentRef { id: ExtentId([1; 16]), length: 1, blake3: [0; 32] };
        let mut joined = JoinedExtents { extents: Vec::new(), extents_max: 5 };
        joined.add(&[extent; 2]).unwrap();
        joined.add(&[extent; 3]).unwrap();
        let refused = joined.add(&[extent]);
        assert!(
            matches!(&refused, Err(Error::InvalidRequest(text)) if text.contains("5 extents")),
            "{refused:?}"
        );
        assert_eq!(joined.extents.len(), 5);
    }

    #[test]
    fn sizes_are_compared_with_the_bound_and_with_the_announced_one() {
        assert!(check_size(OBJECT_BYTES_MAX, None).is_ok() && check_size(7, Some(7)).is_ok());
        let beyond = check_size(OBJECT_BYTES_MAX + 1, None);
        assert!(matches!(beyond, Err(Error::EntityTooLarge { .. })), "{beyond:?}");
        assert!(matches!(check_size(7, Some(8)), Err(Error::InvalidRequest(_))));
    }
}
