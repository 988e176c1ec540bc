//! Baseline for small GETs with three copies: the HTTP library, and two nodes that answer frames.
//!
//! The server of [`answer`](super::answer) sends a frame to each of two nodes for each request, as a
//! proxy asks a quorum, and replies with the bytes of the first one when both have answered. A connection
//! to each node carries the frames of all requests; frames that are waiting leave together, on both sides.
//! The nodes have runtimes of one thread in this process. Nothing is authenticated, looked up, encoded or
//! verified.

use std::io;
use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::Full;
use hyper::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

use super::super::args::BenchArgs;
use super::answer::{listen, reply, request};
use super::{BaselineResult, on_threads};

/// Bytes of a call for a register, and of a reply without the object's bytes.
const CALL_BYTES: usize = 150;
const HEAD_BYTES: usize = 400;
/// Calls to a node that wait for its connection.
const CALLS_MAX: usize = 1024;

pub(super) fn run(args: &BenchArgs, body: &[u8]) -> io::Result<BaselineResult> {
    let nodes = [Node::start(HEAD_BYTES + body.len())?, Node::start(HEAD_BYTES)?];
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let open = |node: &Node| runtime.block_on(Channel::open(node.address, node.reply_bytes));
    let (first, second) = (open(&nodes[0])?, open(&nodes[1])?);
    let address = listen(&runtime, move || {
        let (first, second) = (first.clone(), second.clone());
        async move { relayed(&first, &second).await }
    })?;
    let outcome = on_threads(args, |_| request(args, address));
    runtime.shutdown_background();
    outcome
}

/// Calls both nodes; replies with the bytes of the first.
async fn relayed(first: &Channel, second: &Channel) -> Response<Full<Bytes>> {
    let (bytes, _) = tokio::join!(first.call(), second.call());
    reply(bytes.slice(HEAD_BYTES..))
}

/// A node that answers each call with so many bytes.
struct Node {
    address: SocketAddr,
    reply_bytes: usize,
    _runtime: Runtime,
}

impl Node {
    fn start(reply_bytes: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, reply_bytes));
            }
        });
        Ok(Self { address, reply_bytes, _runtime: runtime })
    }
}

/// Answers the calls of a connection, all that have come at once.
async fn serve(mut stream: TcpStream, reply_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut received, one) = (BytesMut::with_capacity(64 << 10), vec![7; reply_bytes]);
    let mut replies = Vec::new();
    while stream.read_buf(&mut received).await? > 0 {
        replies.clear();
        while received.len() >= CALL_BYTES {
            received.advance(CALL_BYTES);
            replies.extend_from_slice(&one);
        }
        stream.write_all(&replies).await?;
    }
    Ok(())
}

/// Receiver of a reply's bytes.
type Waiting = oneshot::Sender<Bytes>;

/// A connection to a node, which all requests share.
#[derive(Clone)]
struct Channel(mpsc::Sender<Waiting>);

impl Channel {
    async fn open(node: SocketAddr, reply_bytes: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(node).await?;
        stream.set_nodelay(true)?;
        let (replies, calls) = stream.into_split();
        let (sender, waiting) = mpsc::channel(CALLS_MAX);
        let (sent, in_order) = mpsc::channel(CALLS_MAX);
        tokio::spawn(send(waiting, calls, sent));
        tokio::spawn(receive(replies, in_order, reply_bytes));
        Ok(Self(sender))
    }

    /// Sends a call, and waits for its reply.
    async fn call(&self) -> Bytes {
        let (sender, reply) = oneshot::channel();
        self.0.send(sender).await.expect("the channel outlives its requests");
        reply.await.expect("the node answers every call")
    }
}

/// Sends calls, all that wait at once.
async fn send(
    mut waiting: mpsc::Receiver<Waiting>,
    mut calls: OwnedWriteHalf,
    sent: mpsc::Sender<Waiting>,
) -> io::Result<()> {
    let (mut batch, one) = (Vec::new(), [3; CALL_BYTES]);
    let mut frames = Vec::new();
    while waiting.recv_many(&mut batch, CALLS_MAX).await > 0 {
        frames.clear();
        for waiter in batch.drain(..) {
            frames.extend_from_slice(&one);
            sent.send(waiter).await.map_err(io::Error::other)?;
        }
        calls.write_all(&frames).await?;
    }
    Ok(())
}

/// Receives replies, which come in the order of the calls.
async fn receive(
    mut replies: OwnedReadHalf,
    mut in_order: mpsc::Receiver<Waiting>,
    reply_bytes: usize,
) -> io::Result<()> {
    let mut received = BytesMut::with_capacity(64 << 10);
    while let Some(waiter) = in_order.recv().await {
        while received.len() < reply_bytes {
            received.reserve(64 << 10);
            if replies.read_buf(&mut received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // A client that left needs no reply.
        let _ = waiter.send(received.split_to(reply_bytes).freeze());
    }
    Ok(())
}
