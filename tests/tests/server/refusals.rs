//! Refused starts: one sentence each, exit code 2 for usage and 1 for the rest, and no harm to
//! data.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::net::TcpListener;

use bytes::Bytes;
use martlet_tests::Setup;
use martlet_tests::server::{finished, martlet};

/// Expects a refusal with this code, in one sentence that contains these words.
fn refuses(setup: &Setup, code: i32, words: &str) {
    let (found, sentence) = setup.refusal();
    assert_eq!(found, code, "{sentence}");
    assert!(sentence.contains(words), "\"{words}\" is not in: {sentence}");
    assert!(!sentence.contains("panicked"), "{sentence}");
}

#[test]
fn flags_and_settings_that_make_no_sense() {
    refuses(&Setup::new().flags(&["--no-such-flag"]), 2, "--no-such-flag");
    refuses(&Setup::new().flags(&["--s3-address", "here"]), 2, "here");
    refuses(
        &Setup::new().unset("MARTLET_ROOT_SECRET_KEY"),
        2,
        "only one of MARTLET_ROOT_ACCESS_KEY",
    );
    refuses(&Setup::new().set("MARTLET_ROOT_SECRET_KEY", "short"), 2, "at least 16 characters");
    refuses(
        &Setup::new().set("MARTLET_HEADER_TIMEOUT", "soon"),
        2,
        "write 500ms, 30s, 5m, 1h or 7d",
    );
    refuses(&Setup::new().flags(&["--config", "/no/such/file"]), 2, "/no/such/file");
    let setup = Setup::new();
    let file = setup.join("martlet.toml");
    fs::write(&file, "port = 9000\ns3_address = '127.0.0.1:0'").unwrap();
    let setup = setup.flags(&["--config", file.to_str().unwrap()]);
    refuses(&setup, 2, "there is no setting \"port\"");
    fs::write(&file, "\n[device]\n").unwrap();
    refuses(&setup, 2, &format!("\"device\" in line 2 of {}", file.display()));
    refuses(&setup, 2, "did you mean \"devices\"?");
}

#[test]
fn misspelt_variables_of_every_role() {
    refuses(&Setup::new().set("MARTLET_S3_ADRESS", "x"), 2, "did you mean MARTLET_S3_ADDRESS?");
    for role in ["storage-node", "proxy", "replicator", "node"] {
        let mut start = martlet(&[role]);
        let output = finished(start.env("MARTLET_CLUSTER_KEY", "x").env("MARTLET_PORT", "tcp://h"));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{role}: {text}");
        let refusal = "there is no variable MARTLET_CLUSTER_KEY: ";
        assert!(text.contains(refusal) && !text.contains("MARTLET_PORT"), "{role}: {text}");
    }
}

#[test]
fn values_of_flags_as_those_of_variables() {
    let wrong = Setup::new().flags(&["--header-timeout", "soon"]);
    refuses(&wrong, 2, "write 500ms, 30s, 5m, 1h or 7d");
    let setup = Setup::new().set("MARTLET_MAX_REQUESTS", "5");
    refuses(&setup.flags(&["--max-requests", "0"]), 2, "max_requests must be at least 1");
    let setup = Setup::new().flags(&["--seal-secrets=perhaps"]);
    refuses(&setup, 2, "perhaps");
}

#[tokio::test]
async fn a_second_server_on_the_same_data_folder() {
    let setup = Setup::new();
    let server = setup.start().await;
    refuses(&setup, 1, "another server uses the data folder");
    server.client().make_bucket("still-here").await;
}

#[tokio::test]
async fn a_second_server_on_the_same_device() {
    let first = Setup::new();
    let device = first.join("disk").display().to_string();
    let first = first.flags(&["--device", &device]);
    let server = first.start().await;
    refuses(&Setup::new().flags(&["--device", &device]), 1, &device);
    server.client().make_bucket("still-here").await;
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--s3-address", "--admin-address"] {
        let words = format!("the address {address} is in use");
        refuses(&Setup::new().flags(&[flag, &address]), 1, &words);
    }
}

#[test]
fn a_folder_that_cannot_be_written() {
    // Not even root can make a folder in `/proc`.
    refuses(&Setup::new().flags(&["--data-dir", "/proc/martlet"]), 1, "can't be made");
    let setup = Setup::new();
    fs::write(setup.data_dir(), "a file is in the way").unwrap();
    refuses(&setup, 1, "can't be made");
    let setup = Setup::new().flags(&["--device", "/proc/martlet"]);
    refuses(&setup, 1, "/proc/martlet");
}

#[tokio::test]
async fn a_newer_format_is_left_alone() {
    for (file, field, newest) in
        [("cluster.json", "\"format\": ", 1), ("device0/format.json", "\"version\": ", 2)]
    {
        let setup = Setup::new();
        let mut server = setup.start().await;
        let mut client = server.client();
        client.make_bucket("box").await;
        client.put("/box/k", Bytes::from_static(b"kept")).await.unwrap();
        assert!(server.stop().await.success());
        let path = setup.data_dir().join(file);
        let old = fs::read_to_string(&path).unwrap();
        let newer = old.replacen(&format!("{field}{newest}"), &format!("{field}{}", newest + 1), 1);
        assert_ne!(newer, old, "{old}");
        fs::write(&path, &newer).unwrap();
        refuses(&setup, 1, &format!("knows formats up to {newest}"));
        assert_eq!(fs::read_to_string(&path).unwrap(), newer);
        fs::write(&path, old).unwrap();
        let server = setup.start().await;
        assert_eq!(server.client().get("/box/k").await.unwrap().body, "kept");
    }
}
