//! `martlet bench` runs the requested load, counts it, and leaves no objects.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::process::Output;

use martlet_tests::cluster::certificates::Authority;
use martlet_tests::s3::{ACCESS_KEY, SECRET_KEY};
use martlet_tests::server::{finished, martlet};
use martlet_tests::{Server, Setup};
use serde_json::Value;

fn bench(server: &Server, arguments: &[&str]) -> Output {
    let endpoint = format!("http://{}", server.s3_address);
    let pid = server.pid().to_string();
    let mut command = martlet(&["bench", "--json", "--endpoint", &endpoint, "--pid", &pid]);
    command.env("MARTLET_ROOT_ACCESS_KEY", ACCESS_KEY).env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY);
    finished(command.args(["--duration", "300ms", "--concurrency", "4"]).args(arguments))
}

#[tokio::test]
async fn a_server_with_tls_is_measured_by_both_versions_of_http() {
    let setup = Setup::new();
    let folder = setup.join("certificates");
    std::fs::create_dir(&folder).unwrap();
    let certificates = Authority::found().issue([127, 0, 0, 1].into(), &folder);
    let setup = setup
        .set("MARTLET_S3_TLS_CERTIFICATE", certificates.certificate.to_str().unwrap())
        .set("MARTLET_S3_TLS_KEY", certificates.key.to_str().unwrap());
    let server = setup.start().await;
    let endpoint = format!("https://{}", server.s3_address);
    for version in [&[][..], &["--http2"]] {
        let mut command = martlet(&["bench", "--json", "--endpoint", &endpoint, "--op", "mixed"]);
        command.env("MARTLET_ROOT_ACCESS_KEY", ACCESS_KEY);
        command.env("MARTLET_ROOT_SECRET_KEY", SECRET_KEY);
        command.env("SSL_CERT_FILE", &certificates.authority);
        let load = ["--duration", "300ms", "--concurrency", "4", "--objects", "20"];
        let figures = figures(&finished(command.args(load).args(version)));
        assert!(figures["requests"].as_u64().unwrap() > 0, "{version:?}: {figures}");
        assert_eq!(figures["errors"], serde_json::json!({}), "{version:?}: {figures}");
    }
    let output = bench(&server, &["--op", "get", "--http2"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--http2 needs an https:// endpoint"), "{error}");
}

fn figures(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn every_operation_is_measured_and_cleaned_up_after() {
    let server = Setup::new().start().await;
    for arguments in [
        &["--op", "put", "--size", "100KiB"][..],
        &["--op", "put", "--signed-payload"],
        &["--op", "get", "--presigned", "--objects", "20"],
        &["--op", "range", "--size", "4KiB", "--object-size", "2MiB", "--objects", "2"],
        &["--op", "list", "--objects", "100"],
        &["--op", "delete", "--objects", "50"],
        &["--op", "mixed", "--objects", "20", "--threads", "2"],
    ] {
        let figures = figures(&bench(&server, arguments));
        assert!(figures["requests"].as_u64().unwrap() > 0, "{arguments:?}: {figures}");
        assert_eq!(figures["errors"], serde_json::json!({}), "{arguments:?}: {figures}");
        let (p50, p99) = (figures["p50_ms"].as_f64().unwrap(), figures["p99_ms"].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99, "{arguments:?}: {figures}");
        assert!(figures["cpu"]["seconds"].as_f64().unwrap() >= 0.0);
        let gone = server.client().get("/martlet-bench").await.unwrap();
        assert_eq!(gone.status, 404, "{arguments:?} left its bucket: {}", gone.text());
    }
}

#[tokio::test]
async fn a_bucket_from_before_the_run_stays() {
    let server = Setup::new().start().await;
    let mut client = server.client();
    client.make_bucket("martlet-bench").await;
    figures(&bench(&server, &["--op", "put", "--objects", "5"]));
    assert_eq!(client.get("/martlet-bench").await.unwrap().status, 200, "the bucket is gone");
    assert_eq!(client.keys("martlet-bench").await, Vec::<String>::new());
}

#[tokio::test]
async fn prepared_objects_can_be_kept_and_reused() {
    let server = Setup::new().start().await;
    let load = ["--op", "get", "--objects", "5"];
    figures(&bench(&server, &[&load[..], &["--keep"]].concat()));
    assert_eq!(server.client().keys("martlet-bench").await.len(), 5);
    let again = figures(&bench(&server, &[&load[..], &["--prepared"]].concat()));
    assert_eq!(again["errors"], serde_json::json!({}), "{again}");
}

#[tokio::test]
async fn failures_are_counted_by_their_code() {
    let server = Setup::new().start().await;
    let output = bench(&server, &["--op", "get", "--prepared"]);
    assert_eq!(output.status.code(), Some(1));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(figures["errors"]["NoSuchBucket"].as_u64().unwrap() > 0, "{figures}");
    let output = bench(&server, &["--op", "range", "--size", "2MiB", "--object-size", "1MiB"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
