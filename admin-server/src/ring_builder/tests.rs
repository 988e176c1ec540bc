//! Steps, plans and bounds of the route, without a server.

use martlet_admin_api::ring_builder::{DeviceUsage, NewBuilder, NewRingDevice};
use martlet_protocol::ManualClock;
use serde_json::{Value, json};

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;
const WHO: &str = "ada";

fn always() -> bool {
    true
}

/// Answers a request as the principal `ada`.
fn reply_to(request: RingBuilderRequest) -> Result<RingBuilderReply, Refusal> {
    Computation { who: WHO, now_ms: NOW_MS, goes_on: &always }.reply(request)
}

fn request(source: BuilderSource, steps: Vec<RingStep>) -> RingBuilderRequest {
    let (plan, rebalance, with_builder, with_ring) = (None, false, true, false);
    RingBuilderRequest { source, steps, plan, rebalance, with_builder, with_ring }
}

fn new(part_power: u8) -> BuilderSource {
    BuilderSource::Create(NewBuilder {
        part_power,
        replicas: None,
        erasure: None,
        min_part_hours: 1,
        overload: 0.0,
        policy: 0,
        policy_name: None,
    })
}

fn device(zone: u32, name: &str) -> NewRingDevice {
    let place = format!("r1z{zone}-n{zone}@10.0.0.{zone}:6200/{name}");
    NewRingDevice { place, weight: 100.0, meta: String::new() }
}

fn add(count: u32) -> RingStep {
    RingStep::Add { devices: (1..=count).map(|zone| device(zone, "sda")).collect() }
}

/// Builder of three devices after its first rebalance.
fn rebalanced() -> String {
    let request = RingBuilderRequest { rebalance: true, ..request(new(6), vec![add(3)]) };
    reply_to(request).unwrap().builder.unwrap()
}

fn refused(request: RingBuilderRequest) -> Refusal {
    match reply_to(request) {
        Ok(reply) => panic!("accepted: {reply:?}"),
        Err(refusal) => refusal,
    }
}

#[test]
fn a_ring_is_made_planned_changed_and_settled_as_by_the_commands() {
    let first =
        RingBuilderRequest { rebalance: true, with_ring: true, ..request(new(6), vec![add(3)]) };
    let made = reply_to(first).unwrap();
    let sentences: Vec<&str> = made.steps.iter().map(|line| line.done.as_str()).collect();
    assert_eq!(sentences[0], "made a builder for policy 0 (default): 2^6 partitions × 3");
    assert_eq!(sentences[1], "added 3 devices, d0 to d2");
    assert!(sentences[2].starts_with("made the ring of epoch 1: 0 replicas moved, 192 placed"));
    assert_eq!((made.epoch, made.changed, made.steps[1].added.clone()), (1, false, vec![0, 1, 2]));
    assert!(made.history.iter().all(|line| (line.who.as_str(), line.at_ms) == (WHO, NOW_MS)));
    assert_eq!(made.devices.iter().map(|it| it.replicas).collect::<Vec<_>>(), [Some(64); 3]);
    let ring = made.ring.unwrap();
    let file = Ring::decode(&STANDARD.decode(&ring.file).unwrap()).unwrap();
    assert_eq!((ring.name.as_str(), file.epoch()), ("data-0", 1));

    let usage = [(0, DeviceUsage { used: 640, capacity: 1000 })];
    let options = PlanOptions { usage: usage.into(), ..PlanOptions::default() };
    let text = made.builder.unwrap();
    let more = RingBuilderRequest {
        plan: Some(options),
        ..request(BuilderSource::Builder(text.clone()), vec![add_one(), weigh("d0", 50.0)])
    };
    let planned = reply_to(more.clone()).unwrap();
    let plan = planned.plan.unwrap();
    assert!(plan.sentence.starts_with("would make the ring of epoch 2: "), "{}", plan.sentence);
    assert!(plan.moved > 0 && plan.bytes.is_some_and(|bytes| bytes > 0) && plan.hours.is_some());
    assert_eq!(plan.devices.iter().map(|it| it.coming).sum::<u64>(), plan.replicas);
    assert_eq!((planned.epoch, planned.changed), (1, true), "a plan changes nothing");

    let done = reply_to(RingBuilderRequest { rebalance: true, ..more }).unwrap();
    assert_eq!(done.plan, Some(plan), "a rebalance follows its plan");
    assert_eq!((done.epoch, done.changed, done.replicas_moving > 0), (2, false, true));
    let settle = vec![RingStep::Settle];
    let settled = request(BuilderSource::Builder(done.builder.unwrap()), settle);
    let settled = reply_to(settled).unwrap();
    assert_eq!((settled.epoch, settled.replicas_moving), (3, 0));
    assert!(Builder::from_json(&text).is_ok_and(|builder| builder.epoch() == 1));
}

fn add_one() -> RingStep {
    RingStep::Add { devices: vec![device(1, "sdb")] }
}

fn weigh(devices: &str, weight: f64) -> RingStep {
    RingStep::SetWeight { devices: devices.to_owned(), weight }
}

#[test]
fn a_lost_builder_comes_back_from_its_ring() {
    let text = BuilderSource::Builder(rebalanced());
    let ring = RingBuilderRequest { with_ring: true, ..request(text, Vec::new()) };
    let file = reply_to(ring).unwrap().ring.unwrap().file;
    let lost = |file: String| {
        BuilderSource::Reconstruct(LostBuilder { file, min_part_hours: 7, overload: 0.2 })
    };
    let back = reply_to(request(lost(file.clone()), vec![add_one()])).unwrap();
    assert_eq!((back.epoch, back.settings.min_part_hours, back.settings.overload), (1, 7, 0.2));
    assert!(back.steps[0].done.starts_with("reconstructed the builder from the ring of epoch 1"));
    for (file, words) in [
        ("~".to_owned(), "not in base64"),
        (STANDARD.encode("MRTLRING"), "cut short"),
        (STANDARD.encode([0xff; 200]), "too many here"),
        (file[..file.len() - 8].to_owned(), "cut short"),
    ] {
        let error = refused(request(lost(file), Vec::new())).refusal.error;
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_step_that_fails_is_named_with_the_words_of_the_command() {
    let text = rebalanced();
    let cases = [
        (weigh("d9", 1.0), "no device of this ring matches `d9`"),
        (weigh("d0", -1.0), "a weight must be a finite number of at least 0"),
        (RingStep::Remove { devices: vec!["d2".into()], force: false }, "repeat with --force"),
        (RingStep::Drain { devices: vec!["d0".into()], steps: 0 }, "must be at least 1"),
        (RingStep::SetOverload { overload: -1.0 }, "overload must be a finite fraction"),
        (RingStep::SetReplicas { replicas: 0.5 }, "the number of replicas must be 1 to 64"),
        (RingStep::Add { devices: vec![device(1, "sda")] }, "is already in the ring as d0"),
        (RingStep::Add { devices: vec![device(1, "a/b")] }, "is not a device: write region"),
        (RingStep::Add { devices: Vec::new() }, "no devices"),
    ];
    for (step, words) in cases {
        let steps = vec![RingStep::SetMinPartHours { hours: 2 }, step];
        let refusal = refused(request(BuilderSource::Builder(text.clone()), steps));
        assert_eq!((refusal.status, refusal.refusal.step), (StatusCode::BAD_REQUEST, Some(1)));
        assert!(refusal.refusal.error.contains(words), "{}", refusal.refusal.error);
    }
    let empty = RingBuilderRequest { rebalance: true, ..request(new(6), Vec::new()) };
    let refusal = refused(empty).refusal;
    assert!(refusal.error.contains("3 replicas need as many devices"), "{refusal:?}");
    assert_eq!(refusal.step, None);
    let changed = vec![weigh("d0", 1.0)];
    let unfit = request(BuilderSource::Builder(text), changed);
    let refusal = refused(RingBuilderRequest { with_ring: true, ..unfit }).refusal;
    assert!(refusal.error.contains("rebalance before writing the ring"), "{refusal:?}");
}

/// The builder of the request stays: nothing is committed.
#[test]
fn a_ring_of_the_index_that_nodes_would_refuse_is_not_made() {
    let BuilderSource::Create(new) = new(6) else { panic!("it is new") };
    let named = NewBuilder { policy_name: Some("index".into()), min_part_hours: 0, ..new };
    let made = RingBuilderRequest {
        rebalance: true,
        ..request(BuilderSource::Create(named), vec![add(4)])
    };
    let first = reply_to(made).unwrap().builder.unwrap();
    let grow = RingBuilderRequest {
        rebalance: true,
        ..request(BuilderSource::Builder(first), vec![add_one()])
    };
    let grown = BuilderSource::Builder(reply_to(grow).unwrap().builder.unwrap());
    let remove = |force| RingStep::Remove { devices: vec!["d4".into()], force };
    let asked = refused(request(grown.clone(), vec![remove(false)])).refusal;
    assert_eq!(asked.step, Some(0));
    assert!(asked.error.contains("run `settle` first"), "{asked:?}");
    for rebalance in [true, false] {
        let plan = (!rebalance).then(PlanOptions::default);
        let made = request(grown.clone(), vec![remove(true)]);
        let refusal = refused(RingBuilderRequest { plan, rebalance, ..made });
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        assert!(refusal.refusal.error.contains("nodes would refuse this ring"), "{refusal:?}");
    }
    let settled = request(grown, vec![RingStep::Settle, remove(false)]);
    let settled = reply_to(RingBuilderRequest { rebalance: true, ..settled }).unwrap();
    assert_eq!((settled.epoch, settled.replicas_moving > 0), (4, true));
}

#[test]
fn large_builders_are_refused_before_their_memory_is_taken() {
    let many: Vec<NewRingDevice> =
        (0..=BUILDER_DEVICES_MAX).map(|at| device(1, &format!("sd{at}"))).collect();
    let replicas = |replicas| vec![RingStep::SetReplicas { replicas }];
    for (part_power, steps, words) in [
        (21, Vec::new(), "2^21 partitions"),
        (20, replicas(4.5), "2^20 partitions × 4.5"),
        (16, replicas(64.5), "must be 1 to 64"),
        (20, vec![RingStep::IncreasePartPower], "2^21 partitions"),
        (6, vec![RingStep::Add { devices: many }], "10001 devices are too many"),
        (6, vec![RingStep::Settle; BUILDER_STEPS_MAX + 1], "at most 1000 steps"),
    ] {
        let refusal = refused(request(new(part_power), steps));
        assert!(refusal.refusal.error.contains(words), "{}", refusal.refusal.error);
    }
    let largest = reply_to(request(new(20), replicas(4.0))).unwrap();
    assert_eq!((largest.settings.part_power, largest.balance), (20, None));
}

/// Bodies that are no requests, and builders that were edited by an attacker.
#[test]
fn hostile_bodies_are_refused_in_a_sentence() {
    let permit = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let with = Computation { who: WHO, now_ms: NOW_MS, goes_on: &always };
    let answer = |body: &[u8]| run(&Bytes::copy_from_slice(body), permit(), with);
    for body in [
        &b""[..],
        b"null",
        b"[]",
        b"{\"source\": {\"builder\": 7}}",
        b"\xff\xfe",
        "[".repeat(100_000).as_bytes(),
    ] {
        let refusal = answer(body).unwrap_err();
        assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
        assert!(refusal.refusal.error.starts_with("the request is malformed"), "{refusal:?}");
    }
    let text = rebalanced();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file.as_object_mut().unwrap().remove("blake3");
    let edited = |path: &str, value: Value| {
        let mut file = file.clone();
        *file.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
        file.to_string()
    };
    for (text, words) in [
        (String::new(), "not a builder file"),
        ("{}".to_owned(), "not a builder file"),
        (text.replace("default", "defaults"), "was edited"),
        (edited("/settings/part_power", json!(255)), "part power 255 is too large"),
        (edited("/settings/part_power", json!(24)), "does not match its part power"),
        (edited("/settings/replicas", json!(1e300)), "the number of replicas"),
        (edited("/devices/0/weight", json!(-1.0)), "a weight must be"),
        (edited("/devices/0/weight", json!(1e300)), "10^-9 to 10^15"),
        (edited("/devices/0/id", json!(9)), "not sorted by id"),
        (edited("/handoff_unit", json!(0.0)), "handoff unit"),
        (edited("/moves", json!([{"at_ms": 1, "moves": [[64, 0, 0]]}])), "moves replicas"),
        (edited("/drains", json!([{"device": 9, "step": 1.0}])), "drains an unknown device"),
        (edited("/assignment/0", json!("0000".repeat(65))), "does not match its part power"),
        (edited("/epoch", json!(u64::MAX)), "no epoch is left"),
    ] {
        let steps = vec![weigh("d0", 50.0)];
        let request =
            RingBuilderRequest { rebalance: true, ..request(BuilderSource::Builder(text), steps) };
        let error = refused(request).refusal.error;
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_computation_ends_when_it_must() {
    let ended = || false;
    let with = Computation { who: WHO, now_ms: NOW_MS, goes_on: &ended };
    let stepped = with.reply(request(new(6), vec![add(3)])).unwrap_err();
    assert_eq!(stepped.status, StatusCode::SERVICE_UNAVAILABLE);
    let plan = RingBuilderRequest {
        plan: Some(PlanOptions::default()),
        ..request(BuilderSource::Builder(rebalanced()), Vec::new())
    };
    let planned = with.reply(plan).unwrap_err();
    assert_eq!(planned.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(planned.refusal.error.contains("took more than 60 s"), "{planned:?}");
    assert!(planned.into_response().headers().contains_key(header::RETRY_AFTER));
}

#[tokio::test(start_paused = true)]
async fn one_computation_runs_at_a_time() {
    let api = RingBuilderApi {
        clock: Arc::new(ManualClock::at(NOW_MS)),
        turn: Arc::new(Semaphore::new(1)),
    };
    let body = Bytes::from(json!({ "source": { "create": { "part_power": 6 } } }).to_string());
    let held = api.turn.clone().try_acquire_owned().unwrap();
    let refusal = api.compute(WHO.to_owned(), body.clone()).await.unwrap_err();
    assert!(refusal.refusal.error.contains("computes another ring"), "{refusal:?}");
    let reply = refusal.into_response();
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.headers()[header::RETRY_AFTER].to_str().unwrap(), "5");
    drop(held);
    for _ in 0..2 {
        assert!(api.compute(WHO.to_owned(), body.clone()).await.is_ok(), "the turn was given back");
    }
}
