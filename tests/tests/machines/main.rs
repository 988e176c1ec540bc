//! Machines of a cluster that is made from one file: namespaces that follow the guide.
#![allow(clippy::unwrap_used, reason = "all of this runs within tests")]

mod guide;
mod machine;

use std::time::Duration;

use martlet_ring::{Device, Ring};

use self::guide::Guide;
use self::machine::Workshop;

/// Bound on a census that becomes clean.
const CENSUS_MAX: Duration = Duration::from_mins(4);

/// All commands of the section "From one file" of `docs/CLUSTER.md`, on four machines.
#[test]
fn machines_follow_the_guide_word_for_word() {
    let test = "machines_follow_the_guide_word_for_word";
    let Some(mut shop) = Workshop::new(test) else { return };
    for (name, address) in [("n1", "11"), ("n2", "12"), ("n3", "13"), ("n4", "14")] {
        if !shop.add_machine(test, name, &format!("10.77.0.{address}")) {
            return;
        }
    }
    let guide = Guide::read();

    // Five minutes.
    shop.edit(&guide.toml("Five minutes", 0));
    let planned = shop.run(&guide.first_line("Five minutes", 0));
    assert!(planned.contains("machine n3: new:"), "{planned}");
    assert!(!shop.path("out").exists(), "a plan touches nothing");
    for block in 0..guide.count("Five minutes") {
        let printed = shop.run(&guide.sh("Five minutes", block));
        let hellos = printed.lines().filter(|line| *line == "hello").count();
        assert_eq!(hellos, if block == 2 { 3 } else { 0 }, "{printed}");
    }
    let again = shop.run("martlet cluster apply cluster.toml");
    assert!(again.contains("nothing to change"), "{again}");
    assert_eq!(shop.run("grep -l first_tenant out/*/node.toml").trim(), "out/n1/node.toml");
    shop.check_that_no_secret_is_printed();

    // A node joins.
    shop.edit(&guide.toml("A node joins", 0));
    let joined = shop.run(&guide.sh("A node joins", 0));
    assert!(joined.contains("n4/d1 joins zone 1"), "{joined}");
    assert!(joined.contains("hours at 100.0 MB a second"), "{joined}");
    assert!(joined.contains("% full"), "{joined}");
    assert!(joined.contains("has the index ring of epoch 2"), "{joined}");
    shop.run_for(&guide.sh("A node joins", 1), CENSUS_MAX);
    let s3 = guide.sh("Five minutes", 2);
    let s3 = s3.split("echo hello").next().unwrap();
    let read = shop.run(&format!("{s3}\ns3 https://10.77.0.14:9000/datasets/from-10.77.0.11"));
    assert_eq!(read.trim(), "hello", "the new machine serves");

    // A disk drains. Without --settle the moves of the join are too young.
    shop.edit(&guide.toml("A disk drains", 0));
    check_refusals(&mut shop);
    let mut rounds = 0;
    loop {
        let drained = shop.run_until(&guide.sh("A disk drains", 0), "take a census, and repeat");
        if rounds > 0 && drained.contains("nothing to change") {
            break;
        }
        assert!(drained.contains("n2/d2 drains") || rounds > 0, "{drained}");
        rounds += 1;
        assert!(rounds < 12, "the drain does not end: {drained}");
        shop.run_for(&guide.sh("A node joins", 1), CENSUS_MAX);
    }
    println!("the drain took {rounds} steps");
    for name in ["index", "data-0"] {
        let ring = Ring::load(&shop.path(&format!("out/cluster/{name}.ring"))).unwrap();
        let is_drained = |device: &&Device| device.node.name == "n2" && device.name == "d2";
        let drained = ring.devices().iter().find(is_drained).unwrap().id;
        let holds = |partition| ring.primaries(partition).any(|id| id == drained);
        assert!(!ring.partitions().any(holds), "{name}: the drained disk holds nothing");
        assert!(ring.moves().is_empty(), "{name}: all moves are settled");
    }
    for number in ["11", "12", "13", "14"] {
        let target = format!("https://10.77.0.{number}:9000/datasets/from-10.77.0.13");
        assert_eq!(shop.run(&format!("{s3}\ns3 {target}")).trim(), "hello");
    }
    shop.check_that_no_secret_is_printed();
}

/// Checks that an apply that is refused changes no file, and that lost keys aren't replaced.
fn check_refusals(shop: &mut Workshop) {
    let hashes = "find out -type f | sort | xargs sha256sum";
    let before = shop.run(hashes);
    let early = shop.refused("martlet cluster apply cluster.toml");
    assert!(early.contains("min-part-hours"), "{early}");
    let elsewhere = shop.refused("martlet cluster apply cluster.toml --settle --out other");
    assert!(elsewhere.contains("--settle needs the running nodes"), "{elsewhere}");
    shop.run("mv out/cluster/master.key kept");
    let lost = shop.refused("martlet cluster apply cluster.toml --settle");
    assert!(lost.contains("out/cluster/master.key is missing: restore it"), "{lost}");
    shop.run("mv kept out/cluster/master.key");
    assert_eq!(shop.run(hashes), before, "no file is written");
}
