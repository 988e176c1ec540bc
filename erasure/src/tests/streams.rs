//! The encoder as a stream: output independent of chunk sizes, parity as early as possible, bounded
//! memory.

use bytes::Bytes;
use martlet_protocol::ErrorKind;
use rand::Rng;

use super::{BLOCK, assemble, code, encode, random_bytes, seeded};
use crate::{Block, Codec, Encoder, Geometry, PARITY_BLOCK_BYTES};

#[test]
fn fragments_do_not_depend_on_how_the_bytes_come() {
    let mut random = seeded(61);
    for round in 0..60 {
        let (k, m) = (random.random_range(1..=6), random.random_range(1..=4));
        let codec = Codec::new(code(k, m));
        let length = random.random_range(1..=u64::from(k) * 600_000);
        let geometry = Geometry::new(code(k, m), length).unwrap();
        let whole = random_bytes(&mut random, length);
        let expected = encode(&codec, &geometry, &whole);
        let mut encoder = Encoder::new(&codec, &geometry).unwrap();
        let (mut blocks, mut rest) = (Vec::new(), whole.clone());
        let most = if round % 2 == 0 { 300_000 } else { 5_000 };
        while !rest.is_empty() {
            let piece = rest.split_to(random.random_range(0..=most).min(rest.len()));
            blocks.extend(encoder.push(&piece).unwrap());
        }
        let (late, found) = encoder.finish().unwrap();
        assert!(late.is_empty(), "with the last byte of a known length all parity is ready");
        assert_eq!(found, geometry);
        assert!(assemble(code(k, m), blocks) == expected, "{geometry:?}");
    }
}

#[test]
fn data_goes_through_without_a_copy() {
    let codec = Codec::new(code(3, 1));
    let geometry = Geometry::new(code(3, 1), 3 * BLOCK).unwrap();
    let whole = random_bytes(&mut seeded(62), 3 * BLOCK);
    let blocks = Encoder::new(&codec, &geometry).unwrap().push(&whole).unwrap();
    for block in blocks.iter().filter(|block| code(3, 1).is_data(block.fragment)) {
        let from = block.fragment.at() * block.bytes.len();
        assert_eq!(block.bytes.as_ptr(), whole[from..].as_ptr());
    }
}

#[test]
fn parity_leaves_while_the_last_fragment_passes_and_memory_is_m_fragments() {
    let codec = Codec::new(code(4, 2));
    let geometry = Geometry::new(code(4, 2), 4 * 5 * BLOCK).unwrap();
    let fragment_bytes = 5 * BLOCK;
    let mut encoder = Encoder::new(&codec, &geometry).unwrap();
    assert_eq!(encoder.memory_bytes_max(), 2 * fragment_bytes);
    let piece = Bytes::from(vec![7; usize::try_from(BLOCK).unwrap()]);
    let mut parity_after = Vec::new();
    for step in 1..=20u64 {
        let blocks = encoder.push(&piece).unwrap();
        let parity = blocks.iter().filter(|block| !code(4, 2).is_data(block.fragment));
        parity_after.extend(parity.map(|block| (step, block.fragment.0, block.column)));
        assert!(encoder.memory_bytes() <= encoder.memory_bytes_max());
        if step == 15 {
            assert_eq!(encoder.memory_bytes(), 2 * fragment_bytes);
        }
    }
    assert_eq!(
        parity_after,
        [(19, 4, 0), (19, 5, 0), (20, 4, PARITY_BLOCK_BYTES), (20, 5, PARITY_BLOCK_BYTES)]
    );
    assert_eq!(encoder.memory_bytes(), 0);
}

#[test]
fn a_length_that_was_not_known_is_found() {
    let mut random = seeded(63);
    let codec = Codec::new(code(3, 2));
    let fragment_bytes = 5 * BLOCK;
    for length in [1, BLOCK, 5 * BLOCK - 1, 5 * BLOCK, 5 * BLOCK + 1, 12 * BLOCK + 9, 15 * BLOCK] {
        let whole = random_bytes(&mut random, length);
        let mut encoder = Encoder::of_unknown_length(&codec, fragment_bytes).unwrap();
        assert_eq!(encoder.memory_bytes_max(), 2 * fragment_bytes);
        let mut blocks: Vec<Block> = Vec::new();
        for chunk in whole.chunks(100_001) {
            blocks.extend(encoder.push(&Bytes::copy_from_slice(chunk)).unwrap());
        }
        let (late, geometry) = encoder.finish().unwrap();
        blocks.extend(late);
        let layout = Geometry::with_fragment_bytes(code(3, 2), length, fragment_bytes).unwrap();
        assert_eq!(geometry, layout);
        assert!(assemble(code(3, 2), blocks) == encode(&codec, &layout, &whole), "{length}");
    }
}

#[test]
fn too_much_and_too_little_are_refused() {
    let codec = Codec::new(code(2, 1));
    let geometry = Geometry::new(code(2, 1), 10).unwrap();
    let invalid = |error: martlet_protocol::Error| assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut encoder = Encoder::new(&codec, &geometry).unwrap();
    encoder.push(&Bytes::from_static(b"12345")).unwrap();
    invalid(encoder.push(&Bytes::from_static(b"678901")).unwrap_err());
    assert_eq!(encoder.taken(), 5, "as it was");
    invalid(encoder.finish().unwrap_err());
    invalid(Encoder::of_unknown_length(&codec, BLOCK).unwrap().finish().unwrap_err());
    invalid(Encoder::of_unknown_length(&codec, BLOCK + 1).unwrap_err());
    invalid(Encoder::of_unknown_length(&codec, 0).unwrap_err());
    let mut encoder = Encoder::of_unknown_length(&codec, BLOCK).unwrap();
    let much = Bytes::from(vec![0; usize::try_from(2 * BLOCK + 1).unwrap()]);
    invalid(encoder.push(&much).unwrap_err());
    assert_eq!(encoder.push(&much.slice(1..)).unwrap().len(), 3);
}
