//! Speed of rings: building, rebalancing, encoding, loading, lookups. Run by `benches/ring/run.sh`.

use std::hint::black_box;
use std::time::Instant;

use martlet_protocol::{DeviceId, PolicyId};
use martlet_ring::{Builder, DeviceLocation, Node, RebalanceContext, Result, Ring, RingSettings};

const DEVICES: u32 = 1000;
const LOOKUPS: u32 = 20_000_000;

fn main() -> Result<()> {
    let mut builder = cluster(18)?;
    timed("place 2^18 × 3 on 1,000 devices", || builder.rebalance(occasion()))?;
    timed("rebalance with nothing to do", || builder.rebalance(occasion()))?;
    add(&mut builder, DEVICES..DEVICES + DEVICES / 20)?;
    timed("rebalance after 5 % more devices", || builder.rebalance(occasion()))?;
    let ring = builder.ring()?;
    lookups(&ring);
    handoffs(&ring);

    let mut builder = cluster(20)?;
    timed("place 2^20 × 3 on 1,000 devices", || builder.rebalance(occasion()))?;
    let ring = builder.ring()?;
    let bytes = timed("encode it", || ring.encode());
    println!("{:<44} {:>9.2} MB", "its ring file", millions(bytes.len()));
    timed("load it: checksum, decode, check", || Ring::decode(&bytes))?;
    let text = timed("write its builder file", || builder.to_json());
    println!("{:<44} {:>9.2} MB", "its builder file", millions(text.len()));
    timed("read its builder file", || Builder::from_json(&text))?;
    Ok(())
}

fn cluster(part_power: u8) -> Result<Builder> {
    let settings = RingSettings {
        policy: PolicyId(0),
        policy_name: "default".to_owned(),
        redundancy: martlet_protocol::Redundancy::Replicated,
        part_power,
        replicas: 3.0,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut builder = Builder::create(settings, [1; 16])?;
    add(&mut builder, 0..DEVICES)?;
    Ok(builder)
}

/// Devices in four zones of ten nodes each.
fn add(builder: &mut Builder, disks: std::ops::Range<u32>) -> Result<()> {
    for disk in disks {
        let (zone, node) = (disk % 4, disk % 40);
        let node = Node { name: format!("n{node}"), address: format!("10.0.{zone}.{node}:6200") };
        let place = DeviceLocation { region: 1, zone, node, name: format!("d{disk}") };
        builder.add(place.with(100.0, ""))?;
    }
    Ok(())
}

fn occasion() -> RebalanceContext {
    RebalanceContext { now_ms: 1, seed: 1 }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what:<44} {:>9.2} ms", start.elapsed().as_secs_f64() * 1000.0);
    result
}

/// An endless sequence of pseudo-random placement hashes.
fn placements() -> impl Iterator<Item = u64> {
    let next = |last: &u64| {
        Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(Some(1), next)
}

fn lookups(ring: &Ring) {
    let start = Instant::now();
    let mut sum = 0u64;
    for placement in placements().take(LOOKUPS as usize) {
        for DeviceId(id) in ring.primaries(ring.partition(placement)) {
            sum = sum.wrapping_add(u64::from(id));
        }
    }
    black_box(sum);
    let rate = f64::from(LOOKUPS) / start.elapsed().as_secs_f64() / 1e6;
    println!("{:<44} {rate:>9.2} million/s", "lookups of all three primaries, one core");
}

fn handoffs(ring: &Ring) {
    let first = placements().next().unwrap_or(0);
    timed("first handoff (draws the circle)", || ring.handoffs(ring.partition(first)).next());
    let start = Instant::now();
    let taken: usize = placements()
        .take(100_000)
        .map(|placement| ring.handoffs(ring.partition(placement)).take(3).count())
        .sum();
    let rate = 100_000.0 / start.elapsed().as_secs_f64() / 1e6;
    println!("{:<44} {rate:>9.2} million/s", "lookups of the first three handoffs");
    black_box(taken);
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn millions(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
