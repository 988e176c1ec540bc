//! The arithmetic of one code: which combination of k fragments each other fragment is.
//!
//! The code is linear, so a fragment is a sum of any k others, each multiplied byte by byte with a
//! coefficient out of GF(2^8). All that this crate does is to find the coefficients and to add up.
//! They are asked of `reed-solomon-erasure` itself, by encoding and reconstructing unit vectors: its
//! matrix can't differ from ours. What it must be for ever, `testdata/` says.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use martlet_protocol::{Error, Result};
use reed_solomon_erasure::galois_8::{self, ReedSolomon};

use crate::code::{Code, FragmentIndex, Fragments};
use crate::geometry::Geometry;

/// Bytes of a fragment that are worked on at a time: they and what is made of them stay in the
/// CPU's nearest caches.
pub(crate) const STRIDE_BYTES: usize = 16 * 1024;

/// A code, ready for use. Making one inverts a matrix; clones share it.
#[derive(Clone)]
pub struct Codec(Arc<Inner>);

struct Inner {
    code: Code,
    library: ReedSolomon,
    /// m rows of k coefficients.
    parity: Vec<Vec<u8>>,
}

impl Codec {
    /// Prepares `code`.
    pub fn new(code: Code) -> Self {
        let (k, total) = (usize::from(code.k()), usize::from(code.total()));
        let library = ReedSolomon::new(k, usize::from(code.m()))
            .expect("a code has both kinds of fragments and is smaller than the field");
        let mut shards: Vec<Vec<u8>> = (0..total).map(|index| unit(index, k)).collect();
        library.encode(&mut shards).expect("there are k+m shards, all of k bytes");
        let parity = shards.split_off(k);
        Self(Arc::new(Inner { code, library, parity }))
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What column of `data` is multiplied with before it is added to `parity`, its number among
    /// the parity fragments.
    pub(crate) fn coefficient(&self, parity: usize, data: FragmentIndex) -> u8 {
        self.0.parity[parity][data.at()]
    }

    /// For each fragment of `wanted` the coefficients of `sources`, which are k others.
    pub(crate) fn rows(&self, sources: &[FragmentIndex], wanted: Fragments) -> Vec<Vec<u8>> {
        let k = usize::from(self.code().k());
        assert_eq!(sources.len(), k, "any k fragments give the others, fewer don't");
        let mut shards: Vec<Option<Vec<u8>>> = vec![None; usize::from(self.code().total())];
        for (position, source) in sources.iter().enumerate() {
            shards[source.at()] = Some(unit(position, k));
        }
        self.0.library.reconstruct(&mut shards).expect("k shards of k bytes are there");
        wanted.iter().map(|fragment| shards[fragment.at()].take().unwrap_or_default()).collect()
    }

    /// Whether `fragments`, all k+m in order, fit together over `columns`: which parity fragments
    /// are not what the data make. None: all is well. All m: a data fragment is wrong, or all of
    /// these are; which one can't be told from here, block checksums can.
    pub fn verify(
        &self,
        geometry: &Geometry,
        columns: Range<u64>,
        fragments: &[impl AsRef<[u8]>],
    ) -> Result<Fragments> {
        self.check_geometry(geometry)?;
        geometry.check_columns(&columns)?;
        let code = self.code();
        let bytes: Vec<&[u8]> = fragments.iter().map(AsRef::as_ref).collect();
        if bytes.len() != usize::from(code.total()) {
            return Err(Error::invalid(format!("{} fragments of {code}", bytes.len())));
        }
        for (fragment, bytes) in code.fragments().zip(&bytes) {
            check_bytes(fragment, bytes, &geometry.clip(fragment, &columns))?;
        }
        Ok(self.disagreeing(&bytes))
    }

    fn disagreeing(&self, bytes: &[&[u8]]) -> Fragments {
        let (data, parity) = bytes.split_at(usize::from(self.code().k()));
        let mut wrong = Fragments::NONE;
        let mut sum = [0; STRIDE_BYTES];
        for (number, (fragment, found)) in self.code().parity().zip(parity).enumerate() {
            for (stride, found) in found.chunks(STRIDE_BYTES).enumerate() {
                let sum = &mut sum[..found.len()];
                let from = stride * STRIDE_BYTES;
                for (index, data) in self.code().data().zip(data) {
                    let rest = data.get(from..).unwrap_or_default();
                    let input = &rest[..rest.len().min(sum.len())];
                    combine(self.coefficient(number, index), input, sum, index.0 == 0);
                }
                if sum != found {
                    wrong.insert(fragment);
                }
            }
        }
        wrong
    }

    pub(crate) fn check_geometry(&self, geometry: &Geometry) -> Result<()> {
        if geometry.code() == self.code() {
            return Ok(());
        }
        let (theirs, ours) = (geometry.code(), self.code());
        Err(Error::invalid(format!("an extent under {theirs} is no matter of {ours}")))
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codec({})", self.code())
    }
}

/// `length` zeros with a one at `position`, if it has that.
fn unit(position: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::from(at == position)).collect()
}

/// Adds `coefficient`·`input` to the beginning of `sum`; or, as the `first`, writes it over the whole
/// of `sum`, as if `input` went on with zeros.
pub(crate) fn combine(coefficient: u8, input: &[u8], sum: &mut [u8], first: bool) {
    let (under, beyond) = sum.split_at_mut(input.len());
    if first {
        beyond.fill(0);
    }
    // The library's loops don't take empty slices.
    if input.is_empty() {
        return;
    }
    match (first, coefficient) {
        (true, 1) => under.copy_from_slice(input),
        (true, _) => galois_8::mul_slice(coefficient, input, under),
        (false, 0) => {}
        (false, _) => galois_8::mul_slice_xor(coefficient, input, under),
    }
}

/// Whether `bytes` are as many as were asked of `fragment`.
pub(crate) fn check_bytes(
    fragment: FragmentIndex,
    bytes: &[u8],
    columns: &Range<u64>,
) -> Result<()> {
    let expected = columns.end - columns.start;
    if bytes.len() as u64 == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!("{} bytes of {fragment} instead of {expected}", bytes.len())))
}
