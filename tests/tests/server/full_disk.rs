//! A full disk: a clear error and no lost objects. Deletes succeed, and writes succeed once space
//! is free.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::time::{Duration, Instant};

use martlet_tests::bytes::body;
use martlet_tests::image::Image;
use martlet_tests::{S3, Setup};

const LENGTHS: [usize; 4] = [5000, 700_000, 3_000_000, 20_000];

/// Writes objects until the server refuses one for want of space. Returns the number of objects.
async fn fill(client: &mut S3) -> usize {
    for at in 0.. {
        let target = format!("/box/{at}");
        let reply = client.put(&target, body(&target, LENGTHS[at % 4])).await.unwrap();
        if reply.status != 200 {
            assert_eq!(reply.status, 507, "{}", reply.text());
            assert_eq!(reply.all("Code"), ["InsufficientStorage"]);
            return at;
        }
    }
    unreachable!("no disk is endless")
}

#[tokio::test]
async fn a_full_disk_refuses_new_bytes_and_nothing_else() {
    let name = "a_full_disk_refuses_new_bytes_and_nothing_else";
    let Some(mut image) = Image::new(name, 256) else { return };
    let device = image.path().display().to_string();
    let setup = Setup::new()
        .set("MARTLET_RESERVE", "8MiB")
        .set("MARTLET_TEST_RECLAIM_GRACE_MS", "100")
        .flags(&["--device", &device]);
    let mut server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    let count = fill(&mut client).await;
    assert!(count > 20, "only {count} objects fit");
    for at in 0..count {
        let target = format!("/box/{at}");
        let reply = client.get(&target).await.unwrap();
        assert!(reply.status == 200 && reply.body == body(&target, LENGTHS[at % 4]), "{target}");
    }
    assert_eq!(client.keys("box").await.len(), count);
    // Deletes need space too; the reserve keeps it for them.
    for at in 0..count / 2 {
        assert_eq!(client.delete(&format!("/box/{at}")).await.unwrap().status, 204);
    }
    let begun = Instant::now();
    let again = || body("again", 3_000_000);
    while client.put("/box/again", again()).await.unwrap().status != 200 {
        assert!(begun.elapsed() < Duration::from_mins(1), "space does not return");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(server.stop().await.success());

    let mut server = setup.start().await;
    let mut client = server.client();
    assert_eq!(client.get("/box/again").await.unwrap().body, again());
    assert_eq!(client.keys("box").await.len(), count - count / 2 + 1);
    assert!(server.stop().await.success());
    image.unmount();
}
