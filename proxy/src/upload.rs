//! Request bodies: stored inline or in extents, and fully verified before the commit.
//!
//! A single task takes each chunk from the client and passes it on twice, by reference: to the
//! current extent ([`extent_writer`]) and to the hashes. Long bodies are hashed on other threads,
//! in the lanes of a [`HashPool`]. The bytes that wait to be hashed are bounded for each body.

mod extent_writer;
mod hashed_body;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use martlet_protocol::entry::{Body, Checksum, ETagKind, Manifest};
use martlet_protocol::extent::{ExtentRef, ExtentRole};
use martlet_protocol::limits::{MANIFEST_EXTENTS_INLINE_MAX, PUT_BYTES_MAX};

use self::extent_writer::ExtentWriter;
pub(crate) use self::hashed_body::Destination;
use self::hashed_body::HashedBody;
use crate::api::NewBody;
use crate::digest::{Digests, crc32c};
use crate::encryption::Secret;
use crate::error::{Error, Result};
use crate::extents::ExtentClient;
use crate::hashing::HashPool;
use crate::orphan_guard::OrphanGuard;

/// A complete and verified body.
pub(crate) struct StoredBody {
    pub(crate) size: u64,
    /// Tag of the body's ETag: the MD5 of its bytes, or the id of the write.
    pub(crate) tag: [u8; 16],
    pub(crate) checksums: Vec<Checksum>,
    /// The bytes of an inline body.
    pub(crate) inline: Option<Bytes>,
    pub(crate) extents: Vec<ExtentRef>,
    /// Deletes the extents unless they are claimed.
    pub(crate) orphans: OrphanGuard,
}

/// Writes of bodies: inline, or in extents.
pub(crate) struct BodyWriter {
    extents: Arc<ExtentClient>,
    hash_pool: Arc<HashPool>,
}

impl BodyWriter {
    pub(crate) fn new(extents: Arc<ExtentClient>, hash_pool: Arc<HashPool>) -> Self {
        Self { extents, hash_pool }
    }

    /// Stores a body without encryption.
    pub(crate) async fn store_plain(
        &self,
        new_body: NewBody,
        to: Destination<'_>,
    ) -> Result<StoredBody> {
        self.store(new_body, to, None).await
    }

    /// Stores a body, encrypted if `secret` is given. Its size and digests are those of the plain
    /// bytes.
    ///
    /// # Errors
    /// [`Error::EntityTooLarge`], [`Error::BadDigest`], [`Error::BadChecksum`], or
    /// [`Error::InvalidRequest`] for a body of another length than declared.
    pub(crate) async fn store(
        &self,
        new_body: NewBody,
        to: Destination<'_>,
        secret: Option<&Secret>,
    ) -> Result<StoredBody> {
        if let Some(size) = new_body.size.filter(|size| *size > PUT_BYTES_MAX) {
            return Err(Error::EntityTooLarge { size, maximum: PUT_BYTES_MAX });
        }
        let (bytes, declared, compute) = (new_body.bytes, new_body.size, &new_body.compute);
        let needs_md5 = to.etags == ETagKind::Md5 || new_body.md5.is_some();
        let digests = if needs_md5 { Digests::new(compute) } else { Digests::without_md5(compute) };
        let mut body = HashedBody::new(bytes, declared, digests, secret, &self.hash_pool);
        let mut chunks = Vec::new();
        while body.arrived <= to.inline_bytes_max {
            let Some(chunk) = body.next().await? else { break };
            body.hash_stored(&chunk);
            chunks.push(chunk);
        }
        let orphans = OrphanGuard::new(self.extents.clone());
        let whole = body.arrived <= to.inline_bytes_max;
        let (inline, extents) = if whole {
            (Some(concatenated(chunks)).filter(|bytes| !bytes.is_empty()), Vec::new())
        } else {
            (None, ExtentWriter::new(&self.extents, to, &orphans).run(&mut body, chunks).await?)
        };
        body.check_end()?;
        let sums = body.hashing.finish().await?;
        sums.verify(new_body.md5, &(new_body.expected)()?)?;
        Ok(StoredBody {
            size: sums.bytes,
            tag: match (to.etags, sums.md5) {
                (ETagKind::Md5, Some(md5)) => md5,
                _ => to.write_id.0,
            },
            checksums: sums.checksums,
            inline,
            extents,
            orphans,
        })
    }

    /// The stored bytes as the entry's body. A manifest that is too long is stored first, in
    /// extents that are claimed together with the bytes.
    pub(crate) async fn body_for(
        &self,
        stored: &mut StoredBody,
        to: Destination<'_>,
    ) -> Result<(Body, Option<OrphanGuard>)> {
        match body_of(stored, to) {
            Body::Extents(manifest) => {
                let (body, mut spilled) = self.store_manifest(manifest, to).await?;
                spilled.claimed_with(&stored.orphans);
                Ok((body, Some(spilled)))
            }
            body => Ok((body, None)),
        }
    }

    /// The stored bytes as a part's body. A manifest of more than `inline_max` extents is stored as by
    /// [`BodyWriter::body_for`].
    pub(crate) async fn part_body_for(
        &self,
        stored: &mut StoredBody,
        to: Destination<'_>,
        inline_max: usize,
    ) -> Result<(Body, Option<OrphanGuard>)> {
        match body_of(stored, to) {
            Body::Extents(manifest) if manifest.extents.len() > inline_max => {
                let (body, mut spilled) = self.spill(manifest, to).await?;
                spilled.claimed_with(&stored.orphans);
                Ok((body, Some(spilled)))
            }
            body => Ok((body, None)),
        }
    }

    /// A manifest as a body: stored in the entry, or in extents if it is too long.
    pub(crate) async fn store_manifest(
        &self,
        manifest: Manifest,
        to: Destination<'_>,
    ) -> Result<(Body, OrphanGuard)> {
        let small = manifest.extents.len() <= MANIFEST_EXTENTS_INLINE_MAX
            && manifest.parts.len() <= MANIFEST_EXTENTS_INLINE_MAX;
        if small {
            return Ok((Body::Extents(manifest), OrphanGuard::new(self.extents.clone())));
        }
        self.spill(manifest, to).await
    }

    /// Stores a manifest in extents of its own.
    async fn spill(&self, manifest: Manifest, to: Destination<'_>) -> Result<(Body, OrphanGuard)> {
        let policy = manifest.policy;
        let encoded = Bytes::from(manifest.encode());
        drop(manifest);
        let new_body = NewBody {
            size: Some(encoded.len() as u64),
            bytes: Box::pin(futures::stream::once(std::future::ready(Ok(encoded)))),
            md5: None,
            compute: Vec::new(),
            expected: Box::new(|| Ok(Vec::new())),
        };
        let to = Destination {
            role: ExtentRole::Manifest,
            policy,
            inline_bytes_max: 0,
            etags: ETagKind::Opaque,
            ..to
        };
        let stored = self.store_plain(new_body, to).await?;
        Ok((Body::Spilled { policy, manifest: stored.extents }, stored.orphans))
    }
}

/// The stored bytes as an entry's body.
pub(crate) fn body_of(stored: &mut StoredBody, to: Destination<'_>) -> Body {
    if let Some(inline) = &stored.inline {
        return Body::Inline { crc32c: crc32c(inline) };
    }
    if stored.extents.is_empty() {
        return Body::Empty;
    }
    let extents = std::mem::take(&mut stored.extents);
    Body::Extents(Manifest {
        policy: to.policy,
        extents,
        parts: Vec::new(),
        part_checksums: Vec::new(),
    })
}

fn concatenated(mut chunks: Vec<Bytes>) -> Bytes {
    if chunks.len() == 1 {
        return chunks.swap_remove(0);
    }
    let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    for chunk in &chunks {
        whole.extend_from_slice(chunk);
    }
    whole.freeze()
}
