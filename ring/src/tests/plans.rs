//! Tests of plans, diffs, figures and pictures.

use std::collections::BTreeMap;

use martlet_protocol::DeviceId;

use crate::builder::Builder;
use crate::builder::rebalance::RebalanceContext;
use crate::diff::Diff;
use crate::figures::{BALANCE_WORST, Figures};
use crate::plan::{MovePace, RebalancePlan, Usage};
use crate::svg;
use crate::testing::{add_zones, builder, new_device, rebalance};

const GIB: u64 = 1 << 30;

fn cluster() -> Builder {
    let mut builder = builder(10, 3.0);
    add_zones(&mut builder, 1..=3, 1, 4);
    rebalance(&mut builder, 1);
    builder
}

fn half_full(builder: &Builder) -> BTreeMap<DeviceId, Usage> {
    let usage = Usage { used: 500 * GIB, capacity: 1000 * GIB };
    builder.devices().map(|device| (device.id, usage)).collect()
}

fn plan(builder: &Builder, usage: &BTreeMap<DeviceId, Usage>) -> RebalancePlan {
    let (after, _) = builder.rehearse(RebalanceContext { now_ms: 1, seed: 1 }).unwrap();
    let pace = MovePace { bytes_per_second: 100 << 20, high_water: 0.9 };
    RebalancePlan::new(&builder.current_ring().unwrap(), &after.ring().unwrap(), usage, pace)
}

#[test]
fn a_plan_counts_bytes_hours_and_peaks() {
    let mut builder = cluster();
    for zone in 1..=3 {
        builder.add(new_device(1, zone, 1, 9, 100.0)).unwrap();
    }
    let mut usage = half_full(&builder);
    for id in 12..15 {
        usage.insert(DeviceId(id), Usage { used: 0, capacity: 1000 * GIB });
    }
    let plan = plan(&builder, &usage);
    // Three of fifteen devices are new: a fifth of 12 × 500 GiB moves, 400 GiB to each.
    assert!(plan.bytes.abs_diff(1200 * GIB) < 12 * GIB, "{}", plan.bytes);
    // 3072 / 15 is 204.8: each new device rounds down, since the others already hold more.
    assert_eq!((plan.replicas, plan.partitions), (612, 612));
    let came: u64 = plan.devices.iter().map(|device| device.bytes_in).sum();
    let went: u64 = plan.devices.iter().map(|device| device.bytes_out).sum();
    assert!(came.abs_diff(went) < 100 && came == plan.bytes);
    assert!((plan.hours - 400.0 * 1024.0 / 100.0 / 3600.0).abs() < 0.05, "{}", plan.hours);
    let newcomer = plan.devices.iter().find(|device| device.id == DeviceId(12)).unwrap();
    assert!((newcomer.peak.unwrap() - 0.4).abs() < 0.01);
    assert_eq!((newcomer.before, newcomer.coming, newcomer.going), (0, newcomer.after, 0));
    assert!(plan.warnings.is_empty());
}

#[test]
fn a_plan_warns_of_devices_that_would_be_too_full_on_the_way() {
    let mut builder = cluster();
    builder.set_overload(2.0).unwrap();
    for id in [0, 1] {
        builder.remove(DeviceId(id), false).unwrap();
    }
    let plan = plan(&builder, &half_full(&builder));
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
    assert!(
        plan.warnings[0]
            .contains("100.0 % full during the moves, above its high-water mark of 90 %")
    );
    let dead = &plan.devices[0];
    assert_eq!((dead.after, dead.coming, dead.going), (0, 0, dead.before));
}

#[test]
fn a_plan_without_usage_still_counts_replicas() {
    let mut builder = cluster();
    builder.add(new_device(1, 1, 1, 9, 100.0)).unwrap();
    let plan = plan(&builder, &BTreeMap::new());
    assert!(plan.replicas > 0 && plan.bytes == 0 && plan.hours == 0.0);
    assert!(plan.devices.iter().all(|device| device.peak.is_none()));
}

#[test]
fn a_diff_lists_added_removed_and_changed_devices() {
    let mut builder = cluster();
    let old = builder.ring().unwrap();
    builder.remove(DeviceId(0), false).unwrap();
    builder.add(new_device(1, 1, 1, 9, 100.0)).unwrap();
    builder.set_weight(DeviceId(5), 120.0).unwrap();
    rebalance(&mut builder, 1);
    let new = builder.ring().unwrap();
    let diff = Diff::new(&old, &new).unwrap();
    let ids = |devices: &[crate::Device]| devices.iter().map(|d| d.id.0).collect::<Vec<_>>();
    assert_eq!((ids(&diff.added), ids(&diff.removed)), (vec![12], vec![0]));
    assert_eq!(diff.changed.len(), 1);
    assert_eq!(diff.by_device[&DeviceId(0)], (0, 256));
    let came: u64 = diff.by_device.values().map(|(came, _)| came).sum();
    assert_eq!(came, diff.replicas_moved);
    assert_eq!(diff.epoch, (1, 2));
    builder.increase_part_power().unwrap();
    let finer = builder.ring().unwrap();
    assert_eq!(Diff::new(&new, &finer).unwrap().replicas_moved, 0);
    assert!(Diff::new(&finer, &new).unwrap_err().to_string().contains("name the older ring first"));
}

#[test]
fn figures_see_what_is_wrong() {
    let mut builder = cluster();
    let good = Figures::of_builder(&builder).unwrap();
    assert!(good.balance < 0.01 && good.dispersion == 0.0 && good.crowded.is_empty());
    builder.set_weight(DeviceId(0), 0.0).unwrap();
    let weightless = Figures::of_builder(&builder).unwrap();
    assert!(weightless.balance >= BALANCE_WORST);
    // Everything in two zones: a replica of each partition is one too close.
    let mut crowded = self::builder(8, 3.0);
    add_zones(&mut crowded, 1..=2, 1, 4);
    rebalance(&mut crowded, 1);
    let tight = Figures::of_builder(&crowded).unwrap();
    assert!(tight.dispersion == 0.0, "two zones allow no better");
    add_zones(&mut crowded, 3..=3, 1, 4);
    let figures = Figures::of_builder(&crowded).unwrap();
    assert!((figures.dispersion - 100.0 / 3.0).abs() < 1e-9, "{}", figures.dispersion);
    let crowd: u32 =
        figures.crowded.iter().filter(|c| !c.place.contains('-')).map(|c| c.partitions).sum();
    assert_eq!(crowd, 256);
}

#[test]
fn advice_is_given_where_it_is_due() {
    let mut small = builder(6, 3.0);
    assert!(small.advice()[0].contains("no device has weight"));
    add_zones(&mut small, 1..=3, 1, 4);
    assert!(small.advice()[0].contains("too few to balance within 1 %: use `increase-part-power`"));
    let mut large = builder(20, 3.0);
    add_zones(&mut large, 1..=3, 1, 1);
    assert!(large.advice()[0].contains("start with a smaller part power"));
    let mut lopsided = builder(12, 3.0);
    add_zones(&mut lopsided, 1..=3, 1, 1);
    lopsided.add(new_device(1, 1, 1, 9, 900.0)).unwrap();
    assert!(lopsided.advice()[0].contains("75 % of all weight"), "{:?}", lopsided.advice());
}

#[test]
fn a_picture_shows_every_device_and_is_well_formed() {
    let mut builder = cluster();
    let mut odd = new_device(2, 1, 1, 9, 50.0);
    "<&\">".clone_into(&mut odd.node.name);
    builder.add(odd).unwrap();
    rebalance(&mut builder, 1);
    let picture = svg::draw(&builder.ring().unwrap());
    assert_eq!(picture.matches("of its share</title>").count(), 13);
    assert!(picture.contains("&lt;&amp;&quot;&gt;") && !picture.contains("NaN"));
    assert_eq!(picture.matches("<path").count(), picture.matches("</path>").count());
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    // A single device is a whole circle.
    let mut alone = self::builder(4, 1.0);
    add_zones(&mut alone, 1..=1, 1, 1);
    rebalance(&mut alone, 1);
    assert!(!svg::draw(&alone.ring().unwrap()).contains("NaN"));
}
