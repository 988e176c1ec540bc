//! Bytes of an object that was read from its register.

use std::sync::Arc;

use futures::{StreamExt, stream};
use martlet_protocol::entry::{Body, Checksum, ChecksumKind, Manifest, Object};
use martlet_protocol::{ByteStream, Error as NodeError, Stamp};

use super::reader::BodyReader;
use crate::api::{ObjectPart, Selection};
use crate::digest::crc32c;
use crate::encryption::{Locked, Secret, Segment};
use crate::error::{Error, Result};
use crate::range::Selected;

/// An object that was read from its register.
pub(crate) struct Found {
    pub(crate) object: Arc<Object>,
    pub(crate) stamp: Stamp,
    pub(crate) inline: Option<bytes::Bytes>,
    /// Its encryption document, if it is encrypted.
    pub(crate) locked: Option<Locked>,
}

impl BodyReader {
    /// Resolves a selection to a range. Only parts need the manifest.
    pub(crate) async fn select(&self, object: &Object, selection: Selection) -> Result<Selected> {
        let Selection::Part { number } = selection else {
            return selection.resolve(object.size, &[]);
        };
        let manifest = self.manifest(&object.body).await?;
        let parts = manifest.as_ref().map_or(&[][..], |manifest| &manifest.parts);
        let mut selected = selection.resolve(object.size, parts)?;
        let at = usize::try_from(number - 1).expect("the part number was checked");
        selected.checksum = manifest.and_then(|manifest| part_checksum(object, &manifest, at));
        Ok(selected)
    }

    /// The error for a wrong or missing key. A part that doesn't exist takes precedence.
    pub(crate) async fn refused_key(
        &self,
        object: &Object,
        selection: Selection,
        refusal: Error,
    ) -> Error {
        match selection {
            Selection::Part { .. } => self.select(object, selection).await.err().unwrap_or(refusal),
            _ => refusal,
        }
    }

    /// Opens a range of an object; decrypts it if `secret` is given.
    pub(crate) async fn open(
        &self,
        found: &Found,
        range: std::ops::Range<u64>,
        secret: Option<Secret>,
    ) -> Result<ByteStream> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        match secret {
            None => self.open_stored(found, range).await,
            Some(secret) => Box::pin(self.open_sealed(found, range, secret)).await,
        }
    }

    /// Opens a range of an object's stored bytes.
    pub(crate) async fn open_stored(
        &self,
        found: &Found,
        range: std::ops::Range<u64>,
    ) -> Result<ByteStream> {
        match &found.object.body {
            Body::Empty => Err(NodeError::corrupt("an object has a size but no bytes").into()),
            Body::Inline { crc32c } => Ok(inline_stream(found, *crc32c, range)?),
            Body::Extents(manifest) => {
                Ok(self.read_extents(manifest.policy, &manifest.extents, range).await?)
            }
            Body::Spilled { policy, manifest } => {
                let manifest = self.spilled(*policy, manifest).await?;
                Ok(self.read_extents(manifest.policy, &manifest.extents, range).await?)
            }
        }
    }
}

fn inline_stream(
    found: &Found,
    expected: u32,
    range: std::ops::Range<u64>,
) -> Result<ByteStream, NodeError> {
    let bytes = found.inline.as_ref();
    let bytes = bytes.ok_or_else(|| NodeError::corrupt("an object's inline bytes are gone"))?;
    let (size, salted) = (found.object.size, false);
    let stored = found.locked.as_ref().map_or(size, |_| Segment { bytes: size, salted }.stored());
    if bytes.len() as u64 != stored || crc32c(bytes) != expected {
        return Err(NodeError::corrupt("an object's inline bytes are corrupt"));
    }
    let at = |offset| usize::try_from(offset).expect("inline objects are small");
    let selected = bytes.slice(at(range.start)..at(range.end));
    Ok(stream::once(std::future::ready(Ok(selected))).boxed())
}

/// Parts of an object, with checksums of the object's own algorithm if they were stored.
pub(crate) fn parts_of(object: &Object, manifest: &Manifest) -> Vec<ObjectPart> {
    let part = |(at, &size)| ObjectPart { size, checksum: part_checksum(object, manifest, at) };
    manifest.parts.iter().enumerate().map(part).collect()
}

fn part_checksum(object: &Object, manifest: &Manifest, at: usize) -> Option<Checksum> {
    let algorithm = object.checksums.first()?.algorithm;
    let value = manifest.part_checksums.get(at)?.clone();
    Some(Checksum { algorithm, kind: ChecksumKind::FullObject, value })
}
