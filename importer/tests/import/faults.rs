//! Stores that fail, throttle, change and damage objects while they are copied.

use http::Method;
use martlet_importer::{ErrorKind, ImportPlan, Passes};

use super::fake::{Fault, StoredObject};
use super::{MIB, World, body, lines};

#[tokio::test(flavor = "multi_thread")]
async fn throttled_and_broken_requests_are_repeated() {
    let world = World::new().await;
    for at in 0..20 {
        world.source.put(&format!("k{at:02}"), StoredObject::whole(&body(3000, at)));
    }
    let parts = StoredObject::in_parts(&body(18 * MIB, 1), &[6 * MIB, 6 * MIB, 6 * MIB]);
    world.source.put("parts", parts);
    for (method, target, fault, times) in [
        (Method::GET, "list-type", Fault::Status(503), 2),
        (Method::GET, "/k0", Fault::Status(503), 3),
        (Method::GET, "/k1", Fault::Status(429), 1),
        (Method::GET, "/k05", Fault::Status(500), 1),
        (Method::GET, "/parts", Fault::Status(503), 1),
    ] {
        world.source.order(method, target, fault, times);
    }
    for (method, target, fault) in [
        (Method::PUT, "/k02", Fault::Status(503)),
        (Method::PUT, "/k03", Fault::Status(500)),
        (Method::PUT, "partNumber=2", Fault::Status(503)),
        (Method::POST, "uploads", Fault::Status(503)),
        (Method::POST, "uploadId", Fault::Status(500)),
        (Method::GET, "list-type", Fault::Status(500)),
    ] {
        world.target.order(method, target, fault, 1);
    }
    let summary = world.import_all().await;
    assert!(summary.throttled[0] >= 4 && summary.throttled[1] >= 2, "{:?}", summary.throttled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_body_is_read_on_and_not_again() {
    let world = World::new().await;
    let large = body(5 * MIB, 1);
    world.source.put("whole", StoredObject::whole(&large));
    world.source.order(Method::GET, "/whole", Fault::Cut(MIB), 2);
    let summary = world.import_all().await;
    assert_eq!(world.target.count("PUT", "/whole"), 1, "the write goes on");
    assert_eq!(summary.read_bytes, 5 * MIB as u64, "no byte is read twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_bytes_never_become_visible() {
    let world = World::new().await;
    let large = body(12 * MIB, 1);
    world.source.put("once", StoredObject::whole(b"read once more"));
    world.source.put("whole", StoredObject::whole(b"damaged for ever"));
    world.source.put("parts", StoredObject::in_parts(&large, &[6 * MIB, 6 * MIB]));
    world.source.put("fine", StoredObject::whole(b"fine"));
    world.source.order(Method::GET, "/once", Fault::Damage, 1);
    world.source.order(Method::GET, "/whole", Fault::Damage, 100);
    world.source.order(Method::GET, "/parts", Fault::Damage, 100);
    let summary = world.import(world.plan()).await.unwrap();
    assert!(!summary.is_clean());
    assert_eq!((summary.copied.objects, summary.failed.objects), (2, 2), "{}", summary.text());
    let keys: Vec<_> = world.target.state.lock().objects.keys().cloned().collect();
    assert_eq!(keys, ["fine", "once"]);
    assert!(world.target.state.lock().uploads.is_empty());
    let failed = lines(&world.path("report"));
    let failed: Vec<_> = failed.iter().filter(|it| it["fate"] == "failed").collect();
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|it| it["reason"].as_str().unwrap().contains("MD5")), "{failed:?}");
    // The source is repaired: the next run copies these two alone.
    world.source.state.lock().faults.clear();
    let again = world.import_all().await;
    assert_eq!(again.copied.objects, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changes_is_copied_as_it_is_then() {
    let world = World::new().await;
    let (old, new) = (body(12 * MIB, 1), body(3 * MIB, 2));
    world.source.put("before", StoredObject::whole(b"old"));
    world.source.put("within", StoredObject::whole(&old));
    world.source.put("parts", StoredObject::in_parts(&old, &[6 * MIB, 6 * MIB]));
    world.source.put("gone", StoredObject::whole(b"gone"));
    world.source.order(Method::GET, "/before", Fault::Replace("new".into()), 1);
    world.source.order(Method::GET, "/within", Fault::Cut(MIB), 1);
    world.source.order(Method::GET, "/within", Fault::Replace(new.clone()), 1);
    world.source.order(Method::GET, "/parts", Fault::Replace(new.clone()), 1);
    world.source.order(Method::GET, "/gone", Fault::Status(404), 1);
    let summary = world.import(ImportPlan { passes: Passes::Copy, ..world.plan() }).await.unwrap();
    assert!(summary.is_clean(), "{}{}", summary.text(), world.report());
    assert_eq!((summary.copied.objects, summary.vanished.objects), (3, 1));
    let copy = |key: &str| world.target.get(key).unwrap().body;
    assert_eq!(copy("before"), "new");
    assert!(copy("within") == new && copy("parts") == new);
    assert!(world.target.state.lock().uploads.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_during_the_import_is_kept() {
    let world = World::new().await;
    world.source.put("raced", StoredObject::whole(b"source"));
    world.source.put("equal", StoredObject::whole(b"source"));
    world.target.order(Method::PUT, "/raced", Fault::Replace("target".into()), 1);
    world.target.order(Method::PUT, "/equal", Fault::Replace("source".into()), 1);
    let summary = world.import(ImportPlan { passes: Passes::Copy, ..world.plan() }).await.unwrap();
    assert_eq!((summary.kept.objects, summary.present.objects), (1, 1), "{}", summary.text());
    assert_eq!(world.target.get("raced").unwrap().body, "target");
    assert!(!summary.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_no_failure() {
    let world = World::new().await;
    let parts = StoredObject::in_parts(&body(12 * MIB, 1), &[6 * MIB, 6 * MIB]);
    world.source.put("parts", parts);
    world.source.put("whole", StoredObject::whole(b"whole"));
    world.target.order(Method::PUT, "/whole", Fault::NoReply, 1);
    world.target.order(Method::POST, "uploadId", Fault::NoReply, 1);
    let summary = world.import_all().await;
    assert_eq!(summary.present.objects, 2, "they came with the attempts that lost their replies");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_comparison_finds_planted_differences() {
    let world = World::new().await;
    for at in 0..30 {
        world.source.put(&format!("k{at:02}"), StoredObject::whole(&body(100, at)));
    }
    world.import_all().await;
    world.target.put("k03", StoredObject::whole(&body(100, 99)));
    world.target.put("k07", StoredObject::whole(&body(101, 7)));
    world.target.state.lock().objects.remove("k20");
    world.target.put("only", StoredObject::whole(b"here"));
    let verify = ImportPlan { passes: Passes::Verify, ..world.plan() };
    let summary = world.import(verify).await.unwrap();
    assert!(!summary.is_clean());
    assert_eq!((summary.different.objects, summary.only_target.objects), (3, 1));
    let found = lines(&world.path("report"));
    let mut found: Vec<_> = found
        .iter()
        .map(|it| format!("{} {}", it["key"].as_str().unwrap(), it["fate"].as_str().unwrap()))
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["k03 different", "k07 different", "k20 missing"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_can_only_fail_ends() {
    let world = World::new().await;
    for at in 0..1100 {
        world.source.put(&format!("{at:04}"), StoredObject::whole(b"x"));
    }
    world.source.order(Method::GET, "/box/", Fault::Status(403), usize::MAX);
    let error = world.import(world.plan()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fatal);
    assert!(error.to_string().starts_with("1000 objects in a row failed"), "{error}");
}
