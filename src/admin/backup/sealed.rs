//! Sealed files: a header in clear, and chunks that are encrypted and authenticated.
//!
//! ```text
//! martlet-backup\n
//! {"format":1,"martlet":"0.1.0","made_ms":…,"salt":"…","key":…,"check":"…"}\n
//! ┌ chunk ──────────────────────────────────────┐
//! │ length (4, big endian) │ ciphertext, tag (16) │  …repeated; the highest bit of the length
//! └─────────────────────────────────────────────┘   marks the last chunk
//! ```
//!
//! AES-256-GCM under the key of the file. The nonce of a chunk is its number and the mark of the last
//! one, so that no chunk can be exchanged, repeated or left out, and a cut file is noticed. The
//! header's hash is authenticated with each chunk.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use martlet_protocol::id::random_bytes;
use martlet_serving::Failure;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

use super::secret::{BackupSecret, FileKey, KeyForm};

const MAGIC: &str = "martlet-backup\n";
/// Version of the format that this release writes, and the last one that it reads.
const FORMAT: u32 = 1;
/// Plain bytes of a chunk.
const CHUNK: usize = 64 << 10;
const TAG: usize = 16;
const LAST: u32 = 1 << 31;
const HEADER_BYTES_MAX: u64 = 4096;

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Version of the format.
    pub(super) format: u32,
    /// Release that made the backup.
    pub(super) martlet: String,
    /// Time of the backup, in milliseconds since 1970.
    pub(super) made_ms: u64,
    /// Salt of the key, in hexadecimal.
    salt: String,
    /// Derivation of the key.
    pub(super) key: KeyForm,
    /// Text by which a wrong key is noticed.
    check: String,
}

#[derive(Deserialize)]
struct AnyHeader {
    format: u32,
}

impl Header {
    /// Makes the header of a new file, and its key.
    pub(super) fn new(
        secret: &BackupSecret,
        martlet: String,
        made_ms: u64,
    ) -> Result<(Self, FileKey), Failure> {
        let (salt, form) = (random_bytes::<32>(), secret.form());
        let key = secret.key(form, &salt)?;
        let (salt, check) = (hex::encode(salt), key.check());
        Ok((Self { format: FORMAT, martlet, made_ms, salt, key: form, check }, key))
    }

    /// Reads the header at the begin of a file.
    ///
    /// # Errors
    /// The file is none of a backup, is damaged, or has a later format.
    pub(super) fn read(from: &mut impl BufRead) -> Result<Self, Failure> {
        let damaged = || Failure::refused("the header of the backup is damaged");
        let mut magic = vec![0; MAGIC.len()];
        let is_ours = from.read_exact(&mut magic).is_ok() && magic == MAGIC.as_bytes();
        if !is_ours {
            return Err(Failure::refused(
                "the file is no backup: name one that martlet admin backup create wrote",
            ));
        }
        let mut line = String::new();
        from.take(HEADER_BYTES_MAX).read_line(&mut line).map_err(|_| damaged())?;
        let AnyHeader { format } = serde_json::from_str(&line).map_err(|_| damaged())?;
        if format > FORMAT {
            return Err(Failure::refused(format!(
                "the backup has format {format}, and this release reads formats up to {FORMAT}: use \
                 the release that made it, or a later one"
            )));
        }
        serde_json::from_str(&line).map_err(|_| damaged())
    }

    /// Returns the key of the file.
    ///
    /// # Errors
    /// The secret isn't that of the file.
    pub(super) fn open(&self, secret: &BackupSecret) -> Result<FileKey, Failure> {
        let mut salt = [0; 32];
        hex::decode_to_slice(&self.salt, &mut salt)
            .map_err(|_| Failure::refused("the header of the backup is damaged"))?;
        let key = secret.key(self.key, &salt)?;
        if key.check() != self.check {
            return Err(Failure::refused(
                "the passphrase or key isn't that of this backup: name the one with which the \
                 backup was made",
            ));
        }
        Ok(key)
    }

    fn bytes(&self) -> Vec<u8> {
        let header = serde_json::to_string(self).expect("plain data can be encoded");
        format!("{MAGIC}{header}\n").into_bytes()
    }
}

/// Cipher of a file's chunks, in their order.
struct Chunks {
    key: LessSafeKey,
    header: blake3::Hash,
    number: u64,
}

impl Chunks {
    fn new(header: &Header, key: &FileKey) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &key.0).expect("the key has 32 bytes");
        Self { key: LessSafeKey::new(key), header: blake3::hash(&header.bytes()), number: 0 }
    }

    fn next_nonce(&mut self, is_last: bool) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.number.to_be_bytes());
        nonce[8] = u8::from(is_last);
        self.number += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, chunk: &mut Vec<u8>, is_last: bool) {
        let (nonce, header) = (self.next_nonce(is_last), self.header);
        let sealed = self.key.seal_in_place_append_tag(nonce, Aad::from(header.as_bytes()), chunk);
        sealed.expect("a chunk is far shorter than what can be sealed at once");
    }

    fn open<'a>(&mut self, chunk: &'a mut [u8], is_last: bool) -> Option<&'a mut [u8]> {
        let (nonce, header) = (self.next_nonce(is_last), self.header);
        self.key.open_in_place(nonce, Aad::from(header.as_bytes()), chunk).ok()
    }
}

/// Writer of a sealed file. Without [`SealWriter::finish`] the file is refused as cut.
pub(super) struct SealWriter<W> {
    to: W,
    chunks: Chunks,
    plain: Vec<u8>,
}

impl<W: Write> SealWriter<W> {
    /// Writes the header.
    pub(super) fn new(mut to: W, header: &Header, key: &FileKey) -> io::Result<Self> {
        to.write_all(&header.bytes())?;
        Ok(Self { to, chunks: Chunks::new(header, key), plain: Vec::with_capacity(2 * CHUNK) })
    }

    /// Writes the last chunk, and returns the file.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let rest = std::mem::take(&mut self.plain);
        self.write_chunk(rest, true)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn write_chunk(&mut self, mut chunk: Vec<u8>, is_last: bool) -> io::Result<()> {
        self.chunks.seal(&mut chunk, is_last);
        let length = u32::try_from(chunk.len()).expect("a chunk is short");
        self.to.write_all(&(length | if is_last { LAST } else { 0 }).to_be_bytes())?;
        self.to.write_all(&chunk)
    }
}

impl<W: Write> Write for SealWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(CHUNK)];
        self.plain.extend_from_slice(bytes);
        if self.plain.len() > CHUNK {
            let rest = self.plain.split_off(CHUNK);
            let chunk = std::mem::replace(&mut self.plain, rest);
            self.write_chunk(chunk, false)?;
        }
        Ok(bytes.len())
    }

    /// Does nothing: a chunk is written when it is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reader of a sealed file. It returns authenticated bytes alone, and no end before the last chunk.
pub(super) struct SealReader<R> {
    from: R,
    chunks: Chunks,
    plain: Vec<u8>,
    at: usize,
    is_over: bool,
}

impl<R: Read> SealReader<R> {
    /// Reads what follows the header.
    pub(super) fn new(from: R, header: &Header, key: &FileKey) -> Self {
        let chunks = Chunks::new(header, key);
        Self { from, chunks, plain: Vec::new(), at: 0, is_over: false }
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let number = self.chunks.number + 1;
        let invalid = |sentence: String| io::Error::new(ErrorKind::InvalidData, sentence);
        let cut = |error: io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                invalid(format!("the backup is cut within chunk {number}: use another copy"))
            }
            _ => error,
        };
        let damaged =
            || invalid(format!("chunk {number} of the backup is damaged: use another copy"));
        let mut length = [0; 4];
        self.from.read_exact(&mut length).map_err(cut)?;
        let word = u32::from_be_bytes(length);
        let (length, is_last) = ((word & !LAST) as usize, word & LAST != 0);
        if !(TAG..=CHUNK + TAG).contains(&length) {
            return Err(damaged());
        }
        let mut chunk = vec![0; length];
        self.from.read_exact(&mut chunk).map_err(cut)?;
        let plain = self.chunks.open(&mut chunk, is_last).ok_or_else(damaged)?.len();
        chunk.truncate(plain);
        (self.plain, self.at, self.is_over) = (chunk, 0, is_last);
        if is_last && self.from.read(&mut [0])? != 0 {
            return Err(invalid("bytes follow the end of the backup: use another copy".to_owned()));
        }
        Ok(())
    }
}

impl<R: Read> Read for SealReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.at == self.plain.len() && !self.is_over {
            self.next_chunk()?;
        }
        let length = bytes.len().min(self.plain.len() - self.at);
        bytes[..length].copy_from_slice(&self.plain[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}
