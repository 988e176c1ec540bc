//! Tests of rings that follow a cluster file.

use martlet_admin_api::{DeviceLine, ProcessReport};
use martlet_protocol::{Phase, Term};

use super::*;
use crate::spec::tests::THREE;

const HOUR_MS: u64 = 3_600_000;
/// Start of the tests' time.
const START_MS: u64 = 1_800_000_000_000;

/// Output folder, and the time of its plans.
struct Folder {
    out: tempfile::TempDir,
    now_ms: u64,
    force: bool,
    /// Rings that the running nodes use instead of the newest.
    running: Option<Vec<NodeSurvey>>,
    /// Term of the devices.
    term: Term,
}

impl Folder {
    fn new() -> Self {
        let out = tempfile::tempdir().unwrap();
        std::fs::create_dir(out.path().join(CLUSTER_DIR)).unwrap();
        Self { out, now_ms: START_MS, force: false, running: None, term: Term::NONE }
    }

    /// Nodes of a file that use the rings of the stored builders.
    fn survey(&self, spec: &ClusterSpec) -> Vec<NodeSurvey> {
        let builder = |ring: &RingSpec| {
            let path = self.out.path().join(CLUSTER_DIR).join(format!("{}.builder", ring.file));
            path.exists().then(|| Builder::load(&path).unwrap())
        };
        let line = |ring: RingSpec| {
            let builder = builder(&ring)?;
            let hash = hex::encode(&builder.ring().unwrap().hash()[..8]);
            Some(RingLine { name: ring.file, epoch: builder.epoch(), hash })
        };
        let rings: Vec<RingLine> = spec.rings().into_iter().filter_map(line).collect();
        let node = |(name, address): (String, String)| {
            let devices = vec![DeviceLine { term: self.term.0, ..DeviceLine::default() }];
            let rings = rings.clone();
            let report = ProcessReport { rings, devices, ..ProcessReport::of(&name) };
            NodeSurvey { name, address, report: Ok(report) }
        };
        spec.storage_nodes().into_iter().map(node).collect()
    }

    fn plan(&self, text: &str, settle: bool) -> Result<RingsOutcome, Failure> {
        let spec = ClusterSpec::parse(text).unwrap();
        let usage = (0..8).map(|id| (DeviceId(id), Usage { used: 1 << 30, capacity: 4 << 30 }));
        let usage = usage.collect();
        let pace = MovePace { bytes_per_second: 100_000_000, high_water: 0.9 };
        let survey = self.running.clone().unwrap_or_else(|| self.survey(&spec));
        let (now_ms, force, survey) = (self.now_ms, self.force, &survey);
        let context = RingContext { now_ms, settle, force, usage: &usage, pace, survey };
        follow(&spec, &MadeBefore::find(&spec, self.out.path()), &context)
    }

    fn refusal(&self, text: &str, settle: bool) -> String {
        self.plan(text, settle).err().unwrap().to_string()
    }

    fn apply(&self, text: &str, settle: bool) -> RingsOutcome {
        let outcome = self.plan(text, settle).unwrap();
        for ring in outcome.rings.iter().filter(|ring| ring.is_changed) {
            ring.builder.save(&self.out.path().join(&ring.path)).unwrap();
        }
        outcome
    }
}

fn is_quiet(outcome: &RingsOutcome) -> bool {
    outcome.waits.is_none() && outcome.rings.iter().all(|ring| !ring.is_changed)
}

/// The three nodes and a fourth in zone 1.
fn four() -> String {
    format!(
        "{THREE}\n[[node]]\nname = \"n4\"\naddress = \"10.0.0.4\"\nzone = 1\ndevice = [{{ name = \
         \"d1\", path = \"/srv/d1\", size = \"4TB\" }}]\n"
    )
}

#[test]
fn first_rings_are_made_once() {
    let folder = Folder::new();
    let first = folder.apply(THREE, false);
    assert_eq!(first.rings.len(), 2);
    assert!(first.rings.iter().all(|ring| ring.is_changed && ring.cost.is_none()));
    let placed: Vec<u64> =
        first.rings.iter().map(|ring| ring.report.as_ref().unwrap().placed).collect();
    assert_eq!(placed, [4096 * 3, 4096 * 3]);
    assert!(is_quiet(&folder.plan(THREE, false).unwrap()));
    assert!(is_quiet(&folder.plan(THREE, true).unwrap()), "there is nothing to settle");
}

#[test]
fn a_node_joins_once_and_its_cost_is_known() {
    let folder = Folder::new();
    folder.apply(THREE, false);
    let joined = folder.apply(&four(), false);
    for ring in &joined.rings {
        let cost = ring.cost.as_ref().unwrap();
        assert!(cost.replicas > 0 && cost.bytes > 0 && cost.hours > 0.0, "{}", ring.name);
        assert!(cost.devices.iter().any(|device| device.peak.is_some()));
        assert_eq!(ring.edits, ["n4/d1 joins zone 1, weight 4000"]);
    }
    assert!(is_quiet(&folder.plan(&four(), false).unwrap()), "a second apply changes nothing");
}

#[test]
fn min_part_hours_are_respected_unless_the_moves_are_settled() {
    let mut folder = Folder::new();
    folder.apply(THREE, false);
    folder.apply(&four(), false);
    let drained = four().replacen("weight = 4000", "weight = 0", 1);
    let early = folder.apply(&drained, false);
    assert!(early.waits.as_ref().unwrap().contains("min-part-hours"), "{:?}", early.waits);
    assert!(early.rings.iter().all(|ring| !ring.is_changed));
    let settled = folder.plan(&drained, true).unwrap();
    assert!(settled.waits.is_none() && settled.rings.iter().all(|ring| ring.is_changed));
    folder.now_ms += 2 * HOUR_MS;
    let later = folder.apply(&drained, false);
    assert!(later.waits.is_none());
    assert!(later.rings[0].report.as_ref().unwrap().locked > 0, "unsettled moves stay");
}

#[test]
fn a_drained_device_ends_empty_and_may_leave() {
    let mut folder = Folder::new();
    folder.apply(THREE, false);
    let drained = THREE.replacen("weight = 4000", "weight = 0", 1);
    let mut rounds = 0;
    loop {
        let outcome = folder.apply(&drained, true);
        if is_quiet(&outcome) {
            break;
        }
        rounds += 1;
        assert!(rounds < 16, "the drain does not end");
        folder.now_ms += HOUR_MS;
    }
    let index = &folder.plan(&drained, false).unwrap().rings[0];
    let d2 = index.ring.devices().iter().find(|it| it.node.name == "n1" && it.name == "d2");
    let id = d2.unwrap().id;
    let holds = |partition| index.ring.primaries(partition).any(|device| device == id);
    assert!(!index.ring.partitions().any(holds), "the device holds nothing");
    let line = drained.lines().find(|line| line.contains("weight = 0")).unwrap();
    let left = drained.replacen(line, "]", 1);
    let outcome = folder.apply(&left, false);
    assert!(outcome.rings[0].ring.device(id).is_none());
    assert_eq!(outcome.rings[0].cost.as_ref().unwrap().replicas, 0, "no replica moves");
}

#[test]
fn a_later_policy_numbers_devices_as_the_others_do() {
    let folder = Folder::new();
    folder.apply(&four(), false);
    let without = THREE.to_owned();
    folder.apply(&without, false);
    let policy = format!("{without}\n[[policy]]\nname = \"ec\"\ncode = \"2+1\"\n");
    let outcome = folder.apply(&policy, false);
    assert!(outcome.rings[2].is_changed);
    let five = policy.replacen(
        "[[policy]]",
        "[[node]]\nname = \"n5\"\naddress = \"10.0.0.5\"\nzone = 1\ndevice = [{ name = \"d1\", \
         path = \"/srv/d1\", size = \"4TB\" }]\n\n[[policy]]",
        1,
    );
    let outcome = folder.plan(&five, true).unwrap();
    let id = |ring: &RingOutcome| {
        ring.builder.devices().find(|device| device.node.name == "n5").unwrap().id
    };
    assert!(outcome.rings.iter().all(|ring| id(ring) == DeviceId(7)), "ids of n4 are used up");
}

#[test]
fn changes_of_immutable_ring_settings_are_refused() {
    let folder = Folder::new();
    folder.apply(THREE, false);
    for (from, to, words) in [
        ("name = \"try\"", "name = \"try\"\nreplicas = 2", "replicas 3 for life"),
        ("name = \"try\"", "name = \"try\"\npart_power = 10", "part_power 12 for life"),
        ("zone = 3", "zone = 1", "is in region 1 zone 3 for life"),
    ] {
        let refusal = folder.plan(&THREE.replacen(from, to, 1), false).err().unwrap().to_string();
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn the_last_device_of_a_zone_stays_without_force() {
    let folder = Folder::new();
    folder.apply(&four(), false);
    let text = four();
    let third = text.split("[[node]]").filter(|it| !it.contains("n3")).collect::<Vec<_>>();
    let refusal = folder.plan(&third.join("[[node]]"), false).err().unwrap().to_string();
    assert!(refusal.contains("last device of zone"), "{refusal}");
}

#[test]
fn moves_are_not_settled_before_all_nodes_use_their_ring() {
    let mut folder = Folder::new();
    folder.apply(THREE, false);
    let spec = ClusterSpec::parse(&four()).unwrap();
    let before = folder.survey(&spec);
    folder.apply(&four(), false);
    let mut running = folder.survey(&spec);
    running[1] = before[1].clone();
    folder.running = Some(running.clone());
    let refusal = folder.refusal(&four(), true);
    assert!(refusal.contains("n2 among them: wait, take a census"), "{refusal}");
    running.remove(1);
    folder.running = Some(running);
    let refusal = folder.refusal(&four(), true);
    assert!(
        refusal.contains("n2 among them"),
        "a node that wasn't asked proves nothing: {refusal}"
    );
    folder.running = Some(Vec::new());
    assert!(folder.refusal(&four(), true).contains("4 of the nodes"), "no node was asked");
    folder.running = None;
    assert!(folder.plan(&four(), true).unwrap().rings[0].ring.moves().is_empty());
}

/// Index ring of an outcome.
fn index(outcome: &RingsOutcome) -> &Ring {
    &outcome.rings[0].ring
}

#[test]
fn a_device_that_took_replicas_of_the_index_leaves_once_their_change_is_over() {
    let mut folder = Folder::new();
    folder.apply(THREE, false);
    let joined = folder.apply(&four(), false);
    let change = joined.rings[0].ring.change();
    for (term, nodes) in
        [(Term::NONE, 4), (Term::of(change, Phase::Joint), 4), (Term::of(change, Phase::New), 2)]
    {
        folder.term = term;
        folder.running = None;
        let mut running = folder.survey(&ClusterSpec::parse(&four()).unwrap());
        running.truncate(nodes);
        folder.running = Some(running);
        let refusal = folder.refusal(THREE, false);
        assert!(refusal.contains("nodes would refuse the index ring"), "{term}: {refusal}");
        assert!(refusal.contains("on before its last move was settled"), "{term}: {refusal}");
    }
    // The node that leaves is lost, so that no census is clean.
    folder.running = None;
    let left = folder.apply(THREE, false);
    let settled = "moves are settled, as their change is over";
    assert!(left.rings[0].edits.iter().any(|edit| edit.contains(settled)));
    index(&joined).check_index_successor(index(&left), index(&joined).last_term()).unwrap();
    let at = |ring: &Ring, partition, replica| ring.primaries(partition).nth(replica);
    let returns = index(&joined).moves().iter().all(|step| {
        at(index(&left), step.partition, usize::from(step.replica)) == Some(step.previous)
    });
    assert!(!returns, "a replica goes on to a third device");
    // No process knows which extents have arrived: the earlier holders stay named.
    let (before, after) = (&joined.rings[1].ring, &left.rings[1].ring);
    for step in before.moves() {
        let replica = usize::from(step.replica);
        let is_back = at(after, step.partition, replica) == Some(step.previous);
        assert!(is_back || after.previous(step.partition, replica) == Some(step.previous));
    }
}

#[test]
fn an_index_ring_that_waits_does_not_prevent_that_extents_settle() {
    let mut folder = Folder::new();
    folder.apply(THREE, false);
    let spec = ClusterSpec::parse(&four()).unwrap();
    let before = folder.survey(&spec);
    folder.apply(&four(), false);
    let mut running = folder.survey(&spec);
    for (node, old) in running.iter_mut().zip(before) {
        node.report.as_mut().unwrap().rings[0] = old.report.unwrap().rings[0].clone();
    }
    folder.running = Some(running);
    let outcome = folder.plan(&four(), true).unwrap();
    let moving: Vec<bool> = outcome.rings.iter().map(|it| !it.ring.moves().is_empty()).collect();
    assert_eq!(moving, [true, false]);
}

#[test]
fn builders_older_than_the_running_rings_are_refused() {
    let mut folder = Folder::new();
    folder.apply(THREE, false);
    let old = Builder::load(&folder.out.path().join("cluster/index.builder")).unwrap();
    folder.apply(&four(), false);
    folder.running = Some(folder.survey(&ClusterSpec::parse(THREE).unwrap()));
    assert!(is_quiet(&folder.plan(&four(), false).unwrap()));
    old.save(&folder.out.path().join("cluster/index.builder")).unwrap();
    let refusal = folder.refusal(&four(), false);
    assert!(refusal.contains("are older than the cluster: restore the newest copy"), "{refusal}");
    assert!(refusal.contains("n1 uses the ring index of epoch 2"), "{refusal}");

    let folder = Folder::new();
    folder.apply(THREE, false);
    let mut running = folder.survey(&ClusterSpec::parse(THREE).unwrap());
    running[2].report.as_mut().unwrap().rings[1].hash = "0011223344556677".to_owned();
    let folder = Folder { running: Some(running.clone()), ..folder };
    let refusal = folder.refusal(THREE, false);
    assert!(refusal.contains("n3 uses the ring data-0 of epoch 1"), "another hash: {refusal}");
    running[2].report.as_mut().unwrap().rings[1].name = "data-1".to_owned();
    let folder = Folder { running: Some(running), ..folder };
    assert!(folder.refusal(THREE, false).contains("data-1"), "a ring without a builder");
}

#[test]
fn a_policy_stays_in_the_file_for_life() {
    let folder = Folder::new();
    let policy = format!("{THREE}\n[[policy]]\nname = \"ec\"\ncode = \"2+1\"\n");
    folder.apply(&policy, false);
    let refusal = folder.refusal(THREE, false);
    let words = "the policy of cluster/data-1.builder is in the cluster for life: write its";
    assert!(refusal.contains(words), "{refusal}");
    assert!(is_quiet(&folder.plan(&policy, false).unwrap()));
}

/// A file with one device on each of six nodes in three zones, without the nodes `gone`.
fn six(gone: &[u32]) -> String {
    let nodes = (1..=6).filter(|number| !gone.contains(number)).map(|number| {
        let zone = number % 3 + 1;
        format!(
            "[[node]]\nname = \"n{number}\"\naddress = \"10.0.0.{number}\"\nzone = {zone}\n\
             device = [{{ name = \"d1\", path = \"/srv/d1\", size = \"4TB\" }}]\n"
        )
    });
    format!(
        "name = \"six\"\npart_power = 8\n{}[[policy]]\nname = \"ec\"\ncode = \"2+1\"\n",
        nodes.collect::<String>()
    )
}

#[test]
fn no_edit_removes_the_last_sure_holders_without_force() {
    let mut folder = Folder::new();
    folder.apply(&six(&[]), false);
    // Nodes 1, 2 and 3 lie in three zones, so some partitions lie on all of them.
    let refusal = folder.refusal(&six(&[1, 2, 3]), false);
    assert!(refusal.contains("partitions of the index ring would keep fewer than 2"), "{refusal}");
    assert!(folder.refusal(&six(&[1, 2]), false).contains("index ring"), "a majority is lost");
    folder.apply(&six(&[1]), false);
    let refusal = folder.refusal(&six(&[1, 2]), false);
    assert!(refusal.contains("--settle after each step"), "moves prove nothing: {refusal}");
    folder.apply(&six(&[1]), true);
    let left = folder.apply(&six(&[1, 2]), false);
    (folder.force, folder.term) = (true, index(&left).last_term());
    let forced = folder.plan(&six(&[1, 2, 3]), false).unwrap();
    assert!(forced.rings.iter().all(|ring| ring.is_changed));
    // A change of the index without most of the old holders would never end.
    let mut folder = Folder::new();
    folder.apply(&six(&[]), false);
    folder.force = true;
    let refusal = folder.refusal(&six(&[1, 2, 3]), false);
    assert!(refusal.contains("nodes would refuse the index ring"), "{refusal}");
    assert!(refusal.contains("could never end"), "{refusal}");
}

#[test]
fn copies_and_fragments_need_fewer_holders_than_the_index() {
    let folder = Folder::new();
    let outcome = folder.apply(&six(&[]), false);
    let gone = |numbers: &[u32]| {
        let left = outcome.rings[1].ring.devices().iter();
        let left = left.filter(|it| numbers.iter().all(|n| it.node.name != format!("n{n}")));
        let devices: Vec<Device> = left.cloned().collect();
        Ring::of_devices(PolicyId(0), 3, &devices).unwrap()
    };
    let check = |name: &str, at: usize, numbers: &[u32]| {
        let checked = check_holders(name, &outcome.rings[at].ring, &gone(numbers));
        checked.err().map(|why| why.to_string()).unwrap_or_default()
    };
    assert!(check("index", 0, &[1, 2]).contains("index ring would keep fewer than 2"));
    assert_eq!(check("data-0", 1, &[1, 2]), "", "one of three copies is left");
    assert!(check("data-0", 1, &[1, 2, 3]).contains("keep fewer than 1"));
    assert_eq!(check("data-1", 2, &[1]), "", "two of 2+1 fragments are left");
    assert!(check("data-1", 2, &[1, 2]).contains("data-1 ring would keep fewer than 2"));
}
