//! Start of a server: its addresses, its credentials, its reports about itself.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use martlet_tests::{S3, Setup};

const KEY: &str = "MARTLET_ROOT_ACCESS_KEY";
const SECRET: &str = "MARTLET_ROOT_SECRET_KEY";

#[tokio::test]
async fn the_first_start_creates_credentials_and_prints_them_once() {
    let setup = Setup::new().unset(KEY).unset(SECRET);
    let mut server = setup.start().await;
    let printed = server.printed();
    let value = |name: &str| {
        let (_, rest) = printed.split_once(&format!("export {name}=")).unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    let (key, secret) = (value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY"));
    assert!(printed.contains("boto3.client("), "{printed}");
    assert!(server.logged().contains("allocating the ballast"));
    assert!(!server.logged().contains(&secret), "the secret is in the log");
    S3::with_keys(server.s3_address, &key, &secret).make_bucket("mine").await;
    assert!(server.stop().await.success());

    let file = setup.data_dir().join("credentials");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&file).unwrap().contains(&secret));

    let server = setup.start().await;
    assert!(!server.printed().contains(&secret), "told twice: {}", server.printed());
    let mut client = S3::with_keys(server.s3_address, &key, &secret);
    assert_eq!(client.get("/mine").await.unwrap().status, 200);
    let mut stranger = S3::with_keys(server.s3_address, &key, "another-secret");
    assert_eq!(stranger.get("/mine").await.unwrap().status, 403);
}

#[tokio::test]
async fn two_first_starts_make_different_credentials() {
    let secret = |setup: &Setup| fs::read_to_string(setup.data_dir().join("credentials")).unwrap();
    let setups = [(); 2].map(|()| Setup::new().unset(KEY).unset(SECRET));
    for setup in &setups {
        assert!(setup.start().await.stop().await.success());
    }
    assert_ne!(secret(&setups[0]), secret(&setups[1]));
}

#[tokio::test]
async fn credentials_of_the_environment_win_and_are_kept_nowhere() {
    let setup = Setup::new().set(KEY, "fromtheenvironment").set(SECRET, "a secret of mine");
    let server = setup.start().await;
    S3::with_keys(server.s3_address, "fromtheenvironment", "a secret of mine")
        .make_bucket("box")
        .await;
    assert!(!setup.data_dir().join("credentials").exists());
    assert!(!(server.printed() + &server.logged()).contains("a secret of mine"));
}

#[tokio::test]
async fn a_file_of_settings_is_read_and_flags_win() {
    let setup = Setup::new();
    let (file, elsewhere) = (setup.join("martlet.toml"), setup.join("elsewhere"));
    let text = "s3_address = '127.0.0.1:0'\nadmin_address = '127.0.0.1:0'\nlog_format = 'json'\n\
                data_dir = '/proc/not-here'\ndevices = ['DEVICE']\n";
    fs::write(&file, text.replace("DEVICE", elsewhere.to_str().unwrap())).unwrap();
    let setup = setup.flags(&["--config", file.to_str().unwrap(), "--log-format", "text"]);
    let server = setup.start().await;
    server.client().make_bucket("box").await;
    assert!(elsewhere.join("format.json").is_file());
    assert!(setup.data_dir().join("cluster.json").is_file());
}

#[tokio::test]
async fn objects_are_spread_over_devices_and_survive_a_new_device_order() {
    let setup = Setup::new();
    let folders = ["one", "two", "three"].map(|name| setup.join(name).display().to_string());
    let named: Vec<_> = folders.iter().flat_map(|folder| ["--device", folder]).collect();
    let setup = setup.flags(&named);
    let mut server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("box").await;
    let body = |at: usize| martlet_tests::bytes::body(&at.to_string(), 20_000);
    for at in 0..60 {
        assert_eq!(client.put(&format!("/box/{at:02}"), body(at)).await.unwrap().status, 200);
    }
    let status = server.ask(&["--json", "status"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    for device in status["devices"].as_array().unwrap() {
        assert!(device["extents"].as_u64().unwrap() > 5, "{status:#}");
    }
    assert!(server.stop().await.success());
    // Without names, a start uses the devices of the last start.
    let server = setup.start().await;
    let mut client = server.client();
    assert_eq!(client.keys("box").await.len(), 60);
    for at in 0..60 {
        assert_eq!(client.get(&format!("/box/{at:02}")).await.unwrap().body, body(at));
    }
}

#[tokio::test]
async fn operators_read_health_readiness_and_metrics() {
    let server = Setup::new().start().await;
    assert_eq!(server.admin("/healthz").await.unwrap().text(), "ok\n");
    let ready = server.admin("/readyz").await.unwrap();
    assert_eq!((ready.status, ready.text().as_str()), (200, r#"{"ready":true,"reasons":[]}"#));
    let mut client = server.client();
    client.make_bucket("box").await;
    client.put("/box/k", Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(client.get("/box/nothing").await.unwrap().status, 404);
    let metrics = server.admin("/metrics").await.unwrap();
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    for line in [
        "martlet_requests_total{operation=\"PutObject\",status=\"200\"} 1",
        "martlet_requests_total{operation=\"GetObject\",status=\"404\"} 1",
        "martlet_device_up{device=\"d0\"} 1",
    ] {
        assert!(metrics.text().lines().any(|other| other == line), "{line}\n{}", metrics.text());
    }
    assert!(server.metric("martlet_device_index_syncs_total").await >= 2);
}

#[tokio::test]
async fn operator_routes_need_the_root_secret() {
    let server = Setup::new().start().await;
    let refused = server.admin("/admin/v1/status").await.unwrap();
    assert_eq!(refused.status, 401, "{}", refused.text());
    for command in ["status", "workers"] {
        let output = server.ask(&[command]);
        assert!(output.status.success(), "{output:?}");
    }
    let output = server.ask(&["extents", "no-bucket", "no-key"]);
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), sentence.lines().count()), (Some(1), 1), "{sentence}");
}
