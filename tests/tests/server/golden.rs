//! Golden data folders: those of earlier releases, kept in `tests/golden`, which each later release
//! opens.
//!
//! ```text
//! release-0.1.tar.gz ─ closed/   a server that was stopped: three devices and the data folder
//!                    └ killed/   a server that was killed after the same writes
//! ```
//!
//! `MARTLET_WRITE_GOLDEN=1` and the ignored test write the folder of the binary under test, once,
//! before its release. The objects are read here as they were written there.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use martlet_tests::{S3, Server, Setup, Upload};
use serde_json::{Value, json};

const DEVICES: usize = 3;
const RELEASE: &str = "release-0.1";
/// Ends of the server: in good order, and as in a crash.
const ENDS: [&str; 2] = ["closed", "killed"];
/// Inline, packed, and a file extent.
const LENGTHS: [usize; 3] = [500, 100_000, 1_500_000];
const FIRST_PART: usize = 5 << 20;
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
                    <AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>";
const VERSIONED: &str =
    "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// A server over three folders in place of disks, with a policy of copies and one of fragments.
fn setup() -> Setup {
    let mut setup = Setup::new().set("MARTLET_RESERVE", "2MiB").set("MARTLET_POLICIES", "ec=2+1");
    for number in 0..DEVICES {
        let path = setup.join(&format!("disk{number}")).display().to_string();
        setup = setup.flags(&["--device", &path]);
    }
    setup
}

/// A body that compresses well.
fn body(name: &str, length: usize) -> Bytes {
    name.bytes().cycle().take(length).collect::<Vec<u8>>().into()
}

fn tar(arguments: &[&str]) {
    let status = Command::new("tar").args(arguments).status().unwrap();
    assert!(status.success(), "tar {arguments:?}");
}

async fn done(client: &mut S3, method: &str, target: &str, headers: &[(&str, &str)], body: Bytes) {
    let reply = client.send_with(method, target, headers, body).await.unwrap();
    assert!(matches!(reply.status, 200 | 204), "{method} {target}: {}", reply.text());
}

async fn assert_reads(client: &mut S3, target: &str, expected: &Bytes) {
    let reply = client.get(target).await.unwrap();
    assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    assert!(reply.body == *expected, "{target} is not what was written");
}

/// Makes a tenant with a key and an object of its own.
async fn make_tenant(server: &Server) -> Value {
    let asked = |arguments: &[&str]| {
        let output = server.ask(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    asked(&["tenant", "create", "research"]);
    let key = asked(&["key", "create", "--tenant", "research"]);
    let mut client = tenant(server, &key);
    client.make_bucket("research-box").await;
    done(&mut client, "PUT", "/research-box/own", &[], body("own", 500)).await;
    json!({ "access_key": key["access_key"], "secret_key": key["secret_key"] })
}

fn tenant(server: &Server, key: &Value) -> S3 {
    let [access, secret] = ["access_key", "secret_key"].map(|name| key[name].as_str().unwrap());
    S3::with_keys(server.s3_address, access, secret)
}

/// Writes every kind of object and setting.
async fn fill(server: &Server) {
    let mut client = server.client();
    let client = &mut client;
    let policies = [("copies", "default"), ("coded", "ec")];
    for (bucket, policy) in policies {
        let header = [("x-martlet-storage-policy", policy)];
        done(client, "PUT", &format!("/{bucket}"), &header, Bytes::new()).await;
        for length in LENGTHS {
            let target = format!("/{bucket}/{length}");
            done(client, "PUT", &target, &[], body(&target, length)).await;
        }
    }
    done(client, "PUT", "/copies?cors=", &[], CORS.into()).await;
    let headers =
        [("x-amz-meta-colour", "blue"), ("x-amz-tagging", "a=b"), ("content-type", "x/y")];
    done(client, "PUT", "/copies/headers", &headers, body("headers", 10)).await;
    let sealed = [("x-amz-server-side-encryption", "AES256")];
    done(client, "PUT", "/copies/sealed", &sealed, body("sealed", 900)).await;
    done(client, "PUT", "/copies/gone", &[], body("gone", 500)).await;
    done(client, "DELETE", "/copies/gone", &[], Bytes::new()).await;
    let mut upload = Upload::begin(client, "/copies/parts").await;
    for (number, length) in [(1, FIRST_PART), (2, 70_000)] {
        let part = body("part", length);
        let reply = client.put(&upload.target(number), part).await.unwrap();
        upload.part(number, reply.header("etag"));
    }
    upload.complete(client).await;
    Upload::begin(client, "/copies/begun").await;
    client.make_bucket("versions").await;
    done(client, "PUT", "/versions?versioning=", &[], VERSIONED.into()).await;
    for length in [300, 40_000] {
        done(client, "PUT", "/versions/key", &[], body("key", length)).await;
    }
    done(client, "PUT", "/versions/gone", &[], body("gone", 300)).await;
    done(client, "DELETE", "/versions/gone", &[], Bytes::new()).await;
}

/// Reads what [`fill`] and [`make_tenant`] wrote.
async fn check(server: &Server, key: &Value) {
    let mut client = server.client();
    let client = &mut client;
    for bucket in ["copies", "coded"] {
        for length in LENGTHS {
            let target = format!("/{bucket}/{length}");
            assert_reads(client, &target, &body(&target, length)).await;
        }
    }
    let listed = client.keys("copies").await;
    assert_eq!(listed, ["100000", "1500000", "500", "headers", "parts", "sealed"]);
    let cors = client.get("/copies?cors=").await.unwrap().text();
    assert!(cors.contains("<AllowedOrigin>*</AllowedOrigin>"), "{cors}");
    let reply = client.get("/copies/headers").await.unwrap();
    let headers = ["x-amz-meta-colour", "x-amz-tagging-count", "content-type"];
    assert_eq!(headers.map(|name| reply.header(name)), ["blue", "1", "x/y"]);
    assert_reads(client, "/copies/sealed", &body("sealed", 900)).await;
    assert_eq!(client.get("/copies/gone").await.unwrap().status, 404);
    let parts = [body("part", FIRST_PART), body("part", 70_000)].concat();
    assert_reads(client, "/copies/parts", &parts.into()).await;
    let uploads = client.get("/copies?uploads=").await.unwrap();
    assert_eq!(uploads.all("Key"), ["begun"]);
    assert_reads(client, "/versions/key", &body("key", 40_000)).await;
    let mut names = client.get("/versions?versions=").await.unwrap().all("Key");
    names.sort();
    assert_eq!(names, ["gone", "gone", "key", "key"]);
    let versions = client.get("/versions?prefix=key&versions=").await.unwrap();
    let oldest = versions.all("VersionId").pop().unwrap();
    assert_reads(client, &format!("/versions/key?versionId={oldest}"), &body("key", 300)).await;
    assert_eq!(client.get("/versions/gone").await.unwrap().status, 404);
    assert_reads(&mut tenant(server, key), "/research-box/own", &body("own", 500)).await;
}

/// Unpacks a golden folder for a server.
fn unpacked(archive: &Path, end: &str) -> Setup {
    let setup = setup();
    let target = setup.join("");
    let (archive, target) = (archive.to_str().unwrap(), target.to_str().unwrap());
    tar(&["-xzf", archive, "-C", target, "--strip-components=1", end]);
    setup
}

#[tokio::test]
async fn data_folders_of_earlier_releases_open() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let archive = entry.unwrap().path();
        if archive.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        count += 1;
        for end in ENDS {
            let setup = unpacked(&archive, end);
            let key = fs::read_to_string(setup.join("tenant.json")).unwrap();
            let key: Value = serde_json::from_str(&key).unwrap();
            for start in ["first", "second"] {
                println!("{}, {end}, {start} start", archive.display());
                let mut server = setup.start().await;
                check(&server, &key).await;
                let target = format!("/copies/later/{start}");
                let mut client = server.client();
                done(&mut client, "PUT", &target, &[], body(&target, 100_000)).await;
                assert_reads(&mut client, &target, &body(&target, 100_000)).await;
                done(&mut client, "DELETE", &target, &[], Bytes::new()).await;
                assert!(server.stop().await.success());
            }
            let format = fs::read_to_string(setup.join("disk0/format.json")).unwrap();
            let format: Value = serde_json::from_str(&format).unwrap();
            assert_eq!(format["version"], 2, "no release raises the format by itself");
        }
    }
    assert!(count > 0, "there is a golden folder");
}

#[tokio::test]
#[ignore = "MARTLET_WRITE_GOLDEN=1 writes the golden folder of the binary under test"]
async fn the_golden_folder_is_written() {
    assert!(std::env::var_os("MARTLET_WRITE_GOLDEN").is_some(), "it would replace the folder");
    let all = tempfile::tempdir().unwrap();
    for end in ENDS {
        let setup = setup();
        let mut server = setup.start().await;
        fill(&server).await;
        let key = make_tenant(&server).await;
        check(&server, &key).await;
        if end == "killed" {
            server.kill();
        } else {
            assert!(server.stop().await.success());
        }
        fs::write(setup.join("tenant.json"), key.to_string()).unwrap();
        for number in 0..DEVICES {
            // The ballast is made anew.
            fs::remove_file(setup.join(&format!("disk{number}/ballast"))).unwrap();
        }
        let (from, to) = (setup.join(""), all.path().join(end));
        let copied = Command::new("cp")
            .args(["-a", "--sparse=always"])
            .arg(&from)
            .arg(&to)
            .status()
            .unwrap();
        assert!(copied.success());
    }
    let (archive, root) = (folder().join(format!("{RELEASE}.tar.gz")), all.path());
    let [archive, root] = [archive.to_str().unwrap(), root.to_str().unwrap()];
    // Zeros of volumes are left out, and RocksDB's own log.
    let options = ["--sparse", "--sort=name", "--owner=0", "--group=0", "--exclude=LOG"];
    tar(&[&["-czf", archive][..], &options, &["-C", root, ENDS[0], ENDS[1]]].concat());
    println!("{archive} has {} bytes", fs::metadata(archive).unwrap().len());
}
