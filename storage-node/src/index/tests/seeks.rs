//! Seeks within runs and across runs, in an index whose tables hold different runs.

use martlet_protocol::backend::Walk;
use martlet_protocol::tree::Span;

use super::*;

const SHARDS: u16 = 8;
const BUCKETS: u8 = 3;

fn bucket(number: u8) -> BucketId {
    BucketId([number * 40 + 5; 16])
}

fn register(number: u8, shard: u16, name: &str) -> RegisterKey {
    RegisterKey {
        bucket: bucket(number),
        shard: Shard(shard),
        kind: RegisterKind::Object,
        name: Bytes::copy_from_slice(name.as_bytes()),
    }
}

/// Names of a run. Some runs are empty, and each table holds only some of the runs.
fn names(number: u8, shard: u16) -> Vec<String> {
    let many = (usize::from(number) * 5 + usize::from(shard) * 3) % 7;
    (0..many).map(|at| format!("{}/{at}", at % 3)).collect()
}

/// Makes an index with a table for each shard, and with the last shard in the memtable.
async fn filled(folder: &Path) -> IndexFixture {
    let bed = bed(folder);
    for shard in 0..SHARDS {
        for number in 0..BUCKETS {
            for name in names(number, shard) {
                let key = register(number, shard, &name);
                bed.index.write(write(&key, stamp(5), object(9, extents(1)))).await.unwrap();
            }
        }
        if shard + 1 < SHARDS {
            bed.index.reader.database.flush().unwrap();
        }
    }
    bed
}

fn request(number: u8, shards: impl Iterator<Item = u16>, start: ListStart) -> ListRequest {
    ListRequest {
        bucket: bucket(number),
        shards: shards.map(Shard).collect(),
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start,
        limit: 1000,
        fold: None,
        term: Term::ANY,
    }
}

async fn listed(bed: &IndexFixture, request: &ListRequest) -> Vec<String> {
    let reply = bed.index.list(request).await.unwrap();
    assert!(!reply.truncated);
    let names = reply.entries.iter().map(|(name, _)| String::from_utf8(name.to_vec()).unwrap());
    names.collect()
}

async fn check(bed: &IndexFixture) {
    let mut all = 0;
    for number in 0..BUCKETS {
        let mut merged = Vec::new();
        for shard in 0..SHARDS {
            let mut expected = names(number, shard);
            expected.sort();
            all += expected.len();
            merged.extend(expected.clone());
            let whole = request(number, std::iter::once(shard), ListStart::First);
            assert_eq!(listed(bed, &whole).await, expected, "bucket {number} shard {shard}");
            expected.retain(|name| name.as_str() > "1/1");
            let start = ListStart::After(Bytes::from_static(b"1/1"));
            let rest = request(number, std::iter::once(shard), start);
            assert_eq!(listed(bed, &rest).await, expected, "bucket {number} shard {shard}");
        }
        merged.sort();
        let whole = request(number, 0..SHARDS, ListStart::First);
        assert_eq!(listed(bed, &whole).await, merged, "bucket {number}");
        let mut folded = request(number, 0..SHARDS, ListStart::First);
        folded.fold = Some(Bytes::from_static(b"/"));
        merged.dedup_by_key(|name| name[..2].to_owned());
        let folds = listed(bed, &folded).await;
        let mut once = folds.clone();
        once.dedup_by_key(|name| name[..2].to_owned());
        assert_eq!((once.len(), folds.len()), (merged.len(), merged.len()), "{folds:?}");
    }
    let registers = bed.index.registers(None, 10_000).await.unwrap();
    assert_eq!(registers.len(), all);
    let middle = registers[all / 2].0.clone();
    let rest = bed.index.registers(Some(&middle), 10_000).await.unwrap();
    assert_eq!(rest.len(), all - all / 2 - 1);
    let walk = Walk { span: Span { first: 0, last: u64::MAX }, bin: None, want: Want::Entry };
    assert_eq!(bed.index.walk(&walk, None, 10_000).await.unwrap().len(), all);
}

#[tokio::test]
async fn runs_are_found_in_every_table_and_only_there() {
    let folder = tempfile::tempdir().unwrap();
    let bed = filled(folder.path()).await;
    check(&bed).await;
    bed.index.reader.database.compact(Family::Entries);
    check(&bed).await;
    drop(bed);
    check(&super::bed(folder.path())).await;
}
