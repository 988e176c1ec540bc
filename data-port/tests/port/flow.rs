//! Readers that are slow, leave, or are many, and blocks that rot while bytes are under way.

use std::os::unix::fs::FileExt;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpSocket;

use super::*;

const MIB: usize = 1 << 20;
const VERIFIERS: [&str; 2] = ["node", "client"];

/// Connects with a small buffer for what it receives, so that few bytes are under way.
async fn connect_small(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    socket.connect(world.address).await.unwrap()
}

/// Reads the head of a reply; returns it, and the length of the body.
async fn head(stream: &mut TcpStream) -> (String, usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let reply = Reply {
        status: 200,
        head: String::from_utf8(head).unwrap(),
        body: Vec::new(),
        is_whole: true,
    };
    let length = reply.header("content-length").unwrap().parse().unwrap();
    (reply.head, length)
}

/// Value of a counter without labels, or of the first one that matches.
fn figure(world: &World, name: &str) -> u64 {
    let mut registry = Registry::default();
    world.server.figures().register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let line = text.lines().find(|line| line.starts_with(name));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Waits until a counter has a value.
async fn until(world: &World, name: &str, value: u64) {
    let reached = async {
        while figure(world, name) != value {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let late = format!("{name} doesn't reach {value}");
    tokio::time::timeout(Duration::from_mins(1), reached).await.expect(&late);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_pauses_gets_every_byte() {
    let world = World::new().await;
    let bytes = pattern(24 * MIB);
    let extent = world.put(&bytes).await;
    for verify in VERIFIERS {
        let mut stream = connect_small(&world).await;
        let path = format!("{}&verify={verify}", world.path(&extent));
        send(&mut stream, "GET", &path, Some("bytes=70001-")).await;
        let (_, length) = head(&mut stream).await;
        let (mut body, mut part) = (Vec::new(), vec![0; 3_000_001]);
        while body.len() < length {
            // Shorter and longer than a thread of the device waits for a socket.
            if body.len() < 12 * MIB {
                let pause = if body.len().is_multiple_of(2) { 5 } else { 60 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            let wanted = part.len().min(length - body.len());
            let read = stream.read_exact(&mut part[..wanted]).await.unwrap();
            body.extend_from_slice(&part[..read]);
        }
        assert!(body == bytes[70_001..], "{verify}");
        // The connection goes on.
        send(&mut stream, "GET", &path, Some("bytes=5-9")).await;
        assert_eq!(receive(&mut stream, true).await.body, bytes[5..10]);
    }
    assert_eq!(figure(&world, "data_port_cut_total"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_at_once_get_right_bytes_beside_stalled_ones() {
    let world = World::with(64, Duration::from_secs(20)).await;
    let bytes = pattern(9 * MIB + 5);
    let path = world.path(&world.put(&bytes).await);
    let mut stalled = Vec::new();
    for _ in 0..10 {
        let mut stream = connect_small(&world).await;
        send(&mut stream, "GET", &format!("{path}&verify=client"), None).await;
        stalled.push(stream);
    }
    until(&world, "data_port_in_flight", 10).await;
    let reads = (0..20).map(|number: usize| {
        let path = format!("{path}&verify={}", VERIFIERS[number % 2]);
        let (world, bytes, from) = (&world, &bytes, number * 10_007);
        async move {
            let reply = world.get(&path, Some(&format!("bytes={from}-"))).await;
            assert!(reply.is_whole && reply.body == bytes[from..], "{}", reply.head);
        }
    });
    futures::future::join_all(reads).await;
    for mut stream in stalled {
        let reply = receive(&mut stream, true).await;
        assert!(reply.is_whole && reply.body == bytes, "{}", reply.head);
    }
    until(&world, "data_port_in_flight", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_mid_reply_is_cut_and_counted() {
    for verify in VERIFIERS {
        let world = World::with(1, Duration::from_secs(20)).await;
        let bytes = pattern(48 * MIB);
        let path = format!("{}&verify={verify}", world.path(&world.put(&bytes).await));
        let mut stream = connect_small(&world).await;
        send(&mut stream, "GET", &path, None).await;
        head(&mut stream).await;
        let mut part = vec![0; 2 * MIB];
        stream.read_exact(&mut part).await.unwrap();
        assert!(part == bytes[..2 * MIB]);
        drop(stream);
        until(&world, "data_port_cut_total", 1).await;
        until(&world, "data_port_in_flight", 0).await;
        let sent = figure(&world, "data_port_bytes_total");
        let bounds = (2 * MIB) as u64..bytes.len() as u64;
        assert!(bounds.contains(&sent), "{verify}: {sent} bytes");
        // Its turn, the only one, is free.
        let reply = world.get(&path, Some("bytes=0-9")).await;
        assert_eq!((reply.status, &reply.body[..]), (206, &bytes[..10]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_below_the_minimum_rate_is_cut() {
    // Far above the rate of any reader that pauses.
    let bytes_per_second_min = 1 << 30;
    for verify in VERIFIERS {
        let limits = DataPortLimits { bytes_per_second_min, ..DataPortLimits::default() };
        let write_idle = Duration::from_secs(2);
        let world = World::of(Setup { limits, write_idle, ..Setup::default() }).await;
        let bytes = pattern(48 * MIB);
        let path = format!("{}&verify={verify}", world.path(&world.put(&bytes).await));
        let mut stream = connect_small(&world).await;
        send(&mut stream, "GET", &path, None).await;
        head(&mut stream).await;
        // The socket takes bytes again and again within the timeout.
        let reading = tokio::spawn(async move {
            let (mut read, mut part) = (0, vec![0; 128 * 1024]);
            while stream.read_exact(&mut part).await.is_ok() {
                read += part.len();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            read
        });
        until(&world, "data_port_cut_total", 1).await;
        let read = reading.await.unwrap();
        assert!(read < bytes.len(), "{verify}: all bytes came");
        // A fast reader has the bytes in time.
        let reply = world.get(&path, Some("bytes=0-9")).await;
        assert_eq!((reply.status, &reply.body[..]), (206, &bytes[..10]));
    }
}

/// Reads a body until it is whole or the connection ends.
async fn rest(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut body = Vec::new();
    drop(stream.take(length as u64).read_to_end(&mut body).await);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_deleted_extents_end_on_a_full_device() {
    let (folder, bytes) = (tempfile::tempdir().unwrap(), pattern(24 * MIB));
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let node = open_node(folder.path(), Reserve::Bytes(1 << 20), clock);
    let (deleted, kept) = (put_on(&node, &bytes).await, put_on(&node, &bytes).await);
    node.shutdown().await.unwrap();
    drop(node);
    // The device takes deletes, and no new bytes.
    let space = rustix::fs::statvfs(folder.path()).unwrap();
    let reserve = Reserve::Bytes(space.f_bavail * space.f_frsize / 4 * 6);
    let notice = Duration::from_millis(100);
    let limits = DataPortLimits { notice, ..DataPortLimits::default() };
    let write_idle = Duration::from_mins(10);
    let setup = Setup { limits, write_idle, reserve, ..Setup::default() };
    let world = World::on(folder, setup).await;
    let mut readers = Vec::new();
    for verify in VERIFIERS {
        for extent in [&deleted, &kept] {
            let mut stream = connect_small(&world).await;
            send(&mut stream, "GET", &format!("{}&verify={verify}", world.path(extent)), None)
                .await;
            head(&mut stream).await;
            readers.push((extent.id, stream));
        }
    }
    world.node.delete_extents(DEVICE, &[deleted.id]).await.unwrap();
    until(&world, "data_port_cut_total", 2).await;
    for (id, mut stream) in readers {
        let body = rest(&mut stream, bytes.len()).await;
        assert!(bytes.starts_with(&body));
        assert_eq!(body.len() == bytes.len(), id == kept.id, "{} bytes", body.len());
    }
    until(&world, "data_port_in_flight", 0).await;
    assert_eq!(figure(&world, "data_port_cut_total"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_readers_have_an_eighth_of_the_turns() {
    let world = World::with(16, Duration::from_mins(10)).await;
    let bytes = pattern(24 * MIB);
    let extent = world.put(&bytes).await;
    let path = world.unsigned_path(&extent);
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut stream = connect_small(&world).await;
        send(&mut stream, "GET", &path, None).await;
        head(&mut stream).await;
        stalled.push(stream);
    }
    let busy = world.get(&path, Some("bytes=0-9")).await;
    assert_eq!((busy.status, busy.header("x-martlet-refused")), (503, Some("overload")));
    let signed = world.get(&world.path(&extent), Some("bytes=0-9")).await;
    assert_eq!((signed.status, &signed.body[..]), (206, &bytes[..10]));
    stalled.pop();
    until(&world, "data_port_in_flight", 1).await;
    assert_eq!(world.get(&path, Some("bytes=0-9")).await.status, 206);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_of_an_unsigned_reader_makes_room_for_others() {
    let world = World::new().await;
    let extent = world.put(&pattern(100)).await;
    let mut kept = Vec::new();
    for path in [world.unsigned_path(&extent), world.path(&extent)] {
        let mut stream = world.connect().await;
        send(&mut stream, "GET", &path, None).await;
        assert_eq!(receive(&mut stream, true).await.status, 200);
        kept.push(stream);
    }
    // A new connection has a second for its first request.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut crowd = Vec::new();
    for _ in 0..KEYLESS_PER_ADDRESS {
        crowd.push(world.connect().await);
    }
    let end = tokio::time::timeout(Duration::from_mins(1), kept[0].read(&mut [0])).await;
    assert_eq!(end.expect("the unsigned connection stays").unwrap_or(0), 0);
    send(&mut kept[1], "GET", &world.path(&extent), None).await;
    assert_eq!(receive(&mut kept[1], true).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_rots_in_mid_read_is_never_sent_as_verified() {
    let world = World::new().await;
    let bytes = pattern(48 * MIB);
    let extent = world.put(&bytes).await;
    let path = world.path(&extent);
    // Far beyond the bytes that are under way to stalled clients.
    let wrong = 40 * MIB + 70_000;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_small(&world).await;
        send(&mut stream, "GET", &path, None).await;
        let (text, length) = head(&mut stream).await;
        assert!(text.contains("x-martlet-verified: node") && length == bytes.len());
        readers.push(stream);
    }
    let file = std::fs::File::options().write(true).open(world.file_of(extent.id)).unwrap();
    file.write_all_at(&[bytes[wrong] ^ 1], wrong as u64).unwrap();
    file.sync_all().unwrap();
    let mut reads = Vec::new();
    for mut stream in readers {
        reads.push(tokio::spawn(async move {
            let mut body = Vec::new();
            // The connection ends in order or by a reset.
            drop(stream.read_to_end(&mut body).await);
            body
        }));
    }
    for read in reads {
        let body = read.await.unwrap();
        assert!(body.len() <= wrong / BLOCK * BLOCK, "{} bytes", body.len());
        assert!(bytes.starts_with(&body), "a wrong byte was sent");
    }
    until(&world, "data_port_cut_total", 4).await;
    assert!(world.folder.path().join("quarantine").join(extent.id.to_string()).exists());
    assert_eq!(world.get(&path, None).await.header("x-martlet-refused"), Some("gone"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_in_memory_are_read_from_the_device() {
    let world = World::new().await;
    let bytes = pattern(20 * MIB + 77);
    let extent = world.put(&bytes).await;
    let file = std::fs::File::open(world.file_of(extent.id)).unwrap();
    file.sync_all().unwrap();
    for verify in VERIFIERS {
        for range in [0..bytes.len(), 3 * MIB + 5..17 * MIB] {
            // A part of the file stays in memory.
            let length = std::num::NonZeroU64::new(9 * MIB as u64);
            rustix::fs::fadvise(&file, 2 * MIB as u64, length, rustix::fs::Advice::DontNeed)
                .unwrap();
            let path = format!("{}&verify={verify}", world.path(&extent));
            let header = format!("bytes={}-{}", range.start, range.end - 1);
            let reply = world.get(&path, Some(&header)).await;
            assert!(reply.is_whole && reply.body == bytes[range.clone()], "{verify} {range:?}");
        }
    }
}
