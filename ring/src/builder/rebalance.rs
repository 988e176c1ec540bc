//! A rebalance: adapts the assignment to the devices.

use martlet_protocol::Partition;
use serde::Serialize;

use super::solve::{Problem, Solution};
use super::{Builder, LONG_AGO_MS, StartedMove};
use crate::error::{Error, Result};
use crate::figures::Figures;
use crate::ring::Move;
use crate::table::{NOBODY, Table};

/// Most rebalances to look ahead.
const AHEAD_MAX: u32 = 32;
/// Maximum number of assignments that a rebalance or its rehearsal computes: its own, and those ahead.
pub const ASSIGNMENTS_MAX: u32 = AHEAD_MAX + 1;
/// Factor of drift in the average weight from which the order of handoffs changes.
const HANDOFF_DRIFT_MAX: f64 = 4.0;
const HOUR_MS: u64 = 60 * 60 * 1000;

/// Time and seed of a rebalance.
#[derive(Clone, Copy, Debug, Default)]
pub struct RebalanceContext {
    /// Current time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Seed for ties: equal seeds give equal rings.
    pub seed: u64,
}

/// Result of a rebalance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Epoch of the resulting ring.
    pub epoch: u64,
    /// Replicas that left a device that still exists.
    pub moved: u64,
    /// Replicas that had no device, or a removed one.
    pub placed: u64,
    /// Partitions that could not move because an earlier move is in progress.
    pub locked: u64,
    /// Worst deviation of a device from its share by weight, in percent.
    pub balance: f64,
    /// Replicas closer together than the devices require, in percent.
    pub dispersion: f64,
    /// Number of further rebalances that would move replicas, at most 32.
    pub rebalances_to_go: u32,
}

/// Result of one step of the assignment.
struct StepResult {
    moved: u64,
    placed: u64,
    locked: u64,
    /// True if a further rebalance would find nothing to do.
    is_final: bool,
}

impl Builder {
    /// Adapts the assignment to the devices.
    pub fn rebalance(&mut self, occasion: RebalanceContext) -> Result<Report> {
        rebalance_while(self, occasion, &|| true)
    }

    fn check_can_rebalance(&self, now_ms: u64) -> Result<()> {
        let live = self.devices().filter(|device| device.weight > 0.0).count();
        #[expect(clippy::cast_precision_loss, reason = "at most 2^16 devices")]
        if (live as f64) < self.settings.replicas.ceil() {
            return Err(Error::invalid(format!(
                "{} replicas need as many devices with weight, and there are {live}: add devices, \
                 or reduce replicas with `set-replicas`",
                self.settings.replicas
            )));
        }
        if self.removed.contains(&true) {
            return Ok(());
        }
        let last_ms = self.moves.iter().map(|begun| begun.at_ms).max().unwrap_or(LONG_AGO_MS);
        let hours = self.settings.min_part_hours;
        let next_ms = last_ms.saturating_add(u64::from(hours) * HOUR_MS);
        if last_ms == LONG_AGO_MS || next_ms <= now_ms {
            return Ok(());
        }
        let moved = self.moves.iter().filter(|begun| begun.at_ms == last_ms).count();
        let wait = (next_ms - now_ms).div_ceil(60_000);
        Err(Error::conflict(format!(
            "the last rebalance moved {moved} replicas, and min-part-hours is {hours}: wait {} h \
             {:02} min for replication, or run `settle` (or `pretend-min-part-hours-passed`) after \
             a clean census",
            wait / 60,
            wait % 60,
        )))
    }

    /// Computes a solution and adopts it. Moves keep their previous holders until `settle`,
    /// and lock their partitions: a move's age doesn't prove that its bytes have arrived (rule P3).
    fn step(&mut self, occasion: RebalanceContext) -> StepResult {
        let now_ms = occasion.now_ms;
        self.step_drains();
        let shaped = self.shaped_table();
        self.moves.retain(|begun| {
            let Move { partition, replica, .. } = begun.replica;
            usize::from(replica) < shaped.replicas_of(partition.0)
        });
        let mut locked = vec![false; shaped.parts() as usize];
        for begun in self.moves.iter().filter(|begun| begun.locks()) {
            locked[begun.replica.partition.0 as usize] = true;
        }
        let solution = self.solve(shaped.clone(), &locked, occasion.seed);
        let Solution { table, moved, placed, is_final } = solution;
        let locked = locked.iter().filter(|locked| **locked).count() as u64;
        if self.table.as_ref() != Some(&table) {
            self.change = self.change.saturating_add(1);
        }
        self.note_moves(&shaped, &table, now_ms);
        self.table = Some(table);
        self.forget_removed();
        self.follow_handoff_unit();
        StepResult { moved, placed, locked, is_final }
    }

    fn solve(&self, shaped: Table, locked: &[bool], seed: u64) -> Solution {
        let problem = Problem {
            devices: &self.devices,
            removed: &self.removed,
            replicas: self.settings.replicas,
            overload: self.settings.overload,
            locked,
            seed,
        };
        problem.solve(shaped)
    }

    /// Returns the assignment in the shape of the configured number of replicas.
    fn shaped_table(&self) -> Table {
        let (width, extra) = Table::shape(self.settings.part_power, self.settings.replicas);
        let mut shaped = Table::empty(self.settings.part_power, width, extra);
        if let Some(table) = &self.table {
            for (partition, row) in table.rows() {
                let to = shaped.row_mut(partition);
                let both = row.len().min(to.len());
                to[..both].copy_from_slice(&row[..both]);
            }
        }
        shaped
    }

    fn note_moves(&mut self, before: &Table, after: &Table, now_ms: u64) {
        // Both sequences are in the order of partitions and replicas.
        let mut known = std::mem::take(&mut self.moves).into_iter().peekable();
        for (partition, row) in after.rows() {
            for (column, (&from, &to)) in before.row(partition).iter().zip(row).enumerate() {
                let replica = u8::try_from(column).expect("at most 64 replicas");
                let key = (Partition(partition), replica);
                let earlier =
                    known.next_if(|begun| (begun.replica.partition, begun.replica.replica) == key);
                if from == to || from == NOBODY {
                    self.moves.extend(earlier);
                    continue;
                }
                // A replica that moves again before it arrived keeps its first previous holder. An
                // exception is a move back to that holder: that device may have dropped its copy,
                // and counts as new.
                let (from, to) = (usize::from(from), usize::from(to));
                let previous = earlier
                    .map(|begun| begun.replica.previous)
                    .filter(|previous| *previous != self.devices[to].id)
                    .unwrap_or(self.devices[from].id);
                let change = self.change;
                let replica = Move { partition: key.0, replica, previous, change };
                self.moves.push(StartedMove { replica, at_ms: now_ms });
            }
        }
    }

    /// Removes deleted devices, which hold nothing, from the list and the slots.
    fn forget_removed(&mut self) {
        let Some(table) = &mut self.table else { return };
        let mut next = 0;
        let slots: Vec<u16> = self
            .removed
            .iter()
            .map(|gone| {
                let slot = next;
                next += u16::from(!gone);
                slot
            })
            .collect();
        for partition in 0..table.parts() {
            for slot in table.row_mut(partition) {
                *slot = slots[usize::from(*slot)];
            }
        }
        let mut removed = self.removed.iter();
        self.devices.retain(|_| removed.next() == Some(&false));
        self.removed = vec![false; self.devices.len()];
    }

    /// Keeps the unit of the handoffs' virtual nodes, so that their order is stable, until the
    /// average weight has drifted far.
    fn follow_handoff_unit(&mut self) {
        let weights: Vec<f64> =
            self.devices().map(|device| device.weight).filter(|weight| *weight > 0.0).collect();
        let count = f64::from(u32::try_from(weights.len()).expect("at most 2^16 devices"));
        let average = weights.iter().sum::<f64>() / count;
        let drift = average / self.handoff_unit;
        if self.epoch == 0 || !(1.0 / HANDOFF_DRIFT_MAX..=HANDOFF_DRIFT_MAX).contains(&drift) {
            self.handoff_unit = average;
        }
    }

    /// Computes only the next assignment, assuming that all moves are complete.
    fn step_ahead(&mut self, seed: u64) -> Solution {
        self.step_drains();
        let shaped = self.shaped_table();
        let solution = self.solve(shaped, &vec![false; 1 << self.settings.part_power], seed);
        self.table = Some(solution.table.clone());
        self.forget_removed();
        solution
    }

    /// Returns the builder after a rebalance, and its report; `self` is unchanged.
    pub fn rehearse(&self, occasion: RebalanceContext) -> Result<(Self, Report)> {
        self.rehearse_while(occasion, &|| true)
    }

    /// Rehearses a rebalance while `goes_on` returns true. It is called before each computation of
    /// an assignment, of which a rebalance makes 1 to 33.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) if `goes_on` returned false.
    pub fn rehearse_while(
        &self,
        occasion: RebalanceContext,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(Self, Report)> {
        let mut rehearsal = self.clone();
        let report = rebalance_while(&mut rehearsal, occasion, goes_on)?;
        Ok((rehearsal, report))
    }
}

/// Adapts the assignment to the devices. `observe` is called before each computation of an assignment, of
/// which a rebalance makes 1 to [`ASSIGNMENTS_MAX`].
pub fn rebalance_observed(
    builder: &mut Builder,
    occasion: RebalanceContext,
    observe: &dyn Fn(),
) -> Result<Report> {
    let goes_on = || {
        observe();
        true
    };
    rebalance_while(builder, occasion, &goes_on)
}

/// Adapts the assignment to the devices while `goes_on` returns true. It is called before each
/// computation of an assignment, of which a rebalance makes 1 to 33. After an error of the kind
/// `Stopped` the builder is in no usable state.
fn rebalance_while(
    builder: &mut Builder,
    occasion: RebalanceContext,
    goes_on: &dyn Fn() -> bool,
) -> Result<Report> {
    builder.check_can_rebalance(occasion.now_ms)?;
    if !goes_on() {
        return Err(Error::stopped());
    }
    let was = (builder.table.clone(), builder.moves.clone());
    let step = builder.step(occasion);
    if builder.changed || was.0 != builder.table || was.1 != builder.moves {
        builder.commit()?;
    }
    let figures = Figures::of_builder(builder)?;
    Ok(Report {
        epoch: builder.epoch,
        moved: step.moved,
        placed: step.placed,
        locked: step.locked,
        balance: figures.balance,
        dispersion: figures.dispersion,
        rebalances_to_go: rebalances_to_go(builder, &step, occasion.seed, goes_on)?,
    })
}

/// Returns the number of further rebalances that would move replicas, if each completes first.
fn rebalances_to_go(
    builder: &Builder,
    this: &StepResult,
    seed: u64,
    goes_on: &dyn Fn() -> bool,
) -> Result<u32> {
    if this.is_final && builder.drains.is_empty() {
        return Ok(0);
    }
    let mut ahead = builder.clone();
    ahead.moves.clear();
    for count in 0..AHEAD_MAX {
        if !goes_on() {
            return Err(Error::stopped());
        }
        let draining = !ahead.drains.is_empty();
        let step = ahead.step_ahead(seed);
        if step.moved == 0 && !draining {
            return Ok(count);
        }
        if step.is_final && ahead.drains.is_empty() {
            return Ok(count + 1);
        }
    }
    Ok(AHEAD_MAX)
}
