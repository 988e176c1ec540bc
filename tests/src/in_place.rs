//! A client that reads objects in place: it locates an object, reads its pieces at the nodes'
//! data ports, and verifies each block by itself.

use std::ops::Range;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::s3::S3;

const BLOCK_BYTES: usize = 65_536;
/// Maximum time for one read.
const PATIENCE: Duration = Duration::from_secs(20);

/// A holder of a piece, as locate names it.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Address of the data port, `HOST:PORT`.
    pub authority: String,
    /// Path of the piece.
    pub path: String,
    /// Token for the piece.
    pub token: String,
}

/// A piece of an object, as locate names it.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Id of the piece.
    pub id: String,
    /// Bytes of the object that the piece holds.
    pub range: Range<usize>,
    /// BLAKE3 of the extent, if the piece is the whole extent.
    pub blake3: Option<String>,
    /// The holders, possibly none.
    pub holders: Vec<Holder>,
}

/// A located object.
#[derive(Clone, Debug)]
pub struct Located {
    /// Length of the object.
    pub size: usize,
    /// ETag with its quotes.
    pub etag: String,
    /// True if it can be read in place.
    pub direct: bool,
    /// Its pieces in order.
    pub pieces: Vec<Piece>,
}

/// Reply of a data port.
#[derive(Clone, Debug)]
pub struct DataReply {
    /// The HTTP status.
    pub status: u16,
    /// Value of `x-martlet-refused`.
    pub refused: String,
    /// ETag without its quotes.
    pub etag: String,
    /// The bytes.
    pub body: Vec<u8>,
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).expect("a length")
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

impl Located {
    /// Locates an object through a proxy or a server.
    pub async fn of(client: &mut S3, target: &str) -> Result<Self, String> {
        let reply = client.get(&format!("{target}?locate=")).await?;
        if reply.status != 200 {
            return Err(format!("{}: {}", reply.status, reply.text()));
        }
        assert_eq!(reply.header("x-martlet-locate"), "1");
        let document: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert!(document["next"].is_null(), "tests read short objects");
        let mut pieces = Vec::new();
        for extent in list(&document["extents"]) {
            let offset = number(&extent["offset"]);
            let is_whole = extent["code"].is_null();
            for piece in list(&extent["pieces"]) {
                let from = offset + number(&piece["from"]);
                pieces.push(Piece {
                    id: text(&piece["id"]),
                    range: from..from + number(&piece["length"]),
                    blake3: is_whole.then(|| text(&extent["blake3"])),
                    holders: list(&piece["holders"]).iter().map(Holder::of).collect(),
                });
            }
        }
        Ok(Self {
            size: number(&document["size"]),
            etag: text(&document["etag"]),
            direct: document["direct"].as_bool().expect("a flag"),
            pieces,
        })
    }

    /// Reads the whole object: each piece at its first holder that serves it, and by GET if none
    /// does.
    pub async fn read(&self, client: &mut S3, target: &str) -> Result<Vec<u8>, String> {
        let mut whole = Vec::with_capacity(self.size);
        for piece in &self.pieces {
            whole.extend(match piece.read().await {
                Ok(bytes) => bytes,
                Err(_) => self.get(client, target, &piece.range).await?,
            });
        }
        Ok(whole)
    }

    async fn get(
        &self,
        client: &mut S3,
        target: &str,
        range: &Range<usize>,
    ) -> Result<Vec<u8>, String> {
        let bytes = format!("bytes={}-{}", range.start, range.end - 1);
        let headers = [("range", bytes.as_str()), ("if-match", self.etag.as_str())];
        let reply = client.send_with("GET", target, &headers, bytes::Bytes::new()).await?;
        if reply.status == 206 { Ok(reply.body.to_vec()) } else { Err(reply.text()) }
    }
}

impl Holder {
    fn of(value: &Value) -> Self {
        let url = text(&value["url"]);
        let rest = url.strip_prefix("http://").expect("tests use plain HTTP");
        let (authority, path) = rest.split_once('/').expect("a path");
        let (authority, path) = (authority.to_owned(), format!("/{path}"));
        Self { authority, path, token: text(&value["token"]) }
    }

    /// Reads a range, or the whole piece; an error if the connection breaks. `more` goes to the end
    /// of the query.
    pub async fn read(&self, range: Option<Range<usize>>, more: &str) -> Result<DataReply, String> {
        let range = range.map(|it| format!("Range: bytes={}-{}\r\n", it.start, it.end - 1));
        let Self { authority, path, token } = self;
        let request = format!(
            "GET {path}?t={token}{more} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{}\r\n",
            range.unwrap_or_default()
        );
        let exchange = async {
            let mut stream = TcpStream::connect(authority.as_str()).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).await.map(|_| reply)
        };
        let reply = timeout(PATIENCE, exchange).await.map_err(|_| "no reply in time".to_owned())?;
        parse(&reply.map_err(|error| error.to_string())?)
    }
}

impl Piece {
    /// Reads the piece at the first holder that serves the whole of it.
    pub async fn read(&self) -> Result<Vec<u8>, String> {
        let mut last = "no holder".to_owned();
        for holder in &self.holders {
            match holder.read(None, "").await {
                Ok(reply) if reply.status == 200 => return Ok(reply.body),
                Ok(reply) => last = format!("{} {}", reply.status, reply.refused),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Parses a reply. Panics if a whole block differs from its checksum.
fn parse(reply: &[u8]) -> Result<DataReply, String> {
    let at = reply.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no head")?;
    let head = String::from_utf8_lossy(&reply[..at]).into_owned();
    let body = reply[at + 4..].to_vec();
    let header = |name: &str| {
        let mut lines = head.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or("");
        line.trim().to_owned()
    };
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).ok_or("no status")?;
    let length: usize = header("content-length").parse().map_err(|_| "no length")?;
    if body.len() != length {
        return Err(format!("the reply ended after {} of {length} bytes", body.len()));
    }
    if status == 200 {
        let sums = STANDARD.decode(header("x-martlet-block-crc32c")).expect("base64");
        let blocks = body.chunks(BLOCK_BYTES).map(crc_fast::crc32_iscsi);
        let found: Vec<u8> = blocks.flat_map(u32::to_be_bytes).collect();
        assert_eq!(found, sums, "a block differs from its checksum");
    }
    let etag = header("etag").trim_matches('"').to_owned();
    Ok(DataReply { status, refused: header("x-martlet-refused"), etag, body })
}
