//! One run: rings of all policies, changes, durability, churn and memory.

use martlet_ring::{Builder, Figures};

use crate::changes::{Change, ChangeCost, Setting};
use crate::churn::Node;
use crate::cluster::{Content, Placement, Policy, Shape, build};
use crate::constants::{Constants, Name};
use crate::durability::{Experiment, FailureRates, Outcome, Repairs, YEAR_H};
use crate::error::Result;
use crate::markov::Replicas;
use crate::memory::NodeMemory;
use crate::pace::{Pace, ReplicaWork};
use crate::random::Random;
use crate::repair::{WalkTimes, Walks};
use crate::results::{
    Alternative, AlternativeCost, DelayPoint, Durability, NamedMonth, Results, RingFacts,
};

/// Factor of the rate at which racks are lost, in the run at true rates.
const RACK_BOOST: f64 = 8.0;
/// Hours until a repair begins, for the comparison.
const DELAYS_H: [f64; 7] = [0.25, 1.0, 4.0, 12.0, 24.0, 72.0, 168.0];
/// Churn, in shares of all extents a day.
const CHURNS: [f64; 4] = [0.005, 0.01, 0.03, 0.06];

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) constants: Constants,
    pub(crate) seed: u64,
    pub(crate) years: u32,
}

/// Receiver of progress.
pub(crate) trait Progress {
    /// Begins a stage of so many steps.
    fn stage(&self, name: String, steps: u32);
    /// Counts a step of the stage.
    fn step(&self);
}

/// Ring of one policy.
struct PolicyRing {
    policy: Policy,
    builder: Builder,
    placement: Placement,
}

/// Runs the model.
pub(crate) fn run(plan: &Plan, progress: &impl Progress) -> Result<Results> {
    let Plan { shape, constants, .. } = plan;
    let rings = rings(plan, progress)?;
    let mut facts = Vec::new();
    let (mut changes, mut durability) = (Vec::new(), Vec::new());
    for ring in &rings {
        facts.push(ring.facts()?);
        changes.extend(costs(plan, ring, progress)?);
        durability.push(durable(plan, ring, progress));
    }
    let copies = &rings[0];
    let alternatives = alternatives(plan, copies, &durability[0], progress)?;
    progress.stage("churn and memory".to_owned(), 1);
    let replicas = copies.placement.replicas_a_device();
    let node = Node { constants, shape: *shape, partitions_a_device: replicas };
    let month = |churn_day| {
        let constants = &constants.with(Name::ChurnDay, churn_day);
        NamedMonth { churn_day, month: Node { constants, ..node }.month() }
    };
    let devices = f64::from(shape.devices_a_node);
    progress.step();
    Ok(Results {
        seed: plan.seed,
        years: plan.years,
        shape: *shape,
        constants: constants.all().to_vec(),
        rings: facts,
        changes,
        alternatives,
        durability,
        loads: node.loads(),
        audit_rate: node.audit_rate(),
        months: CHURNS.map(month).into(),
        memory: NodeMemory::of(constants, devices, true),
        memory_without_deletes: NodeMemory::of(constants, devices, false),
    })
}

fn rings(plan: &Plan, progress: &impl Progress) -> Result<Vec<PolicyRing>> {
    progress.stage("placing rings".to_owned(), Policy::ALL.len() as u32);
    let mut rings = Vec::new();
    for (number, policy) in (0..).zip(Policy::ALL) {
        let builder = build(plan.shape, policy, plan.seed.wrapping_add(number))?;
        let placement = Placement::new(plan.shape, policy, &builder.ring()?)?;
        rings.push(PolicyRing { policy, builder, placement });
        progress.step();
    }
    Ok(rings)
}

impl PolicyRing {
    fn facts(&self) -> Result<RingFacts> {
        Ok(RingFacts {
            policy: self.policy.name,
            partitions: self.placement.partitions(),
            replicas_a_device: self.placement.replicas_a_device(),
            balance: Figures::of_ring(&self.builder.ring()?).balance,
            crowded: self.placement.crowded(),
        })
    }

    fn setting<'a>(&'a self, plan: &Plan, constants: &'a Constants) -> Setting<'a> {
        Setting {
            constants,
            shape: plan.shape,
            policy: self.policy,
            builder: &self.builder,
            placement: &self.placement,
            seed: plan.seed,
        }
    }

    fn replicas(&self, failures: f64, repair: f64) -> Replicas {
        let Policy { width, spare, .. } = self.policy;
        Replicas { width: width.into(), spare: spare.into(), failures, repair }
    }

    /// Returns lost partitions a year by the closed form.
    fn losses(&self, failures: f64, repair: f64) -> f64 {
        f64::from(self.placement.partitions()) * self.replicas(failures, repair).losses() * YEAR_H
    }
}

fn costs(plan: &Plan, ring: &PolicyRing, progress: &impl Progress) -> Result<Vec<ChangeCost>> {
    let name = ring.policy.name;
    progress.stage(format!("{name}: ring changes"), Change::ALL.len() as u32);
    let setting = ring.setting(plan, &plan.constants);
    let cost = |change| {
        let cost = setting.cost(change);
        progress.step();
        cost
    };
    Change::ALL.into_iter().map(cost).collect()
}

/// Returns the times of repairs of a policy, beside clients.
fn repairs(plan: &Plan, ring: &PolicyRing, constants: &Constants) -> Repairs {
    let pace = Pace::new(constants, true);
    let delay = pace.delay_hours();
    if ring.policy.content == Content::Registers {
        return Repairs::Sync { delay, hours: pace.sync_hours(constants.get(Name::Registers)) };
    }
    let work = ReplicaWork::of(constants, &pace, &ring.placement);
    let walks = pace.walk_times(plan.shape, &ring.placement);
    let times = WalkTimes { copy: work.repair_hours, ..walks };
    let mut random = Random::of_sequence(plan.seed, 2);
    let nodes = plan.shape.nodes() as usize;
    Repairs::Walks { delay, walks: Walks::new(&ring.placement, nodes, times, &mut random) }
}

fn durable(plan: &Plan, ring: &PolicyRing, progress: &impl Progress) -> Durability {
    let name = ring.policy.name;
    let rates = FailureRates::of(&plan.constants);
    let experiment = Experiment {
        placement: &ring.placement,
        rates,
        repairs: repairs(plan, ring, &plan.constants),
        acceleration: 1.0,
        rack_boost: RACK_BOOST,
        seed: plan.seed,
    };
    progress.stage(format!("{name}: {} years", plan.years), plan.years);
    let exact = experiment.run(plan.years, || progress.step());
    let acceleration = acceleration(ring, &exact, rates);
    let fast = Experiment { acceleration, rack_boost: 1.0, seed: plan.seed + 1, ..experiment };
    let years = plan.years.div_ceil(4);
    progress.stage(format!("{name}: {years} years, failures × {acceleration}"), years);
    let fast = fast.run(years, || progress.step());
    let delay_h = Pace::new(&plan.constants, true).delay_hours();
    let failures = rates.of_replica();
    let by_delay = |delay: f64| DelayPoint {
        delay_h: delay,
        losses: ring.losses(failures, exact.repair_h - delay_h + delay),
    };
    let chain = ring.replicas(failures, exact.repair_h);
    let partitions = ring.placement.partitions();
    Durability {
        policy: name,
        partitions,
        exposed: exact.exposed,
        counted: fast.counted,
        acceleration,
        losses: fast.losses,
        closed_form: ring.losses(failures, exact.repair_h),
        markov: f64::from(partitions) * YEAR_H / chain.mean_time_to_loss(),
        repair_h: exact.repair_h,
        delay_h,
        by_delay: DELAYS_H.map(by_delay).into(),
    }
}

/// Returns the acceleration at which a year is expected to see a few losses.
fn acceleration(ring: &PolicyRing, exact: &Outcome, rates: FailureRates) -> f64 {
    let slow = ring.losses(rates.of_replica(), exact.repair_h);
    let power = 1.0 / (f64::from(ring.policy.spare) + 1.0);
    (2.0 / slow).powf(power).ceil().clamp(1.0, 40.0)
}

/// Returns repairs of copies under workers with other bounds.
fn alternatives(
    plan: &Plan,
    ring: &PolicyRing,
    usual: &Durability,
    progress: &impl Progress,
) -> Result<Vec<Alternative>> {
    let base = &plan.constants;
    // Any change makes the only bin of a device differ: each pass visits everything.
    let whole = base.with(Name::Bins, 1.0);
    let single = base.with(Name::Walkers, 1.0);
    let before = whole.with(Name::Walkers, 1.0);
    let all = [
        ("as it is", base.clone()),
        ("walks over everything", whole),
        ("one device of a node at a time", single),
        ("both, as before ADR 107", before),
    ];
    progress.stage("other workers".to_owned(), all.len() as u32);
    let rates = FailureRates::of(base);
    let changes = [Change::LoseDevice, Change::LoseRack, Change::Grow];
    let mut alternatives = Vec::new();
    for (name, constants) in all {
        let setting = ring.setting(plan, &constants);
        let mut costs = Vec::new();
        for change in changes {
            let ChangeCost { half_hours, hours, .. } = setting.cost(change)?;
            costs.push(AlternativeCost { change, half_hours, hours });
        }
        let experiment = Experiment {
            placement: &ring.placement,
            rates,
            repairs: repairs(plan, ring, &constants),
            acceleration: 1.0,
            rack_boost: 1.0,
            seed: plan.seed,
        };
        let repair_h = experiment.run(plan.years.div_ceil(20), || ()).repair_h;
        // The usual workers' figure is the one of the table of durability.
        let is_usual = alternatives.is_empty();
        let losses =
            if is_usual { usual.closed_form } else { ring.losses(rates.of_replica(), repair_h) };
        alternatives.push(Alternative { name, costs, losses });
        progress.step();
    }
    Ok(alternatives)
}

#[cfg(test)]
mod tests {
    use super::{Plan, Progress, run};
    use crate::cluster::Shape;
    use crate::constants::Constants;

    struct Silent;

    impl Progress for Silent {
        fn stage(&self, _: String, _: u32) {}
        fn step(&self) {}
    }

    #[test]
    fn a_run_is_a_function_of_its_seed_and_its_estimates_agree() {
        let shape = Shape { racks: 12, nodes_a_rack: 2, devices_a_node: 4 };
        let mut constants = Constants::default();
        // Lost racks and nodes delay all repairs, which no closed form knows.
        for text in ["device_failures=0.2", "node_failures=1e-6", "rack_failures=1e-6"] {
            constants.set(text).unwrap();
        }
        let plan = |seed| Plan { shape, constants: constants.clone(), seed, years: 60 };
        let results = run(&plan(1), &Silent).unwrap();
        let json = |results| serde_json::to_string(results).unwrap();
        let [again, other] = [1, 2].map(|seed| run(&plan(seed), &Silent).unwrap());
        assert_eq!(json(&results), json(&again));
        assert_ne!(json(&results), json(&other));
        for it in &results.durability {
            // Three missing fragments of 11 are too rare in 60 years of so few devices.
            let ratio = it.exposed.mean / it.closed_form;
            let agrees = it.policy == "8+3" || (0.4..2.5).contains(&ratio);
            assert!(agrees, "{}: {ratio}", it.policy);
            let chain = it.markov / it.closed_form;
            assert!((0.8..1.2).contains(&chain), "{}: {chain}", it.policy);
        }
        assert_eq!(results.changes.len(), 24);
    }
}
