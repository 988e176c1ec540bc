//! Bodies on their way in: what the client framed, signed and promised becomes plain bytes, or a
//! typed error before the end of the stream.
//!
//! * [`ChunkDecoder`] is the pure half: aws-chunked bytes in, object bytes and trailers out, in
//!   bounded memory, however the bytes are cut.
//! * [`ChunkSigner`] checks the chain of signatures over chunks and trailer.
//! * [`DecodedBody`] is the streaming half: it drives a decoder from any HTTP body, counts, hashes,
//!   and notices silence and bytes that trickle.
//! * [`BodyFacts`] is what the operations learn of the body beside its bytes.
//! * [`BodyError`] is what ends a body that isn't what was promised.
//!
//! Promises:
//! * Bytes of a signed chunk of up to 1 MiB are passed on only after its signature was checked;
//!   longer chunks are hashed as they pass.
//! * The bytes that complete the promised length are passed on only once everything there is to
//!   check has been checked. So a reader that has seen all bytes, or the end, has seen the truth,
//!   and nothing may be committed before either.

mod body;
mod chunked;
mod error;
mod facts;
mod signer;

pub use body::DecodedBody;
pub(crate) use body::{BodyPlan, Framing, Patience, collect};
pub use chunked::ChunkDecoder;
pub use error::BodyError;
pub use facts::BodyFacts;
pub use signer::ChunkSigner;
