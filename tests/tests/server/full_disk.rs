//! A full disk: a clear error and no lost objects. Deletes succeed, and writes succeed once space
//! is free. A full disk of the log loses lines alone.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use martlet_tests::bytes::body;
use martlet_tests::image::Image;
use martlet_tests::{S3, Setup};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

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
        sleep(Duration::from_millis(50)).await;
    }
    assert!(server.stop().await.success());

    let mut server = setup.start().await;
    let mut client = server.client();
    assert_eq!(client.get("/box/again").await.unwrap().body, again());
    assert_eq!(client.keys("box").await.len(), count - count / 2 + 1);
    assert!(server.stop().await.success());
    image.unmount();
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Killed {
    /// Waits until the process has ended. None after a minute.
    async fn ended(&mut self) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(1) {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the S3 address that a server has printed.
fn announced(printed: &str) -> Option<SocketAddr> {
    let (_, rest) = printed.split_once("Martlet serves S3 at http://")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[tokio::test]
async fn a_server_whose_log_is_on_a_full_disk_serves_and_stops() {
    // Each request has a line.
    let setup = Setup::new().set("MARTLET_LOG", "debug");
    let out = setup.join("out");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = setup.command();
    command.stdout(File::create(&out).unwrap()).stderr(full);
    let mut process = Killed(command.spawn().unwrap());
    let begun = Instant::now();
    let address = loop {
        let printed = fs::read_to_string(&out).unwrap();
        if let Some(address) = announced(&printed) {
            break address;
        }
        let ended = process.0.try_wait().unwrap();
        assert!(ended.is_none(), "it ended with {ended:?}: {printed}");
        assert!(begun.elapsed() < Duration::from_mins(1), "no address in {printed}");
        sleep(Duration::from_millis(20)).await;
    };
    let mut client = S3::new(address);
    client.make_bucket("box").await;
    assert_eq!(client.put("/box/k", body("k", 20_000)).await.unwrap().status, 200);
    assert_eq!(client.get("/box/k").await.unwrap().body, body("k", 20_000));
    let pid = Pid::from_raw(i32::try_from(process.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = process.ended().await.expect("it does not end");
    assert_eq!(status.code(), Some(0));
}
