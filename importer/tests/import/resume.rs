//! Runs that end in the middle, and the runs after them.

use std::fs::File;
use std::time::Duration;

use http::Method;
use martlet_importer::{Import, ImportPlan, Passes};

use super::fake::{Fault, StoredObject};
use super::{MIB, World, body};

/// Runs an import, and drops it as a crash does once `is_far` holds.
async fn crash_when(world: &World, is_far: impl Fn() -> bool) {
    let plan = world.plan();
    let import = tokio::task::spawn_blocking(|| Import::prepare(plan)).await.unwrap().unwrap();
    tokio::select! {
        outcome = import.run(std::future::pending()) => panic!("it ended: {outcome:?}"),
        () = async { while !is_far() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
    }
    // The tasks of the run end a moment later, and with them the lock of the state.
    while File::open(world.path("state")).unwrap().try_lock().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_nothing_to_be_copied_twice() {
    let world = World::new().await;
    for at in 0..400 {
        let key = format!("{}/{at:03}", at % 5);
        world.source.put(&key, StoredObject::whole(key.as_bytes()));
    }
    let parts = StoredObject::in_parts(&body(24 * MIB, 1), &[6 * MIB; 4]);
    world.source.put("4/large", parts);
    // The object in parts never ends in the first run: its third part is refused for long.
    world.target.order(Method::PUT, "partNumber=3", Fault::Status(500), 1000);
    let is_far = || {
        let state = world.target.state.lock();
        state.objects.len() >= 150 && state.uploads.values().any(|it| it.key == "4/large")
    };
    crash_when(&world, is_far).await;
    assert_eq!(world.target.state.lock().uploads.len(), 1, "a crash leaves its upload");
    world.target.state.lock().faults.clear();
    let there = world.target.state.lock().objects.len() as u64;
    let summary = world.import_all().await;
    assert_eq!(summary.copied.objects, 401 - there);
    // A write in flight at the crash may be repeated, no other.
    let puts = world.target.count("PUT", "/box/") - world.target.count("PUT", "partNumber");
    assert!((400..=400 + 4).contains(&puts), "{puts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_goes_on_where_it_ended() {
    let world = World::new().await;
    for at in 0..60 {
        world.source.put(&format!("{at:02}"), StoredObject::whole(&body(500, at)));
    }
    let parts = StoredObject::in_parts(&body(12 * MIB, 1), &[6 * MIB; 2]);
    world.source.put("parts", parts);
    world.target.order(Method::PUT, "partNumber=1", Fault::Status(500), 1000);
    let plan = world.plan();
    let import = tokio::task::spawn_blocking(|| Import::prepare(plan)).await.unwrap().unwrap();
    let target = world.target.state.clone();
    let stop = async move {
        while target.lock().objects.len() < 60 || target.lock().uploads.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let summary = import.run(stop).await.unwrap();
    drop(import);
    assert!(summary.interrupted && !summary.is_clean());
    assert!(world.target.state.lock().uploads.is_empty(), "uploads are aborted at once");
    assert!(world.path("state").exists());
    world.target.state.lock().faults.clear();
    let listed = world.source.count("GET", "list-type");
    let again = world.import(ImportPlan { passes: Passes::Copy, ..world.plan() }).await.unwrap();
    assert_eq!(again.copied.objects, 1, "{}", again.text());
    // Writes whose replies came after the stop are found at the target.
    assert!(again.present.objects <= 4, "{}", again.text());
    let pages = world.source.count("GET", "list-type") - listed;
    assert!(pages <= 4, "the finished keys are not listed again: {pages} pages");
    world.assert_equal();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_objects_are_tried_again() {
    let world = World::new().await;
    for at in 0..40 {
        world.source.put(&format!("{at:02}"), StoredObject::whole(&body(50, at)));
    }
    world.source.order(Method::GET, "/box/07", Fault::Status(403), 1);
    world.source.order(Method::GET, "/box/30", Fault::Status(403), 1);
    let first = world.import(world.plan()).await.unwrap();
    assert_eq!((first.copied.objects, first.failed.objects, first.different.objects), (38, 2, 2));
    assert!(world.path("state").exists());
    let again = world.import_all().await;
    assert_eq!(again.copied.objects, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_belongs_to_one_import_and_one_run() {
    let world = World::new().await;
    world.source.put("a", StoredObject::whole(b"a"));
    world.source.order(Method::GET, "/box/a", Fault::Status(403), 1);
    assert!(!world.import(world.plan()).await.unwrap().is_clean());
    let other = ImportPlan { prefix: "b/".to_owned(), ..world.plan() };
    let error = world.import(other).await.unwrap_err().to_string();
    assert!(error.contains("state of another import"), "{error}");
    world.import_all().await;
}
