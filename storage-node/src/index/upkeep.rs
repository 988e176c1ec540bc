//! Calls of background workers on an index: sums, walks, holdings, removals, terms. None of them
//! uses a vote.

use martlet_protocol::backend::{
    AuditResult, DeviceCondition, Holding, RegisterDrop, RegisterView, StrayCondition, Walk,
};
use martlet_protocol::limits::RING_AHEAD_MAX;
use martlet_protocol::run_usage::{Run, RunUsage};
use martlet_protocol::tree::{BinKey, Span, Sum};
use martlet_protocol::{Error, ErrorKind, RegisterKey, Result, Stamp, Term};

use super::audit_page::AuditFindings;
use super::database::Database;
use super::family::Family;
use super::queue::{DeviceChange, DropOp, IndexOp};
use super::rows::RegisterRow;
use super::usage::UsageMends;
use super::{Index, audit, hints, tree, usage, walk};

impl Index {
    /// Returns the sum of the registers in each span (rule H1).
    pub(crate) async fn sums(&self, spans: &[Span]) -> Result<Vec<Sum>> {
        let (database, spans) = (self.reader.database.clone(), spans.to_vec());
        self.run(move || spans.iter().map(|span| sum_of(&database, *span)).collect()).await
    }

    pub(crate) async fn bins(
        &self,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        let database = self.reader.database.clone();
        self.run(move || bins_of(&database, span, after, limit)).await
    }

    pub(crate) async fn walk(
        &self,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let (reader, walk, after) = (self.reader.clone(), *walk, after.cloned());
        self.run(move || walk::page(&reader, &walk, after.as_ref(), limit)).await
    }

    pub(crate) async fn holdings(&self, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        let (database, keys) = (self.reader.database.clone(), keys.to_vec());
        self.run(move || keys.iter().map(|key| holding(&database, &key.encode())).collect()).await
    }

    pub(crate) async fn mark_collectable(&self, marks: &[(RegisterKey, Stamp)]) -> Result<()> {
        let marks = marks.iter().map(|(key, order)| (key.encode(), *order)).collect();
        self.submit(|reply| IndexOp::MarkCollectable(marks, reply)).await
    }

    /// Drops registers, those of strays while their condition holds (rules P1, P3).
    pub(crate) async fn drop_registers(
        &self,
        drops: &[RegisterDrop],
        condition: Option<StrayCondition>,
    ) -> Result<()> {
        let drop = |RegisterDrop { key, up_to, collectable }: &RegisterDrop| DropOp {
            key: key.encode(),
            up_to: *up_to,
            collectable: *collectable,
        };
        let drops = drops.iter().map(drop).collect();
        self.submit(|reply| IndexOp::Drop(condition, drops, reply)).await
    }

    /// Verifies some runs, or a part of a run. Wrong sums are repaired; a device with peers then
    /// loses its votes (rules H1, G1).
    pub(crate) async fn audit_registers(
        &self,
        after: Option<BinKey>,
    ) -> Result<AuditResult<BinKey>> {
        let begin = |calls| {
            let (database, secret, slice) = (self.reader.database.clone(), self.secret, self.slice);
            let counting = self.counting.clone();
            let read = move || audit::run(database, &counting, secret, slice, after, calls);
            let thread = std::thread::Builder::new().name(format!("audit {}", self.name));
            let failed =
                |error| Error::internal("the audit's thread can't be started").with_source(error);
            thread.spawn(read).map(drop).map_err(failed)
        };
        let AuditFindings { audited, mends, usage } = self.audits.page(after, begin).await?;
        self.mend_usage(usage).await?;
        if !mends.is_empty() {
            let (device, bins) = (&self.name, mends.len());
            tracing::error!(%device, bins, "repaired hash sums that did not match their entries");
            self.submit(|reply| IndexOp::MendSums(mends, reply)).await?;
        }
        Ok(audited)
    }

    /// Corrects the usage of runs that the audit found wrong. The rows are the sums of all changes,
    /// so a difference is a mistake or damage; registers are not affected.
    async fn mend_usage(&self, mends: UsageMends) -> Result<()> {
        let runs = mends.mends.len();
        if runs == 0 {
            return Ok(());
        }
        match self.submit(|reply| IndexOp::MendUsage(mends, reply)).await {
            Ok(()) => {
                let device = &self.name;
                tracing::error!(%device, runs, "corrected the usage of runs by their registers");
                self.reader.counters.usage_corrected(runs);
                Ok(())
            }
            // The next audit compares them again.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the usage of each run. `Unavailable` without votes, and while the device counts.
    pub(crate) async fn usage(&self, runs: &[Run], term: Term) -> Result<Vec<RunUsage>> {
        self.voting_state.check_votes(&self.name)?;
        self.voting_state.check_term(term)?;
        self.counting.check_complete(&self.name)?;
        let (database, runs) = (self.reader.database.clone(), runs.to_vec());
        let usage_of = move |run: &Run| {
            let row = database.get_pinned(Family::Usage, &usage::usage_key(*run))?;
            usage::usage_in(row.as_deref())
        };
        self.run(move || runs.iter().map(usage_of).collect()).await
    }

    /// Raises the term. `Invalid` if the term is more than [`RING_AHEAD_MAX`] above the device's
    /// term.
    pub(crate) async fn raise_term(&self, term: Term) -> Result<()> {
        check_step("term", self.voting_snapshot().term.0, term.0)?;
        self.submit(|reply| IndexOp::RaiseTerm(term, reply)).await
    }

    /// Records a joined ring change. `Invalid` if it is more than [`RING_AHEAD_MAX`] above the last
    /// one.
    pub(crate) async fn set_joined(&self, change: u64) -> Result<()> {
        check_step("ring change", self.voting_snapshot().joined, change)?;
        self.submit(|reply| IndexOp::SetJoined(change, reply)).await
    }

    /// Raises the floor of the device that the condition names (rule G2).
    pub(crate) async fn raise_floor_of(
        &self,
        condition: DeviceCondition,
        floor: Stamp,
    ) -> Result<()> {
        self.change_device(condition, DeviceChange::Floor(floor)).await
    }

    /// Gives or withdraws the votes of the device that the condition names, durably (rule G1).
    pub(crate) async fn set_voting_of(
        &self,
        condition: DeviceCondition,
        voting: bool,
    ) -> Result<()> {
        self.change_device(condition, DeviceChange::Votes(voting)).await
    }

    /// Records a ring change that the device of the condition has joined. `Invalid` as for
    /// [`Index::set_joined`].
    pub(crate) async fn set_joined_of(
        &self,
        condition: DeviceCondition,
        change: u64,
    ) -> Result<()> {
        check_step("ring change", self.voting_snapshot().joined, change)?;
        self.change_device(condition, DeviceChange::Joined(change)).await
    }

    /// Records that the device of the condition has received the fences of its peers (rule M2).
    pub(crate) async fn set_fenced_of(&self, condition: DeviceCondition) -> Result<()> {
        self.change_device(condition, DeviceChange::Fenced).await
    }

    async fn change_device(&self, condition: DeviceCondition, change: DeviceChange) -> Result<()> {
        self.submit(|reply| IndexOp::OfDevice(condition, change, reply)).await
    }
}

/// Returns `Invalid` for too large a step: a device keeps the highest number for ever, and a huge
/// number would leave none for later changes.
fn check_step(what: &str, held: u64, next: u64) -> Result<()> {
    if next.saturating_sub(held) > RING_AHEAD_MAX {
        return Err(Error::invalid(format!(
            "{what} {next} is too far above {held}, the highest known to the device"
        )));
    }
    Ok(())
}

fn sum_of(database: &Database, span: Span) -> Result<Sum> {
    let [lower, upper] = tree::span_rows(span);
    let mut sum = Sum::default();
    database.scan(Family::Tree, &lower, &upper, usize::MAX, |_, row| {
        sum += tree::decode_sum(row)?;
        Ok(())
    })?;
    Ok(sum)
}

fn bins_of(
    database: &Database,
    span: Span,
    after: Option<BinKey>,
    limit: usize,
) -> Result<Vec<(BinKey, Sum)>> {
    let [first, upper] = tree::span_rows(span);
    let above = after.map(|bin| [&tree::row_key(&bin)[..], &[0]].concat());
    let mut bins = Vec::new();
    let mut rows = database.iterate(Family::Tree, &upper);
    rows.seek(above.map_or(first.clone(), |above| above.max(first)));
    while let Some((key, row)) = rows.item().filter(|_| bins.len() < limit) {
        let sum = tree::decode_sum(row)?;
        if sum != Sum::default() {
            bins.push((tree::decode_key(key)?.1, sum));
        }
        rows.next();
    }
    database.ended_well(&rows)?;
    Ok(bins)
}

/// Returns the device's knowledge of one register.
fn holding(database: &Database, key: &[u8]) -> Result<Holding> {
    let [row, hint] = database.get_together([Family::Entries, Family::Hints], key)?;
    let row = row.map_or_else(|| Ok(RegisterRow::empty()), |row| RegisterRow::parse(&row))?;
    let register = row.register()?;
    Ok(Holding {
        held: register.held,
        promise: register.promise,
        hint: hint.map(|hint| hints::order_of(&hint)).transpose()?,
        collectable: row.is_collectable(),
    })
}
