//! One batch of a body, on its way through the lanes of a worker.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};
use tokio::sync::oneshot;

use crate::digest::Digests;
use crate::md5::BLOCK;
use crate::md5::lanes::Lane;

/// Fewest blocks for a lane. Shorter chunks would interrupt the lanes of other bodies too often.
const BLOCKS_MIN: usize = 8;

/// Digests of a body, and the chunks to add to them in their order.
pub(super) struct HashJob {
    digests: Digests,
    /// Chunks that the MD5 lacks.
    chunks: VecDeque<Bytes>,
    needs_checksums: bool,
    /// Bytes that were added outside lanes since [`Self::take_single_bytes`].
    single_bytes: usize,
    done: oneshot::Sender<Digests>,
}

impl HashJob {
    /// A job that sends the digests to `done`.
    pub(super) fn new(
        digests: Digests,
        chunks: Vec<Bytes>,
        done: oneshot::Sender<Digests>,
    ) -> Self {
        Self { digests, chunks: chunks.into(), needs_checksums: true, single_bytes: 0, done }
    }

    /// Returns true if the checksums of this job need a thread of their own.
    pub(super) fn is_slow(&self) -> bool {
        self.needs_checksums && self.digests.has_slow_checksums()
    }

    /// Returns true if the body was dropped.
    pub(super) fn is_cancelled(&self) -> bool {
        self.done.is_closed()
    }

    /// Adds the chunks to the checksums, once.
    pub(super) fn update_checksums(&mut self) {
        if std::mem::take(&mut self.needs_checksums) {
            for chunk in &self.chunks {
                self.digests.update_checksums(chunk);
            }
        }
    }

    /// Number of whole blocks that may follow now; none at the end, or without an MD5. Bytes before
    /// them are added at once: short chunks, and bytes that share a block with another chunk.
    pub(super) fn ready_blocks(&mut self) -> Option<usize> {
        let md5 = self.digests.md5.as_mut()?;
        while let Some(chunk) = self.chunks.front_mut() {
            let unaligned = md5.unaligned(chunk.len());
            md5.update(&chunk[..unaligned]);
            chunk.advance(unaligned);
            self.single_bytes += unaligned;
            let blocks = chunk.len() / BLOCK;
            if blocks >= BLOCKS_MIN {
                return Some(blocks);
            }
            md5.update(chunk);
            self.single_bytes += chunk.len();
            self.chunks.pop_front();
        }
        None
    }

    /// Bytes that were added outside lanes since the last call.
    pub(super) fn take_single_bytes(&mut self) -> usize {
        std::mem::take(&mut self.single_bytes)
    }

    /// The next `count` blocks. They count as added.
    pub(super) fn take_blocks(&mut self, count: usize) -> Bytes {
        self.chunks.front_mut().map(|chunk| chunk.split_to(count * BLOCK)).unwrap_or_default()
    }

    /// A lane for blocks that [`Self::take_blocks`] returned; none without an MD5.
    pub(super) fn lane<'a>(&'a mut self, blocks: &'a Bytes) -> Option<Lane<'a>> {
        Some(Lane { md5: self.digests.md5.as_mut()?, blocks: blocks.as_chunks().0 })
    }

    /// Sends the digests to the body.
    pub(super) fn finish(self) {
        // A dropped body needs no digests.
        drop(self.done.send(self.digests));
    }
}
