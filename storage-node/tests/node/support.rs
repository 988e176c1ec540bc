//! Keys, writes and small file systems for tests of a whole node.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use martlet_protocol::Term;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::TryStreamExt;
use martlet_protocol::backend::{
    Backend, DeviceCondition, DeviceHealth, EntryWrite, Want, WriteReply,
};
use martlet_protocol::entry::{Attributes, Body, ETag, Entry, Manifest, Object, Value};
use martlet_protocol::extent::ExtentRef;
use martlet_protocol::register::WriteMode;
use martlet_protocol::testing::{new_extent, whole_body};
use martlet_protocol::{
    BackendExt, BucketId, Clock, DeviceId, PolicyId, RegisterKey, Result, Stamp, SystemClock,
    WriteId,
};
use martlet_storage_node::{DeviceConfig, NodeOptions, Reserve, StorageNode};

pub const DEVICE: DeviceId = DeviceId(0);
pub const BUCKET: BucketId = BucketId([5; 16]);

pub fn config(path: &Path, reserve: u64) -> DeviceConfig {
    DeviceConfig { reserve: Reserve::Bytes(reserve), ..DeviceConfig::new(DEVICE, path) }
}

pub fn open(path: &Path, reserve: u64) -> Result<StorageNode> {
    StorageNode::open(vec![config(path, reserve)], NodeOptions::default())
}

/// Records that the device has the fences of its peers, so that it takes first-hand writes.
pub async fn give_fences(node: &StorageNode) {
    let identity = node.devices().await.unwrap()[0].identity;
    let condition = DeviceCondition { identity, not_after_ms: u64::MAX };
    node.set_fenced_of(DEVICE, condition).await.unwrap();
}

pub fn key(name: &str) -> RegisterKey {
    RegisterKey::object(BUCKET, 4, name)
}

/// Returns bytes that a reader can recognise as the bytes of `name`.
pub fn pattern(name: &str, length: usize) -> Bytes {
    let seed = name.bytes().fold(7u8, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte));
    (0..length).map(|at| seed.wrapping_add(u8::try_from(at % 251).unwrap())).collect()
}

pub fn write(name: &str, value: Value) -> EntryWrite {
    let order = Stamp::at_ms(SystemClock.now_ms());
    EntryWrite {
        key: key(name),
        entry: Entry { order, write_id: WriteId::random(), value },
        inline: None,
        mode: WriteMode::Fresh,
        generation: 1,
        commit_by_ms: u64::MAX,
        keep_body: false,
        term: Term::ANY,
    }
}

pub fn object(size: usize, body: Body) -> Value {
    Value::Object(Box::new(Object {
        size: size as u64,
        etag: ETag::Md5([7; 16]),
        modified_ms: 1,
        attributes: Attributes::default(),
        checksums: Vec::new(),
        upload: None,
        body,
        version: None,
    }))
}

/// Returns an inline write of [`pattern`].
pub fn inline(name: &str, length: usize) -> EntryWrite {
    let bytes = pattern(name, length);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    let body = Body::Inline { crc32c: u32::try_from(crc).unwrap() };
    EntryWrite { inline: Some(bytes), ..write(name, object(length, body)) }
}

/// Stores [`pattern`] in an extent, as the first half of a PUT.
pub async fn put_extent(node: &StorageNode, name: &str, length: usize) -> Result<ExtentRef> {
    put_extent_on(node, DEVICE, name, length).await
}

/// Stores [`pattern`] in an extent of this device.
pub async fn put_extent_on(
    node: &StorageNode,
    device: DeviceId,
    name: &str,
    length: usize,
) -> Result<ExtentRef> {
    let new = new_extent(BUCKET, name, Some(length as u64));
    node.write_extent(device, new, whole_body(pattern(name, length))).await
}

/// Stores [`pattern`] as an object of one extent.
pub async fn put_object(node: &StorageNode, name: &str, length: usize) -> Result<WriteReply> {
    let extents = vec![put_extent(node, name, length).await?];
    let manifest =
        Manifest { policy: PolicyId(0), extents, parts: Vec::new(), part_checksums: Vec::new() };
    let write = write(name, object(length, Body::Extents(manifest)));
    node.write(DEVICE, write).await
}

/// Reads the bytes of an object, inline or in extents; none without an object.
pub async fn get(node: &StorageNode, name: &str) -> Result<Option<Bytes>> {
    let view = node.read(DEVICE, &key(name), Want::EntryAndInline, Term::ANY).await?;
    let Some(Value::Object(object)) = view.entry.map(|entry| entry.value) else { return Ok(None) };
    let Body::Extents(manifest) = object.body else { return Ok(view.inline) };
    let mut bytes = Vec::new();
    for extent in manifest.extents {
        let range = 0..u64::from(extent.length);
        let stream = node.read_extent(DEVICE, extent.id, range).await?;
        for chunk in stream.try_collect::<Vec<_>>().await? {
            bytes.extend_from_slice(&chunk);
        }
    }
    Ok(Some(bytes.into()))
}

pub async fn health(node: &StorageNode) -> DeviceHealth {
    node.devices().await.unwrap().remove(0).health
}

/// Waits until a device's health matches; panics with the current health after 40 s.
pub async fn wait_for_health(node: &StorageNode, wanted: impl Fn(&DeviceHealth) -> bool) {
    let began = Instant::now();
    while !wanted(&health(node).await) {
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", health(node).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kind of a file system.
#[derive(Clone, Copy, Debug)]
pub enum Filesystem {
    Ext4,
    /// At least 300 MiB.
    Xfs,
}

impl Filesystem {
    fn make(self, file: &Path) -> bool {
        let file = file.to_str().unwrap();
        match self {
            Self::Ext4 => run("mkfs.ext4", &["-q", "-F", "-m", "0", file]),
            Self::Xfs => run("mkfs.xfs", &["-q", "-f", file]),
        }
    }
}

/// A small file system in a file, mounted while this lives. Needs root and a loop device. The file
/// lies in `MARTLET_IMAGES`, or with other temporary files.
pub struct Image {
    folder: tempfile::TempDir,
    mounted: bool,
}

impl Image {
    /// Makes and mounts an ext4 file system, or prints the reason against it.
    pub fn new(test: &str, mib: u64) -> Option<Self> {
        Self::of(Filesystem::Ext4, test, mib)
    }

    /// Makes and mounts a file system, or prints the reason against it.
    pub fn of(filesystem: Filesystem, test: &str, mib: u64) -> Option<Self> {
        let folder = match std::env::var_os("MARTLET_IMAGES") {
            Some(images) => tempfile::tempdir_in(images).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        let mut image = Self { folder, mounted: false };
        File::create(image.file()).unwrap().set_len(mib * 1024 * 1024).unwrap();
        std::fs::create_dir(image.path()).unwrap();
        if !filesystem.make(&image.file()) || !image.mount() {
            eprintln!("SKIPPED {test}: it needs root, mkfs of {filesystem:?} and a loop device");
            return None;
        }
        Some(image)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub fn mount(&mut self) -> bool {
        let (file, path) = (self.file(), self.path());
        self.mounted =
            run("mount", &["-o", "loop", file.to_str().unwrap(), path.to_str().unwrap()]);
        self.mounted
    }

    pub fn unmount(&mut self) {
        // Threads that close files may hold the mount for a moment.
        for _ in 0..100 {
            if !self.mounted || run("umount", &[self.path().to_str().unwrap()]) {
                self.mounted = false;
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        eprintln!("{} stays mounted", self.path().display());
    }

    /// Cuts the power: unsynced data is lost, every later call fails with EIO. Returns bounds on
    /// the time of the cut, in milliseconds since 1970: not before, and not after.
    pub fn cut_power(&self) -> Option<(u64, u64)> {
        Self::cut_all_power([self])
    }

    /// Cuts the power of several file systems, one right after the other.
    pub fn cut_all_power<'a>(images: impl IntoIterator<Item = &'a Self>) -> Option<(u64, u64)> {
        // EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH; XFS has the same numbers.
        let script = "import fcntl, os, struct, sys, time\n\
            flags = struct.pack('I', 2)\n\
            folders = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]\n\
            before = time.time_ns() // 1000000\n\
            [fcntl.ioctl(folder, 0x8004587d, flags) for folder in folders]\n\
            print(before, time.time_ns() // 1000000)";
        let paths = images.into_iter().map(Self::path);
        let output = Command::new("python3").args(["-c", script]).args(paths).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let (before, after) = text.trim().split_once(' ')?;
        Some((before.parse().ok()?, after.parse().ok()?))
    }

    /// Fills the space up to about `left` bytes; removing the file frees it.
    pub fn fill(&self, left: u64) -> PathBuf {
        let fillers = (0..).map(|number| self.path().join(format!("filler-{number}")));
        let path = fillers.into_iter().find(|path| !path.exists()).unwrap();
        let file = File::create(&path).unwrap();
        let figures = rustix::fs::fstatvfs(&file).unwrap();
        let free = figures.f_bavail * figures.f_frsize;
        let flags = rustix::fs::FallocateFlags::empty();
        // ext4 needs some blocks of its own for a large file.
        for spare in (0..).map(|step| step * 256 * 1024) {
            match free.saturating_sub(left + spare) {
                0 => break,
                take if rustix::fs::fallocate(&file, flags, 0, take).is_ok() => break,
                _ => {}
            }
        }
        path
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}
