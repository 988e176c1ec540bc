//! Floor of a data port's cost: one file over HTTP, and nothing else.
//!
//! `martlet-port-floor ADDRESS FILE verified [WINDOW_KIB]` reads windows of the file from the page
//! cache, compares the CRC32C of each 64 KiB block with that of the start, and writes the window.
//! `martlet-port-floor ADDRESS FILE sent` sends the file by `sendfile`. Each connection has a thread
//! and a socket that blocks. There are no tokens, limits, time-outs, metrics or TLS.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::{env, io, process, thread};

use rustix::fs::sendfile;
use rustix::io::retry_on_intr;

const BLOCK: usize = 64 * 1024;
/// The data port's window.
const WINDOW_KIB: usize = 128;

/// A file, and the work for its bytes.
struct Floor {
    file: File,
    length: u64,
    /// CRC32C of each block; none if the file is sent as it is.
    checksums: Option<Vec<u32>>,
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
    let (address, path, work, window) = match arguments.as_slice() {
        [address, path, work] => (address, path, work, WINDOW_KIB),
        [address, path, work, kib] => (address, path, work, kib.parse().map_err(io::Error::other)?),
        _ => return Err(io::Error::other("needs ADDRESS FILE verified|sent [WINDOW_KIB]")),
    };
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let checksums = match work.as_str() {
        "verified" => Some(checksums(&file, length)?),
        "sent" => None,
        _ => return Err(io::Error::other("the work is verified or sent")),
    };
    let window = (window * 1024).next_multiple_of(BLOCK).max(BLOCK);
    let floor = Arc::new(Floor { file, length, checksums, window });
    for stream in TcpListener::bind(address)?.incoming() {
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
        while let Some(range) = self.next_request(&mut received)? {
            let length = range.end - range.start;
            let head = format!("HTTP/1.1 206 Partial Content\r\ncontent-length: {length}\r\n\r\n");
            let mut reply = stream;
            reply.write_all(head.as_bytes())?;
            match &self.checksums {
                Some(checksums) => self.verified(reply, range, &mut window, checksums)?,
                None => self.sent(reply, range)?,
            }
        }
        Ok(())
    }

    /// Range of the next request; none at the end of the connection.
    fn next_request(&self, received: &mut BufReader<&TcpStream>) -> io::Result<Option<Range<u64>>> {
        let (mut line, mut range) = (String::new(), 0..self.length);
        loop {
            line.clear();
            if received.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some((first, last)) =
                line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'))
            {
                let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
                range = number(first)?..number(last)?.saturating_add(1).min(self.length);
            }
            if line.is_empty() {
                return Ok(Some(range));
            }
        }
    }

    /// Sends whole blocks from the beginning of `range`, which begins at one.
    fn verified(
        &self,
        mut reply: &TcpStream,
        range: Range<u64>,
        window: &mut [u8],
        checksums: &[u32],
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length = within(range.end - at).min(window.len());
            let bytes = &mut window[..length];
            self.file.read_exact_at(bytes, at)?;
            let first = within(at) / BLOCK;
            let mut blocks = bytes.chunks(BLOCK).zip(&checksums[first..]);
            if !blocks.all(|(block, sum)| crc_fast::crc32_iscsi(block) == *sum) {
                return Err(io::Error::other(format!("a block from byte {at} on is wrong")));
            }
            reply.write_all(bytes)?;
            at += length as u64;
        }
        Ok(())
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

fn within(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a process can address a file")
}
