//! Imports from a store in memory into another one, with faults at every step.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod fake;
mod faults;
mod resume;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use fake::{FakeStore, StoredObject};
use martlet_importer::{
    Addressing, CredentialSource, Import, ImportPlan, KeyFilter, Overwrite, Passes, Result,
    S3Location, Summary,
};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// Two stores and a folder for state and report.
struct World {
    source: FakeStore,
    target: FakeStore,
    folder: TempDir,
}

impl World {
    async fn new() -> Self {
        let (source, target) = (FakeStore::start().await, FakeStore::start().await);
        Self { source, target, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self) -> ImportPlan {
        ImportPlan {
            source: place(&self.source),
            target: place(&self.target),
            prefix: String::new(),
            filter: KeyFilter::default(),
            overwrite: Overwrite::Never,
            passes: Passes::CopyAndVerify,
            with_tags: false,
            concurrency: 4,
            part_bytes: 8 * MIB as u64,
            attempts: 4,
            creates_bucket: false,
            has_opaque_etags: false,
            counts_ahead: true,
            state_file: self.path("state"),
            report_file: Some(self.path("report")),
        }
    }

    /// Runs an import to its end.
    async fn import(&self, plan: ImportPlan) -> Result<Summary> {
        let import = tokio::task::spawn_blocking(|| Import::prepare(plan)).await.unwrap()?;
        import.run(std::future::pending()).await
    }

    /// Runs the usual import, which must copy all and find both buckets equal.
    async fn import_all(&self) -> Summary {
        let summary = self.import(self.plan()).await.unwrap();
        assert!(summary.is_clean(), "{}{}", summary.text(), self.report());
        assert!(!self.path("state").exists(), "the state of a finished import is removed");
        self.assert_equal();
        summary
    }

    fn report(&self) -> String {
        std::fs::read_to_string(self.path("report")).unwrap()
    }

    /// Checks that both stores have equal bytes, metadata and ETags.
    fn assert_equal(&self) {
        let of = |store: &FakeStore| {
            let state = store.state.lock();
            let object =
                |it: &StoredObject| StoredObject { second: 0, tags: String::new(), ..it.clone() };
            state.objects.iter().map(|(key, it)| (key.clone(), object(it))).collect::<Vec<_>>()
        };
        let (source, target) = (of(&self.source), of(&self.target));
        let keys = |all: &[(String, StoredObject)]| {
            all.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&source), keys(&target));
        for ((key, one), (_, other)) in source.iter().zip(&target) {
            assert!(one == other, "{key}: {:?} {:?}", one.headers, other.headers);
        }
        assert!(self.target.state.lock().uploads.is_empty(), "no upload is left");
    }
}

fn place(store: &FakeStore) -> S3Location {
    S3Location {
        endpoint: format!("http://{}", store.address),
        bucket: "box".to_owned(),
        region: "us-east-1".to_owned(),
        addressing: Addressing::Auto,
        ca_file: None,
        credentials: CredentialSource::Unsigned,
    }
}

/// Bytes that differ everywhere.
fn body(bytes: usize, seed: u8) -> Bytes {
    let low = |number: usize| number.to_le_bytes()[0];
    (0..bytes).map(|at| low(at % 251) ^ seed ^ low(at / 251)).collect()
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_copied_as_it_is() {
    let world = World::new().await;
    let keys = [
        "a",
        "a b",
        "a+b",
        "a%2Fb",
        "folder/",
        "folder/ä ü",
        "folder/\u{1}",
        "x/../y",
        "x//y",
        "z/?#&=<>\"'",
        "zz/deep/er/1",
        "zz/deep/er/2",
        "🔑",
    ];
    for (at, key) in keys.iter().enumerate() {
        world.source.put(key, StoredObject::whole(&body(at * 1000, 1)));
    }
    let mut rich = StoredObject::whole(b"with metadata");
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "max-age=5"),
        ("content-disposition", "attachment; filename=\"a.txt\""),
        ("content-encoding", "gzip"),
        ("content-language", "de, en"),
        ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
        ("x-amz-meta-mtime", "1.5"),
        ("x-amz-meta-text", "ö"),
    ] {
        rich.headers.insert(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    world.source.put("rich", rich);
    world.source.put("empty", StoredObject::whole(b""));
    let large = body(20 * MIB + 5, 2);
    world.source.put("plain/large", StoredObject::whole(&large));
    let sizes = [6 * MIB, 6 * MIB, 6 * MIB, 2 * MIB + 5];
    world.source.put("parts/6", StoredObject::in_parts(&large, &sizes));
    world.source.put("parts/one", StoredObject::in_parts(&body(5, 3), &[5]));
    let summary = world.import_all().await;
    assert_eq!(summary.copied.objects, keys.len() as u64 + 5);
    assert_eq!((summary.other_etags, summary.unclaimed, summary.unverified.objects), (0, 0, 0));
    assert_eq!(summary.compared.objects, summary.copied.objects);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_in_many_folders_are_copied_once() {
    let world = World::new().await;
    for folder in 0..90 {
        for object in 0..12 {
            let key = format!("all/{folder:02}/{object}");
            world.source.put(&key, StoredObject::whole(key.as_bytes()));
        }
    }
    world.import_all().await;
    assert_eq!(world.target.count("PUT", "/box/all/"), 90 * 12);
    let again = world.import(ImportPlan { passes: Passes::Copy, ..world.plan() }).await.unwrap();
    assert_eq!((again.copied.objects, again.present.objects), (0, 90 * 12));
    assert_eq!(world.target.count("PUT", "/box/all/"), 90 * 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_is_copied_and_a_dry_run_copies_nothing() {
    let world = World::new().await;
    for key in ["in/a.png", "in/b.txt", "in/tmp/c.png", "out/d.png"] {
        world.source.put(key, StoredObject::whole(b"12345"));
    }
    let selected = ImportPlan {
        prefix: "in/".to_owned(),
        filter: KeyFilter::new(&["*.png".to_owned()], &["*/tmp/*".to_owned()]),
        ..world.plan()
    };
    let dry = ImportPlan { passes: Passes::DryRun, ..selected.clone() };
    let summary = world.import(dry).await.unwrap();
    assert_eq!((summary.copied.objects, summary.copied.bytes), (1, 5));
    assert!(world.target.state.lock().objects.is_empty());
    assert!(!world.path("state").exists());
    assert!(world.import(selected).await.unwrap().is_clean());
    let keys: Vec<_> = world.target.state.lock().objects.keys().cloned().collect();
    assert_eq!(keys, ["in/a.png"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_copied_on_request() {
    let world = World::new().await;
    let tags = "a=1&b=2".to_owned();
    world.source.put("tagged", StoredObject { tags, ..StoredObject::whole(b"x") });
    world.source.put("bare", StoredObject::whole(b"y"));
    let parts = StoredObject::in_parts(&body(12 * MIB, 4), &[6 * MIB, 6 * MIB]);
    world.source.put("parts", StoredObject { tags: "c=3".to_owned(), ..parts });
    let summary = world.import(ImportPlan { with_tags: true, ..world.plan() }).await.unwrap();
    assert!(summary.is_clean(), "{}", summary.text());
    let tags = |key: &str| world.target.get(key).unwrap().tags;
    assert_eq!([tags("tagged"), tags("bare"), tags("parts")], ["a=1&b=2", "", "c=3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_at_the_target_are_kept_unless_the_source_is_newer() {
    let world = World::new().await;
    let at = |second, bytes: &[u8]| StoredObject { second, ..StoredObject::whole(bytes) };
    for (key, source, target) in [("older", 50, 90), ("newer", 150, 90), ("same", 150, 90)] {
        world.source.put(key, at(source, b"source"));
        world.target.put(key, at(target, if key == "same" { b"source" } else { b"target" }));
    }
    let summary = world.import(world.plan()).await.unwrap();
    assert!(!summary.is_clean());
    assert_eq!((summary.kept.objects, summary.present.objects), (2, 1));
    assert_eq!(summary.different.objects, 2, "the comparison finds them too");
    let fates: Vec<_> = lines(&world.path("report"));
    assert_eq!(fates.iter().filter(|it| it["fate"] == "kept").count(), 2, "{fates:?}");
    let changed = ImportPlan { overwrite: Overwrite::Changed, ..world.plan() };
    let summary = world.import(changed).await.unwrap();
    assert_eq!((summary.copied.objects, summary.kept.objects), (1, 1));
    assert_eq!(world.target.get("newer").unwrap().body, "source");
    assert_eq!(world.target.get("older").unwrap().body, "target");
    let always = ImportPlan { overwrite: Overwrite::Always, ..world.plan() };
    let summary = world.import(always).await.unwrap();
    assert!(summary.is_clean(), "{}", summary.text());
    assert_eq!(summary.copied.objects, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_a_store_hides_are_guessed() {
    let world = World::new().await;
    world.source.state.lock().hides_parts = true;
    let large = body(20 * MIB, 5);
    let guessed = StoredObject::in_parts(&large, &[8 * MIB, 8 * MIB, 4 * MIB]);
    world.source.put("guessed", guessed.clone());
    world.source.put("wrong", StoredObject::in_parts(&large, &[10 * MIB, 10 * MIB]));
    world.source.put("uneven", StoredObject::in_parts(&body(8 * MIB, 6), &[5 * MIB, 3 * MIB]));
    let odd = StoredObject { etag: "no-md5".to_owned(), ..StoredObject::whole(&large) };
    world.source.put("odd", odd);
    let summary = world.import(world.plan()).await.unwrap();
    assert!(summary.is_clean(), "{}", summary.text());
    assert_eq!((summary.other_etags, summary.unclaimed), (2, 2), "{}", summary.text());
    assert_eq!(summary.unverified.objects, 2, "no checksum is common");
    for (key, parts) in [
        ("guessed", guessed.parts),
        ("wrong", vec![16 * MIB, 4 * MIB]),
        ("odd", vec![8 * MIB, 8 * MIB, 4 * MIB]),
    ] {
        let copy = world.target.get(key).unwrap();
        assert!(copy.body == large && copy.parts == parts, "{key}: {:?}", copy.parts);
    }
}
