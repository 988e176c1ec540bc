//! Files of a server are open to its own user alone, and no secret of a tenant is stored in clear.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use martlet_tests::{S3, Server, Setup};
use rustix::fs::Mode;
use rustix::process::umask;
use serde_json::Value;

/// Returns a folder and everything below it.
fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(everything(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Returns the paths that users other than the owner have any permission on.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let is_open = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|it| it.permissions().mode() & 0o077 != 0)
    };
    everything(folder).into_iter().filter(is_open).collect()
}

/// Returns the files that contain a text.
fn with_text(folder: &Path, text: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    everything(folder).into_iter().filter(|path| path.is_file() && has(path)).collect()
}

fn ask(server: &Server, words: &[&str]) -> Value {
    let output = server.ask(&[&["--json"], words].concat());
    assert!(output.status.success(), "{words:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn nothing_is_open_to_others_and_no_secret_lies_in_clear() {
    let setup = Setup::new();
    let (log, queue) = (setup.join("log/access"), setup.join("queue/events.jsonl"));
    fs::create_dir(setup.join("log")).unwrap();
    let setup = setup
        .set("MARTLET_ACCESS_LOG", log.to_str().unwrap())
        .set("MARTLET_NOTIFICATIONS", &format!("audit={}", queue.display()));
    umask(Mode::from_raw_mode(0o022));
    let mut server = setup.start().await;
    ask(&server, &["tenant", "create", "blue"]);
    let key = ask(&server, &["key", "create", "--tenant", "blue"]);
    let of = |name: &str| key[name].as_str().unwrap().to_owned();
    let mut client = S3::with_keys(server.s3_address, &of("access_key"), &of("secret_key"));
    client.make_bucket("box").await;
    for (name, length) in [("inline", 100), ("short", 20_000), ("long", 3 << 20)] {
        let body = martlet_tests::bytes::body(name, length);
        assert_eq!(client.put(&format!("/box/{name}"), body).await.unwrap().status, 200);
    }
    assert!(key["sealed"].as_bool().unwrap(), "{key}");
    let master = setup.data_dir().join("master.key");
    assert!(server.printed().contains(master.to_str().unwrap()), "{}", server.printed());
    for stage in ["while it runs", "after its end"] {
        assert_eq!(open_to_others(&setup.data_dir()), Vec::<PathBuf>::new(), "{stage}");
        assert_eq!(
            with_text(&setup.data_dir(), &of("secret_key")),
            Vec::<PathBuf>::new(),
            "{stage}"
        );
        assert_eq!(with_text(&setup.data_dir(), "\"clear\":\""), Vec::<PathBuf>::new(), "{stage}");
        if stage == "while it runs" {
            assert!(server.stop().await.success());
        }
    }
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    // The generated master key serves the next start, too.
    let server = setup.start().await;
    let mut client = S3::with_keys(server.s3_address, &of("access_key"), &of("secret_key"));
    assert_eq!(client.get("/box/inline").await.unwrap().status, 200);
}

#[tokio::test]
async fn files_with_open_modes_of_an_earlier_version_are_closed() {
    let setup = Setup::new();
    let mut server = setup.start().await;
    assert!(server.stop().await.success());
    for path in everything(&setup.data_dir()) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let _server = setup.start().await;
    for name in ["device0", "cluster.json"] {
        let mode = fs::metadata(setup.data_dir().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
    for name in ["index", "extents", "format.json"] {
        let mode = fs::metadata(setup.data_dir().join("device0").join(name)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o077, 0, "{name}");
    }
}
