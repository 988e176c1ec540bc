//! Extents to write in tests.

use bytes::Bytes;
use futures::StreamExt;

use crate::backend::{ByteStream, NewExtent};
use crate::extent::{ExtentRole, Layout, Owner};
use crate::{BucketId, ExtentId, WriteId};

/// Returns an extent of data that begins the object `key`, with random ids, under the default policy.
/// `length` is in bytes.
pub fn new_extent(bucket: BucketId, key: &str, length: Option<u64>) -> NewExtent {
    let owner = Owner {
        bucket,
        key: key.to_owned(),
        write_id: WriteId::random(),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    };
    let (id, layout) = (ExtentId::random(), Layout::default());
    NewExtent { id, owner, length, birth_ms: None, layout, hashes: None }
}

/// Returns a body that comes in one piece.
pub fn whole_body(bytes: Bytes) -> ByteStream {
    futures::stream::iter([Ok(bytes)]).boxed()
}
