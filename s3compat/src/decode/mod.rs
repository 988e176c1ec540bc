//! Decoding of request bodies: framed and signed bytes become plain bytes, or a typed error before
//! the end of the stream.
//!
//! * [`ChunkDecoder`] decodes aws-chunked bytes to object bytes and trailers, without I/O and in
//!   bounded memory, however the input is split.
//! * [`ChunkSigner`] checks the chain of signatures over chunks and trailer.
//! * [`SigningKey`] signs for one day, region and service.
//! * [`DecodedBody`] drives a decoder from any HTTP body. It counts and hashes bytes, and times out
//!   clients that are silent or slow.
//! * [`BodyFacts`] holds the facts about a body that operations need besides its bytes.
//! * [`PollFlag`] records that a body was requested from its client.
//! * [`BodyError`] is the error of a body that differs from its announcement.
//!
//! Invariants:
//! * Bytes of a signed chunk of up to 1 MiB are passed on only after its signature was checked.
//!   Longer chunks are hashed as they pass.
//! * The bytes that complete the announced length are passed on only after all checks. So a reader
//!   that has received all bytes, or the end, has a verified body. Nothing may be committed before
//!   that.

mod body;
mod chunked;
mod error;
mod facts;
mod poll_flag;
mod signer;
mod signing_key;

pub use body::DecodedBody;
pub(crate) use body::{BodyPlan, BodyTimeouts, Framing, collect};
pub use chunked::ChunkDecoder;
pub use error::BodyError;
pub use facts::BodyFacts;
pub(crate) use poll_flag::PollFlag;
pub use signer::ChunkSigner;
pub use signing_key::SigningKey;
