//! Rows of the index, as the fuzz target reads them: any bytes are refused, or are encoded to a row
//! that is read as before.

use martlet_protocol::backend::{BucketFence, Want};
use martlet_protocol::entry::{Body, Entry, Manifest, Value};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::testing::fuzz_target::{InputReader, block};
use martlet_protocol::tree::Sum;
use martlet_protocol::{BucketId, ExtentId, PolicyId, RegisterKey, Stamp, WriteId};

use super::hints::HintRow;
pub(crate) use super::log_tail::fuzzing as log;
use super::{old_list, rows, tree, usage};

/// Reads bytes as a row of each column family. Returns true if they are a row of the chosen one.
pub(crate) fn check(mut reader: InputReader<'_>) -> bool {
    match reader.byte() % 6 {
        0 => register(reader.rest()),
        1 => hint(reader.rest()),
        2 => garbage(reader),
        3 => fence(reader),
        4 => sum(reader.rest()),
        _ => old_row(reader.rest()),
    }
}

fn register(bytes: &[u8]) -> bool {
    // All of them take any bytes.
    let (decoded, counted) = (rows::decode_register(bytes), rows::counted(bytes));
    let entry = rows::entry_bytes(bytes);
    let _ = (rows::split_inline(bytes), usage::usage_in(Some(bytes)));
    let Ok(mut row) = rows::RegisterRow::parse(bytes) else { return false };
    assert_eq!(row.bytes(), bytes);
    assert_eq!(entry.expect("a parsed row has its parts"), row.entry_bytes());
    let _ = (row.has_extents(), row.has_inline(), row.is_collectable());
    let _ = old_list::row_of(b"key", &row);
    let Ok((promise, entry)) = decoded else { return false };
    let register = row.register().expect("a decoded row has a register");
    let held = entry.as_ref().map(|entry| (entry.order, entry.write_id));
    assert_eq!((register.promise, register.held), (promise, held));
    let counted = counted.expect("a decoded row counts or doesn't");
    assert_eq!(counted, held.filter(|_| !row.is_collectable()));
    assert_eq!(row.entry().expect("the entry was decoded"), entry);
    let key = RegisterKey::object(BucketId([5; 16]), 16, "a/key").encode();
    let _ = usage::contribution(&key, row.entry_bytes());
    row.set_promise(Stamp::at_ms(7));
    row.set_collectable();
    let again = rows::decode_register(row.bytes()).expect("a changed row is a row");
    assert_eq!(again, (Stamp::at_ms(7), entry));
    true
}

fn hint(bytes: &[u8]) -> bool {
    let Ok(row) = HintRow::parse(bytes) else { return false };
    assert_eq!(row.encode(), bytes, "a hint has one row");
    let _ = (row.held(), row.decode(Want::EntryAndInline));
    true
}

fn garbage(mut reader: InputReader<'_>) -> bool {
    let id = reader.block();
    let Ok(garbage) = rows::decode_garbage(id, reader.rest()) else { return false };
    let row = rows::garbage_row(&garbage.key.encode(), &garbage.body);
    assert_eq!(rows::decode_garbage(id, &row).expect("an encoded row can be decoded"), garbage);
    true
}

fn fence(mut reader: InputReader<'_>) -> bool {
    let key = reader.block();
    let row = reader.rest();
    let Ok(fence) = rows::decode_fence(key, row) else { return false };
    assert_eq!(rows::fence_row(&fence), row, "a fence has one row");
    assert_eq!(rows::fence_key(fence.bucket)[1..], key[1..]);
    true
}

fn sum(bytes: &[u8]) -> bool {
    let _ = tree::decode_key(bytes);
    let Ok(sum) = tree::decode_sum(bytes) else { return false };
    assert_eq!(tree::encode_sum(sum), bytes, "a sum has one row");
    true
}

fn old_row(bytes: &[u8]) -> bool {
    let stamp = old_list::stamp_in(bytes);
    let Ok(key) = old_list::register_in(bytes) else { return false };
    assert!(bytes.ends_with(key) && stamp.is_ok());
    true
}

/// Returns rows as this node writes them.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let entry =
        Entry { order: Stamp::at_ms(4), write_id: WriteId([7; 16]), value: Value::Tombstone };
    let (bucket, encoded) = (BucketId([3; 16]), entry.encode());
    let key = RegisterKey::object(bucket, 16, "a/key").encode();
    let mut promised = rows::RegisterRow::of(&entry);
    promised.set_promise(Stamp::at_ms(8));
    let hint = HintRow { keep_body: true, since_ms: 9, entry: &encoded, inline: b"bytes" };
    let extents = vec![ExtentRef { id: ExtentId([1; 16]), length: 9, blake3: [2; 32] }];
    let (policy, parts, part_checksums) = (PolicyId(1), Vec::new(), Vec::new());
    let body = Body::Extents(Manifest { policy, extents, parts, part_checksums });
    let fence = BucketFence { bucket, generation: 77, open: true };
    let old = old_list::row_of(&key, &promised).expect("a tombstone is a row");
    let garbage_id = rows::garbage_key(5, WriteId([7; 16]));
    vec![
        [&[0][..], promised.bytes()].concat(),
        [&[0][..], rows::RegisterRow::empty().bytes()].concat(),
        [&[1][..], &hint.encode()].concat(),
        [&[2][..], &block(&garbage_id), &rows::garbage_row(&key, &body)].concat(),
        [&[3][..], &block(&rows::fence_key(bucket)), &rows::fence_row(&fence)].concat(),
        [&[4][..], &tree::encode_sum(Sum { hash: 9, count: 1 })].concat(),
        [&[5][..], &old.expect("tombstones are listed")].concat(),
    ]
}
