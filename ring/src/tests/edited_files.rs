//! Builder files that were edited by hand: each is refused, or can be rebalanced without a panic.

use serde_json::Value;

use crate::builder::Builder;
use crate::builder::rebalance::RebalanceContext;
use crate::figures::Figures;
use crate::testing::{TestRng, add_zones, builder, rebalance};

const ROUNDS: u64 = 4000;
const NOW_MS: u64 = 1_800_000_000_000;

/// Builder file with moves, a drain and a removed device, without its checksum.
fn file() -> Value {
    let mut builder = builder(4, 2.5);
    add_zones(&mut builder, 1..=3, 1, 2);
    rebalance(&mut builder, 1);
    add_zones(&mut builder, 4..=4, 1, 1);
    rebalance(&mut builder, 2);
    let ids: Vec<_> = builder.devices().map(|device| device.id).collect();
    builder.drain(ids[0], 3).unwrap();
    builder.remove(ids[1], true).unwrap();
    builder.record(1, "ada", "removed");
    assert!(builder.moving() > 0);
    let mut file: Value = serde_json::from_str(&builder.to_json()).unwrap();
    file.as_object_mut().unwrap().remove("blake3");
    file
}

/// Values below `value`, by their pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(n, value)| places(value, &format!("{at}/{n}"), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// Value in place of `was`: a bound of a number, or a part of a text.
fn edited(was: &Value, rng: &mut TestRng) -> Value {
    let pick = rng.below(12);
    match was {
        Value::String(text) if pick.is_multiple_of(3) => Value::from(&text[..text.len() / 2]),
        Value::String(text) if pick % 3 == 1 => Value::from(format!("{text}{text}")),
        Value::String(text) => Value::from(text.replace('0', "f")),
        Value::Bool(is) => Value::from(!is),
        _ => match pick {
            0 => Value::from(0),
            1 => Value::from(1),
            2 => Value::from(255),
            3 => Value::from(u32::MAX),
            4 => Value::from(u64::MAX),
            5 => Value::from(-1),
            6 => Value::from(1e300),
            7 => Value::from(1e-300),
            8 => Value::from(0.5),
            9 => Value::from(24),
            10 => Value::from(65_535),
            _ => Value::from(2),
        },
    }
}

#[test]
fn a_builder_that_lost_all_devices_can_be_shown() {
    let mut builder = builder(4, 2.0);
    assert_eq!(builder.required_overload().to_bits(), 0.0_f64.to_bits());
    add_zones(&mut builder, 1..=2, 1, 1);
    rebalance(&mut builder, 1);
    let ids: Vec<_> = builder.devices().map(|device| device.id).collect();
    for id in ids {
        builder.remove(id, true).unwrap();
    }
    let figures = Figures::of_builder(&builder).unwrap();
    assert!(figures.devices.is_empty() && figures.crowded.is_empty());
    assert_eq!(builder.required_overload().to_bits(), 0.0_f64.to_bits());
    let error = builder.rebalance(RebalanceContext { now_ms: NOW_MS, seed: 1 }).unwrap_err();
    assert!(error.to_string().contains("there are 0: add devices"), "{error}");
}

#[test]
fn edited_files_are_refused_or_can_be_rebalanced() {
    let file = file();
    let mut all = Vec::new();
    places(&file, "", &mut all);
    let (mut accepted, mut rebalanced) = (0, 0);
    for seed in 0..ROUNDS {
        let mut rng = TestRng::new(seed);
        let mut other = file.clone();
        for _ in 0..=rng.below(2) {
            let place = &all[rng.below(u32::try_from(all.len()).unwrap()) as usize];
            let value = other.pointer_mut(place).unwrap();
            *value = edited(value, &mut rng);
        }
        let Ok(mut builder) = Builder::from_json(&other.to_string()) else { continue };
        accepted += 1;
        let settings = builder.settings();
        if settings.part_power > 8 {
            continue;
        }
        let done = builder.rebalance(RebalanceContext { now_ms: NOW_MS, seed });
        rebalanced += u32::from(done.is_ok());
        let _ = builder.increase_part_power();
        let _ = builder.settle();
        let _ = (builder.advice(), builder.required_overload(), builder.to_json());
    }
    println!("{accepted} of {ROUNDS} edited files were accepted, {rebalanced} rebalanced");
    assert!(accepted > 100 && rebalanced > 50, "{accepted} accepted, {rebalanced} rebalanced");
}
