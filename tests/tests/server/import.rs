//! `martlet admin import` from one server process into another: metadata, odd keys, parts, a kill in
//! the middle, a damaged disk, and planted differences.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use martlet_tests::bytes::body;
use martlet_tests::damage::flip;
use martlet_tests::s3::{ACCESS_KEY, Reply, SECRET_KEY, encoded};
use martlet_tests::server::martlet;
use martlet_tests::{S3, Server, Setup, Upload};
use serde_json::Value;
use tokio::time::sleep;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_mins(2);
/// Headers that a copy keeps.
const METADATA: [(&str, &str); 8] = [
    ("cache-control", "no-cache"),
    ("content-disposition", "attachment; filename=\"a b.txt\""),
    ("content-encoding", "gzip"),
    ("content-language", "ga"),
    ("content-type", "text/x-test"),
    ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
    ("x-amz-meta-one", "1"),
    ("x-amz-meta-two", "a, b"),
];

/// Change of a command line.
type Change = fn(&mut Command) -> &mut Command;

/// Two servers, and a folder for state and report.
struct Ends {
    setup: Setup,
    source: Server,
    target: Server,
    /// Keeps the folder of the target.
    _other: Setup,
}

impl Ends {
    async fn start() -> Self {
        let (setup, other) = (Setup::new(), Setup::new());
        let (source, target) = (setup.start().await, other.start().await);
        source.client().make_bucket("box").await;
        Self { setup, source, target, _other: other }
    }

    fn command(&self, flags: &[&str]) -> Command {
        let endpoint = |server: &Server| format!("http://{}", server.s3_address);
        let mut command = martlet(&["admin", "import", "s3://box", "s3://copy", "--json"]);
        command
            .current_dir(self.setup.join(""))
            .args(["--source-endpoint", &endpoint(&self.source)])
            .args(["--target-endpoint", &endpoint(&self.target)])
            .args(["--create-bucket", "--report", "report", "--tags"])
            .args(flags)
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            .env_remove("AWS_SESSION_TOKEN")
            .env_remove("AWS_PROFILE")
            .env("MARTLET_TARGET_ACCESS_KEY", ACCESS_KEY)
            .env("MARTLET_TARGET_SECRET_KEY", SECRET_KEY);
        command
    }

    async fn run(&self, flags: &[&str]) -> Output {
        let mut command = self.command(flags);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs an import that copies all of the source, and returns its summary.
    async fn import(&self, flags: &[&str]) -> Value {
        let output = self.run(flags).await;
        assert!(output.status.success(), "{output:?}\n{}", self.report());
        summary(&output)
    }

    fn report(&self) -> String {
        std::fs::read_to_string(self.setup.join("report")).unwrap_or_default()
    }

    /// Checks that an object is the same at both ends: bytes, ETag and metadata.
    async fn assert_copied(&self, key: &str) {
        let target = |bucket: &str| format!("/{bucket}/{}", path(key));
        let one = self.source.client().get(&target("box")).await.unwrap();
        let other = self.target.client().get(&target("copy")).await.unwrap();
        assert_eq!((one.status, other.status), (200, 200), "{key}");
        assert!(one.body == other.body, "{key}: {} {}", one.body.len(), other.body.len());
        let kept = |reply: &Reply| {
            let named = METADATA.map(|(name, _)| reply.header(name).to_owned());
            (named, reply.header("etag").to_owned(), reply.header("x-amz-tagging-count").to_owned())
        };
        assert_eq!(kept(&one), kept(&other), "{key}");
    }
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn path(key: &str) -> String {
    encoded(key).replace("%2F", "/")
}

async fn put(client: &mut S3, key: &str, headers: &[(&str, &str)], bytes: Bytes) {
    let reply = client.send_with("PUT", &format!("/box/{}", path(key)), headers, bytes).await;
    let reply = reply.unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

async fn put_in_parts(client: &mut S3, key: &str, sizes: &[usize]) {
    let mut upload = Upload::begin(client, &format!("/box/{key}")).await;
    for (at, size) in sizes.iter().enumerate() {
        let part = body(&format!("{key} {at}"), *size);
        let reply = client.put(&upload.target(at + 1), part).await.unwrap();
        upload.part(at + 1, reply.header("etag"));
    }
    upload.complete(client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_copied_with_all_that_belongs_to_its_objects() {
    let ends = Ends::start().await;
    let mut client = ends.source.client();
    let tagged = [&METADATA[..], &[("x-amz-tagging", "a=1&b=x%20y")]].concat();
    put(&mut client, "rich", &tagged, body("rich", 5000)).await;
    let keys = [
        "empty",
        "folder/",
        "with space",
        "plus+plus",
        "%41%2F%zz",
        "ünïcödé/鍵/🔑",
        "a/../b",
        "double//slash",
        "quotes'\"<&>",
        "new\nline",
        "~",
    ];
    for (at, key) in keys.iter().enumerate() {
        put(&mut client, key, &[], body(key, at * 30_000)).await;
    }
    put(&mut client, "plain", &[], body("plain", 9 * MIB)).await;
    put_in_parts(&mut client, "parts", &[5 * MIB, 5 * MIB, 5 * MIB, 77]).await;
    put_in_parts(&mut client, "uneven", &[5 * MIB, 6 * MIB, 77]).await;
    let dry = ends.run(&["--dry-run"]).await;
    let refusal = String::from_utf8_lossy(&dry.stderr);
    assert!(refusal.contains("the target has no bucket copy"), "{refusal}");
    let copied = ends.import(&["--verify"]).await;
    let count = keys.len() + 4;
    assert_eq!(copied["copied"]["objects"], count);
    assert_eq!(copied["compared"]["objects"], count);
    assert_eq!([&copied["unclaimed"], &copied["unverified"]["objects"]], [0, 0]);
    for key in keys.iter().chain(&["rich", "plain", "parts"]) {
        ends.assert_copied(key).await;
    }
    let tags = ends.target.client().get("/copy/rich?tagging=").await.unwrap();
    assert_eq!(
        (tags.all("Key"), tags.all("Value")),
        (vec!["a".to_owned(), "b".to_owned()], vec!["1".to_owned(), "x y".to_owned()],)
    );
    let again = ends.import(&[]).await;
    assert_eq!([&again["copied"]["objects"], &again["read_bytes"]], [0, 0]);
    assert_eq!(again["present"]["objects"], count);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_import_goes_on() {
    let ends = Ends::start().await;
    let mut client = ends.source.client();
    for at in 0..300 {
        put(&mut client, &format!("{}/{at:03}", at % 7), &[], body(&at.to_string(), 20_000)).await;
    }
    put_in_parts(&mut client, "6/large", &[8 * MIB; 6]).await;
    // Killed again and again, each run gets some way.
    let mut there = 0;
    for round in 0..3 {
        let mut import = ends.command(&["--concurrency", "2"]).spawn().unwrap();
        let begun = Instant::now();
        let enough = (there + 60).min(250);
        while there < enough && import.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "round {round} stays at {there}");
            there = copies(&ends.target).await;
            sleep(Duration::from_millis(5)).await;
        }
        import.kill().unwrap();
        import.wait().unwrap();
    }
    let before = copies(&ends.target).await;
    assert!(before >= 60, "the kills came too early: {before}");
    let rest = ends.import(&["--verify"]).await;
    // The two writes in flight at the last kill may have come through after the count.
    let copied = rest["copied"]["objects"].as_u64().unwrap();
    assert!((299..=301).contains(&(copied + before)), "{before} {rest}");
    assert_eq!(rest["compared"]["objects"], 301);
    let uploads = ends.target.client().get("/copy?uploads=").await.unwrap();
    assert_eq!(uploads.all("UploadId"), Vec::<String>::new());
    assert!(!ends.setup.join("martlet-import-box-copy.state").exists());
    ends.assert_copied("6/large").await;
}

/// Number of objects in the copy; 0 before its bucket exists.
async fn copies(target: &Server) -> u64 {
    let reply = target.client().get("/copy?list-type=2").await.unwrap();
    if reply.status == 200 { reply.all("Key").len() as u64 } else { 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_object_is_reported_and_the_rest_is_copied() {
    let ends = Ends::start().await;
    let mut client = ends.source.client();
    for key in ["a", "damaged", "z"] {
        put(&mut client, key, &[], body(key, 3 * MIB)).await;
    }
    flip(&ends.source, "damaged", 2 * MIB as u64 + 7);
    let output = ends.run(&["--retries", "1"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let copied = summary(&output);
    assert_eq!([&copied["copied"]["objects"], &copied["failed"]["objects"]], [2, 1], "{copied}");
    let line: Value = serde_json::from_str(ends.report().trim()).unwrap();
    assert_eq!([&line["key"], &line["fate"]], ["damaged", "failed"]);
    let missing = ends.target.client().get("/copy/damaged").await.unwrap();
    assert_eq!(missing.status, 404, "half of an object is no object");
    put(&mut client, "damaged", &[], body("again", 3 * MIB)).await;
    let rest = ends.import(&["--verify"]).await;
    assert_eq!(rest["copied"]["objects"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_found_and_newer_objects_stay() {
    let ends = Ends::start().await;
    let mut client = ends.source.client();
    for key in ["a", "b", "c"] {
        put(&mut client, key, &[], body(key, 1000)).await;
    }
    put_in_parts(&mut client, "parts", &[5 * MIB, 9]).await;
    ends.import(&["--verify"]).await;
    let mut target = ends.target.client();
    for key in ["b", "parts"] {
        let put = target.put(&format!("/copy/{key}"), body("other", 1000)).await.unwrap();
        assert_eq!(put.status, 200);
    }
    assert_eq!(target.delete("/copy/c").await.unwrap().status, 204);
    let output = ends.run(&["--verify-only"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(summary(&output)["different"]["objects"], 3);
    let output = ends.run(&["--overwrite", "changed"]).await;
    let found = summary(&output);
    assert_eq!([&found["copied"]["objects"], &found["kept"]["objects"]], [1, 2], "{found}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("differ from the source (report lists them)"), "{text}");
    assert_eq!(target.get("/copy/b").await.unwrap().body, body("other", 1000));
    ends.import(&["--overwrite", "always", "--verify"]).await;
    ends.assert_copied("b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_orders_are_refused_with_a_remedy() {
    let ends = Ends::start().await;
    let orders: [(Change, &str); 6] = [
        (|it| it.env_remove("MARTLET_TARGET_SECRET_KEY"), "--target-key-file"),
        (|it| it.env("AWS_SECRET_ACCESS_KEY", "wrong"), "SignatureDoesNotMatch"),
        (|it| it.args(["--source-profile", "none"]), "the profile none has neither"),
        (|it| it.args(["--part-size", "1MiB"]), "--part-size must be"),
        (|it| it.arg("--source-unsigned"), "AccessDenied"),
        (|it| it.args(["--source-key-file", "none"]), "does not exist"),
    ];
    for (change, expected) in orders {
        let mut command = ends.command(&[]);
        change(&mut command);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected), "{expected}: {text}");
    }
}
