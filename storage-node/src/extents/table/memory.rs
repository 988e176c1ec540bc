//! A table of extents in memory, for tests that cut the power of a simulated disk.
#![expect(clippy::unnecessary_wraps, reason = "it stands in for a table that can fail")]

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ExtentId, Result};
use crate::disk::FaultyDisk;

type Rows = BTreeMap<ExtentId, Vec<u8>>;

/// A table that loses its rows at a power cut and keeps its marks. Setting marks is a step of the
/// faulty disk, so power can be cut before the step.
#[derive(Clone, Default)]
pub(in super::super) struct MemoryTable {
    rows: Arc<Mutex<Rows>>,
    marks: Arc<Mutex<BTreeMap<ExtentId, u64>>>,
    power: Option<FaultyDisk>,
}

impl MemoryTable {
    pub(in super::super) fn powered_by(&self, disk: &FaultyDisk, keep_rows: bool) -> Self {
        let rows = if keep_rows { self.rows.lock().clone() } else { Rows::new() };
        let marks = self.marks.lock().clone();
        Self {
            rows: Arc::new(Mutex::new(rows)),
            marks: Arc::new(Mutex::new(marks)),
            power: Some(disk.clone()),
        }
    }

    fn step(&self) -> Result<()> {
        self.power.as_ref().map_or(Ok(()), FaultyDisk::step)
    }

    pub(super) fn get(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.lock().get(id).cloned())
    }

    pub(super) fn get_now(&self, id: &ExtentId) -> Result<Option<Vec<u8>>> {
        self.get(id)
    }

    pub(super) fn put(&self, id: &ExtentId, row: &[u8]) -> Result<()> {
        self.step()?;
        self.rows.lock().insert(*id, row.to_vec());
        Ok(())
    }

    pub(super) fn put_many(&self, rows: &[(ExtentId, Vec<u8>)]) -> Result<()> {
        self.step()?;
        self.rows.lock().extend(rows.iter().cloned());
        Ok(())
    }

    pub(super) fn remove_marked(&self, ids: &[ExtentId], at_ms: u64) -> Result<()> {
        self.step()?;
        for id in ids {
            self.rows.lock().remove(id);
            self.marks.lock().insert(*id, at_ms);
        }
        Ok(())
    }

    pub(super) fn remove(&self, ids: &[ExtentId]) -> Result<()> {
        self.step()?;
        self.rows.lock().retain(|id, _| !ids.contains(id));
        Ok(())
    }

    pub(super) fn is_marked(&self, id: &ExtentId) -> Result<bool> {
        Ok(self.marks.lock().contains_key(id))
    }

    pub(super) fn forget_marks(&self, before_ms: u64) -> Result<()> {
        self.marks.lock().retain(|_, at_ms| *at_ms >= before_ms);
        Ok(())
    }

    pub(super) fn forget(&self, ids: &[ExtentId]) -> Result<()> {
        self.rows.lock().retain(|id, _| !ids.contains(id));
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<()> {
        let _ = self;
        Ok(())
    }

    pub(super) fn list(
        &self,
        after: Option<ExtentId>,
        limit: usize,
    ) -> Result<Vec<(ExtentId, Vec<u8>)>> {
        let rows = self.rows.lock();
        let above = rows.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        Ok(above.take(limit).map(|(id, row)| (*id, row.clone())).collect())
    }
}
