//! A client of the direct socket, and a node that serves one.
#![allow(unreachable_pub, clippy::unwrap_used, reason = "these are tests")]

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use martlet_protocol::extent::ExtentRef;
use martlet_protocol::extent_token::{ExtentGrant, ExtentTokenKey};
use martlet_protocol::{Clock, DeviceId, ExtentId, SystemClock};
use martlet_storage_node::{
    DirectFigures, DirectListener, DirectOptions, DirectServer, DirectTimes, NodeOptions,
    StorageNode,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::{DEVICE, config};

const KIB: u64 = 1024;
/// Time between a notice and the end of a lease in these tests.
pub const NOTICE: Duration = Duration::from_millis(500);

/// A node with a direct socket.
pub struct DirectNode {
    pub node: Arc<StorageNode>,
    pub path: PathBuf,
    figures: Box<dyn Fn() -> DirectFigures>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    // Holds the socket.
    _folder: tempfile::TempDir,
}

/// Options of [`DirectNode::open`].
pub struct TestOptions {
    pub reserve: u64,
    pub uids: Vec<u32>,
    pub bytes_max: u64,
    pub times: DirectTimes,
}

impl Default for TestOptions {
    fn default() -> Self {
        let times = DirectTimes { notice: NOTICE, ..DirectTimes::default() };
        Self { reserve: 0, uids: Vec::new(), bytes_max: KIB * KIB * KIB, times }
    }
}

pub fn token_key() -> ExtentTokenKey {
    ExtentTokenKey::derive(b"secret of a test")
}

impl DirectNode {
    pub fn open(root: &Path, options: TestOptions) -> Self {
        let node_options = NodeOptions { lends: true, ..NodeOptions::default() };
        let configs = vec![config(root, options.reserve)];
        let node = Arc::new(StorageNode::open(configs, node_options).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("direct");
        let listener = DirectListener::bind(path.clone()).unwrap();
        let options = DirectOptions {
            uids: options.uids,
            bytes_max: options.bytes_max,
            key: token_key(),
            clock: Arc::new(SystemClock),
            times: options.times,
        };
        let server = DirectServer::new(listener, node.clone(), options);
        let figures = Box::new(server.figures());
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(server.run(stopped));
        Self { node, path, figures, stop, serving, _folder: folder }
    }

    pub fn figures(&self) -> DirectFigures {
        (self.figures)()
    }

    /// Bytes of deleted extents that leases keep.
    pub fn withheld_bytes(&self) -> u64 {
        self.node.metrics().devices[0].extents.withheld_bytes
    }

    /// Stops serving, and returns the node.
    pub async fn stop(self) -> Arc<StorageNode> {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
        assert!(!self.path.exists(), "the socket is removed");
        self.node
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.path)
    }
}

/// Grant of a whole extent for a minute.
pub fn grant(extent: &ExtentRef) -> ExtentGrant {
    ExtentGrant {
        device: DEVICE,
        extent: extent.id,
        first: 0,
        last: u64::from(extent.length) - 1,
        expires_ms: SystemClock.now_ms() + 60_000,
        tenant: "team".into(),
        networks: Vec::new(),
    }
}

/// A connection to the socket.
pub struct Client(OwnedFd);

/// Packet of the server.
#[derive(Debug)]
pub enum Packet {
    Granted(Granted),
    Refused { request: u64, code: u16, sentence: String },
    Revoked { code: u16, lease: u64, until_ms: u64 },
    Released { lease: u64 },
    Closed,
}

/// A lease that began, and its descriptors.
#[derive(Debug)]
pub struct Granted {
    pub flags: u8,
    pub lease: u64,
    pub offset: u64,
    pub length: u64,
    pub expires_ms: u64,
    pub crcs: Vec<u32>,
    pub plain: OwnedFd,
    pub direct: OwnedFd,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn packet(kind: u8, request: u64) -> Vec<u8> {
    [b"MDS1".as_slice(), &[kind, 0, 0, 0], &request.to_le_bytes()].concat()
}

impl Client {
    pub fn connect(path: &Path) -> Self {
        let kind = SocketType::SEQPACKET;
        let socket =
            net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        let patience = Some(Duration::from_secs(20));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience).unwrap();
        Self(socket)
    }

    pub fn send(&self, packet: &[u8]) {
        net::send(&self.0, packet, SendFlags::NOSIGNAL).unwrap();
    }

    /// Sends a packet. False if the connection is closed.
    pub fn try_send(&self, packet: &[u8]) -> bool {
        net::send(&self.0, packet, SendFlags::NOSIGNAL).is_ok()
    }

    /// Sends a request for a lease, without waiting for the reply.
    pub fn send_lease(&self, request: u64, extent: ExtentId, token: &str) {
        self.send(&[packet(1, request).as_slice(), &extent.0, token.as_bytes()].concat());
    }

    /// Requests a lease with a token of this grant.
    pub async fn ask(&self, extent: ExtentId, grant: &ExtentGrant) -> Packet {
        self.send_lease(7, extent, &token_key().seal(grant));
        self.receive().await
    }

    /// Leases a whole extent.
    pub async fn lease(&self, extent: &ExtentRef) -> Granted {
        match self.ask(extent.id, &grant(extent)).await {
            Packet::Granted(granted) => granted,
            other => panic!("no lease: {other:?}"),
        }
    }

    pub async fn release(&self, lease: u64) -> Packet {
        self.send(&[packet(2, 8).as_slice(), &lease.to_le_bytes()].concat());
        self.receive().await
    }

    /// Returns the code of a refusal.
    pub async fn refusal(&self, extent: ExtentId, grant: &ExtentGrant) -> u16 {
        match self.ask(extent, grant).await {
            Packet::Refused { request: 7, code, sentence } => {
                assert!(!sentence.is_empty());
                code
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Waits for a packet, at most 20 s.
    pub async fn receive(&self) -> Packet {
        let socket = self.0.try_clone().unwrap();
        tokio::task::spawn_blocking(move || receive(&socket)).await.unwrap()
    }
}

fn receive(socket: &OwnedFd) -> Packet {
    let mut bytes = vec![0; 8192];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
    let length = match received {
        Ok(received) => received.bytes,
        Err(Errno::CONNRESET) => return Packet::Closed,
        Err(errno) => panic!("no packet: {errno}"),
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    bytes.truncate(length);
    decode(&bytes, files)
}

fn decode(bytes: &[u8], files: Vec<OwnedFd>) -> Packet {
    if bytes.is_empty() {
        return Packet::Closed;
    }
    assert!(bytes.starts_with(b"MDS1"));
    let (code, request) = (u16::from_le_bytes([bytes[6], bytes[7]]), number(bytes, 8));
    match bytes[4] {
        129 => {
            assert_eq!(number(bytes, 48) & 0xffff_ffff, 65_536);
            let crcs: Vec<_> = bytes[56..]
                .chunks(4)
                .map(|crc| u32::from_le_bytes(crc.try_into().unwrap()))
                .collect();
            assert_eq!(number(bytes, 48) >> 32, crcs.len() as u64);
            let [plain, direct] = files.try_into().unwrap();
            Packet::Granted(Granted {
                flags: bytes[5],
                lease: number(bytes, 16),
                offset: number(bytes, 24),
                length: number(bytes, 32),
                expires_ms: number(bytes, 40),
                crcs,
                plain,
                direct,
            })
        }
        130 => {
            let sentence = String::from_utf8(bytes[16..].to_vec()).unwrap();
            Packet::Refused { request, code, sentence }
        }
        131 => Packet::Revoked { code, lease: number(bytes, 16), until_ms: number(bytes, 24) },
        132 => Packet::Released { lease: number(bytes, 16) },
        kind => panic!("a packet of kind {kind}"),
    }
}

/// Reads up to `length` bytes from the beginning of a file, in one buffer that suits direct reads.
pub fn read(file: &OwnedFd, length: u64) -> Vec<u8> {
    let length = usize::try_from(length).unwrap();
    let padded = length.next_multiple_of(4096);
    let mut memory = vec![0_u8; padded + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let (buffer, mut done) = (&mut memory[start..start + padded], 0);
    while done < length {
        match rustix::io::pread(file, &mut buffer[done..], done as u64).unwrap() {
            0 => break,
            more => done += more,
        }
    }
    buffer[..done.min(length)].to_vec()
}

/// Opens a descriptor's file again, as another process could.
pub fn open_again(file: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty())
}

/// Free bytes of the file system of a folder.
pub fn free_bytes(folder: &Path) -> u64 {
    let about = rustix::fs::statvfs(folder).unwrap();
    about.f_bavail * about.f_frsize
}

pub const OTHER_DEVICE: DeviceId = DeviceId(77);
