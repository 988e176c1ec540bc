//! Promises without an entry, and promises of heads.

use futures::future::try_join_all;
use martlet_protocol::VersionId;
use martlet_protocol::backend::RegisterDrop;
use martlet_protocol::limits::LIST_EMPTY_ROWS_MAX;

use super::*;

/// A page visits a bounded number of such registers, and returns its position.
#[tokio::test]
async fn a_listing_passes_over_so_many_of_them_and_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    let one_shard = |name: &str| RegisterKey { shard: Shard(0), ..key(name) };
    let names: Vec<_> = (0..2 * LIST_EMPTY_ROWS_MAX).map(|n| format!("absent {n:06}")).collect();
    for some in names.chunks(500) {
        let keys: Vec<_> = some.iter().map(|name| one_shard(name)).collect();
        let promised = keys.iter().map(|key| bed.index.promise(key, stamp(1), Term::ANY));
        try_join_all(promised).await.unwrap();
    }
    bed.index.write(write(&one_shard("present"), stamp(1), object(0, Body::Empty))).await.unwrap();
    let mut request = ListRequest {
        bucket: BUCKET,
        shards: vec![Shard(0)],
        kind: RegisterKind::Object,
        prefix: Bytes::new(),
        start: ListStart::First,
        limit: 1000,
        fold: None,
        term: Term::ANY,
    };
    let (mut pages, mut live) = (0, Vec::new());
    loop {
        let before = bed.counters.snapshot().listed_rows;
        let page = bed.index.list(&request).await.unwrap();
        assert!(bed.counters.snapshot().listed_rows - before <= LIST_EMPTY_ROWS_MAX as u64 + 10);
        pages += 1;
        let is_live = |(_, entry): &&(Bytes, Entry)| !entry.value.is_tombstone();
        live.extend(page.entries.iter().filter(is_live).map(|(name, _)| name.clone()));
        let Some((last, _)) = page.entries.last().filter(|_| page.truncated) else { break };
        request.start = ListStart::After(last.clone());
    }
    assert_eq!((pages, live), (3, vec![Bytes::from_static(b"present")]));
}

#[tokio::test]
async fn a_promise_that_is_let_go_takes_its_row_and_one_above_stays() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    for (name, ticks) in [("old", 1), ("new", 9)] {
        bed.index.promise(&key(name), stamp(ticks), Term::ANY).await.unwrap();
    }
    let drop = |name| RegisterDrop { key: key(name), up_to: stamp(5), collectable: false };
    bed.index.drop_registers(&[drop("old"), drop("new")], None).await.unwrap();
    let left = bed.index.registers(None, 10).await.unwrap();
    let left: Vec<_> = left.into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, [key("new")]);
}

/// A ballot on a head reads the registers beside it, and promises nothing there (rule R8).
#[tokio::test]
async fn r8_a_promise_of_a_head_shuts_out_slower_writes_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    bed.index.promise(&key("head"), stamp(9), Term::ANY).await.unwrap();
    let beside = |name| RegisterKey::version(&key(name), VersionId::Null);
    let at = |name, ticks, mode| EntryWrite {
        mode,
        ..write(&beside(name), stamp(ticks), Value::Tombstone)
    };
    let slow = at("head", 8, WriteMode::Fresh);
    assert_eq!(bed.index.write(slow).await.unwrap(), WriteReply::Behind(stamp(9)));
    let of_another = at("another", 8, WriteMode::Fresh);
    assert_eq!(bed.index.write(of_another).await.unwrap(), WriteReply::Stored);
    // The promise of the head is none of the register: a repair of an earlier write is stored.
    let repair = at("head", 7, WriteMode::Repair);
    assert_eq!(bed.index.write(repair).await.unwrap(), WriteReply::Stored);
    let later = at("head", 9, WriteMode::Fresh);
    assert_eq!(bed.index.write(later).await.unwrap(), WriteReply::Stored);
}

/// The promise of a head outlives the write of its ballot: slower writes beside the head stay shut
/// out (rule R8).
#[tokio::test]
async fn r8_a_written_head_keeps_its_promise() {
    let folder = tempfile::tempdir().unwrap();
    let bed = bed(folder.path());
    bed.index.promise(&key("head"), stamp(9), Term::ANY).await.unwrap();
    let head = write(&key("head"), stamp(9), object(0, Body::Empty));
    let accept = EntryWrite { mode: WriteMode::Accept, ..head };
    assert_eq!(bed.index.write(accept).await.unwrap(), WriteReply::Stored);
    let beside = RegisterKey::version(&key("head"), VersionId::Null);
    let at = |ticks| write(&beside, stamp(ticks), Value::Tombstone);
    assert_eq!(bed.index.write(at(8)).await.unwrap(), WriteReply::Behind(stamp(9)));
    assert_eq!(bed.index.write(at(9)).await.unwrap(), WriteReply::Stored);
}
