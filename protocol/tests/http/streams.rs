//! Tests of extent streams: complete, with backpressure, and never complete when cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use martlet_protocol::backend::{CallKind, Want};
use martlet_protocol::http::{ClientOptions, ServerOptions};
use martlet_protocol::testing::{Fault, FaultyBackend};
use martlet_protocol::{Backend, BackendExt, Error, ErrorKind, ExtentId, Term};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{
    DEVICE, TestNode, client, collect, extent, head, impostor, memory, patience, register, soon,
    stream,
};

const MIB: usize = 1024 * 1024;

fn pieces(count: usize) -> Vec<martlet_protocol::Result<Bytes>> {
    (0..count).map(|n| Ok(Bytes::from(vec![u8::try_from(n % 251).unwrap(); MIB]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_extent_goes_there_and_back() {
    let memory = memory();
    let node = TestNode::start(memory).await;
    let client = node.client();
    for length in [Some(64 * MIB as u64), None] {
        let new = extent(length);
        let id = new.id;
        let stored = client.write_extent(DEVICE, new.clone(), stream(pieces(64))).await.unwrap();
        assert_eq!(stored.length as usize, 64 * MIB);
        let stat = client.stat_extent(DEVICE, id).await.unwrap();
        assert_eq!(stat.record.owner, new.owner);
        let bytes = client.read_extent(DEVICE, id, 0..64 * MIB as u64).await.unwrap();
        let bytes = collect(bytes).await.unwrap();
        assert_eq!(stored.blake3, *blake3::hash(&bytes).as_bytes());
        let part = client.read_extent(DEVICE, id, 5..2 * MIB as u64).await.unwrap();
        assert_eq!(collect(part).await.unwrap(), bytes[5..2 * MIB]);
        client.delete_extents(DEVICE, &[id]).await.unwrap();
    }
    let long = client.write_extent(DEVICE, extent(None), stream(pieces(65))).await;
    assert_eq!(long.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn an_error_or_a_surplus_after_the_last_byte_still_counts() {
    let memory = memory();
    let node = TestNode::start(memory.clone()).await;
    let client = node.client();
    let ends = [
        (Err(Error::corrupt("the checksum differs")), ErrorKind::Corrupt),
        (Ok(Bytes::from_static(b"x")), ErrorKind::Invalid),
    ];
    for (end, kind) in ends {
        let mut body = pieces(2);
        body.push(end);
        let new = extent(Some(2 * MIB as u64));
        let error = client.write_extent(DEVICE, new, stream(body)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert!(memory.extents(DEVICE).is_empty());
}

/// Returns true if the node has a free permit for streams, by reading a missing extent.
async fn has_place(client: &dyn Backend) -> bool {
    let stream = client.read_extent(DEVICE, ExtentId::random(), 0..1).await;
    stream.err().expect("the extent isn't there").kind() == ErrorKind::NotFound
}

/// Stalled writers that hold all permits of streams don't block reads of registers.
#[tokio::test]
async fn streams_that_stall_leave_index_calls_their_places() {
    let options = ServerOptions { in_flight_max: 4, ..ServerOptions::default() };
    let node = TestNode::with(memory(), options).await;
    let client = Arc::new(node.client());
    let stalled = (0..4).map(|_| {
        let writer = client.clone();
        let endless = stream(pieces(1)).chain(futures::stream::pending()).boxed();
        tokio::spawn(async move { writer.write_extent(DEVICE, extent(None), endless).await })
    });
    let stalled: Vec<_> = stalled.collect();
    soon("the places of streams are taken", async || !has_place(&*client).await).await;
    client.devices().await.unwrap();
    client.read(DEVICE, &register(), Want::Entry, Term::ANY).await.unwrap();
    stalled.iter().for_each(tokio::task::JoinHandle::abort);
    soon("the places are free", async || has_place(&*client).await).await;
}

#[tokio::test]
async fn a_writer_that_goes_away_leaves_nothing_and_frees_its_place() {
    let memory = memory();
    let options = ServerOptions { in_flight_max: 1, ..ServerOptions::default() };
    let node = TestNode::with(memory.clone(), options).await;
    let client = Arc::new(node.client());
    let writer = client.clone();
    let endless = stream(pieces(3)).chain(futures::stream::pending()).boxed();
    let writing =
        tokio::spawn(async move { writer.write_extent(DEVICE, extent(None), endless).await });
    soon("the place is taken", async || !has_place(&*client).await).await;
    writing.abort();
    soon("the place is free", async || has_place(&*client).await).await;
    assert!(memory.extents(DEVICE).is_empty());
}

#[tokio::test]
async fn a_reader_that_goes_away_frees_its_place() {
    let memory = memory();
    let options = ServerOptions { in_flight_max: 1, ..ServerOptions::default() };
    let node = TestNode::with(memory, options).await;
    let client = node.client();
    let new = extent(None);
    let id = new.id;
    client.write_extent(DEVICE, new, stream(pieces(64))).await.unwrap();
    let mut reading = client.read_extent(DEVICE, id, 0..64 * MIB as u64).await.unwrap();
    reading.next().await.unwrap().unwrap();
    assert!(!has_place(&client).await, "the place is taken while the reader reads");
    drop(reading);
    soon("the place is free", async || has_place(&client).await).await;
}

#[tokio::test]
async fn bytes_that_break_off_at_the_node_are_an_error_at_the_reader() {
    let memory = memory();
    for after in [0, 1, MIB as u64, 3 * MIB as u64 - 1] {
        let faulty = FaultyBackend::new(memory.clone(), move |call| match call.op {
            CallKind::ReadExtent => Fault::CutBody(after),
            _ => Fault::None,
        });
        let node = TestNode::start(Arc::new(faulty)).await;
        let client = node.client();
        let new = extent(None);
        let id = new.id;
        client.write_extent(DEVICE, new, stream(pieces(3))).await.unwrap();
        let read =
            async { collect(client.read_extent(DEVICE, id, 0..3 * MIB as u64).await?).await };
        let error = read.await.expect_err("a part is no whole");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "after {after} bytes");
        client.devices().await.expect("the node is well otherwise");
    }
}

/// Relays one exchange to a node, and flips a bit of byte `at` of the reply.
async fn flipping(mut near: TcpStream, node: std::net::SocketAddr, at: usize) {
    let mut far = TcpStream::connect(node).await.unwrap();
    far.write_all(&head(&mut near).await).await.unwrap();
    let (mut bytes, mut come) = (vec![0; MIB], 0);
    while let Ok(length @ 1..) = far.read(&mut bytes).await {
        if let Some(byte) = at.checked_sub(come).and_then(|at| bytes[..length].get_mut(at)) {
            *byte ^= 1;
        }
        come += length;
        if near.write_all(&bytes[..length]).await.is_err() {
            break;
        }
    }
}

#[tokio::test]
async fn no_byte_is_given_that_changed_on_its_way() {
    let memory = memory();
    let node = TestNode::start(memory.clone()).await;
    let new = extent(None);
    let id = new.id;
    let written: Vec<u8> = pieces(3).into_iter().flat_map(Result::unwrap).collect();
    memory.write_extent(DEVICE, new, stream(pieces(3))).await.unwrap();
    // After the reply's head, in its middle, and shortly before its last frame.
    for at in [2000, MIB + 77, 3 * MIB - 66 * 1024] {
        let far = node.address;
        let address = impostor(move |near| flipping(near, far, at)).await;
        let client = client(address, ClientOptions::default());
        let mut reading = client.read_extent(DEVICE, id, 0..3 * MIB as u64).await.unwrap();
        let (mut come, mut error) = (Vec::new(), None);
        while let Some(piece) = reading.next().await {
            match piece {
                Ok(piece) => come.extend_from_slice(&piece),
                Err(failure) => error = Some(failure),
            }
        }
        assert!(written.starts_with(&come), "byte {at} was flipped, and given");
        let error = error.expect("the answer breaks off");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_a_reply_is_an_error() {
    for reply in [
        "content-length: 1004\r\n\r\nabc",
        "content-length: 1000\r\n\r\nabc",
        "content-length: 3\r\n\r\nabc",
        "transfer-encoding: chunked\r\n\r\n3e8\r\nabc",
        "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "content-length: 1001\r\n\r\nabc",
        "\r\nabc",
    ] {
        let address = impostor(move |mut stream| async move {
            head(&mut stream).await;
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{reply}").as_bytes()).await;
        })
        .await;
        let client = client(address, ClientOptions::default());
        let read =
            async { collect(client.read_extent(DEVICE, ExtentId::random(), 0..1000).await?).await };
        read.await.expect_err(reply);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_a_request_leaves_nothing() {
    let memory = memory();
    let faulty = FaultyBackend::new(memory.clone(), |call| match call.op {
        CallKind::WriteExtent => Fault::CutBody(2 * MIB as u64),
        _ => Fault::None,
    });
    let node = TestNode::start(Arc::new(faulty)).await;
    let written = node.client().write_extent(DEVICE, extent(None), stream(pieces(40))).await;
    let error = written.unwrap_err();
    assert_eq!(error.to_string(), "the bytes broke off", "a refusal in mid-body is read");
    assert!(memory.extents(DEVICE).is_empty());
}

#[tokio::test]
async fn a_full_device_refuses_before_the_bytes_arrive() {
    let memory = memory();
    memory.set_full(DEVICE, true);
    let node = TestNode::start(memory).await;
    let client = node.client();
    for _ in 0..20 {
        let new = extent(Some(64 * MIB as u64));
        let error = client.write_extent(DEVICE, new, stream(pieces(64))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
}

#[tokio::test]
async fn senders_wait_for_their_reader() {
    let address = impostor(|mut stream| async move {
        head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let client = client(address, patience(Duration::from_millis(300)));
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let source = futures::stream::iter(pieces(64)).inspect(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let written = client.write_extent(DEVICE, extent(None), source.boxed()).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable, "a stalled node is given up");
    let given = given.load(Ordering::SeqCst);
    assert!(given < 32, "{given} MiB were taken from the source for a node that reads nothing");
}

#[tokio::test]
async fn a_slow_source_is_not_the_node_s_fault() {
    let node = TestNode::start(memory()).await;
    let client = client(node.address, patience(Duration::from_millis(200)));
    let slow = futures::stream::iter(pieces(2)).then(|piece| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        piece
    });
    let new = extent(Some(2 * MIB as u64));
    client.write_extent(DEVICE, new, slow.boxed()).await.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_sending_is_given_up() {
    let address = impostor(|mut stream| async move {
        head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1004\r\n\r\nabc").await;
        std::future::pending::<()>().await;
    })
    .await;
    let client = client(address, patience(Duration::from_millis(200)));
    let stream = client.read_extent(DEVICE, ExtentId::random(), 0..1000).await.unwrap();
    let error = collect(stream).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
