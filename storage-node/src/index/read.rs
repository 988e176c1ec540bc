//! Point reads of registers.
//!
//! Most reads are answered on the caller's thread from memory: memtables, cached blocks, cached
//! blobs. A read that would wait for the disk moves to a thread of the device. An entry and its
//! inline bytes lie in two rows, so the bytes carry their write id. A reader that finds another
//! write's bytes was overtaken and reads again, finally under a snapshot.

use std::sync::Arc;

use bytes::Bytes;
use martlet_protocol::backend::{RegisterView, Want};
use martlet_protocol::entry::{Body, Entry};
use martlet_protocol::{Error, RegisterKey, Result, Stamp};

use super::database::{CachedRead, Database};
use super::family::Family;
use super::rows::{self, LAST_KEY};
use super::voting::VotingState;
use crate::device::pool::Pool;
use crate::metrics::IndexCounters;

/// Number of attempts of an overtaken reader before it takes a snapshot.
const TRIES: usize = 3;

/// Reads registers of one index.
#[derive(Clone)]
pub(super) struct RegisterReader {
    pub(super) database: Arc<Database>,
    pub(super) voting_state: Arc<VotingState>,
    pub(super) counters: Arc<IndexCounters>,
    pub(super) threads: Arc<Pool>,
}

impl RegisterReader {
    pub(super) async fn read(&self, key: Vec<u8>, want: Want) -> Result<RegisterView> {
        self.counters.read();
        for _ in 0..TRIES {
            match self.try_read(&key, want)? {
                ReadAttempt::Done(view) => return Ok(view),
                ReadAttempt::Overtaken => {}
                ReadAttempt::OnDisk => break,
            }
        }
        self.counters.blocking_read();
        let reader = self.clone();
        self.threads.run(move || reader.read_on_disk(&key, want)).await
    }

    /// Returns the inline bytes of `entry`, unless another write has replaced them.
    pub(super) async fn inline_of(&self, key: Vec<u8>, entry: &Entry) -> Result<Option<Bytes>> {
        let Some(crc32c) = inline_crc(entry) else { return Ok(None) };
        let row = match self.database.get_cached(Family::Inline, &key)? {
            CachedRead::Known(row) => row.map(|row| row.to_vec()),
            CachedRead::OnDisk => {
                let database = self.database.clone();
                self.threads.run(move || database.get(Family::Inline, &key)).await?
            }
        };
        self.verified(row.as_deref(), entry, crc32c)
    }

    /// Reads a row into the cache, unless it is there. A committer reads rows one after another: it
    /// shall find them in memory.
    pub(super) async fn read_ahead(&self, key: &[u8]) -> Result<()> {
        if let CachedRead::Known(_) = self.database.get_cached(Family::Entries, key)? {
            return Ok(());
        }
        self.counters.blocking_read();
        let (database, key) = (self.database.clone(), key.to_vec());
        self.threads.run(move || database.get_pinned(Family::Entries, &key).map(drop)).await
    }

    fn try_read(&self, key: &[u8], want: Want) -> Result<ReadAttempt> {
        let CachedRead::Known(row) = self.database.get_cached(Family::Entries, key)? else {
            return Ok(ReadAttempt::OnDisk);
        };
        let Some(row) = row else { return Ok(ReadAttempt::Done(self.empty())) };
        let (promise, entry) = self.decode(Some(&row))?;
        let crc32c = entry.as_ref().filter(|_| want == Want::EntryAndInline).and_then(inline_crc);
        let (Some(crc32c), Some(held)) = (crc32c, &entry) else {
            return Ok(ReadAttempt::Done(RegisterView { promise, entry, inline: None }));
        };
        let CachedRead::Known(inline) = self.database.get_cached(Family::Inline, key)? else {
            return Ok(ReadAttempt::OnDisk);
        };
        match self.verified(inline.as_deref(), held, crc32c)? {
            None => Ok(ReadAttempt::Overtaken),
            inline => Ok(ReadAttempt::Done(RegisterView { promise, entry, inline })),
        }
    }

    fn read_on_disk(&self, key: &[u8], want: Want) -> Result<RegisterView> {
        if want == Want::Entry {
            let (promise, entry) =
                self.decode(self.database.get(Family::Entries, key)?.as_deref())?;
            return Ok(RegisterView { promise, entry, inline: None });
        }
        let [row, inline] = self.database.get_together([Family::Entries, Family::Inline], key)?;
        let (promise, entry) = self.decode(row.as_deref())?;
        let inline = self.inline_beside(entry.as_ref(), inline.as_deref())?;
        Ok(RegisterView { promise, entry, inline })
    }

    /// Returns a page of all registers above `after`, each with its inline bytes. Blocks.
    pub(super) fn registers(
        &self,
        after: Option<&RegisterKey>,
        limit: usize,
    ) -> Result<Vec<(RegisterKey, RegisterView)>> {
        let mut registers = Vec::new();
        let families = [Family::Entries, Family::Inline];
        let visit = |key: &[u8], row: &[u8], inline: Option<&[u8]>| {
            let (promise, entry) = self.decode(Some(row))?;
            let inline = self.inline_beside(entry.as_ref(), inline)?;
            registers.push((RegisterKey::decode(key)?, RegisterView { promise, entry, inline }));
            Ok(())
        };
        self.database.scan_together(families, &rows::above(after), &LAST_KEY, limit, visit)?;
        Ok(registers)
    }

    /// Returns the inline bytes of an entry that was read together with `row`.
    pub(super) fn inline_beside(
        &self,
        entry: Option<&Entry>,
        row: Option<&[u8]>,
    ) -> Result<Option<Bytes>> {
        let Some((entry, crc32c)) = entry.and_then(|entry| Some((entry, inline_crc(entry)?)))
        else {
            return Ok(None);
        };
        let bytes = self.verified(row, entry, crc32c)?;
        bytes.map(Some).ok_or_else(|| Error::corrupt("an entry's inline bytes are missing"))
    }

    /// Returns promise and entry of a row; the promise is raised to the device's floor.
    pub(super) fn decode(&self, row: Option<&[u8]>) -> Result<(Stamp, Option<Entry>)> {
        let (promise, entry) = row.map_or(Ok((Stamp::ZERO, None)), rows::decode_register)?;
        Ok((promise.max(self.voting_state.floor()), entry))
    }

    fn empty(&self) -> RegisterView {
        RegisterView { promise: self.voting_state.floor(), ..RegisterView::default() }
    }

    /// Returns the bytes of an inline row, if they belong to `entry`.
    fn verified(&self, row: Option<&[u8]>, entry: &Entry, crc32c: u32) -> Result<Option<Bytes>> {
        let Some(row) = row else { return Ok(None) };
        let (write_id, bytes) = rows::split_inline(row)?;
        if write_id != entry.write_id {
            return Ok(None);
        }
        if rows::crc32c(bytes) != crc32c {
            self.counters.corrupt_read();
            return Err(Error::corrupt("inline bytes are corrupt"));
        }
        Ok(Some(Bytes::copy_from_slice(bytes)))
    }
}

/// Outcome of one attempt in memory.
enum ReadAttempt {
    Done(RegisterView),
    Overtaken,
    OnDisk,
}

fn inline_crc(entry: &Entry) -> Option<u32> {
    match entry.value.body() {
        Some(Body::Inline { crc32c }) => Some(*crc32c),
        _ => None,
    }
}
