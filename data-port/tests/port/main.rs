//! A data port over a real device, and clients that speak to it by hand.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod flow;
mod reads;
mod tls;
mod tokens;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use martlet_data_port::{DataPortLimits, DataPortServer};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::extent_token::{ANONYMOUS_TENANT, ExtentGrant, ExtentTokenKey};
use martlet_protocol::testing::{new_extent, whole_body};
use martlet_protocol::{Backend, BackendExt, BucketId, Clock, DeviceId, ExtentId, ManualClock};
use martlet_serving::Certificate;
use martlet_serving::listen::{ConnectionLimits, HEAD_BYTES_MAX, Limits, Port};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const DEVICE: DeviceId = DeviceId(7);
const NOW_MS: u64 = 1_800_000_000_000;
const BLOCK: usize = 65_536;
/// Most connections of one address that have shown no token of a signed locate.
const KEYLESS_PER_ADDRESS: usize = 32;

/// A node with one device and a data port.
struct World {
    folder: tempfile::TempDir,
    node: Arc<StorageNode>,
    key: ExtentTokenKey,
    clock: Arc<ManualClock>,
    address: SocketAddr,
    server: Arc<DataPortServer>,
    stop: watch::Sender<bool>,
}

/// Parts of a world that tests choose.
struct Setup {
    limits: DataPortLimits,
    write_idle: Duration,
    certificate: Option<Certificate>,
    reserve: Reserve,
}

impl Default for Setup {
    fn default() -> Self {
        let limits = DataPortLimits { requests_max: 8, ..DataPortLimits::default() };
        let reserve = Reserve::Bytes(1 << 20);
        Self { limits, write_idle: Duration::from_secs(10), certificate: None, reserve }
    }
}

/// A reply, and true if its body came whole.
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
    is_whole: bool,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.map(str::trim)
    }

    fn checksums(&self) -> Vec<u32> {
        let bytes = STANDARD.decode(self.header("x-martlet-block-crc32c").unwrap()).unwrap();
        bytes.chunks(4).map(|sum| u32::from_be_bytes(sum.try_into().unwrap())).collect()
    }
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from((at / 7 + at) % 251).unwrap()).collect()
}

fn limits(write_idle: Duration) -> Limits {
    let keyless_per_address = KEYLESS_PER_ADDRESS;
    let places = ConnectionLimits { all: 64, keyless: 32, keyless_per_address };
    let header_timeout = Duration::from_mins(2);
    Limits { places, header_timeout, write_idle, head_bytes: HEAD_BYTES_MAX }
}

/// Opens a node with the device in `folder`.
fn open_node(folder: &Path, reserve: Reserve, clock: Arc<ManualClock>) -> StorageNode {
    let config = DeviceConfig { reserve, ..DeviceConfig::new(DEVICE, folder) };
    let options = NodeOptions { clock, ..NodeOptions::default() };
    StorageNode::open(vec![config], options).unwrap()
}

async fn put_on(node: &StorageNode, bytes: &Bytes) -> ExtentRef {
    let new = new_extent(BucketId([5; 16]), "k", Some(bytes.len() as u64));
    node.write_extent(DEVICE, new, whole_body(bytes.clone())).await.unwrap()
}

impl World {
    async fn new() -> Self {
        Self::of(Setup::default()).await
    }

    async fn with(requests_max: usize, write_idle: Duration) -> Self {
        let limits = DataPortLimits { requests_max, ..DataPortLimits::default() };
        Self::of(Setup { limits, write_idle, ..Setup::default() }).await
    }

    async fn of(setup: Setup) -> Self {
        Self::on(tempfile::tempdir().unwrap(), setup).await
    }

    /// Opens the device in a folder, behind a new port.
    async fn on(folder: tempfile::TempDir, setup: Setup) -> Self {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let node = Arc::new(open_node(folder.path(), setup.reserve, clock.clone()));
        let key = ExtentTokenKey::derive(b"secret");
        let clock_of_tokens: Arc<dyn Clock> = clock.clone();
        let server = DataPortServer::new(node.clone(), key.clone(), clock_of_tokens, setup.limits);
        let server = Arc::new(server);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let port = Port { listener, certificate: setup.certificate };
        let limits = limits(setup.write_idle);
        let serving = server.clone().serve(port, limits, stopped, Duration::from_secs(1));
        tokio::spawn(serving);
        Self { folder, node, key, clock, address, server, stop }
    }

    async fn put(&self, bytes: &Bytes) -> ExtentRef {
        put_on(&self.node, bytes).await
    }

    fn grant(&self, extent: &ExtentRef) -> ExtentGrant {
        ExtentGrant {
            device: DEVICE,
            extent: extent.id,
            first: 0,
            last: u64::from(extent.length) - 1,
            expires_ms: self.clock.now_ms() + 60_000,
            tenant: "team".to_owned(),
            networks: Vec::new(),
        }
    }

    /// Path of a piece with a token for the whole of it.
    fn path(&self, extent: &ExtentRef) -> String {
        self.path_by(extent.id, &self.grant(extent))
    }

    /// Path of a piece with a token that an unsigned locate gets.
    fn unsigned_path(&self, extent: &ExtentRef) -> String {
        let tenant = ANONYMOUS_TENANT.to_owned();
        self.path_by(extent.id, &ExtentGrant { tenant, ..self.grant(extent) })
    }

    fn path_by(&self, id: ExtentId, grant: &ExtentGrant) -> String {
        format!("/x/{id}?t={}", self.key.seal(grant))
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn get(&self, path: &str, range: Option<&str>) -> Reply {
        let mut stream = self.connect().await;
        send(&mut stream, "GET", path, range).await;
        receive(&mut stream, true).await
    }

    /// File of an extent that isn't packed.
    fn file_of(&self, id: ExtentId) -> PathBuf {
        let name = id.to_string();
        self.folder.path().join("extents").join(&name[..2]).join(name)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    method: &str,
    path: &str,
    range: Option<&str>,
) {
    let range = range.map(|range| format!("Range: {range}\r\n")).unwrap_or_default();
    let text = format!("{method} {path} HTTP/1.1\r\nHost: n1\r\n{range}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S, has_body: bool) -> Reply {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut reply = Reply { status, head, body: Vec::new(), is_whole: true };
    let length: usize = reply.header("content-length").unwrap().parse().unwrap();
    if has_body {
        let mut part = stream.take(length as u64);
        reply.is_whole = part.read_to_end(&mut reply.body).await.is_ok_and(|n| n == length);
    }
    reply
}

/// Address from which the tests' clients connect.
fn loopback() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}
