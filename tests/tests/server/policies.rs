//! Storage policies of a real server over several disks: requested, listed, kept, and refused.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;

use bytes::Bytes;
use martlet_tests::bytes::body;
use martlet_tests::{S3, Server, Setup};
use serde_json::{Value, json};

const POLICIES: &str = "MARTLET_POLICIES";
const POLICY: &str = "x-martlet-storage-policy";
const CLASS: &str = "x-amz-storage-class";
/// Inline, packed, and file extents.
const LENGTHS: [usize; 4] = [500, 100_000, 1_500_000, 5_000_001];

/// A server over so many folders in place of disks.
fn over(devices: usize) -> Setup {
    let mut setup = Setup::new().set("MARTLET_RESERVE", "2MiB");
    for number in 0..devices {
        let path = setup.join(&format!("disk{number}")).display().to_string();
        setup = setup.flags(&["--device", &path]);
    }
    setup
}

async fn make(client: &mut S3, bucket: &str, policy: &str) {
    let target = format!("/{bucket}");
    let made = client.send_with("PUT", &target, &[(POLICY, policy)], Bytes::new()).await.unwrap();
    assert_eq!((made.status, made.header(POLICY)), (200, policy), "{}", made.text());
}

async fn policy_of(client: &mut S3, bucket: &str) -> String {
    let head = client.send("HEAD", &format!("/{bucket}"), Bytes::new()).await.unwrap();
    assert_eq!(head.status, 200);
    head.header(POLICY).to_owned()
}

async fn fill(client: &mut S3, bucket: &str) {
    for length in LENGTHS {
        let name = format!("/{bucket}/{length}");
        let put = client.put(&name, body(&name, length)).await.unwrap();
        assert_eq!(put.status, 200, "{name}: {}", put.text());
    }
}

async fn check(client: &mut S3, bucket: &str) {
    for length in LENGTHS {
        let name = format!("/{bucket}/{length}");
        let got = client.get(&name).await.unwrap();
        assert_eq!(got.status, 200, "{name}: {}", got.text());
        assert!(got.body == body(&name, length), "{name} is not what was written");
    }
}

fn listed(server: &Server) -> Value {
    let told = server.ask(&["policy", "list", "--json"]);
    assert!(told.status.success(), "{told:?}");
    serde_json::from_slice(&told.stdout).unwrap()
}

/// Number, name, redundancy, and true for the default policy.
fn line(number: u64, name: &str, redundancy: &str, default: bool) -> Value {
    json!([number, name, redundancy, default])
}

fn lines(listed: &Value) -> Vec<Value> {
    let of = |it: &Value| json!([it["id"], it["name"], it["redundancy"], it["default"]]);
    listed.as_array().unwrap().iter().map(of).collect()
}

#[tokio::test]
async fn a_storage_policy_is_chosen_by_name_and_stays() {
    let setup = over(3).set(POLICIES, "ec=2+1");
    let mut server = setup.start().await;
    let expected = [line(0, "default", "replicated", true), line(1, "ec", "2+1", false)];
    assert_eq!(lines(&listed(&server)), expected);
    let table = String::from_utf8(server.ask(&["policy", "list"]).stdout).unwrap();
    assert!(table.contains("2+1 fragments") && table.contains("1 copy"), "{table}");

    let mut client = server.client();
    client.make_bucket("plain").await;
    make(&mut client, "coded", "ec").await;
    assert_eq!(policy_of(&mut client, "plain").await, "default");
    assert_eq!(policy_of(&mut client, "coded").await, "ec");
    let unknown = client.send_with("PUT", "/x-x", &[(POLICY, "warm")], Bytes::new()).await.unwrap();
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("there are default, ec"), "{}", unknown.text());
    fill(&mut client, "coded").await;
    let named = [(CLASS, "EC")];
    let whole = body("/plain/k", 50_000);
    let put = client.send_with("PUT", "/plain/k", &named, whole.clone()).await.unwrap();
    assert_eq!(put.status, 200, "{}", put.text());
    assert!(server.stop().await.success());

    // Devices and policies are stored: a restart needs no names.
    let setup = setup.unset(POLICIES);
    let kept = fs::read(setup.data_dir().join("data-1.ring")).unwrap();
    let mut server = setup.start().await;
    let mut client = server.client();
    check(&mut client, "coded").await;
    let got = client.get("/plain/k").await.unwrap();
    assert_eq!((got.status, got.header(CLASS)), (200, "EC"));
    assert!(got.body == whole);
    assert_eq!(fs::read(setup.data_dir().join("data-1.ring")).unwrap(), kept);
    assert!(server.stop().await.success());

    let other = setup.set(POLICIES, "more=2+1,EC=1+2");
    let (code, sentence) = other.refusal();
    assert_eq!(code, 1, "{sentence}");
    assert!(sentence.contains("the policy ec is 2+1, and its code can't change"), "{sentence}");
    assert!(!other.data_dir().join("data-2.ring").exists());
}

#[tokio::test]
async fn too_few_disks_for_a_code_are_refused_before_anything_is_made() {
    let setup = over(2).flags(&["--policy", "ec=2+1"]);
    let (code, sentence) = setup.refusal();
    assert_eq!(code, 2, "{sentence}");
    assert!(sentence.contains("ec=2+1 needs 3 devices, one for each fragment"), "{sentence}");
    assert!(!setup.join("disk0").join("format.json").exists());
    assert!(!setup.data_dir().join("index.ring").exists());
    let (code, sentence) = over(3).flags(&["--default-policy", "warm"]).refusal();
    assert_eq!(code, 2, "{sentence}");
    assert!(sentence.contains("\"warm\" is not a storage policy"), "{sentence}");
}

#[tokio::test]
async fn a_policy_that_comes_later_leaves_what_is_there_alone() {
    let setup = over(3);
    let mut server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("old").await;
    fill(&mut client, "old").await;
    assert_eq!(lines(&listed(&server)), [line(0, "default", "replicated", true)]);
    assert!(server.stop().await.success());

    let setup = setup.set(POLICIES, "ec=2+1").set("MARTLET_DEFAULT_POLICY", "EC");
    let mut server = setup.start().await;
    assert!(server.logged().contains("index entries have one copy"), "{}", server.logged());
    let expected = [line(0, "default", "replicated", false), line(1, "ec", "2+1", true)];
    assert_eq!(lines(&listed(&server)), expected);
    let mut client = server.client();
    check(&mut client, "old").await;
    assert_eq!(policy_of(&mut client, "old").await, "default");
    client.make_bucket("new").await;
    assert_eq!(policy_of(&mut client, "new").await, "ec");
    fill(&mut client, "new").await;
    check(&mut client, "new").await;
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn every_object_under_a_code_outlives_a_disk() {
    let setup = over(4).set(POLICIES, "ec=2+1").set("MARTLET_DEFAULT_POLICY", "ec");
    let mut server = setup.start().await;
    let mut client = server.client();
    client.make_bucket("coded").await;
    fill(&mut client, "coded").await;
    assert!(server.stop().await.success());

    for gone in 0..4 {
        let (disk, away) = (setup.join(&format!("disk{gone}")), setup.join("away"));
        fs::rename(&disk, &away).unwrap();
        let mut server = setup.start().await;
        let mut client = server.client();
        assert_eq!(policy_of(&mut client, "coded").await, "ec");
        check(&mut client, "coded").await;
        // One device is a spare, so writes succeed, too.
        fill(&mut client, "coded").await;
        assert!(server.stop().await.success());
        let _ = fs::remove_dir_all(&disk);
        fs::rename(&away, &disk).unwrap();
    }
    let server = setup.start().await;
    check(&mut server.client(), "coded").await;
}
