//! Reads of pieces: their bytes, checksums and failures.

use std::os::unix::fs::FileExt;

use super::*;

/// Lengths of packed extents and of files, at and beside the edges of blocks.
const LENGTHS: [usize; 6] = [1, BLOCK, BLOCK + 1, 1 << 20, (1 << 20) + 1, 5 * BLOCK * 16 + 123];

fn assert_right(reply: &Reply, whole: &Bytes, range: std::ops::Range<usize>) {
    assert!(reply.is_whole && reply.body == whole[range.clone()], "{range:?}: {}", reply.head);
    let blocks =
        &whole[range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK).min(whole.len())];
    let expected: Vec<u32> = blocks.chunks(BLOCK).map(crc_fast::crc32_iscsi).collect();
    assert_eq!(reply.checksums(), expected, "{range:?}");
    let etag = format!("\"{}\"", blake3::hash(whole).to_hex());
    assert_eq!(reply.header("etag"), Some(etag.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_come_with_the_checksums_of_their_blocks() {
    let world = World::new().await;
    for length in LENGTHS {
        let bytes = pattern(length);
        let extent = world.put(&bytes).await;
        let path = world.path(&extent);
        for verify in ["", "&verify=node", "&verify=client"] {
            let path = format!("{path}{verify}");
            let reply = world.get(&path, None).await;
            assert_eq!(reply.status, 200);
            let verifier = if verify == "&verify=client" { "client" } else { "node" };
            assert_eq!(reply.header("x-martlet-verified"), Some(verifier));
            assert_right(&reply, &bytes, 0..length);
            let (from, to) = (length / 3, length - length / 4);
            if from < to {
                let reply = world.get(&path, Some(&format!("bytes={from}-{}", to - 1))).await;
                assert_eq!(reply.status, 206);
                let range = format!("bytes {from}-{}/{length}", to - 1);
                assert_eq!(reply.header("content-range"), Some(range.as_str()));
                assert_right(&reply, &bytes, from..to);
            }
            assert_right(&world.get(&path, Some("bytes=-1")).await, &bytes, length - 1..length);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_serves_one_request_after_another() {
    let world = World::new().await;
    let bytes = pattern(3 * BLOCK * 16);
    let extent = world.put(&bytes).await;
    let path = world.path(&extent);
    let mut stream = world.connect().await;
    for round in 0..3 {
        send(&mut stream, "HEAD", &path, None).await;
        let head = receive(&mut stream, false).await;
        let length = bytes.len().to_string();
        assert_eq!((head.status, head.header("content-length")), (200, Some(length.as_str())));
        assert_eq!(head.checksums().len(), 48, "round {round}");
        send(&mut stream, "GET", "/other", None).await;
        // What follows a refused head can't be told from it: the connection ends.
        assert_eq!(receive(&mut stream, true).await.status, 404);
        stream = world.connect().await;
        send(&mut stream, "GET", &path, Some("bytes=999999999-")).await;
        let beyond = receive(&mut stream, true).await;
        let all = format!("bytes */{}", bytes.len());
        assert_eq!((beyond.status, beyond.header("content-range")), (416, Some(all.as_str())));
        send(&mut stream, "GET", &path, Some("bytes=0-1,3-4")).await;
        assert_eq!(receive(&mut stream, true).await.status, 416);
        // Two requests at once.
        send(&mut stream, "GET", &path, Some("bytes=0-9")).await;
        send(&mut stream, "GET", &format!("{path}&verify=client"), None).await;
        assert_right(&receive(&mut stream, true).await, &bytes, 0..10);
        assert_right(&receive(&mut stream, true).await, &bytes, 0..bytes.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_block_cuts_the_reply_and_is_never_served_as_verified() {
    let world = World::new().await;
    let bytes = pattern(4 << 20);
    let extent = world.put(&bytes).await;
    let path = world.path(&extent);
    let file = std::fs::File::options().write(true).open(world.file_of(extent.id)).unwrap();
    file.write_all_at(&[bytes[3_000_000] ^ 1], 3_000_000).unwrap();
    file.sync_all().unwrap();
    // The client that verifies by itself gets the block, with the checksum that it doesn't have.
    let unverified = world.get(&format!("{path}&verify=client"), None).await;
    assert_eq!(unverified.status, 200);
    let wrong = unverified.body.chunks(BLOCK).zip(unverified.checksums());
    let wrong: Vec<_> = wrong.map(|(block, sum)| crc_fast::crc32_iscsi(block) != sum).collect();
    assert_eq!(wrong.iter().position(|wrong| *wrong), Some(3_000_000 / BLOCK));
    assert_eq!(wrong.iter().filter(|wrong| **wrong).count(), 1);
    // The node finds it: the reply ends before the block.
    let cut = world.get(&path, None).await;
    assert_eq!((cut.status, cut.is_whole), (200, false));
    assert!(cut.body.len() <= 3_000_000 / BLOCK * BLOCK, "{} bytes", cut.body.len());
    assert!(bytes.starts_with(&cut.body));
    let gone = world.get(&path, None).await;
    assert_eq!((gone.status, gone.header("x-martlet-refused")), (404, Some("gone")));
    let quarantined = world.folder.path().join("quarantine").join(extent.id.to_string());
    assert!(quarantined.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_extent_is_gone_and_an_open_reader_finishes() {
    let world = World::new().await;
    let bytes = pattern(48 << 20);
    let extent = world.put(&bytes).await;
    let path = world.path(&extent);
    let mut stream = world.connect().await;
    send(&mut stream, "GET", &path, None).await;
    // The reply has begun, and waits for its reader.
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.node.delete_extents(DEVICE, &[extent.id]).await.unwrap();
    assert_right(&receive(&mut stream, true).await, &bytes, 0..bytes.len());
    let gone = world.get(&path, None).await;
    assert_eq!((gone.status, gone.header("x-martlet-refused")), (404, Some("gone")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_device_is_unavailable_and_not_gone() {
    let world = World::new().await;
    let extent = world.put(&pattern(100_000)).await;
    let path = world.path(&extent);
    world.node.shutdown().await.unwrap();
    let closed = world.get(&path, None).await;
    assert_eq!((closed.status, closed.header("x-martlet-refused")), (503, Some("device")));
    assert_eq!(closed.header("retry-after"), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_are_cut_and_requests_beyond_the_limit_are_refused() {
    for verify in ["", "&verify=client"] {
        let world = World::with(1, Duration::from_millis(700)).await;
        let bytes = pattern(48 << 20);
        let extent = world.put(&bytes).await;
        let path = format!("{}{verify}", world.path(&extent));
        let mut slow = world.connect().await;
        send(&mut slow, "GET", &path, None).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let busy = world.get(&path, Some("bytes=0-9")).await;
        assert_eq!((busy.status, busy.header("x-martlet-refused")), (503, Some("overload")));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let again = world.get(&path, Some("bytes=0-9")).await;
        assert_eq!(again.status, 206, "the turn of the slow reader has ended");
        assert!(!receive(&mut slow, true).await.is_whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_and_requests_are_counted_by_tenant() {
    let world = World::new().await;
    let extent = world.put(&pattern(100_000)).await;
    let path = world.path(&extent);
    world.get(&path, None).await;
    world.get(&format!("{path}&verify=client"), Some("bytes=0-9")).await;
    world.get(&format!("/x/{}?t=none", extent.id), None).await;
    let mut registry = prometheus_client::registry::Registry::default();
    world.server.figures().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"data_port_bytes_total{tenant="team",verified="node"} 100000"#,
        r#"data_port_bytes_total{tenant="team",verified="client"} 10"#,
        r#"data_port_requests_total{tenant="team",status="200"} 1"#,
        r#"data_port_requests_total{tenant="team",status="206"} 1"#,
        r#"data_port_requests_total{tenant="",status="403"} 1"#,
        "data_port_in_flight 0",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
