//! Account documents in registers of the root bucket: created once, changed by compare-and-set,
//! read from a quorum.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{ListStart, RegisterView, Want};
use martlet_protocol::entry::{AccountDocument, Value};
use martlet_protocol::{Level, RegisterKey, WriteId};

use super::page::Page;
use super::records::Kept;
use crate::consistency::ConsistencyOptions;
use crate::context::RequestContext;
use crate::error::{Error, Result};
use crate::index::{Intent, Proposal, RegisterClient, Step, WriteOutcome};
use crate::walk::{Paths, Walk};

fn register<T: Kept>(path: &str) -> RegisterKey {
    RegisterKey::account(&format!("{}{path}", T::FOLDER))
}

fn encode<T: Kept>(document: &T) -> Value {
    let bytes = serde_json::to_vec(document).expect("a document in memory can be written");
    Value::Account(AccountDocument::new(bytes))
}

fn decode<T: Kept>(value: &Value) -> Result<Option<T>> {
    let Value::Account(document) = value else { return Ok(None) };
    serde_json::from_slice(document.bytes()).map(Some).map_err(|error| {
        // The position of the syntax error, without the document's text.
        let at = (error.line(), error.column());
        let message = format!("a document of a {} can't be decoded at {at:?}", T::KIND);
        martlet_protocol::Error::corrupt(message).into()
    })
}

fn document_of<T: Kept>(view: &RegisterView) -> Result<Option<T>> {
    view.entry.as_ref().map_or(Ok(None), |entry| decode(&entry.value))
}

fn dated<T: Kept>(view: &RegisterView) -> Result<Option<Dated<T>>> {
    let Some(entry) = &view.entry else { return Ok(None) };
    Ok(Some(Dated { written_ms: entry.order.time_ms(), document: decode(&entry.value)? }))
}

/// The error for a document that doesn't exist.
pub(super) fn missing<T: Kept>(path: &str) -> Error {
    Error::NoSuchAccount(format!("there is no {} {path}", T::KIND))
}

/// Last write of a document's register.
pub(super) struct Dated<T> {
    /// Time of the write, in milliseconds since 1970.
    pub(super) written_ms: u64,
    /// The document; none if the write deleted it.
    pub(super) document: Option<T>,
}

/// Account documents in registers of the root bucket.
pub(crate) struct Documents {
    registers: Arc<RegisterClient>,
}

impl Documents {
    pub(crate) fn new(registers: Arc<RegisterClient>) -> Self {
        Self { registers }
    }

    /// Reads a document from a quorum; none if it doesn't exist.
    pub(super) async fn document<T: Kept>(&self, path: &str) -> Result<Option<T>> {
        let (view, _) =
            self.registers.read_given(&register::<T>(path), Want::Entry, Level::Strict).await?;
        document_of(&view)
    }

    /// Creates a document; fails if it exists.
    pub(super) async fn create_document<T: Kept>(&self, document: &T) -> Result<()> {
        let path = document.path();
        let mut evaluate = |view: &RegisterView| match document_of::<T>(view)? {
            Some(_) => {
                Err(Error::AccountConflict(format!("the {} {path} already exists", T::KIND)))
            }
            None => Ok(Step::Write(Proposal::of(encode(document)))),
        };
        self.decide_document::<T>(&path, &mut evaluate).await.map(drop)
    }

    /// Changes a document by compare-and-set. `change` runs again after each concurrent write.
    pub(super) async fn change_document<T: Kept>(
        &self,
        path: &str,
        mut change: impl FnMut(&mut T) -> Result<()> + Send,
    ) -> Result<T> {
        let mut changed = None;
        let mut evaluate = |view: &RegisterView| {
            let before: T = document_of(view)?.ok_or_else(|| missing::<T>(path))?;
            let mut after = before.clone();
            change(&mut after)?;
            changed = Some(after.clone());
            let is_same = after == before;
            Ok(if is_same { Step::Keep } else { Step::Write(Proposal::of(encode(&after))) })
        };
        self.decide_document::<T>(path, &mut evaluate).await?;
        changed.ok_or_else(|| missing::<T>(path))
    }

    /// Writes a document unconditionally.
    pub(super) async fn put_document<T: Kept>(&self, document: &T) -> Result<()> {
        let mut evaluate = |_: &RegisterView| Ok(Step::Write(Proposal::of(encode(document))));
        self.decide_document::<T>(&document.path(), &mut evaluate).await.map(drop)
    }

    /// Deletes a document; fails if it doesn't exist.
    pub(super) async fn delete_document<T: Kept>(&self, path: &str) -> Result<()> {
        let mut evaluate = |view: &RegisterView| match document_of::<T>(view)? {
            Some(_) => Ok(Step::Write(Proposal::of(Value::Tombstone))),
            None => Err(missing::<T>(path)),
        };
        self.decide_document::<T>(path, &mut evaluate).await.map(drop)
    }

    async fn decide_document<T: Kept>(
        &self,
        path: &str,
        evaluate: &mut (dyn FnMut(&RegisterView) -> Result<Step> + Send),
    ) -> Result<WriteOutcome> {
        let key = register::<T>(path);
        let intent = Intent::of_root(&key, WriteId::random(), self.registers.stamps.now_ms());
        Ok(self.registers.ballots.decide(intent, evaluate).await?)
    }

    /// Reads a document from a quorum, with the time of its last write; none if there never was one,
    /// or its tombstone is collected.
    pub(super) async fn read_dated<T: Kept>(&self, path: &str) -> Result<Option<Dated<T>>> {
        let (view, _) =
            self.registers.read_given(&register::<T>(path), Want::Entry, Level::Strict).await?;
        dated(&view)
    }

    /// Writes the document that `decide` returns for the current one, by compare-and-set; nothing if
    /// it returns none. `decide` runs again after each concurrent write.
    pub(super) async fn decide_dated<T: Kept>(
        &self,
        path: &str,
        mut decide: impl FnMut(Option<Dated<T>>) -> Result<Option<T>> + Send,
    ) -> Result<()> {
        let mut evaluate = |view: &RegisterView| {
            let write = |document: T| Step::Write(Proposal::of(encode(&document)));
            Ok(decide(dated(view)?)?.map_or(Step::Keep, write))
        };
        self.decide_document::<T>(path, &mut evaluate).await.map(drop)
    }

    /// Up to `limit` documents with path prefix `below` that `keep` accepts, in order, above `after`.
    pub(super) async fn list_documents<T: Kept>(
        &self,
        below: &str,
        after: Option<&str>,
        limit: usize,
        keep: impl Fn(&T) -> bool + Send,
    ) -> Result<Page<T>> {
        let Page { items, is_truncated } = self.list_dated(below, after, limit, keep).await?;
        Ok(Page { items: items.into_iter().map(|(_, document)| document).collect(), is_truncated })
    }

    /// Lists documents as [`Documents::list_documents`] does, each with the time of its last write in
    /// milliseconds since 1970.
    pub(super) async fn list_dated<T: Kept>(
        &self,
        below: &str,
        after: Option<&str>,
        limit: usize,
        keep: impl Fn(&T) -> bool + Send,
    ) -> Result<Page<(u64, T)>> {
        let paths = Paths::accounts(&format!("{}{below}", T::FOLDER));
        let start = after.map_or(ListStart::First, |after| {
            ListStart::After(Bytes::from(format!("{}{after}", T::FOLDER)))
        });
        let registers = &self.registers;
        let context = RequestContext::new(
            registers.replicas.topology.cluster(),
            ConsistencyOptions::default(),
        );
        let expected = limit.saturating_add(1);
        let mut walk = Walk::new(registers, &context, &paths, start, expected, Level::Strict)?;
        let mut page = Page { items: Vec::new(), is_truncated: false };
        while let Some((_, entry)) = walk.next().await? {
            let Some(document) = decode(&entry.value)?.filter(|document| keep(document)) else {
                continue;
            };
            if page.items.len() == limit {
                page.is_truncated = true;
                break;
            }
            page.items.push((entry.order.time_ms(), document));
        }
        Ok(page)
    }
}
