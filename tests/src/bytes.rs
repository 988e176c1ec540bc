//! Deterministic object bodies. Each body depends on the object's name, so bodies of two objects
//! differ.

use ::bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// Returns the pseudo-random body for a name and a length. Equal arguments give equal bytes;
/// another name gives other bytes.
pub fn body(name: &str, length: usize) -> Bytes {
    // FNV-1a gives an equal seed on every machine.
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes.into()
}

/// Returns a random number generator and prints its seed. `MARTLET_SEED` sets the seed to replay a
/// run.
pub fn chance() -> SmallRng {
    let given = std::env::var("MARTLET_SEED").ok().map(|text| text.parse().unwrap());
    let seed = given.unwrap_or_else(|| rand::rng().random());
    println!("MARTLET_SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_length_make_a_body() {
        assert_eq!(body("a", 100), body("a", 100));
        assert_ne!(body("a", 100), body("b", 100));
        assert_eq!(body("a", 96)[..], body("a", 200)[..96]);
    }
}
