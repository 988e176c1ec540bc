//! Text output for the status of a cluster and of a server.

use martlet_admin_api::ChangeLine;

use super::*;

fn ring(epoch: u64) -> RingLine {
    RingLine { name: "index".into(), epoch, hash: "0a".into() }
}

fn device(voting: bool) -> DeviceLine {
    DeviceLine {
        device: 3,
        name: "d1".into(),
        health: "ready".into(),
        voting,
        path: "/mnt/d1".into(),
        total_bytes: 100 << 30,
        free_bytes: 40 << 30,
        used_bytes: 50 << 30,
        reserve_bytes: 10 << 30,
        hints: 5,
        ..DeviceLine::default()
    }
}

fn example() -> ServerStatus {
    let report = ProcessReport {
        ready: true,
        devices: vec![device(false)],
        reasons: vec!["device d3 has no votes yet".into()],
        ..ProcessReport::of("storage node n1")
    };
    let node = |name: &str, rings, report| NodeLine {
        name: name.into(),
        address: format!("{name}:7001"),
        heard_ms_ago: Some(90_000),
        rings,
        report,
        ..NodeLine::default()
    };
    let worker = WorkerLine {
        worker: "update".into(),
        backlog: 12,
        oldest_age_ms: 3000,
        rate: 4.0,
        eta_s: Some(3),
        ..WorkerLine::default()
    };
    let audit =
        WorkerLine { worker: "audit".into(), differing_extents: 2, ..WorkerLine::default() };
    let replicator = ProcessReport {
        ready: true,
        rings: vec![ring(2)],
        workers: vec![worker, audit],
        ..ProcessReport::of("replicator r1")
    };
    ServerStatus {
        own: ProcessReport { ready: true, ..ProcessReport::of("proxy p1") },
        nodes: vec![node("n1", vec![ring(1)], Some(report)), node("n2", vec![], None)],
        members: vec![MemberLine { heard_ms_ago: 40, sender: None, report: replicator }],
        moves: vec![MovesLine {
            ring: "index".into(),
            epoch: 2,
            partitions: 16,
            replicas: 48,
            partitions_moving: 9,
            replicas_moving: 9,
            change: Some(ChangeLine { change: 2, phase: "joint".into(), receivers: 4, joined: 1 }),
        }],
        term: 5,
        waiting_epoch: Some(3),
        ring_overtaken: false,
    }
}

#[test]
fn cluster_status_lists_stale_silent_mute_and_busy_nodes() {
    let text = status(&example());
    for words in [
        "(proxy p1) is ready",
        "1 of 2 nodes answer, with 1 devices (1 without votes); 1 other processes; 5 hints wait",
        "  storage node n1: device d3 has no votes yet",
        "index=1 (old)",
        "storage node n2  n2:7001  silent  90 s ago",
        "index (none)",
        "d3      n1/d1  ready   no     ██████████········│·  50.0 %  40.0 GiB  100.0 GiB",
        "index      2                  9  16                9  48       2  joint  1 of 4",
        "the index ring of epoch 3 waits",
        "term 5;",
        "replicator r1  update       12     3 s  4.0/s  3 s  -",
        "\n2 extents have different bytes on two primaries, as the log of replicator r1 shows\n",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn a_node_with_another_ring_of_the_newest_epoch_is_marked() {
    let mut example = example();
    example.nodes[0].rings = vec![ring(2)];
    example.nodes[1].rings = vec![RingLine { hash: "0b".into(), ..ring(2) }];
    let text = status(&example);
    assert_eq!(text.matches("index=2 (other ring)").count(), 1, "{text}");
    assert!(!text.contains("(old)"), "{text}");
}

#[test]
fn server_status_lists_its_own_devices() {
    let memory = Some(MemoryLine {
        memory_bytes: 3 << 30,
        index_cache_bytes: 2 << 30,
        index_write_bytes: 768 << 20,
        body_bytes: 256 << 20,
    });
    let devices = vec![device(true)];
    let own = ProcessReport { devices, memory, ..ProcessReport::of("server") };
    let text = status(&ServerStatus { own, ..ServerStatus::default() });
    assert!(text.contains("(server) is not ready\n") && text.contains("d3      -"), "{text}");
    assert!(text.contains("no worker has a backlog"), "{text}");
    let split = "memory 3.0 GiB: index cache 2.0 GiB, index writes 768.0 MiB, bodies 256.0 MiB";
    assert!(text.contains(split), "{text}");
}
