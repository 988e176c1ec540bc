//! Tests of the whole crate: every loss, every length, random ranges, golden values, invalid input.

mod golden;
mod inputs;
mod layout;
mod lengths;
mod losses;
mod ranges;
mod reference;
mod streams;

use bytes::Bytes;
use martlet_protocol::limits::BLOCK_BYTES;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::{
    Block, Code, Codec, Encoder, FragmentIndex, Fragments, Geometry, PARITY_BLOCK_BYTES, Recovery,
};

const BLOCK: u64 = BLOCK_BYTES;

fn code(k: u8, m: u8) -> Code {
    Code::new(k, m).unwrap()
}

/// Random generator of a test; prints the seed.
fn seeded(seed: u64) -> SmallRng {
    println!("seed {seed}");
    SmallRng::seed_from_u64(seed)
}

fn random_bytes(random: &mut SmallRng, length: u64) -> Bytes {
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    random.fill_bytes(&mut bytes);
    bytes.into()
}

/// Joins `blocks` to fragments. Checks that each fragment's blocks come in order without a gap, and
/// parity in whole blocks.
fn assemble(code: Code, blocks: Vec<Block>) -> Vec<Vec<u8>> {
    let mut fragments = vec![Vec::new(); usize::from(code.total())];
    for block in blocks {
        let fragment: &mut Vec<u8> = &mut fragments[block.fragment.at()];
        assert_eq!(block.column, fragment.len() as u64, "{}", block.fragment);
        let whole = block.column.is_multiple_of(PARITY_BLOCK_BYTES);
        assert!(whole || code.is_data(block.fragment), "parity in crumbs: {}", block.column);
        fragment.extend_from_slice(&block.bytes);
    }
    fragments
}

/// Encodes an extent in one push.
fn encode(codec: &Codec, geometry: &Geometry, bytes: &Bytes) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(codec, geometry).unwrap();
    let mut blocks = encoder.push(bytes).unwrap();
    let (rest, found) = encoder.finish().unwrap();
    assert_eq!(found, *geometry);
    blocks.extend(rest);
    assemble(geometry.code(), blocks)
}

/// Runs a recovery in steps of `step_bytes`. Returns the recovered fragments and the number of
/// bytes read.
fn recover(recovery: &Recovery, fragments: &[Vec<u8>], step_bytes: u64) -> (Vec<Vec<u8>>, u64) {
    let wanted = recovery.wanted().count();
    let (mut whole, mut buffers) = (vec![Vec::new(); wanted], vec![Vec::new(); wanted]);
    let mut bytes_read = 0;
    for columns in recovery.steps(step_bytes) {
        let pieces = recovery.reads(&columns);
        let read: Vec<&[u8]> = pieces.iter().map(|piece| slice(fragments, piece)).collect();
        bytes_read += pieces.iter().map(super::FragmentColumns::bytes).sum::<u64>();
        recovery.recover(&columns, &read, &mut buffers).unwrap();
        for (whole, made) in whole.iter_mut().zip(&buffers) {
            whole.extend_from_slice(made);
        }
    }
    (whole, bytes_read)
}

fn slice<'a>(fragments: &'a [Vec<u8>], piece: &super::FragmentColumns) -> &'a [u8] {
    if piece.columns.is_empty() {
        return &[];
    }
    let at = |column: u64| usize::try_from(column).unwrap();
    &fragments[piece.fragment.at()][at(piece.columns.start)..at(piece.columns.end)]
}

/// All fragments but `lost`, in random order.
fn others(random: &mut SmallRng, code: Code, lost: Fragments) -> Vec<FragmentIndex> {
    let mut others: Vec<_> = code.fragments().filter(|it| !lost.contains(*it)).collect();
    for at in (1..others.len()).rev() {
        others.swap(at, random.random_range(0..=at));
    }
    others
}

/// Recovers `lost` over `columns` and checks every byte.
fn check_loss(
    random: &mut SmallRng,
    codec: &Codec,
    geometry: &Geometry,
    fragments: &[Vec<u8>],
    lost: Fragments,
    columns: std::ops::Range<u64>,
) {
    let usable = others(random, codec.code(), lost);
    let recovery = Recovery::new(codec, geometry, columns.clone(), lost, &usable).unwrap();
    let (made, _) = recover(&recovery, fragments, BLOCK);
    for (fragment, made) in lost.iter().zip(made) {
        let columns = geometry.clip(fragment, &columns);
        let piece = super::FragmentColumns { fragment, columns };
        assert!(made == slice(fragments, &piece), "{piece:?} of {geometry:?} without {lost:?}");
    }
}
