//! A disk that hangs harms only the data on it.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use martlet_tests::bytes::body;
use martlet_tests::image::Image;
use martlet_tests::{Reply, S3, Server, Setup};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Clients that write to any device, far more than a device has threads.
const WRITERS: usize = 150;
/// Long enough that the device is suspect and new extents go to the other device.
const HANGS_FOR: Duration = Duration::from_mins(1);
/// Seconds that the disk hangs instead, at least 60.
const HANGS_SECONDS: &str = "MARTLET_TEST_HANG_SECONDS";
const SUSPECT_AFTER: Duration = Duration::from_secs(45);
/// Timeout of requests to a healthy device; generous.
const SOON: Duration = Duration::from_secs(15);

async fn put(client: &mut S3, target: &str, length: usize) -> Option<Reply> {
    let sent = client.put(target, body(target, length));
    timeout(SOON, sent).await.ok()?.ok()
}

/// Returns the keys whose entries lie on the healthy device. Writes of other keys are refused, or
/// kept as hints and answered as degraded; a read may not see these (rule A1).
async fn keys_of_the_well_device(server: &Server) -> Vec<String> {
    let mut puts = JoinSet::new();
    for at in 0..16 {
        let mut client = server.client();
        puts.spawn(async move {
            let target = format!("/box/well-{at}");
            let reply = put(&mut client, &target, 1000).await;
            let is_whole = |reply: &Reply| reply.header("x-martlet-consistency") == "quorum";
            reply.is_some_and(|it| it.status == 200 && is_whole(&it)).then_some(target)
        });
    }
    puts.join_all().await.into_iter().flatten().collect()
}

/// Writes objects forever and ignores failures. Even writers write packed extents, odd ones file
/// extents. `files` counts the file extents.
async fn write_on(address: SocketAddr, writer: usize, files: Arc<AtomicUsize>) {
    let length = if writer.is_multiple_of(2) { 300_000 } else { 1_100_000 };
    for at in 0.. {
        let target = format!("/box/any-{writer}-{at}");
        let reply = put(&mut S3::new(address), &target, length).await;
        if reply.is_some_and(|reply| reply.status == 200) {
            files.fetch_add(writer % 2, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_harms_what_lies_on_it_alone() {
    let name = "a_disk_that_hangs_harms_what_lies_on_it_alone";
    let Some(mut image) = Image::new(name, 2048) else { return };
    let place = tempfile::tempdir().unwrap();
    let [one, two] = [place.path(), &image.path()].map(|path| path.display().to_string());
    let setup = Setup::new().set("MARTLET_RESERVE", "2MiB");
    let setup = setup.flags(&["--device", &one, "--device", &two]);
    let mut server = setup.start().await;
    server.client().make_bucket("box").await;

    let frozen = image.freeze();
    let targets = keys_of_the_well_device(&server).await;
    assert!((3..16).contains(&targets.len()), "one of two devices is well: {targets:?}");
    let mut writers = JoinSet::new();
    let files = Arc::new(AtomicUsize::new(0));
    for writer in 0..WRITERS {
        writers.spawn(write_on(server.s3_address, writer, files.clone()));
    }
    let seconds = std::env::var(HANGS_SECONDS).ok().map(|text| text.parse().unwrap());
    let hangs_for =
        seconds.map_or(HANGS_FOR, |seconds| HANGS_FOR.max(Duration::from_secs(seconds)));
    let (began, mut rounds, mut before) = (Instant::now(), 0, None);
    while began.elapsed() < hangs_for {
        if began.elapsed() > SUSPECT_AFTER {
            before.get_or_insert_with(|| files.load(Ordering::Relaxed));
        }
        let mut client = server.client();
        for target in &targets {
            let reply = put(&mut client, target, 1000).await;
            assert_eq!(reply.map(|it| it.status), Some(200), "{target} in round {rounds}");
            let reply = timeout(SOON, client.get(target)).await.expect("it is read soon").unwrap();
            assert_eq!(reply.status, 200, "{target} in round {rounds}: {}", reply.text());
            assert!(reply.body == body(target, 1000), "{target} in round {rounds}");
        }
        // An entry has one copy here, so a listing needs both devices and fails if one is out.
        let listed = timeout(SOON, server.client().get("/box?list-type=2")).await;
        let status = listed.expect("a listing is answered soon").unwrap().status;
        assert!(matches!(status, 200 | 503), "{status}");
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (before, after) = (before.unwrap(), files.load(Ordering::Relaxed));
    assert!(after > before + 10, "files are written meanwhile: {before}, then {after}");
    let ready = server.admin("/readyz").await.unwrap().text();
    assert!(ready.contains("device d1 is suspect: its disk has not answered"), "{ready}");
    assert!(!ready.contains("device d0"), "{ready}");
    writers.shutdown().await;

    drop(frozen);
    let begun = Instant::now();
    while server.admin("/readyz").await.unwrap().text().contains("device d1") {
        assert!(begun.elapsed() < Duration::from_mins(1), "the device does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let keys = server.client().keys("box").await;
    for target in targets {
        assert!(keys.contains(&target["/box/".len()..].to_owned()), "{target}");
    }
    assert!(server.stop().await.success());
    image.unmount();
}
