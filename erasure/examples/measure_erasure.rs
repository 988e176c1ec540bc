//! CPU cost of erasure coding: encoding fragment by fragment, recovering one and m lost fragments,
//! and the same for `reed-solomon-simd`. Run by `benches/erasure/run.sh`.
//!
//! Figures are bytes of extents per CPU second of the thread: medians of rounds in which all
//! candidates take turns, so that load on the machine affects all alike. The data exceeds the CPU's
//! cache, as data from a network does. Every candidate's result is checked once.

use std::hint::black_box;

use bytes::Bytes;
use martlet_erasure::{Code, Codec, Encoder, Fragments, Geometry, Recovery, check_cpu};
use martlet_protocol::Result;
use reed_solomon_erasure::galois_8::ReedSolomon;

/// The allocator of the binary: buffers are allocated for every extent.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
/// Bytes that each candidate processes in a round.
const ROUND_BYTES: usize = 512 << 20;
const CHUNK_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 64 << 10;

fn main() -> Result<()> {
    check_cpu()?;
    println!("GB of extents a CPU second; {ROUNDS} rounds of {} MiB", ROUND_BYTES >> 20);
    println!("{:<5} {:>8}  {:<52} {:>6} {:>12}", "code", "F", "what", "median", "min–max");
    for (k, m) in [(4, 2), (8, 3)] {
        for fragment_bytes in [BLOCK_BYTES, 1 << 20, 2 << 20, 4 << 20] {
            measure(Code::new(k, m)?, fragment_bytes)?;
        }
    }
    Ok(())
}

/// A candidate: a function that processes an extent.
struct Candidate<'a> {
    name: &'static str,
    work: Box<dyn FnMut(&Bytes) + 'a>,
    figures: Vec<f64>,
}

impl<'a> Candidate<'a> {
    fn new(name: &'static str, work: impl FnMut(&Bytes) + 'a) -> Self {
        Self { name, work: Box::new(work), figures: Vec::new() }
    }
}

fn measure(code: Code, fragment_bytes: usize) -> Result<()> {
    let length = fragment_bytes * usize::from(code.k());
    let geometry = Geometry::new(code, length as u64)?;
    let codec = Codec::new(code);
    let source = noise(length.max(128 << 20) / length * length);
    let extents: Vec<Bytes> =
        (0..source.len() / length).map(|at| source.slice(at * length..(at + 1) * length)).collect();
    check_candidates(&codec, &geometry, &extents[0])?;
    let library = ReedSolomon::new(code.k().into(), code.m().into()).expect("such a code exists");
    let mut parity = vec![vec![0; fragment_bytes]; code.m().into()];
    let mut columns = vec![vec![0; BLOCK_BYTES]; code.m().into()];
    let candidates = [
        Candidate::new("encode: Encoder, 1 MiB at a time", |extent| {
            stream(&codec, &geometry, extent);
        }),
        Candidate::new("encode: encode_single_sep, whole fragments", |extent| {
            for (index, fragment) in extent.chunks(fragment_bytes).enumerate() {
                library.encode_single_sep(index, fragment, &mut parity).expect("lengths match");
            }
        }),
        Candidate::new("encode: reed-solomon-erasure, 64 KiB columns of all", |extent| {
            for from in (0..fragment_bytes).step_by(BLOCK_BYTES) {
                let all: Vec<_> = column(extent, fragment_bytes, from, BLOCK_BYTES).collect();
                library.encode_sep(&all, &mut columns).expect("lengths match");
            }
        }),
        Candidate::new(
            "encode: reed-solomon-simd, 64 KiB columns of all",
            simd(code, fragment_bytes, BLOCK_BYTES),
        ),
        Candidate::new(
            "encode: reed-solomon-simd, whole fragments",
            simd(code, fragment_bytes, fragment_bytes),
        ),
        Candidate::new("recover: one data fragment", recovery(&codec, &geometry, 1)?),
        Candidate::new("recover: m data fragments", recovery(&codec, &geometry, code.m())?),
        Candidate::new(
            "recover: reed-solomon-simd, one data fragment",
            simd_recovery(code, fragment_bytes, 1),
        ),
        Candidate::new("verify: do k+m fragments agree", verification(&codec, &geometry)?),
    ];
    compete(&geometry, candidates.into(), &extents);
    Ok(())
}

/// Runs the candidates in turn and prints their figures. An argument selects the candidates whose
/// names contain it.
fn compete(geometry: &Geometry, mut candidates: Vec<Candidate>, extents: &[Bytes]) {
    let word = std::env::args().nth(1).unwrap_or_default();
    candidates.retain(|candidate| candidate.name.contains(&word));
    let length = at(geometry.length());
    let times = ROUND_BYTES / length;
    for _ in 0..ROUNDS {
        for candidate in &mut candidates {
            let before = cpu_ns();
            let cycled = extents.iter().cycle().take(times);
            cycled.for_each(|extent| (candidate.work)(black_box(extent)));
            #[expect(clippy::cast_precision_loss, reason = "figures of three digits")]
            candidate.figures.push((times * length) as f64 / (cpu_ns() - before) as f64);
        }
    }
    for candidate in &mut candidates {
        candidate.figures.sort_by(f64::total_cmp);
        let (low, high) = (candidate.figures[0], candidate.figures[ROUNDS - 1]);
        let (median, name) = (candidate.figures[ROUNDS / 2], candidate.name);
        let (code, kib) = (geometry.code().to_string(), geometry.fragment_bytes() >> 10);
        println!("{code:<5} {kib:>4} KiB  {name:<52} {median:>6.1} {low:>7.1}–{high:.1}");
    }
}

/// Encodes as a proxy does: with a new encoder and buffers for each extent.
fn stream(codec: &Codec, geometry: &Geometry, extent: &Bytes) {
    let mut encoder = Encoder::new(codec, geometry).expect("they belong together");
    let mut rest = extent.clone();
    while !rest.is_empty() {
        let chunk = rest.split_to(CHUNK_BYTES.min(rest.len()));
        black_box(encoder.push(&chunk).expect("it fits"));
    }
    encoder.finish().expect("all of it came");
}

fn column(
    extent: &[u8],
    fragment_bytes: usize,
    from: usize,
    bytes: usize,
) -> impl Iterator<Item = &[u8]> {
    extent.chunks(fragment_bytes).map(move |fragment| &fragment[from..from + bytes])
}

fn simd(code: Code, fragment_bytes: usize, block: usize) -> impl FnMut(&Bytes) {
    let mut encoder =
        reed_solomon_simd::ReedSolomonEncoder::new(code.k().into(), code.m().into(), block)
            .expect("such a code exists");
    move |extent| {
        for from in (0..fragment_bytes).step_by(block) {
            for fragment in column(extent, fragment_bytes, from, block) {
                encoder.add_original_shard(fragment).expect("lengths match");
            }
            let encoded = encoder.encode().expect("all shards are there");
            black_box(encoded.recovery_iter().count());
        }
    }
}

/// Recovers the first `lost` fragments from the extent's other data and from parity. The bytes are
/// arbitrary; the work doesn't depend on them.
fn recovery<'a>(
    codec: &'a Codec,
    geometry: &'a Geometry,
    lost: u8,
) -> Result<impl FnMut(&Bytes) + 'a> {
    let code = codec.code();
    let wanted: Fragments = code.data().take(lost.into()).collect();
    let usable: Vec<_> = code.fragments().skip(lost.into()).collect();
    let recovery = Recovery::new(codec, geometry, 0..geometry.columns(), wanted, &usable)?;
    let mut made = vec![Vec::new(); lost.into()];
    Ok(move |extent: &Bytes| {
        for columns in recovery.steps(1 << 20) {
            let (from, to) = (at(columns.start), at(columns.end));
            let read: Vec<_> =
                column(extent, at(geometry.fragment_bytes()), from, to - from).collect();
            recovery.recover(&columns, &read, &mut made).expect("lengths match");
            black_box(&made);
        }
    })
}

fn simd_recovery(code: Code, fragment_bytes: usize, lost: usize) -> impl FnMut(&Bytes) {
    let block = BLOCK_BYTES.min(fragment_bytes);
    let (k, m) = (usize::from(code.k()), usize::from(code.m()));
    let mut decoder =
        reed_solomon_simd::ReedSolomonDecoder::new(k, m, block).expect("such a code exists");
    move |extent| {
        for from in (0..fragment_bytes).step_by(block) {
            for (index, fragment) in column(extent, fragment_bytes, from, block).enumerate() {
                if index < lost {
                    decoder.add_recovery_shard(index, fragment).expect("lengths match");
                } else {
                    decoder.add_original_shard(index, fragment).expect("lengths match");
                }
            }
            let decoded = decoder.decode().expect("enough shards are there");
            black_box(decoded.restored_original(0));
        }
    }
}

fn verification<'a>(codec: &'a Codec, geometry: &'a Geometry) -> Result<impl FnMut(&Bytes) + 'a> {
    let parity = noise(at(geometry.fragment_bytes()));
    let code = codec.code();
    codec.verify(geometry, 0..0, &vec![[]; code.total().into()])?;
    Ok(move |extent: &Bytes| {
        let data = extent.chunks(at(geometry.fragment_bytes()));
        let all: Vec<&[u8]> = data.chain(code.parity().map(|_| &parity[..])).collect();
        let wrong = codec.verify(geometry, 0..geometry.columns(), &all).expect("lengths match");
        assert_eq!(wrong.len(), usize::from(code.m()), "noise is no parity");
    })
}

/// Checks that encoder and library compute equal parity, and that parity recovers the data.
fn check_candidates(codec: &Codec, geometry: &Geometry, extent: &Bytes) -> Result<()> {
    let code = codec.code();
    let mut fragments = vec![Vec::new(); code.total().into()];
    let mut encoder = Encoder::new(codec, geometry)?;
    for block in encoder.push(extent)? {
        fragments[usize::from(block.fragment.0)].extend_from_slice(&block.bytes);
    }
    encoder.finish()?;
    let library = ReedSolomon::new(code.k().into(), code.m().into()).expect("such a code exists");
    assert!(library.verify(&fragments).expect("lengths match"));
    let all = 0..geometry.columns();
    assert!(codec.verify(geometry, all.clone(), &fragments)?.is_empty());
    let wanted: Fragments = code.fragments().take(code.m().into()).collect();
    let usable: Vec<_> = code.fragments().skip(code.m().into()).collect();
    let recovery = Recovery::new(codec, geometry, all.clone(), wanted, &usable)?;
    let read: Vec<_> = recovery
        .reads(&all)
        .iter()
        .map(|piece| &fragments[usize::from(piece.fragment.0)])
        .collect();
    let mut made = vec![Vec::new(); code.m().into()];
    recovery.recover(&all, &read, &mut made)?;
    assert!(made[..] == fragments[..made.len()]);
    Ok(())
}

/// Pseudo-random bytes.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

fn at(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it fits into memory")
}

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> u64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux provides schedstat");
    let first = text.split_whitespace().next();
    first.and_then(|number| number.parse().ok()).expect("its first number is the time on a CPU")
}
