//! Preparation of a write before it is queued: checked and encoded on its caller's thread.

use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::Body;
use martlet_protocol::tree::TreeKey;
use martlet_protocol::{Error, Result};

use super::queue::WriteOp;
use super::rows::{self, RegisterRow};
use super::tree::Leaf;

/// Encodes a write on its caller's thread.
pub(super) fn prepare(write: &EntryWrite, secret: &TreeKey) -> Result<WriteOp> {
    let EntryWrite { key, entry, inline, mode, generation, commit_by_ms, keep_body, term } = write;
    let crc32c = match entry.value.body() {
        Some(Body::Inline { crc32c }) => Some(*crc32c),
        _ => None,
    };
    let inline = match (inline, crc32c) {
        (Some(bytes), Some(crc32c)) if rows::crc32c(bytes) == crc32c => {
            Some(rows::inline_row(entry.write_id, bytes))
        }
        (Some(_), Some(_)) => return Err(Error::corrupt("inline bytes were corrupted in transit")),
        (Some(_), None) => {
            return Err(Error::invalid("an entry without inline bytes came with bytes"));
        }
        (None, _) => None,
    };
    Ok(WriteOp {
        key: key.encode(),
        row: RegisterRow::of(entry),
        inline,
        tombstone: entry.value.is_tombstone(),
        order: entry.order,
        write_id: entry.write_id,
        mode: *mode,
        bucket: key.bucket,
        generation: *generation,
        commit_by_ms: *commit_by_ms,
        keep_body: *keep_body,
        term: *term,
        leaf: Leaf::of(secret, key, entry.order, entry.write_id),
    })
}
