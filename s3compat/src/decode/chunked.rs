//! Decoder of the aws-chunked encoding, without I/O.
//!
//! ```text
//! body    = *chunk last (CRLF | trailer)
//! chunk   = size [";chunk-signature=" 64HEX] CRLF bytes CRLF
//! last    = "0"  [";chunk-signature=" 64HEX] CRLF
//! trailer = *(name ":" value CRLF) ["x-amz-trailer-signature:" 64HEX CRLF] *CRLF
//! ```
//!
//! As in S3, blanks around the parts of a chunk's extension are ignored, and of two equal trailers
//! the last one counts. More empty lines may follow a trailer. A signed trailer needs none, because
//! its signature proves that it is complete.
//!
//! Memory is bounded by one line, one trailer and one chunk of [`HELD_BYTES_MAX`]. Decoded bytes
//! are slices of the input.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use martlet_protocol::limits::PUT_BYTES_MAX;
use martlet_proxy::ChunkQueue;
use sha2::{Digest, Sha256};

use super::error::BodyError;
use super::signer::ChunkSigner;

/// Maximum length of a signed chunk that is held until its signature is checked, in bytes.
pub(crate) const HELD_BYTES_MAX: u64 = 1024 * 1024;
/// Minimum length of a chunk before the last one, in bytes.
const CHUNK_BYTES_MIN: u64 = 8 * 1024;
/// Maximum length of a chunk header, in bytes: twice its size of 16 digits and signature of 64.
const LINE_BYTES_MAX: usize = 256;
/// Maximum length of a trailer's line, and of all its lines together, in bytes.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Length of a signature, in hexadecimal digits.
const SIGNATURE_BYTES: usize = 64;
const SIGNATURE_EXTENSION: &[u8] = b"chunk-signature";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// Decodes aws-chunked bytes to object bytes and trailers.
#[derive(Debug)]
pub struct ChunkDecoder {
    state: ChunkState,
    signer: Option<ChunkSigner>,
    declared: Option<Vec<HeaderName>>,
    /// Current line, up to its LF.
    line: Vec<u8>,
    chunk: Chunk,
    trailer: Trailer,
    ready: VecDeque<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// At a chunk's header.
    Header,
    /// In a chunk, with this many bytes to come.
    Data(u64),
    /// At the line end after a chunk's bytes.
    DataEnd,
    /// Among the lines of the trailer, or at the line end after the last chunk.
    Trailer,
    /// After the end of the body.
    End,
}

/// Current chunk.
#[derive(Debug, Default)]
struct Chunk {
    signature: Vec<u8>,
    hash: Sha256,
    is_held: bool,
    held: ChunkQueue,
    /// True if the chunk is so short that only the empty chunk may follow.
    is_short: bool,
}

/// Current trailer.
#[derive(Debug, Default)]
struct Trailer {
    headers: HeaderMap,
    canonical: Vec<u8>,
    is_signed: bool,
    has_gap: bool,
    /// Bytes of empty lines after the trailer.
    behind: usize,
}

impl ChunkDecoder {
    /// Creates a decoder. With a signer all chunks must be signed. With declared names (those in
    /// `x-amz-trailer`) the body must have a trailer.
    pub fn new(signer: Option<ChunkSigner>, declared: Option<Vec<HeaderName>>) -> Self {
        Self {
            state: ChunkState::Header,
            signer,
            declared,
            line: Vec::new(),
            chunk: Chunk::default(),
            trailer: Trailer::default(),
            ready: VecDeque::new(),
        }
    }

    /// Decodes bytes as received.
    pub fn push(&mut self, mut bytes: Bytes) -> Result<(), BodyError> {
        while !bytes.is_empty() {
            match self.state {
                ChunkState::Data(left) => self.take_data(&mut bytes, left)?,
                ChunkState::End => self.take_behind(&std::mem::take(&mut bytes))?,
                ChunkState::Header | ChunkState::DataEnd | ChunkState::Trailer => {
                    self.take_line(&mut bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the next object bytes, if any.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Ends the input, and returns the trailers. Refuses an incomplete body.
    pub fn finish(&mut self) -> Result<HeaderMap, BodyError> {
        if self.state == ChunkState::Trailer && self.signer.is_some() && !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.take_trailer_line(&line)?;
        }
        // The signature of a trailer proves that no line is missing.
        if self.state == ChunkState::Trailer && self.trailer.is_signed {
            self.end_trailer()?;
        }
        match self.state {
            ChunkState::End => Ok(std::mem::take(&mut self.trailer.headers)),
            _ => Err(BodyError::Truncated),
        }
    }

    /// Ignores empty lines after the end, up to the maximum length of a trailer.
    fn take_behind(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        self.trailer.behind += bytes.len();
        let is_empty = bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if is_empty && self.declared.is_some() && self.trailer.behind <= TRAILER_BYTES_MAX {
            return Ok(());
        }
        Err(BodyError::MalformedChunk("bytes after the end"))
    }

    fn take_data(&mut self, bytes: &mut Bytes, left: u64) -> Result<(), BodyError> {
        let length = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let piece = bytes.split_to(length);
        let left = left - length as u64;
        if self.signer.is_some() {
            self.chunk.hash.update(&piece);
        }
        if self.chunk.is_held {
            self.chunk.held.push(piece);
        } else {
            self.ready.push_back(piece);
        }
        self.state = ChunkState::Data(left);
        if left == 0 {
            self.check_chunk()?;
            self.ready.extend(self.chunk.held.take_all());
            self.state = ChunkState::DataEnd;
        }
        Ok(())
    }

    fn check_chunk(&mut self) -> Result<(), BodyError> {
        let Some(signer) = &mut self.signer else { return Ok(()) };
        let digest = self.chunk.hash.finalize_reset().into();
        signer.check_chunk(&digest, &self.chunk.signature)
    }

    /// Reads up to the end of a line, and processes the line if it is complete.
    fn take_line(&mut self, bytes: &mut Bytes) -> Result<(), BodyError> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(bytes.len(), |end| end + 1);
        let (limit, too_long) = match self.state {
            ChunkState::Trailer => {
                (TRAILER_BYTES_MAX, BodyError::MalformedTrailer("it is too long"))
            }
            _ => (LINE_BYTES_MAX, BodyError::MalformedChunk("a header is too long")),
        };
        if self.line.len() + length > limit {
            return Err(too_long);
        }
        self.line.extend_from_slice(&bytes[..length]);
        bytes.advance(length);
        if end.is_none() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        self.act_on(&line)?;
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn act_on(&mut self, line: &[u8]) -> Result<(), BodyError> {
        match self.state {
            ChunkState::Header => self.begin_chunk(line),
            ChunkState::DataEnd if line == b"\r\n" => {
                self.state = ChunkState::Header;
                Ok(())
            }
            ChunkState::DataEnd => {
                Err(BodyError::MalformedChunk("a chunk is longer than its size"))
            }
            ChunkState::Trailer => self.take_trailer_line(line),
            ChunkState::Data(_) | ChunkState::End => {
                unreachable!("only states that read lines reach this")
            }
        }
    }

    fn begin_chunk(&mut self, line: &[u8]) -> Result<(), BodyError> {
        let header = line
            .strip_suffix(b"\r\n")
            .ok_or(BodyError::MalformedChunk("a header does not end in CR LF"))?;
        let (size, extension) = match header.iter().position(|byte| *byte == b';') {
            Some(at) => (&header[..at], Some(&header[at + 1..])),
            None => (header, None),
        };
        let size = parse_size(if extension.is_some() { size.trim_ascii_end() } else { size })?;
        if self.chunk.is_short && size > 0 {
            return Err(BodyError::ShortChunk { least: CHUNK_BYTES_MIN });
        }
        self.chunk.is_short = size < CHUNK_BYTES_MIN;
        self.chunk.signature.clear();
        if self.signer.is_some() {
            let signature = extension.and_then(signature_in);
            let signature = signature.ok_or(BodyError::MalformedChunk("a chunk is not signed"))?;
            if signature.len() != SIGNATURE_BYTES {
                return Err(BodyError::ChunkSignature);
            }
            self.chunk.signature.extend_from_slice(signature);
        }
        self.chunk.is_held = self.signer.is_some() && size <= HELD_BYTES_MAX;
        if size == 0 {
            self.check_chunk()?;
            self.state = ChunkState::Trailer;
        } else {
            self.state = ChunkState::Data(size);
        }
        Ok(())
    }

    fn take_trailer_line(&mut self, line: &[u8]) -> Result<(), BodyError> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.is_empty() {
            return self.end_trailer();
        }
        let Some(declared) = &self.declared else {
            return Err(BodyError::MalformedChunk("a trailer was not announced"));
        };
        let (name, value) = split_header(text)?;
        if name == TRAILER_SIGNATURE {
            let Some(signer) = self.signer.as_mut().filter(|_| !self.trailer.is_signed) else {
                return Err(BodyError::MalformedTrailer("an unexpected signature"));
            };
            signer.check_trailer(&self.trailer.canonical, value.as_bytes())?;
            self.trailer.is_signed = true;
            return Ok(());
        }
        if self.trailer.is_signed || !declared.contains(&name) {
            return Err(BodyError::MalformedTrailer("a header was not announced"));
        }
        let canonical = &mut self.trailer.canonical;
        if canonical.len() + text.len() > TRAILER_BYTES_MAX {
            return Err(BodyError::MalformedTrailer("it is too long"));
        }
        canonical.extend_from_slice(name.as_str().as_bytes());
        canonical.push(b':');
        canonical.extend_from_slice(value.as_bytes());
        canonical.push(b'\n');
        self.trailer.headers.insert(name, value);
        Ok(())
    }

    fn end_trailer(&mut self) -> Result<(), BodyError> {
        if let Some(declared) = &self.declared {
            if declared.iter().any(|name| !self.trailer.headers.contains_key(name)) {
                return Err(BodyError::MalformedTrailer("an announced header is missing"));
            }
            // Some clients put an empty line between the headers and their signature.
            if self.signer.is_some() && !self.trailer.is_signed {
                let is_second = std::mem::replace(&mut self.trailer.has_gap, true);
                return if is_second {
                    Err(BodyError::MalformedTrailer("it is not signed"))
                } else {
                    Ok(())
                };
            }
        }
        self.state = ChunkState::End;
        Ok(())
    }
}

/// Signature in a chunk's extension.
fn signature_in(extension: &[u8]) -> Option<&[u8]> {
    let (name, value) = extension.split_at(extension.iter().position(|byte| *byte == b'=')?);
    (name.trim_ascii() == SIGNATURE_EXTENSION).then(|| value[1..].trim_ascii())
}

fn parse_size(digits: &[u8]) -> Result<u64, BodyError> {
    let is_number = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let size = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match size {
        None => Err(BodyError::MalformedChunk("a size is not a hexadecimal number")),
        Some(size) if size > PUT_BYTES_MAX => {
            Err(BodyError::MalformedChunk("a chunk is larger than any object"))
        }
        Some(size) => Ok(size),
    }
}

fn split_header(line: &[u8]) -> Result<(HeaderName, HeaderValue), BodyError> {
    let malformed = BodyError::MalformedTrailer("a line is not a header");
    let at = line.iter().position(|byte| *byte == b':').ok_or_else(|| malformed.clone())?;
    let name = HeaderName::from_bytes(&line[..at]).map_err(|_| malformed.clone())?;
    let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii()).map_err(|_| malformed)?;
    Ok((name, value))
}

#[cfg(test)]
mod tests;
