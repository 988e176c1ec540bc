//! Steps of MD5 over vectors, written once for all vectors.
//!
//! A module that calls [`kernel!`] names its `Vector` and the number of its `LANES`, and has these
//! functions: `splat` (one word for all lanes), `add`, `rotate`, `mix` (the combination of a
//! round), `join` and `split` (words of a vector), and `transpose` (the blocks of all lanes as
//! sixteen vectors, one for each word).

/// Defines `compress` for the vectors of the calling module.
macro_rules! kernel {
    ($features:literal) => {
        /// Compresses the blocks of up to [`LANES`] bodies, equally many of each.
        #[target_feature(enable = $features)]
        pub(super) fn compress(states: &mut [[u32; 4]], blocks: &[&[[u8; BLOCK]]]) {
            // A lane without a body repeats the last body.
            let Some(last) = blocks.len().checked_sub(1) else { return };
            let lanes: [_; LANES] = std::array::from_fn(|lane| blocks[lane.min(last)]);
            let count = lanes.iter().map(|blocks| blocks.len()).min().unwrap_or(0);
            let words = |word: usize| std::array::from_fn(|lane| states[lane.min(last)][word]);
            let mut state: [Vector; 4] = std::array::from_fn(|word| join(words(word)));
            for at in 0..count {
                let words = transpose(std::array::from_fn(|lane| &lanes[lane][at]));
                let before = state;
                state = round::<0>(state, &words);
                state = round::<1>(state, &words);
                state = round::<2>(state, &words);
                state = round::<3>(state, &words);
                for (word, before) in state.iter_mut().zip(before) {
                    *word = add(*word, before);
                }
            }
            for (word, vector) in state.into_iter().enumerate() {
                for (state, value) in states.iter_mut().zip(split(vector)) {
                    state[word] = value;
                }
            }
        }

        /// Sixteen steps of all lanes. The compiler would keep a loop, and rotate by variables.
        #[target_feature(enable = $features)]
        #[inline]
        fn round<const ROUND: usize>(mut state: [Vector; 4], words: &[Vector; 16]) -> [Vector; 4] {
            state = step::<ROUND, 0>(state, words);
            state = step::<ROUND, 1>(state, words);
            state = step::<ROUND, 2>(state, words);
            state = step::<ROUND, 3>(state, words);
            state = step::<ROUND, 4>(state, words);
            state = step::<ROUND, 5>(state, words);
            state = step::<ROUND, 6>(state, words);
            state = step::<ROUND, 7>(state, words);
            state = step::<ROUND, 8>(state, words);
            state = step::<ROUND, 9>(state, words);
            state = step::<ROUND, 10>(state, words);
            state = step::<ROUND, 11>(state, words);
            state = step::<ROUND, 12>(state, words);
            state = step::<ROUND, 13>(state, words);
            state = step::<ROUND, 14>(state, words);
            state = step::<ROUND, 15>(state, words);
            state
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn step<const ROUND: usize, const STEP: usize>(
            [a, b, c, d]: [Vector; 4],
            words: &[Vector; 16],
        ) -> [Vector; 4] {
            let (first, stride) = STRIDES[ROUND];
            let word = words[(first + stride * STEP) % 16];
            let known = add(a, add(splat(SINES[16 * ROUND + STEP]), word));
            let sum = add(known, mix::<ROUND>(b, c, d));
            [d, add(rotate(sum, TURNS[ROUND][STEP % 4]), b), b, c]
        }
    };
}
pub(super) use kernel;

use super::BLOCK;

/// A block as eight pairs of words.
#[inline]
pub(super) fn pairs(block: &[u8; BLOCK]) -> [i64; 8] {
    let (bytes, _) = block.as_chunks();
    std::array::from_fn(|at| i64::from_le_bytes(bytes[at]))
}
