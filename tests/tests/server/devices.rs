//! A device that is absent or fails harms only the objects on it; the server goes on.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::path::Path;
use std::time::Duration;

use martlet_tests::bytes::body;
use martlet_tests::image::Image;
use martlet_tests::probe::until;
use martlet_tests::{S3, Server, Setup};

const OBJECTS: usize = 40;
const LENGTH: usize = 20_000;

fn two_devices(one: &Path, two: &Path) -> Setup {
    let [one, two] = [one, two].map(|path| path.display().to_string());
    Setup::new().set("MARTLET_RESERVE", "2MiB").flags(&["--device", &one, "--device", &two])
}

async fn fill(server: &Server) {
    let mut client = server.client();
    client.make_bucket("box").await;
    for at in 0..OBJECTS {
        let name = format!("/box/{at}");
        assert_eq!(client.put(&name, body(&name, LENGTH)).await.unwrap().status, 200);
    }
}

/// Number of readable objects. Other reads must fail with 500, 503 or a broken reply, never with
/// 404 or wrong bytes.
async fn readable(client: &mut S3) -> usize {
    let mut count = 0;
    for at in 0..OBJECTS {
        let name = format!("/box/{at}");
        let reply = client.get(&name).await;
        match reply {
            Ok(reply) if reply.status == 200 => {
                assert_eq!(reply.body, body(&name, LENGTH), "{name}");
                count += 1;
            }
            Ok(reply) => {
                assert!(matches!(reply.status, 500 | 503), "{name}: {}", reply.text());
            }
            // The reply had begun when the device failed.
            Err(_) => {}
        }
    }
    count
}

async fn writable(client: &mut S3) -> usize {
    let mut count = 0;
    for at in 0..OBJECTS {
        let name = format!("/box/new-{at}");
        let reply = client.put(&name, body(&name, LENGTH)).await.unwrap();
        assert!(matches!(reply.status, 200 | 500 | 503), "{name}: {}", reply.text());
        count += usize::from(reply.status == 200);
    }
    count
}

#[tokio::test]
async fn a_disk_that_is_not_mounted_is_missing_until_it_is() {
    let name = "a_disk_that_is_not_mounted_is_missing_until_it_is";
    let Some(mut image) = Image::new(name, 64) else { return };
    let place = tempfile::tempdir().unwrap();
    let setup = two_devices(place.path(), &image.path());
    let mut server = setup.start().await;
    fill(&server).await;
    assert!(server.stop().await.success());

    image.unmount();
    let mut server = setup.start().await;
    let ready = server.admin("/readyz").await.unwrap();
    assert!(ready.text().contains("mount its disk"), "{}", ready.text());
    let mut client = server.client();
    let (read, written) = (readable(&mut client).await, writable(&mut client).await);
    assert!(read > 0 && written > 0, "{read} could be read, {written} written");
    assert!(server.stop().await.success());
    let left = std::fs::read_dir(image.path()).unwrap().count();
    assert_eq!(left, 0, "something was written where the disk should have been");

    assert!(image.mount());
    let mut server = setup.start().await;
    assert_eq!(readable(&mut server.client()).await, OBJECTS);
    assert!(server.stop().await.success());
    image.unmount();
}

#[tokio::test]
async fn a_failed_disk_loses_no_acknowledged_write() {
    let Some(mut image) = Image::new("a_failed_disk_loses_no_acknowledged_write", 64) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let setup = two_devices(place.path(), &image.path());
    let mut server = setup.start().await;
    fill(&server).await;
    assert!(image.cut_power());
    let mut client = server.client();
    let written = writable(&mut client).await;
    let read = readable(&mut client).await;
    assert!(read > 0 && written > 0, "{read} could be read, {written} written");
    assert_eq!(server.admin("/healthz").await.unwrap().status, 200);
    let ready = server.admin("/readyz").await.unwrap();
    assert!(ready.text().contains("device d1 is "), "{}", ready.text());
    server.kill();

    image.unmount();
    assert!(image.mount());
    let mut server = setup.start().await;
    assert_eq!(readable(&mut server.client()).await, OBJECTS, "{}", server.logged());
    assert!(server.stop().await.success());
    image.unmount();
}

/// Waits until `/readyz` contains a text, or no longer does.
async fn wait_for(server: &Server, text: &str, is_there: bool) {
    let holds = async || server.admin("/readyz").await.unwrap().text().contains(text) == is_there;
    until(text, Duration::from_mins(2), holds).await;
}

#[tokio::test]
async fn a_disk_that_is_unmounted_under_its_server_is_not_made_anew() {
    let name = "a_disk_that_is_unmounted_under_its_server_is_not_made_anew";
    let Some(mut image) = Image::new(name, 64) else { return };
    let place = tempfile::tempdir().unwrap();
    let setup = two_devices(place.path(), &image.path());
    let mut server = setup.start().await;
    fill(&server).await;
    assert!(image.cut_power());
    let mut client = server.client();
    writable(&mut client).await;
    wait_for(&server, "device d1 is offline", true).await;
    image.unmount();
    wait_for(&server, "mount its disk", true).await;
    let (read, written) = (readable(&mut client).await, writable(&mut client).await);
    assert!(read > 0 && written > 0, "{read} could be read, {written} written");
    let left = std::fs::read_dir(image.path()).unwrap().count();
    assert_eq!(left, 0, "something was made where the disk should have been");
    assert!(image.mount());
    wait_for(&server, "device d1 is", false).await;
    assert_eq!(readable(&mut client).await, OBJECTS, "{}", server.logged());
    assert!(server.stop().await.success());
    image.unmount();
}

#[tokio::test]
async fn a_damaged_device_is_offline_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let setup = two_devices(&folder.path().join("one"), &folder.path().join("two"));
    let mut server = setup.start().await;
    fill(&server).await;
    assert!(server.stop().await.success());
    std::fs::write(folder.path().join("two/index/CURRENT"), "MANIFEST-999999\n").unwrap();
    let server = setup.start().await;
    let ready = server.admin("/readyz").await.unwrap();
    assert!(ready.text().contains("device d1 is offline"), "{}", ready.text());
    let mut client = server.client();
    let (read, written) = (readable(&mut client).await, writable(&mut client).await);
    assert!(read > 0 && written > 0, "{read} could be read, {written} written");
}
