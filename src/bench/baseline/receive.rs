//! Baseline for large PUTs: bodies from sockets become durable files, with BLAKE3 of the whole and
//! CRC32C of each block, and MD5 on request.
//!
//! The files are those of a device: allocated at once, written in chunks that bypass the page
//! cache, synced with their names. Each body is compared with the sent one by its BLAKE3. The
//! sending threads belong to this process, and their CPU seconds are subtracted.

use std::hint::black_box;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Instant;

use martlet_protocol::entry::ChecksumAlgorithm;
use martlet_protocol::limits::{BLOCK_BYTES, CHUNK_BYTES};
use martlet_proxy::checksum_of;
use martlet_storage_node::disk::{Caching, Disk, PosixDisk};

use super::super::args::BenchArgs;
use super::super::cpu;
use super::super::tally::BenchTally;
use super::{BaselineResult, files_kept, joined, on_threads};

/// Alignment of direct writes.
const ALIGN: usize = 4096;
#[expect(clippy::cast_possible_truncation, reason = "64 KiB fits anywhere")]
const BLOCK: usize = BLOCK_BYTES as usize;

pub(super) fn run(args: &BenchArgs, dir: &Path, body: &[u8]) -> io::Result<BaselineResult> {
    let expected = blake3::hash(body);
    on_threads(args, |worker| {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        thread::scope(|scope| {
            let sender = scope.spawn(move || send(args, address, body));
            let (stream, _) = listener.accept()?;
            let mut receiver = Receiver::new(args, dir, worker, expected);
            receiver.serve(stream)?;
            joined(sender)
        })
    })
}

/// Sends bodies and waits for the reply to each of them.
fn send(args: &BenchArgs, address: SocketAddr, body: &[u8]) -> io::Result<BaselineResult> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut tally = BenchTally::default();
    let deadline = Instant::now() + args.duration;
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            break;
        }
        stream.write_all(body)?;
        stream.read_exact(&mut [0])?;
        tally.answered(begun.elapsed(), body.len() as u64);
    }
    let client_cpu_s = cpu::seconds_of_this_thread().map_err(io::Error::other)?;
    Ok(BaselineResult { tally, client_cpu_s })
}

/// Receiver of one connection's bodies.
struct Receiver<'a> {
    args: &'a BenchArgs,
    dir: &'a Path,
    worker: usize,
    expected: blake3::Hash,
    /// Chunk of a body, which begins at `start`.
    memory: Vec<u8>,
    start: usize,
}

impl<'a> Receiver<'a> {
    fn new(args: &'a BenchArgs, dir: &'a Path, worker: usize, expected: blake3::Hash) -> Self {
        let memory = vec![0; CHUNK_BYTES + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        Self { args, dir, worker, expected, memory, start }
    }

    /// Receives bodies until the sender closes the connection.
    fn serve(&mut self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let keep = files_kept(self.args);
        for index in 0.. {
            if stream.peek(&mut [0])? == 0 {
                break;
            }
            let path = self.dir.join(format!("{}-{}", self.worker, index % keep));
            if index >= keep {
                PosixDisk.unlink(&path).map_err(io::Error::other)?;
            }
            self.receive(&mut stream, &path)?;
            stream.write_all(&[1])?;
        }
        Ok(())
    }

    /// Receives one body and makes its file durable.
    fn receive(&mut self, stream: &mut TcpStream, path: &Path) -> io::Result<()> {
        let length = self.args.size.0;
        let file = PosixDisk.create(path, Caching::Direct).map_err(io::Error::other)?;
        let allocated = length.next_multiple_of(ALIGN as u64);
        file.allocate(0, allocated).map_err(io::Error::other)?;
        let chunk = &mut self.memory[self.start..self.start + CHUNK_BYTES];
        let (mut hasher, mut offset) = (blake3::Hasher::new(), 0);
        while offset < length {
            let left = usize::try_from(length - offset).map_err(io::Error::other)?;
            let filled = left.min(CHUNK_BYTES);
            stream.read_exact(&mut chunk[..filled])?;
            hash(self.args, &mut hasher, &chunk[..filled]);
            let padded = filled.next_multiple_of(ALIGN);
            chunk[filled..padded].fill(0);
            let slice = IoSlice::new(&chunk[..padded]);
            file.write_at(&[slice], offset).map_err(io::Error::other)?;
            offset += filled as u64;
        }
        if hasher.finalize() != self.expected {
            return Err(io::Error::other("a received body differs from the sent one"));
        }
        file.truncate(length).map_err(io::Error::other)?;
        file.sync().map_err(io::Error::other)?;
        PosixDisk.sync_dir(self.dir).map_err(io::Error::other)
    }
}

/// Hashes a chunk as a PUT does. MD5 of each chunk costs as much as MD5 of the whole body.
fn hash(args: &BenchArgs, whole: &mut blake3::Hasher, chunk: &[u8]) {
    whole.update(chunk);
    for block in chunk.chunks(BLOCK) {
        black_box(crc_fast::crc32_iscsi(block));
    }
    if args.md5 {
        black_box(checksum_of(ChecksumAlgorithm::Md5, chunk));
    }
}
