//! Baseline for small GETs: the HTTP library alone answers requests from memory.
//!
//! hyper on tokio, as the S3 port uses them, with one worker thread for each core and a head as
//! long as those of S3 replies. Nothing is authenticated, looked up or verified. The requesting
//! threads belong to this process, and their CPU seconds are subtracted.

use std::convert::Infallible;
use std::future::ready;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::Full;
use hyper::Response;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::super::args::BenchArgs;
use super::super::cpu;
use super::super::tally::BenchTally;
use super::{BaselineResult, on_threads};

/// Bytes of a presigned request's target: path and parameters.
const TARGET_BYTES: usize = 350;
/// Headers of a reply to GetObject besides those of the HTTP library, with usual values.
const REPLY_HEADERS: [(&str, &str); 7] = [
    ("accept-ranges", "bytes"),
    ("content-type", "application/octet-stream"),
    ("etag", "\"9b2cf535f27731c974343645a3985328\""),
    ("last-modified", "Sat, 28 Nov 2026 00:00:00 GMT"),
    ("server", "martlet"),
    ("x-amz-id-2", "BZtVqEMdcWLPEZWpfMNVsaVWZ1mFOW3p"),
    ("x-amz-request-id", "06AQXWTK8MQ0Q9Q4S2YV"),
];

pub(super) fn run(args: &BenchArgs, body: &[u8]) -> io::Result<BaselineResult> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let body = Bytes::copy_from_slice(body);
    let address = listen(&runtime, move || ready(reply(body.clone())))?;
    let outcome = on_threads(args, |_| request(args, address));
    runtime.shutdown_background();
    outcome
}

/// Serves on a loopback port until the runtime ends: `answer` makes the reply to each request.
pub(super) fn listen<R>(
    runtime: &Runtime,
    answer: impl Fn() -> R + Clone + Send + 'static,
) -> io::Result<SocketAddr>
where
    R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Without TCP_NODELAY a reply could wait for the client's acknowledgement.
            if stream.set_nodelay(true).is_err() {
                continue;
            }
            let answer = answer.clone();
            let service = service_fn(move |_| answer().map(Ok::<_, Infallible>));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

pub(super) fn reply(body: Bytes) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(body));
    for (name, value) in REPLY_HEADERS {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Sends requests on one connection, each after the reply to the one before.
pub(super) fn request(args: &BenchArgs, address: SocketAddr) -> io::Result<BaselineResult> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut replies = BufReader::with_capacity(64 << 10, &stream);
    let target = "a".repeat(TARGET_BYTES);
    let head = format!("GET /{target} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut body = vec![0; usize::try_from(args.size.0).map_err(io::Error::other)?];
    let mut tally = BenchTally::default();
    let deadline = Instant::now() + args.duration;
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            break;
        }
        (&stream).write_all(head.as_bytes())?;
        skip_head(&mut replies)?;
        replies.read_exact(&mut body)?;
        tally.answered(begun.elapsed(), args.size.0);
    }
    let client_cpu_s = cpu::seconds_of_this_thread().map_err(io::Error::other)?;
    Ok(BaselineResult { tally, client_cpu_s })
}

/// Reads up to the end of a reply's head.
fn skip_head(replies: &mut impl BufRead) -> io::Result<()> {
    let mut line = Vec::new();
    while line != b"\r\n" {
        line.clear();
        if replies.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
