//! Arithmetic of one code: each fragment as a combination of k others.
//!
//! The code is linear: a fragment is a sum of any k others, each multiplied byte by byte by a
//! coefficient of GF(2^8). This module determines coefficients and computes sums. The coefficients
//! come from `reed-solomon-erasure` by encoding and reconstructing unit vectors, so they always
//! match its matrix. Golden files in `testdata/` fix the matrix.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use martlet_protocol::{Error, Result};
use reed_solomon_erasure::galois_8::{self, ReedSolomon};

use crate::code::{Code, FragmentIndex, Fragments};
use crate::geometry::Geometry;

/// Bytes of a fragment processed at a time: inputs and results stay in the CPU's nearest caches.
pub(crate) const STRIDE_BYTES: usize = 16 * 1024;

/// A code with its coefficients. Creation inverts a matrix; clones share the result.
#[derive(Clone)]
pub struct Codec(Arc<CodecState>);

struct CodecState {
    code: Code,
    library: ReedSolomon,
    /// m rows of k coefficients.
    parity: Vec<Vec<u8>>,
}

impl Codec {
    /// Computes the coefficients of `code`.
    pub fn new(code: Code) -> Self {
        let (k, total) = (usize::from(code.k()), usize::from(code.total()));
        let library = ReedSolomon::new(k, usize::from(code.m()))
            .expect("a code has both kinds of fragments and is smaller than the field");
        let mut shards: Vec<Vec<u8>> = (0..total).map(|index| unit(index, k)).collect();
        library.encode(&mut shards).expect("there are k+m shards, all of k bytes");
        let parity = shards.split_off(k);
        Self(Arc::new(CodecState { code, library, parity }))
    }

    /// The code of this codec.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Coefficient of a data fragment in a parity fragment; `parity` counts from 0 among the parity
    /// fragments.
    pub(crate) fn coefficient(&self, parity: usize, data: FragmentIndex) -> u8 {
        self.0.parity[parity][data.at()]
    }

    /// Returns for each fragment of `wanted` the coefficients of `sources`, which are k others.
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

    /// Returns the parity fragments that differ from the data over `columns`; `fragments` are all
    /// k+m in order. The empty set means that all fragments match. All m differ if a data fragment
    /// is wrong, or if all parity is wrong: only block checksums show which.
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
            return Err(Error::invalid(format!(
                "{} fragments, but the code {code} has another number",
                bytes.len()
            )));
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
        Err(Error::invalid(format!("an extent of the code {theirs} can't use the code {ours}")))
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codec({})", self.code())
    }
}

/// Returns `length` zeros with a one at `position`, if within the length.
fn unit(position: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::from(at == position)).collect()
}

/// Adds `coefficient`·`input` to the beginning of `sum`. If `first`, overwrites all of `sum`
/// instead, with zeros beyond `input`.
pub(crate) fn combine(coefficient: u8, input: &[u8], sum: &mut [u8], first: bool) {
    let (under, beyond) = sum.split_at_mut(input.len());
    if first {
        beyond.fill(0);
    }
    // The library's loops don't accept empty slices.
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

/// Checks that `bytes` has the length of `columns`.
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
