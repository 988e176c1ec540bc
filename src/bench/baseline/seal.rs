//! Baseline for TLS: AES-256-GCM of records in memory, by the library that TLS uses.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::super::args::BenchArgs;
use super::super::tally::BenchTally;
use super::{BaselineResult, on_threads};

/// Maximum bytes of a TLS record's payload.
const RECORD_BYTES_MAX: usize = 16 << 10;

pub(super) fn run(args: &BenchArgs, body: &[u8]) -> io::Result<BaselineResult> {
    on_threads(args, |_| seal(args, body.to_vec()).map(Into::into))
}

/// Seals the records of a body, in place, until the time is over.
fn seal(args: &BenchArgs, mut body: Vec<u8>) -> io::Result<BenchTally> {
    let refused = |_| io::Error::other("AES-256-GCM refuses a record");
    let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).map(LessSafeKey::new).map_err(refused)?;
    let mut tally = BenchTally::default();
    let mut records = 0_u64;
    let deadline = Instant::now() + args.duration;
    loop {
        let begun = Instant::now();
        if begun >= deadline {
            return Ok(tally);
        }
        for record in body.chunks_mut(RECORD_BYTES_MAX) {
            let mut nonce = [0; NONCE_LEN];
            nonce[..8].copy_from_slice(&records.to_be_bytes());
            let nonce = Nonce::assume_unique_for_key(nonce);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), record);
            black_box(tag.map_err(refused)?.as_ref());
            records += 1;
        }
        tally.answered(begun.elapsed(), body.len() as u64);
    }
}
