//! Purges of closed buckets: their garbage, and searches that go on where an earlier one ended.

use super::*;

fn part(number: u16) -> RegisterKey {
    RegisterKey::part(&key("k"), UploadId([1; 16]), number, WriteId([1; 16]))
}

async fn write_parts(bed: &IndexFixture, count: u16) {
    for number in 0..count {
        bed.index.write(write(&part(number), stamp(1), object(9, extents(7)))).await.unwrap();
    }
}

async fn close(bed: &IndexFixture, generation: u64) {
    bed.index.fence(BucketFence { bucket: BUCKET, generation, open: false }).await.unwrap();
}

#[tokio::test]
async fn a_purge_needs_a_closed_bucket_and_leaves_extents_as_garbage() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    write_parts(&bed, 600).await;
    assert_eq!(bed.index.purge(BUCKET).await.unwrap_err().kind(), ErrorKind::Conflict);
    close(&bed, 2).await;
    bed.index.purge(BUCKET).await.unwrap();
    assert_eq!(bed.index.garbage(NOW_MS, 1000).await.unwrap().len(), 600);
    let request = ListRequest { kind: RegisterKind::Part, ..everything() };
    assert!(bed.index.list(&request).await.unwrap().entries.is_empty());
    let late = || EntryWrite { generation: 9, ..write(&key("a"), stamp(2), Value::Tombstone) };
    assert_eq!(bed.index.write(late()).await.unwrap(), WriteReply::Fenced);
    drop(bed);
    let bed = self::bed(folder.path());
    assert_eq!(bed.index.fences().all(), [BucketFence::of_deleted(BUCKET)]);
    assert_eq!(bed.index.write(late()).await.unwrap(), WriteReply::Fenced);
}

#[tokio::test]
async fn a_purge_goes_on_where_an_earlier_call_ended() {
    for (closed, garbage) in [(2, 200), (4, 300)] {
        let folder = tempfile::tempdir().unwrap();
        let bed = bed(folder.path());
        write_parts(&bed, 300).await;
        // An earlier call has read the first hundred parts, while generation 2 was closed.
        bed.index.purges.set(BUCKET, 2, part(100).encode());
        close(&bed, closed).await;
        bed.index.purge(BUCKET).await.unwrap();
        assert_eq!(bed.index.garbage(NOW_MS, 1000).await.unwrap().len(), garbage);
        let request = ListRequest { kind: RegisterKind::Part, ..everything() };
        assert!(bed.index.list(&request).await.unwrap().entries.is_empty(), "all rows are gone");
        assert_eq!(bed.index.purges.get(BUCKET, closed), None, "the position is forgotten");
    }
}

/// A caller that gives up after each step: long runs of tombstones, which leave no garbage, end too.
#[tokio::test]
async fn a_search_is_read_in_bounded_steps() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    write_parts(&bed, 20).await;
    for number in 20..100 {
        bed.index.write(write(&part(number), stamp(1), Value::Tombstone)).await.unwrap();
    }
    let database = &bed.index.reader.database;
    let [mut from, upper] = rows::bucket_keys(BUCKET).map(Vec::from);
    let (mut steps, mut garbage) = (0, 0);
    loop {
        let (rows, next) =
            crate::index::purge::garbage_in(database, &from, &upper, 10, NOW_MS).unwrap();
        assert!(rows.len() <= 10);
        (steps, garbage) = (steps + 1, garbage + rows.len());
        let Some(next) = next else { break };
        assert!(next > from, "each step advances");
        from = next;
    }
    assert_eq!((steps, garbage), (10, 20));
}
