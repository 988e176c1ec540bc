//! Health of a process: its answer at the admin address, and the rings in its replies.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout for an answer. A process on this machine that exceeds it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Reply to a probe.
pub(super) struct ProbeReply {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

/// Readiness of a process, with the reason if it is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    pub(super) ready: bool,
    pub(super) reason: String,
}

/// Requests `/readyz` from a process.
pub(super) async fn readiness(admin_address: SocketAddr) -> Readiness {
    match get(admin_address, "/readyz").await {
        Ok(answer) if answer.status == StatusCode::OK => {
            Readiness { ready: true, reason: String::new() }
        }
        Ok(answer) => {
            let reason = answer.body.trim().replace('\n', "; ");
            Readiness { ready: false, reason: format!("{} {reason}", answer.status.as_u16()) }
        }
        Err(why) => Readiness { ready: false, reason: why },
    }
}

/// Returns the rings in the header of a node's replies, as `index=1,data-0=2`. Empty on failure.
pub(super) async fn rings(internal_address: SocketAddr) -> String {
    // An unsigned request is refused, but the refusal carries the header too.
    match get(internal_address, "/").await {
        Ok(answer) => epochs(&answer.headers),
        Err(_) => String::new(),
    }
}

fn epochs(headers: &HeaderMap) -> String {
    let text = headers.get("x-martlet-rings").and_then(|value| value.to_str().ok());
    // `data-0=9-66778899aabbccdd`: the hash follows the last dash.
    let shorts =
        text.unwrap_or_default().split(',').filter_map(|tag| Some(tag.rsplit_once('-')?.0));
    shorts.collect::<Vec<_>>().join(",")
}

/// Sends a GET request and reads the reply, within `PATIENCE`.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<ProbeReply, String> {
    match timeout(PATIENCE, exchange(address, path)).await {
        Ok(answer) => answer,
        Err(_) => Err("no answer".to_owned()),
    }
}

async fn exchange(address: SocketAddr, path: &str) -> Result<ProbeReply, String> {
    let text = |error: hyper::Error| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let request = Request::get(path).header(header::HOST, address.to_string());
    let request = request.body(Empty::<Bytes>::new()).expect("a path and an address are harmless");
    let exchange = async {
        let (head, body) = sender.send_request(request).await.map_err(text)?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(ProbeReply { status: head.status, headers: head.headers, body })
    };
    tokio::select! {
        answer = exchange => answer,
        Err(error) = connection => Err(text(error)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn answering(reply: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(reply.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        address
    }

    #[tokio::test]
    async fn a_reason_is_passed_on_in_one_line() {
        let reply =
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 13\r\n\r\nd1: x\nd2: y\n\n";
        let found = readiness(answering(reply).await).await;
        assert_eq!(found, Readiness { ready: false, reason: "503 d1: x; d2: y".into() });
        let reply = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        assert!(readiness(answering(reply).await).await.ready);
    }

    #[tokio::test]
    async fn a_closed_port_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let found = readiness(address).await;
        assert!(!found.ready && found.reason.contains("refused"), "{}", found.reason);
    }

    #[tokio::test]
    async fn a_process_that_accepts_and_never_replies_hangs() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = readiness(listener.local_addr().unwrap()).await;
        assert_eq!(found.reason, "no answer");
    }

    #[tokio::test]
    async fn rings_are_read_from_any_reply() {
        let reply = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\
                     x-martlet-rings: index=7-0a1b2c3d4e5f6071,data-0=9-66778899aabbccdd\r\n\r\n";
        assert_eq!(rings(answering(reply).await).await, "index=7,data-0=9");
        let reply = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(rings(answering(reply).await).await, "");
    }
}
