//! Bodies in the aws-chunked encoding: the result doesn't depend on the pieces in which they come, and
//! signed bytes are passed on as they were signed or not at all.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use martlet_protocol::testing::fuzz_target::{FuzzTarget, InputReader, block, pieces};
use sha2::{Digest, Sha256};

use crate::auth::Timestamp;
use crate::auth::testing::{ACCESS_KEY, NOW_MS, keys};
use crate::decode::{BodyError, ChunkDecoder, ChunkSigner, SigningKey};

/// Bodies. An input is the number of a kind, a block of cuts, and either the bytes of a body or the
/// parts of one.
///
/// Properties: any bytes give an error or a body, the same in one piece and in any pieces; an encoded
/// body is decoded to its content; a signed body with a changed bit is refused, or decoded to its
/// content.
pub const AWS_CHUNKED: FuzzTarget =
    FuzzTarget { name: "aws_chunked", check, seeds, heap_bytes_max: 8 << 20 };

const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
const DATE: &str = "20130524T000000Z";
const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-crc32c");
/// Minimum length of a chunk before the last one, in bytes.
const CHUNK_BYTES_MIN: usize = 8 * 1024;

/// Framing that a request announces.
#[derive(Clone, Copy, Debug)]
struct Announced {
    is_signed: bool,
    has_trailer: bool,
}

impl Announced {
    fn of(number: u8) -> Self {
        Self { is_signed: number & 1 != 0, has_trailer: number & 2 != 0 }
    }

    fn decoder(self) -> ChunkDecoder {
        let signer = self.is_signed.then(|| ChunkSigner::new(key(), DATE, SCOPE, SEED));
        ChunkDecoder::new(signer, self.has_trailer.then(|| vec![CHECKSUM]))
    }
}

fn key() -> SigningKey {
    let keys = keys();
    let credential = keys.lookup(ACCESS_KEY).expect("the key is known");
    credential.signing_key(Timestamp::from_unix_ms(NOW_MS), "us-east-1")
}

/// Object bytes and trailers, or the error behind the bytes that were passed on.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    bytes: Vec<u8>,
    end: Result<HeaderMap, BodyError>,
}

fn decode(announced: Announced, pieces: &[&[u8]]) -> Decoded {
    let mut decoder = announced.decoder();
    let mut bytes = Vec::new();
    for piece in pieces {
        let pushed = decoder.push(Bytes::copy_from_slice(piece));
        while let Some(part) = decoder.pop() {
            bytes.extend_from_slice(&part);
        }
        if let Err(error) = pushed {
            return Decoded { bytes, end: Err(error) };
        }
    }
    Decoded { bytes, end: decoder.finish() }
}

/// Decodes a body in one piece and in pieces, and compares.
fn decode_both_ways(announced: Announced, body: &[u8], cuts: &[u8]) -> Decoded {
    let whole = decode(announced, &[body]);
    let divided = decode(announced, &pieces(body, cuts));
    assert_eq!(divided, whole, "the pieces decide");
    whole
}

fn check(input: &[u8]) -> bool {
    let mut reader = InputReader::new(input);
    let kind = reader.byte();
    let (announced, cuts) = (Announced::of(kind), reader.block());
    if kind & 4 == 0 {
        return decode_both_ways(announced, reader.rest(), cuts).end.is_ok();
    }
    let (at, bit) = (reader.number(), reader.byte() % 8);
    let upload = Upload::read(reader, announced.has_trailer);
    let mut body = upload.encode(announced);
    assert_eq!(decode_both_ways(announced, &body, cuts), upload.decoded());
    let at = usize::from(at) % body.len();
    body[at] ^= 1 << bit;
    let changed = decode_both_ways(announced, &body, cuts);
    if announced.is_signed {
        let expected = upload.decoded();
        assert!(expected.bytes.starts_with(&changed.bytes), "bytes that nobody signed");
        assert!(changed.end.is_err() || changed == expected, "a changed body is whole");
    }
    true
}

/// Content of a body.
struct Upload {
    chunks: Vec<Vec<u8>>,
    trailer: Option<String>,
}

impl Upload {
    fn read(mut reader: InputReader<'_>, has_trailer: bool) -> Self {
        let trailer = has_trailer.then(|| hex::encode(reader.block()));
        let count = usize::from(reader.byte() % 4);
        let mut chunks: Vec<Vec<u8>> = Vec::new();
        for number in 0..count {
            let is_last = number + 1 == count;
            let least = if is_last { 1 } else { CHUNK_BYTES_MIN };
            let mut chunk = reader.block().to_vec();
            let filler = reader.byte();
            chunk.resize(chunk.len().max(least), filler);
            chunks.push(chunk);
        }
        Self { chunks, trailer }
    }

    fn decoded(&self) -> Decoded {
        let mut trailers = HeaderMap::new();
        if let Some(value) = &self.trailer {
            trailers.insert(CHECKSUM, value.parse().expect("hexadecimal digits are a header"));
        }
        Decoded { bytes: self.chunks.concat(), end: Ok(trailers) }
    }

    /// Encodes the body, as the specification of the encoding says.
    fn encode(&self, announced: Announced) -> Vec<u8> {
        let (key, mut previous) = (key(), SEED.to_owned());
        let mut sign = |algorithm: &str, content: &str| {
            let text = format!("{algorithm}\n{DATE}\n{SCOPE}\n{previous}\n{content}");
            previous = key.sign(text.as_bytes());
            previous.clone()
        };
        let mut body = Vec::new();
        for chunk in self.chunks.iter().chain([&Vec::new()]) {
            body.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
            if announced.is_signed {
                let content = format!("{EMPTY_SHA256}\n{}", hex::encode(Sha256::digest(chunk)));
                let signature = sign("AWS4-HMAC-SHA256-PAYLOAD", &content);
                body.extend_from_slice(format!(";chunk-signature={signature}").as_bytes());
            }
            body.extend_from_slice(b"\r\n");
            body.extend_from_slice(chunk);
            if !chunk.is_empty() {
                body.extend_from_slice(b"\r\n");
            }
        }
        if let Some(value) = &self.trailer {
            body.extend_from_slice(format!("{CHECKSUM}:{value}\r\n").as_bytes());
            if announced.is_signed {
                let content = Sha256::digest(format!("{CHECKSUM}:{value}\n"));
                let signature = sign("AWS4-HMAC-SHA256-TRAILER", &hex::encode(content));
                let line = format!("x-amz-trailer-signature:{signature}\r\n");
                body.extend_from_slice(line.as_bytes());
            }
        }
        body.extend_from_slice(b"\r\n");
        body
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let upload = |has_trailer: bool| Upload {
        chunks: vec![vec![b'a'; CHUNK_BYTES_MIN], b"the end".to_vec()],
        trailer: has_trailer.then(|| "00ff".to_owned()),
    };
    let mut seeds = Vec::new();
    for kind in 0..4 {
        let announced = Announced::of(kind);
        let body = upload(announced.has_trailer).encode(announced);
        seeds.push([&[kind][..], &block(&[255, 7, 0]), &body].concat());
        let short = Upload { chunks: vec![b"one".to_vec()], ..upload(announced.has_trailer) };
        seeds.push([&[kind][..], &block(&[]), &short.encode(announced)].concat());
        let trailer = if announced.has_trailer { block(&[0, 255]) } else { Vec::new() };
        let parts = [&[2][..], &block(b"first"), b"x", &block(b"last"), b"y"].concat();
        let kind = [kind | 4];
        seeds.push([&kind[..], &block(&[99, 0]), &[30, 0, 2], &trailer, &parts].concat());
    }
    seeds
}
