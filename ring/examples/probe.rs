//! Scratch.
use martlet_protocol::PolicyId;
use martlet_ring::*;
use std::time::Instant;
fn main() {
    let settings = Settings {
        policy: PolicyId(0),
        policy_name: "x".into(),
        part_power: 18,
        replicas: 3.0,
        min_part_hours: 0,
        overload: 0.0,
    };
    let mut b = Builder::create(settings, [0; 16]).unwrap();
    let add = |b: &mut Builder, z: u32, n: String, d: u32, w: f64| {
        b.add(NewDevice {
            region: 1,
            zone: z,
            node: Node { address: format!("{n}:1"), name: n },
            name: format!("d{d}"),
            weight: w,
            meta: String::new(),
        })
        .unwrap()
    };
    for i in 0..1000u32 {
        add(&mut b, i % 4, format!("n{}", i % 40), i, 100.0);
    }
    let go = |b: &mut Builder, what: &str| {
        let t = Instant::now();
        let r = b.rebalance(Occasion { now_ms: 1, seed: 1 }).unwrap();
        println!("{what}: {:?} {r:?}", t.elapsed());
    };
    go(&mut b, "fresh");
    go(&mut b, "nothing");
    for i in 0..50u32 {
        add(&mut b, i % 4, format!("n{}", i % 40), 1000 + i, 100.0);
    }
    go(&mut b, "plus 5%");
    for i in 0..5u32 {
        b.remove(martlet_protocol::DeviceId(i * 100), false).unwrap();
    }
    go(&mut b, "lose 5");
    for i in 0..1000u32 {
        add(&mut b, i % 4, format!("n{}", i % 40), 2000 + i, 100.0);
    }
    go(&mut b, "double");
    go(&mut b, "double again");
    let t = Instant::now();
    let ring = b.ring().unwrap();
    let bytes = ring.encode();
    println!("encode {:?} {}", t.elapsed(), bytes.len());
    let t = Instant::now();
    let ring = Ring::decode(&bytes).unwrap();
    println!("decode {:?}", t.elapsed());
    let t = Instant::now();
    let j = b.to_json();
    println!("json {:?} {}", t.elapsed(), j.len());
    let t = Instant::now();
    let c = Builder::from_json(&j).unwrap();
    println!("from json {:?} same {}", t.elapsed(), c == b);
    let t = Instant::now();
    let h: Vec<_> = ring.handoffs(ring.partition(5)).take(4).collect();
    println!("first handoff {:?} {h:?}", t.elapsed());
    let t = Instant::now();
    let mut n = 0;
    for i in 0..10000u64 {
        n += ring.handoffs(ring.partition(i << 50)).take(3).count();
    }
    println!("3 handoffs {:?} {n}", t.elapsed() / 10000);
    let t = Instant::now();
    let mut n = 0u64;
    let mut x = 1u64;
    for _ in 0..20_000_000u64 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
        for d in ring.primaries(ring.partition(x)) {
            n = n.wrapping_add(u64::from(d.0));
        }
    }
    println!("20M lookups {:?} {n}", t.elapsed());
}
