//! MD5 of several bodies at once, each body in one lane of the CPU's vectors.
//!
//! The steps of one body depend on each other and leave most of a core idle. The lanes of a vector
//! don't: a step of 8 or 16 bodies takes little longer than a step of one. The CPU decides at run
//! time. With AVX-512 up to 16 bodies share a vector, with AVX2 up to 8. Any other CPU hashes one
//! body after the other.

use multiversion::multiversion;
use multiversion::target::match_target;

use super::{BLOCK, Md5, compress};

/// One body, and the whole blocks to add to its MD5.
pub(crate) struct Lane<'a> {
    pub(crate) md5: &'a mut Md5,
    pub(crate) blocks: &'a [[u8; BLOCK]],
}

/// Maximum number of bodies for one call of [`update`]. 1 if vectors don't pay on this CPU.
#[multiversion(targets("x86_64+avx2+avx512f", "x86_64+avx2"))]
pub(crate) fn lanes_max() -> usize {
    match_target! {
        "x86_64+avx2+avx512f" => super::avx512::LANES,
        "x86_64+avx2" => super::avx2::LANES,
        _ => 1,
    }
}

/// Adds blocks to the MD5 of each body. All lanes have equally many blocks, and no MD5 has a part
/// of a block. A lone body takes the scalar steps, which are the fastest for one.
pub(crate) fn update(lanes: &mut [Lane<'_>]) {
    let blocks: Vec<_> = lanes.iter().map(|lane| lane.blocks).collect();
    let mut states: Vec<_> = lanes.iter().map(|lane| lane.md5.state).collect();
    debug_assert!(lanes.iter().all(|lane| lane.md5.filled() == 0), "a part of a block");
    match (&mut states[..], &blocks[..]) {
        ([state], [blocks]) => compress(state, blocks),
        (states, blocks) => compress_all(states, blocks),
    }
    for (lane, state) in lanes.iter_mut().zip(states) {
        lane.md5.state = state;
        let bytes = lane.blocks.as_flattened().len();
        lane.md5.length = lane.md5.length.wrapping_add(bytes as u64);
    }
}

#[multiversion(targets("x86_64+avx2+avx512f", "x86_64+avx2"))]
fn compress_all(states: &mut [[u32; 4]], blocks: &[&[[u8; BLOCK]]]) {
    match_target! {
        "x86_64+avx2+avx512f" => super::avx512::compress(states, blocks),
        "x86_64+avx2" => super::avx2::compress(states, blocks),
        _ => compress_each(states, blocks),
    }
}

/// Compresses one body after the other.
#[allow(dead_code, reason = "builds for a CPU with AVX2 need no fallback")]
fn compress_each(states: &mut [[u32; 4]], blocks: &[&[[u8; BLOCK]]]) {
    for (state, blocks) in states.iter_mut().zip(blocks) {
        compress(state, blocks);
    }
}
