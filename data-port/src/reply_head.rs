//! Text of a reply's head.

use std::fmt::Write;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::head::Verifier;

/// Seconds after which a client may try again.
const RETRY_AFTER_S: u32 = 1;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Value of `x-martlet-refused`.
    pub(crate) code: Option<&'static str>,
    /// A sentence, the body of the reply.
    pub(crate) message: String,
    /// Length of the piece, for a range outside of it.
    pub(crate) length: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), length: None }
    }

    /// Head and body of the reply.
    pub(crate) fn text(&self, keeps_alive: bool, wants_body: bool) -> String {
        let mut text = begun(self.status, keeps_alive);
        if let Some(code) = self.code {
            line(&mut text, "x-martlet-refused", code);
        }
        if let Some(length) = self.length {
            line(&mut text, "content-range", format_args!("bytes */{length}"));
        }
        match self.status {
            405 => line(&mut text, "allow", "GET, HEAD"),
            503 => line(&mut text, "retry-after", RETRY_AFTER_S),
            _ => {}
        }
        line(&mut text, "content-type", "text/plain; charset=utf-8");
        line(&mut text, "content-length", self.message.len() + 1);
        text.push_str("\r\n");
        if wants_body {
            text.push_str(&self.message);
            text.push('\n');
        }
        text
    }
}

/// Facts of a reply with bytes.
#[derive(Clone, Debug)]
pub(crate) struct PieceHead<'a> {
    pub(crate) range: Range<u64>,
    /// Length of the whole piece.
    pub(crate) length: u64,
    /// True if the request named a range.
    pub(crate) is_partial: bool,
    pub(crate) blake3: [u8; 32],
    /// CRC32C of each block under the range.
    pub(crate) checksums: &'a [u32],
    pub(crate) verifier: Verifier,
}

impl PieceHead<'_> {
    pub(crate) fn status(&self) -> u16 {
        if self.is_partial { 206 } else { 200 }
    }

    pub(crate) fn text(&self, keeps_alive: bool) -> String {
        let mut text = begun(self.status(), keeps_alive);
        let Range { start, end } = self.range;
        line(&mut text, "content-length", end - start);
        if self.is_partial {
            let length = self.length;
            line(&mut text, "content-range", format_args!("bytes {start}-{}/{length}", end - 1));
        }
        line(&mut text, "etag", format_args!("\"{}\"", hex::encode(self.blake3)));
        line(&mut text, "accept-ranges", "bytes");
        line(&mut text, "content-type", "application/octet-stream");
        // The URL holds a token.
        line(&mut text, "cache-control", "private, no-store");
        line(&mut text, "x-martlet-verified", self.verifier.name());
        let checksums: Vec<u8> = self.checksums.iter().flat_map(|sum| sum.to_be_bytes()).collect();
        line(&mut text, "x-martlet-block-crc32c", STANDARD.encode(checksums));
        text.push_str("\r\n");
        text
    }
}

/// First line of a reply, and the fate of its connection.
fn begun(status: u16, keeps_alive: bool) -> String {
    let reason = match status {
        200 => "OK",
        206 => "Partial Content",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Bad Request",
    };
    let mut text = format!("HTTP/1.1 {status} {reason}\r\n");
    if !keeps_alive {
        line(&mut text, "connection", "close");
    }
    text
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    write!(text, "{name}: {value}\r\n").expect("writing to a String can't fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_described_by_its_head() {
        let head = PieceHead {
            range: 65_536..65_540,
            length: 100_000,
            is_partial: true,
            blake3: [0xab; 32],
            checksums: &[0xe306_9283],
            verifier: Verifier::Node,
        };
        let text = head.text(true);
        assert!(
            text.starts_with("HTTP/1.1 206 Partial Content\r\ncontent-length: 4\r\n"),
            "{text}"
        );
        assert!(text.contains("\r\ncontent-range: bytes 65536-65539/100000\r\n"));
        assert!(text.contains(&format!("\r\netag: \"{}\"\r\n", "ab".repeat(32))));
        assert!(text.contains("\r\nx-martlet-block-crc32c: 4waSgw==\r\n"), "{text}");
        assert!(text.contains("\r\nx-martlet-verified: node\r\n") && text.ends_with("\r\n\r\n"));
        let whole = PieceHead { is_partial: false, range: 0..100_000, ..head };
        assert!(whole.text(false).starts_with("HTTP/1.1 200 OK\r\nconnection: close\r\n"));
        assert!(!whole.text(true).contains("content-range"));
    }

    #[test]
    fn a_refusal_has_a_code_and_a_sentence() {
        let refusal = Refusal::new(403, Some("expired"), "the token has expired");
        let text = refusal.text(true, true);
        assert!(text.contains("\r\nx-martlet-refused: expired\r\n"), "{text}");
        assert!(text.ends_with("content-length: 22\r\n\r\nthe token has expired\n"), "{text}");
        assert!(refusal.text(true, false).ends_with("content-length: 22\r\n\r\n"));
        let busy = Refusal::new(503, Some("overload"), "busy").text(true, true);
        assert!(busy.contains("\r\nretry-after: 1\r\n"), "{busy}");
        let beyond = Refusal { length: Some(9), ..Refusal::new(416, None, "no") };
        assert!(beyond.text(true, true).contains("\r\ncontent-range: bytes */9\r\n"));
    }
}
