//! What background workers ask of an index: sums, walks, holdings, letting go, terms. None of it
//! takes a vote.

use martlet_protocol::backend::{Audited, Holding, LetGo, RegisterView, Walk};
use martlet_protocol::tree::{BinKey, Span, Sum};
use martlet_protocol::{RegisterKey, Result, Stamp, Term};

use super::database::{Database, Family};
use super::queue::{DropOp, Op};
use super::rows::RegisterRow;
use super::{Index, audit, blocking, hints, tree, walk};

impl Index {
    /// What the registers in each span sum up to (rule H1).
    pub(crate) async fn sums(&self, spans: &[Span]) -> Result<Vec<Sum>> {
        let (database, spans) = (self.reader.database.clone(), spans.to_vec());
        blocking(move || spans.iter().map(|span| sum_of(&database, *span)).collect()).await
    }

    pub(crate) async fn bins(
        &self,
        span: Span,
        after: Option<BinKey>,
        limit: usize,
    ) -> Result<Vec<(BinKey, Sum)>> {
        let database = self.reader.database.clone();
        blocking(move || bins_of(&database, span, after, limit)).await
    }

    pub(crate) async fn walk(
        &self,
        walk: &Walk,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let (reader, walk, after) = (self.reader.clone(), *walk, after.cloned());
        blocking(move || walk::page(&reader, &walk, after.as_ref(), limit)).await
    }

    pub(crate) async fn holdings(&self, keys: &[RegisterKey]) -> Result<Vec<Holding>> {
        let (database, keys) = (self.reader.database.clone(), keys.to_vec());
        blocking(move || keys.iter().map(|key| holding(&database, &key.encode())).collect()).await
    }

    pub(crate) async fn mark_collectable(&self, marks: &[(RegisterKey, Stamp)]) -> Result<()> {
        let marks = marks.iter().map(|(key, order)| (key.encode(), *order)).collect();
        self.submit(|reply| Op::MarkCollectable(marks, reply)).await
    }

    pub(crate) async fn drop_registers(&self, drops: &[LetGo]) -> Result<()> {
        let drop = |LetGo { key, up_to, collectable }: &LetGo| DropOp {
            key: key.encode(),
            up_to: *up_to,
            collectable: *collectable,
        };
        let drops = drops.iter().map(drop).collect();
        self.submit(|reply| Op::Drop(drops, reply)).await
    }

    /// Verifies some runs; what their sums said wrongly is mended, and costs a device that has peers
    /// its votes (rules H1, G1).
    pub(crate) async fn audit_registers(&self, after: Option<BinKey>) -> Result<Audited<BinKey>> {
        let (database, secret) = (self.reader.database.clone(), self.secret);
        let look = move || audit::page(&database, &secret, after);
        let audit::Found { audited, mends } = blocking(look).await?;
        if !mends.is_empty() {
            let (device, bins) = (&self.name, mends.len());
            tracing::error!(%device, bins, "sums are not those of the entries, and are mended");
            self.submit(|reply| Op::MendSums(mends, reply)).await?;
        }
        Ok(audited)
    }

    pub(crate) async fn raise_term(&self, term: Term) -> Result<()> {
        self.submit(|reply| Op::RaiseTerm(term, reply)).await
    }

    pub(crate) async fn set_joined(&self, change: u64) -> Result<()> {
        self.submit(|reply| Op::SetJoined(change, reply)).await
    }
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

/// What is known of one register.
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
