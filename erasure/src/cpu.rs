//! Check that the CPU supports the compiled arithmetic.
//!
//! The library's loops are compiled for one kind of CPU without a check at run time: a missing
//! instruction kills the process in the middle of a request. So the binary checks first. The
//! library's build script takes the kind of CPU from `RUST_REED_SOLOMON_ERASURE_ARCH`, with Haswell
//! (AVX2) as the default on x86-64. Every aarch64 CPU has the instructions used there.

use martlet_protocol::{Error, Result};
use reed_solomon_erasure::galois_8;

/// CPU that the loops were compiled for; none for the default.
const BUILT_FOR: Option<&str> = option_env!("RUST_REED_SOLOMON_ERASURE_ARCH");

/// Returns an error on a CPU without the instructions of this build, with the remedy, and for a
/// build with wrong arithmetic. Must be called once, before all other calls of this crate.
pub fn check_cpu() -> Result<()> {
    let lacking = lacking(needed(BUILT_FOR), detected);
    if !lacking.is_empty() {
        return Err(Error::invalid(refusal(BUILT_FOR, &lacking)));
    }
    if (0..=u8::MAX).all(multiplies) {
        return Ok(());
    }
    Err(Error::internal(
        "this build's erasure code computes wrong results: rebuild it with another compiler \
         version",
    ))
}

fn refusal(built_for: Option<&str>, lacking: &[&str]) -> String {
    format!(
        "this build's erasure code needs a CPU with {} (it was compiled for {}): build it with RUST_REED_SOLOMON_ERASURE_ARCH=x86-64-v2 for this machine",
        lacking.join(", "),
        built_for.unwrap_or("haswell"),
    )
}

const V2: [&str; 4] = ["ssse3", "sse4.1", "sse4.2", "popcnt"];
const V3: [&str; 6] = ["avx2", "bmi1", "bmi2", "fma", "lzcnt", "movbe"];
const V4: [&str; 5] = ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"];

/// Features that a compiler may use under `-march`. Unknown names need none: their user must know
/// the machines.
fn needed(built_for: Option<&str>) -> Vec<&'static str> {
    let kinds: &[&[&str]] = match built_for {
        None | Some("haswell" | "x86-64-v3") => &[&V2, &V3],
        Some("nehalem" | "x86-64-v2") => &[&V2],
        Some("x86-64-v4" | "skylake-avx512") => &[&V2, &V3, &V4],
        Some(_) => &[],
    };
    kinds.concat()
}

fn lacking(needed: Vec<&'static str>, has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    needed.into_iter().filter(|feature| !has(feature)).collect()
}

#[cfg(target_arch = "x86_64")]
fn detected(feature: &str) -> bool {
    use std::arch::is_x86_feature_detected as detected;
    match feature {
        "ssse3" => detected!("ssse3"),
        "sse4.1" => detected!("sse4.1"),
        "sse4.2" => detected!("sse4.2"),
        "popcnt" => detected!("popcnt"),
        "avx2" => detected!("avx2"),
        "bmi1" => detected!("bmi1"),
        "bmi2" => detected!("bmi2"),
        "fma" => detected!("fma"),
        "lzcnt" => detected!("lzcnt"),
        "movbe" => detected!("movbe"),
        "avx512f" => detected!("avx512f"),
        "avx512bw" => detected!("avx512bw"),
        "avx512cd" => detected!("avx512cd"),
        "avx512dq" => detected!("avx512dq"),
        "avx512vl" => detected!("avx512vl"),
        _ => false,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected(_: &str) -> bool {
    true
}

/// True if the loops multiply by `coefficient` as the table of products does.
fn multiplies(coefficient: u8) -> bool {
    let inputs: Vec<u8> = (0..=u8::MAX).chain(0..5).collect();
    let mut products = vec![0xff; inputs.len()];
    galois_8::mul_slice(coefficient, &inputs, &mut products);
    let mut sums = inputs.clone();
    galois_8::mul_slice_xor(coefficient, &inputs, &mut sums);
    inputs.iter().zip(products.iter().zip(&sums)).all(|(input, (product, sum))| {
        let expected = galois_8::mul(coefficient, *input);
        *product == expected && *sum == expected ^ input
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_runs_this_build() {
        check_cpu().unwrap();
    }

    #[test]
    fn an_old_cpu_is_refused_in_a_sentence() {
        let without_avx2 = |feature: &str| feature != "avx2" && !feature.starts_with("avx512");
        let default = lacking(needed(None), without_avx2);
        assert_eq!(default, ["avx2"]);
        let sentence = refusal(None, &default);
        assert!(sentence.contains("a CPU with avx2 (it was compiled for haswell)"), "{sentence}");
        assert!(lacking(needed(Some("x86-64-v2")), without_avx2).is_empty());
        assert_eq!(lacking(needed(Some("x86-64-v4")), without_avx2).len(), 6);
    }

    #[test]
    fn every_needed_cpu_feature_can_be_detected() {
        #[cfg(target_arch = "x86_64")]
        for feature in needed(Some("x86-64-v4")) {
            // A name unknown to `detected` would be missing on every machine.
            let in_cpuinfo = |name: &str| {
                let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                text.lines()
                    .find(|line| line.starts_with("flags"))
                    .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == name))
            };
            let theirs = match feature {
                "sse4.1" => "sse4_1",
                "sse4.2" => "sse4_2",
                "lzcnt" => "abm",
                other => other,
            };
            assert_eq!(detected(feature), in_cpuinfo(theirs), "{feature}");
        }
    }
}
