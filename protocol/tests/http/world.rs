//! Test helpers: a node on loopback, its clients, and raw sockets on either side.

use martlet_protocol::Term;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use martlet_protocol::backend::NewExtent;
use martlet_protocol::entry::{Entry, Value};
use martlet_protocol::http::{
    Announcement, ClientOptions, ClusterKey, HttpBackend, NodeReport, RingTag, ServeOptions,
    ServerOptions, guarded, router, serve,
};
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{MemoryBackend, new_extent};
use martlet_protocol::{
    Backend, BucketId, ByteStream, Clock, DeviceId, RegisterKey, Result, Stamp, SystemClock,
    WriteId, WriterId,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const DEVICE: DeviceId = DeviceId(3);

/// A node that listens on loopback until dropped.
pub(crate) struct TestNode {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub(crate) fn key() -> ClusterKey {
    "5a".repeat(32).parse().unwrap()
}

pub(crate) fn memory() -> Arc<MemoryBackend> {
    Arc::new(MemoryBackend::new(Arc::new(SystemClock), [DEVICE]))
}

pub(crate) fn tag() -> RingTag {
    RingTag { name: "index".into(), epoch: 7, hash: [9; 8] }
}

/// Wraps `app` in the node's authentication and announcement.
pub(crate) fn guard(app: Router) -> Router {
    guarded(app, key(), Arc::new(SystemClock), Arc::new(|| Announcement::new(&[tag()])))
}

impl TestNode {
    pub(crate) async fn start(backend: Arc<dyn Backend>) -> Self {
        Self::with(backend, ServerOptions::default()).await
    }

    pub(crate) async fn with(backend: Arc<dyn Backend>, options: ServerOptions) -> Self {
        Self::serve("127.0.0.1:0".parse().unwrap(), guard(router(backend, options))).await
    }

    pub(crate) async fn serve(address: SocketAddr, app: Router) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let options = ServeOptions { drain: Duration::from_secs(1), ..ServeOptions::default() };
        let task = tokio::spawn(serve(listener, app, options, stopped.map(|_| ())));
        Self { address, stop: Some(stop), task }
    }

    pub(crate) fn client(&self) -> HttpBackend {
        client(self.address, ClientOptions::default())
    }

    /// Stops the server and waits for it.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }

    /// Ends the server at once, with its connections.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn client(address: SocketAddr, options: ClientOptions) -> HttpBackend {
    HttpBackend::new(address.to_string(), key(), options, Arc::new(|_| ()))
}

/// Options with this limit for all timeouts but connecting.
pub(crate) fn patience(limit: Duration) -> ClientOptions {
    ClientOptions { call: limit, idle: limit, finish: limit, ..ClientOptions::default() }
}

/// A client that records the states of its node.
pub(crate) fn listener(node: &TestNode) -> (HttpBackend, Arc<Mutex<Vec<NodeReport>>>) {
    listener_with(node, ClientOptions::default())
}

pub(crate) fn listener_with(
    node: &TestNode,
    options: ClientOptions,
) -> (HttpBackend, Arc<Mutex<Vec<NodeReport>>>) {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let keep = reports.clone();
    let observe = Arc::new(move |one| keep.lock().push(one));
    let address = node.address.to_string();
    (HttpBackend::new(address, key(), options, observe), reports)
}

pub(crate) fn register() -> RegisterKey {
    RegisterKey::object(BucketId::random(), 4, "key")
}

/// A write of a tombstone, the smallest write.
pub(crate) fn write(key: &RegisterKey) -> martlet_protocol::backend::EntryWrite {
    let order = Stamp { time: SystemClock.now_ms() << 16, writer: WriterId(1) };
    martlet_protocol::backend::EntryWrite {
        key: key.clone(),
        entry: Entry { order, write_id: WriteId::random(), value: Value::Tombstone },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

pub(crate) fn extent(length: Option<u64>) -> NewExtent {
    new_extent(BucketId::random(), "key é", length)
}

pub(crate) fn stream(pieces: Vec<Result<Bytes>>) -> ByteStream {
    futures::stream::iter(pieces).boxed()
}

pub(crate) async fn collect(mut stream: ByteStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

/// Waits up to 5 s until a condition holds.
pub(crate) async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not after five seconds");
}

/// A server that runs `act` on each connection.
pub(crate) async fn impostor<F>(act: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(act(stream));
        }
    });
    address
}

/// Reads the head of a request, and the bytes of its body that came with the head.
pub(crate) async fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut more = [0; 4096];
        match stream.read(&mut more).await {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&more[..n]),
        }
    }
    bytes
}

/// Sends raw bytes to a node and returns the reply's status, if a reply comes within 2 s.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut reply = Vec::new();
    let read = async {
        let mut more = [0; 512];
        while !reply.contains(&b'\n') {
            match stream.read(&mut more).await {
                Ok(0) | Err(_) => break,
                Ok(n) => reply.extend_from_slice(&more[..n]),
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
    std::str::from_utf8(reply.get(9..12)?).ok()?.parse().ok()
}
