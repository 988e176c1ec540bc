//! Floor of a data port's cost: files over HTTP, and nothing else.
//!
//! `martlet-port-floor ADDRESS FOLDER WORK [THREADS]`. Of a file from the page cache, `verified` reads windows
//! of 128 KiB, compares the CRC32C of each 64 KiB block with that of the start, and writes the window;
//! `sent` sends the file by `sendfile`. Each connection has a thread and a socket that blocks, or, if THREADS is
//! given, so many threads wait for all sockets at once. There are no tokens, limits, time-outs, metrics or TLS. A
//! file is named by the last part of a request's path.

mod polled;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::{env, fs, io, process, thread};

use rustix::fs::sendfile;
use rustix::io::retry_on_intr;
use rustix::net::{SendFlags, send};

const BLOCK: usize = 64 * 1024;
/// The data port's window, in bytes.
const WINDOW: usize = 128 * 1024;

/// A file, and the checksum of each block; none if the file is sent as it is.
struct Served {
    file: File,
    length: u64,
    checksums: Option<Vec<u32>>,
}

/// Files by their names, and the work for their bytes.
struct Floor {
    files: HashMap<String, Served>,
    window: usize,
}

fn main() {
    if let Err(error) = serve() {
        eprintln!("martlet-port-floor: {error}");
        process::exit(1);
    }
}

fn serve() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, path, work, threads) = match arguments.as_slice() {
        [address, path, work] => (address, path, work, 0),
        [address, path, work, threads] => {
            (address, path, work, threads.parse().map_err(io::Error::other)?)
        }
        _ => return Err(io::Error::other("needs ADDRESS FOLDER verified|sent [THREADS]")),
    };
    let verifies = match work.as_str() {
        "verified" => true,
        "sent" => false,
        _ => return Err(io::Error::other("the work is verified or sent")),
    };
    let mut files = HashMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let (file, length) = (File::open(entry.path())?, entry.metadata()?.len());
        let checksums = if verifies { Some(checksums(&file, length)?) } else { None };
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, Served { file, length, checksums });
    }
    let (floor, listener) =
        (Arc::new(Floor { files, window: WINDOW }), TcpListener::bind(address)?);
    if threads > 0 {
        return polled::serve(&listener, &floor, threads);
    }
    for stream in listener.incoming() {
        let (floor, stream) = (floor.clone(), stream?);
        thread::spawn(move || {
            if let Err(error) = floor.converse(&stream) {
                eprintln!("martlet-port-floor: a connection ended early: {error}");
            }
        });
    }
    Ok(())
}

fn checksums(file: &File, length: u64) -> io::Result<Vec<u32>> {
    let (mut checksums, mut at) = (Vec::new(), 0);
    let mut block = vec![0; BLOCK];
    while at < length {
        let bytes = &mut block[..within(length - at).min(BLOCK)];
        file.read_exact_at(bytes, at)?;
        checksums.push(crc_fast::crc32_iscsi(bytes));
        at += bytes.len() as u64;
    }
    Ok(checksums)
}

impl Floor {
    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut received = BufReader::new(stream);
        let mut window = vec![0; self.window];
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if received.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let (served, range) = self.requested(&head)?;
            let reply = stream;
            // The head leaves with the first bytes.
            send(reply, reply_head(&range).as_bytes(), SendFlags::MORE)?;
            match &served.checksums {
                Some(_) => served.verified(reply, range, &mut window)?,
                None => served.sent(reply, range)?,
            }
        }
    }

    /// File and bytes that the head of a request names.
    fn requested(&self, head: &str) -> io::Result<(&Served, Range<u64>)> {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let served = self.files.get(name);
        let served = served.ok_or_else(|| io::Error::other(format!("there is no {name}")))?;
        for line in head.lines() {
            if let Some(range) = range_of(line, served.length)? {
                return Ok((served, range));
            }
        }
        Ok((served, 0..served.length))
    }
}

fn reply_head(range: &Range<u64>) -> String {
    let length = range.end - range.start;
    format!("HTTP/1.1 206 Partial Content\r\ncontent-length: {length}\r\n\r\n")
}

impl Served {
    /// Sends whole blocks from the beginning of `range`, which begins at one.
    fn verified(
        &self,
        mut reply: &TcpStream,
        range: Range<u64>,
        window: &mut [u8],
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length = within(range.end - at).min(window.len());
            let bytes = &mut window[..length];
            self.read_verified(at, bytes)?;
            reply.write_all(bytes)?;
            at += length as u64;
        }
        Ok(())
    }

    /// Reads bytes from `at` on, which begins a block, and compares the checksums of their blocks.
    fn read_verified(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)?;
        let checksums = self.checksums.as_deref().unwrap_or_default();
        let mut blocks = bytes.chunks(BLOCK).zip(&checksums[within(at) / BLOCK..]);
        if blocks.all(|(block, sum)| crc_fast::crc32_iscsi(block) == *sum) {
            return Ok(());
        }
        Err(io::Error::other(format!("a block from byte {at} on is wrong")))
    }

    fn sent(&self, reply: &TcpStream, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let left = within(range.end - at);
            if retry_on_intr(|| sendfile(reply, &self.file, Some(&mut at), left))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// Bytes that a line of a request names, if it is a `Range`.
fn range_of(line: &str, length: u64) -> io::Result<Option<Range<u64>>> {
    let line = line.trim().to_ascii_lowercase();
    let range = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'));
    let Some((first, last)) = range else { return Ok(None) };
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    Ok(Some(number(first)?..number(last)?.saturating_add(1).min(length)))
}

fn within(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a process can address a file")
}
