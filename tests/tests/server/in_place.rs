//! Objects can be read in place: `martlet admin extents` reports file and offset of each extent,
//! and a read with `O_DIRECT` finds the bytes of a GET there.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use martlet_tests::bytes::body;
use martlet_tests::{Server, Setup, Upload};
use rustix::fs::OFlags;
use serde_json::Value;

const ALIGN: usize = 4096;
const MIB: usize = 1 << 20;
const EXTENT_MAX: usize = 64 * MIB;

/// Reply of `martlet admin extents` for an object.
fn extents_of(server: &Server, key: &str) -> Value {
    let output = server.ask(&["--json", "extents", "box", key]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Reads bytes of a file from the device, past the page cache.
fn read_direct(path: &Path, offset: usize, length: usize) -> Vec<u8> {
    assert_eq!(offset % ALIGN, 0, "{} at {offset} is not aligned", path.display());
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let file = OpenOptions::new().read(true).custom_flags(direct).open(path).unwrap();
    let padded = length.next_multiple_of(ALIGN);
    let mut buffer = vec![1; padded + ALIGN];
    let start = buffer.as_ptr().align_offset(ALIGN);
    let aligned = &mut buffer[start..start + padded];
    file.read_exact_at(aligned, offset as u64).unwrap();
    assert!(aligned[length..].iter().all(|byte| *byte == 0), "the padding is not of zeros");
    aligned[..length].to_vec()
}

/// Reads an object from its extents, and checks the reported hash of each extent.
fn read_in_place(extents: &Value) -> Vec<u8> {
    let mut found = Vec::new();
    for extent in extents["extents"].as_array().unwrap() {
        assert_eq!(number(&extent["object_offset"]), found.len());
        let path = Path::new(extent["path"].as_str().unwrap());
        let length = number(&extent["length"]);
        assert!((1..=EXTENT_MAX).contains(&length));
        let bytes = read_direct(path, number(&extent["offset"]), length);
        assert_eq!(blake3::hash(&bytes).to_hex().as_str(), extent["blake3"].as_str().unwrap());
        found.extend_from_slice(&bytes);
    }
    found
}

async fn check(server: &Server, length: usize) {
    let (key, mut client) = (length.to_string(), server.client());
    let target = format!("/box/{key}");
    let body = body(&key, length);
    assert_eq!(client.put(&target, body.clone()).await.unwrap().status, 200);
    let got = client.get(&target).await.unwrap();
    assert_eq!(got.status, 200);
    assert!(got.body == body, "GET of {length} bytes gives others");
    let extents = extents_of(server, &key);
    assert_eq!(number(&extents["size"]), length);
    match extents["stored"].as_str().unwrap() {
        "empty" => assert_eq!(length, 0),
        "inline" => assert!((1..=8192).contains(&length), "{length} bytes are inline"),
        _ => {
            assert!(length > 8192);
            assert!(read_in_place(&extents) == got.body, "{length} bytes lie there otherwise");
            assert_eq!(extents["extents"].as_array().unwrap().len(), length.div_ceil(EXTENT_MAX));
        }
    }
}

#[tokio::test]
async fn o_direct_finds_the_bytes_of_a_get() {
    let server = started().await;
    for length in [0, 1, 4096, 8192, 8193, 65_536, 65_537, 1_000_000] {
        check(&server, length).await;
    }
    for length in [MIB, MIB + 1, 5 * MIB + 123, EXTENT_MAX, EXTENT_MAX + 1, 200 * MIB] {
        check(&server, length).await;
    }
}

#[tokio::test]
#[ignore = "a GiB; `make large` runs it"]
async fn o_direct_finds_the_bytes_of_a_gib() {
    check(&started().await, 1 << 30).await;
}

#[tokio::test]
async fn parts_of_an_upload_are_extents_of_their_object() {
    let server = started().await;
    let mut client = server.client();
    let mut upload = Upload::begin(&mut client, "/box/parts").await;
    let parts = [5 * MIB + 17, 6 * MIB, 100];
    for (number, length) in (1..).zip(parts) {
        let part = body(&number.to_string(), length);
        let reply = client.put(&upload.target(number), part).await.unwrap();
        upload.part(number, reply.header("etag"));
    }
    upload.complete(&mut client).await;
    let got = client.get("/box/parts").await.unwrap();
    assert_eq!(got.body.len(), parts.iter().sum::<usize>());
    assert!(read_in_place(&extents_of(&server, "parts")) == got.body);
}

#[tokio::test]
async fn printed_extents_name_their_file() {
    let server = started().await;
    let mut client = server.client();
    assert_eq!(client.put("/box/large", body("large", 2 * MIB)).await.unwrap().status, 200);
    let output = String::from_utf8(server.ask(&["extents", "box", "large"]).stdout).unwrap();
    let path = extents_of(&server, "large")["extents"][0]["path"].as_str().unwrap().to_owned();
    assert!(output.lines().any(|line| line.ends_with(&path)), "{output}");
}

async fn started() -> Server {
    let server = Setup::new().start().await;
    server.client().make_bucket("box").await;
    server
}
