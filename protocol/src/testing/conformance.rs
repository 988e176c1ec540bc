//! Conformance tests of [`Backend`].
//!
//! Each check works in a new bucket on one device of a backend, and panics with the broken
//! guarantee. The checks don't cover crashes and corruption on disk; those need the disk's own
//! tests.

#![expect(clippy::unwrap_used, reason = "these are tests, in a form that other crates can run")]

mod batches;
mod buckets;
mod conditions;
mod copies;
mod eviction;
mod extents;
mod hints;
mod kept_rows;
mod listing;
mod registers;
mod sums;
mod terms;
mod versions;
mod votes;

use bytes::Bytes;
use futures::StreamExt;

use crate::backend::{Backend, ByteStream, EntryWrite};
use crate::clock::{Clock, SystemClock};
use crate::entry::{Attributes, Body, ETag, Entry, Manifest, Object, Value};
use crate::error::Error;
use crate::extent::{ExtentRef, ExtentRole, Owner};
use crate::id::{BucketId, DeviceId, PolicyId, WriteId};
use crate::key::RegisterKey;
use crate::register::WriteMode;
use crate::stamp::{Stamp, WriterId};
use crate::term::Term;

/// Runs every check against one device, by the system's clock. The device must have its votes, and
/// has them again afterwards. The checks leave its floor a few milliseconds after 1970, and raise
/// its term and joined change slightly.
pub async fn all(backend: &dyn Backend, device: DeviceId) {
    registers::all(backend, device).await;
    listing::all(backend, device).await;
    versions::all(backend, device).await;
    buckets::all(backend, device).await;
    extents::all(backend, device).await;
    hints::all(backend, device).await;
    votes::all(backend, device).await;
    sums::all(backend, device).await;
    eviction::all(backend, device).await;
    copies::all(backend, device).await;
    batches::all(backend, device).await;
    kept_rows::all(backend, device).await;
    terms::all(backend, device).await;
    conditions::all(backend, device).await;
}

/// Returns a stamp with counter `ticks`, at the current time rounded down to 10 seconds.
fn stamp(ticks: u64) -> Stamp {
    let second = SystemClock.now_ms() / 10_000 * 10_000;
    Stamp { time: (second << 16) + ticks, writer: WriterId(1) }
}

fn object(body: Body) -> Value {
    Value::Object(Box::new(Object {
        size: 3,
        etag: ETag::Md5([7; 16]),
        modified_ms: 1,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body,
        version: None,
    }))
}

fn in_extents(extents: Vec<ExtentRef>) -> Body {
    Body::Extents(Manifest {
        policy: PolicyId(0),
        extents,
        parts: Vec::new(),
        part_checksums: Vec::new(),
    })
}

/// A plain write of an empty object.
fn plain(key: &RegisterKey, order: Stamp) -> EntryWrite {
    EntryWrite {
        key: key.clone(),
        entry: Entry { order, write_id: WriteId::random(), value: object(Body::Empty) },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

fn tombstone(key: &RegisterKey, order: Stamp) -> EntryWrite {
    let mut write = plain(key, order);
    write.entry.value = Value::Tombstone;
    write
}

fn register(bucket: BucketId, name: &str) -> RegisterKey {
    RegisterKey::object(bucket, 4, name)
}

fn owner(bucket: BucketId) -> Owner {
    Owner {
        bucket,
        key: "key".into(),
        write_id: WriteId::random(),
        upload: None,
        role: ExtentRole::Data,
        offset: 0,
    }
}

fn body(pieces: Vec<Result<Bytes, Error>>) -> ByteStream {
    futures::stream::iter(pieces).boxed()
}

/// Bytes of a non-repeating pattern.
fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap_or(0)).collect()
}
