//! Pages of objects, versions and uploads among many removed ones.

use bytes::Bytes;
use martlet_protocol::backend::EntryWrite;
use martlet_protocol::entry::{Attributes, Entry, Value};
use martlet_protocol::register::WriteMode;
use martlet_protocol::{
    BackendExt, Clock, DeviceId, RegisterKey, Stamp, SystemClock, Term, UploadId, VersionId,
    WriteId,
};

use super::harness::Harness;
use super::versions::all_versions;
use crate::{ListObjects, ListUploads, ListVersions, NewUpload, is_within_prefix};

/// More rows than a page looks at that has something to return.
const REMOVED: u32 = 60_000;

/// Writes a tombstone to each register.
async fn bury(harness: &Harness, keys: impl Iterator<Item = RegisterKey>) {
    let order = Stamp::at_ms(SystemClock.now_ms());
    for key in keys {
        let write_id = WriteId::random();
        let write = EntryWrite {
            key,
            entry: Entry { order, write_id, value: Value::Tombstone },
            inline: None,
            mode: WriteMode::Repair,
            generation: 1,
            commit_by_ms: u64::MAX,
            keep_body: false,
            term: Term::ANY,
        };
        harness.memory.write(DeviceId(1), write).await.unwrap();
    }
}

fn numbered_id(at: u32) -> [u8; 16] {
    let mut id = [0; 16];
    id[12..].copy_from_slice(&at.to_be_bytes());
    id
}

#[tokio::test]
async fn a_page_of_objects_ends_among_removed_ones_and_the_next_begins_there() {
    let harness = Harness::with_bucket(1).await;
    let bucket = harness.store.bucket("b").await.unwrap();
    for key in ["a", "m/zz", "n"] {
        harness.put(key, Bytes::from_static(b"x")).await.unwrap();
    }
    let removed = (0..REMOVED).map(|at| format!("m/{at:06}"));
    let key = |name: String| RegisterKey::object(bucket.id, bucket.index_shards, &name);
    bury(&harness, removed.map(key)).await;
    for (delimiter, expected) in [(None, ["a", "m/zz", "n"]), (Some("/"), ["a", "m/", "n"])] {
        let delimiter = delimiter.map(str::to_owned);
        let list = ListObjects { delimiter, limit: 1000, ..ListObjects::default() };
        let first = harness.store.list("b", list.clone()).await.unwrap();
        assert_eq!((first.objects.len(), first.prefixes.len()), (1, 0));
        let next = first.next.unwrap();
        assert_eq!(is_within_prefix(&next), list.delimiter.is_some(), "{next:?}");
        assert!(next.starts_with("m/0"), "{next:?}");
        let list = ListObjects { after: Some(next), ..list };
        let second = harness.store.list("b", list).await.unwrap();
        assert_eq!(second.next, None);
        let objects = [first.objects, second.objects].concat();
        let mut names: Vec<_> = objects.into_iter().map(|(key, _)| key).collect();
        names.extend(second.prefixes);
        names.sort();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn a_page_of_versions_ends_among_removed_ones_and_the_next_begins_there() {
    let harness = Harness::with_bucket(1).await;
    harness.store.buckets().set_versioning("b", true).await.unwrap();
    let bucket = harness.store.bucket("b").await.unwrap();
    for bytes in ["one", "four"] {
        harness.put("k", bytes).await.unwrap();
    }
    let written = all_versions(&harness.store).await;
    let VersionId::Numbered { position, .. } = written[1].id else { panic!("versions have ids") };
    let head = RegisterKey::object(bucket.id, bucket.index_shards, "k");
    // Between the current version and the other one.
    let removed = (0..REMOVED).map(|at| {
        let write_id = WriteId(numbered_id(at));
        RegisterKey::version(&head, VersionId::Numbered { position, write_id })
    });
    bury(&harness, removed).await;
    let (mut sizes, mut pages, mut after) = (Vec::new(), 0, (None, None));
    loop {
        let (after_key, after_version) = after;
        let list = ListVersions { after_key, after_version, limit: 9, ..ListVersions::default() };
        let page = harness.store.versions().list("b", list).await.unwrap();
        sizes.extend(page.versions.iter().map(|it| it.object.as_ref().map(|it| it.size)));
        pages += 1;
        let Some((key, version)) = page.next else { break };
        after = (Some(key), version);
    }
    assert_eq!((sizes, pages), (vec![Some(4), Some(3)], 2));
    // The current version is removed, and the other one is found behind all these.
    harness.store.versions().delete("b", "k", written[0].id).await.unwrap();
    assert_eq!(harness.get("k", crate::Selection::Whole).await.unwrap(), "one");
}

#[tokio::test]
async fn a_page_of_uploads_ends_among_removed_ones_and_the_next_begins_there() {
    let harness = Harness::with_bucket(1).await;
    let bucket = harness.store.bucket("b").await.unwrap();
    for key in ["a", "z"] {
        let upload = NewUpload { attributes: Attributes::default(), checksum: None };
        harness.store.uploads().create("b", key, upload).await.unwrap();
    }
    let removed = (0..REMOVED).map(|at| {
        RegisterKey::upload(bucket.id, bucket.index_shards, "m/1", UploadId(numbered_id(at)))
    });
    bury(&harness, removed).await;
    for delimiter in [None, Some("/".to_owned())] {
        let list = ListUploads { delimiter, limit: 9, ..ListUploads::default() };
        let first = harness.store.uploads().list("b", list.clone()).await.unwrap();
        let keys: Vec<_> = first.uploads.iter().map(|upload| &upload.key).collect();
        assert_eq!(keys, ["a"]);
        let (after_key, after_id) = first.next.unwrap();
        assert_eq!(after_key, "m/1");
        assert!(after_id.is_some());
        let list = ListUploads { after_key: Some(after_key), after_id, ..list };
        let second = harness.store.uploads().list("b", list).await.unwrap();
        let keys: Vec<_> = second.uploads.iter().map(|upload| &upload.key).collect();
        assert_eq!(keys, ["z"]);
        assert_eq!(second.next, None);
    }
}
