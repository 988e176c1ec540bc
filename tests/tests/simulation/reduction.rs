//! Parts of a run that are left out, so that a failure is shown by few events.
//!
//! A reduction has a text, by which a person repeats the reduced run:
//! `MARTLET_SIM_SEED=n MARTLET_SIM_REDUCTION="operations=1.3,2.0 faults=4 rings=0 idle calm draws=2"`.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::str::FromStr;

/// An operation: number of its client, and its number among the operations of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OperationId {
    pub(crate) client: u32,
    pub(crate) number: u64,
}

/// Parts of a run that take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reduction {
    /// Operations that take place; all if none.
    pub(crate) operations: Option<BTreeSet<OperationId>>,
    /// Faults of the schedule, by number, that take place; all if none.
    pub(crate) faults: Option<BTreeSet<usize>>,
    /// Number of ring changes that take place, from the first one on; all if none.
    pub(crate) ring_changes: Option<usize>,
    /// True if no background work is done until the faults are over.
    pub(crate) is_idle: bool,
    /// True if no message is lost or repeated, and none is late for long.
    pub(crate) is_calm: bool,
    /// Choice among the draws of the network: 0 for those of the whole run.
    pub(crate) draws: u64,
}

/// Parts of a run that can be left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunParts {
    pub(crate) operations: BTreeSet<OperationId>,
    pub(crate) faults: BTreeSet<usize>,
    pub(crate) ring_changes: usize,
}

impl Reduction {
    /// Returns true if an operation takes place.
    pub(crate) fn has_operation(&self, id: OperationId) -> bool {
        self.operations.as_ref().is_none_or(|kept| kept.contains(&id))
    }

    /// Returns true if a fault takes place.
    pub(crate) fn has_fault(&self, number: usize) -> bool {
        self.faults.as_ref().is_none_or(|kept| kept.contains(&number))
    }
}

impl Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client, self.number)
    }
}

impl FromStr for OperationId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (client, number) = text.split_once('.').ok_or_else(|| unreadable(text))?;
        Ok(Self { client: number_in(client)?, number: number_in(number)? })
    }
}

fn unreadable(text: &str) -> String {
    format!("{text:?} is no part of a reduction")
}

fn number_in<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| unreadable(text))
}

fn list_in<T: FromStr + Ord>(text: &str) -> Result<BTreeSet<T>, String> {
    let items = text.split(',').filter(|item| !item.is_empty());
    items.map(number_in).collect()
}

fn joined<T: Display>(items: &BTreeSet<T>) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

impl Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.operations.as_ref().map(|kept| format!("operations={}", joined(kept))));
        words.extend(self.faults.as_ref().map(|kept| format!("faults={}", joined(kept))));
        words.extend(self.ring_changes.map(|count| format!("rings={count}")));
        words.extend(self.is_idle.then(|| "idle".to_owned()));
        words.extend(self.is_calm.then(|| "calm".to_owned()));
        words.extend((self.draws != 0).then(|| format!("draws={}", self.draws)));
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Reduction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut read = Self::default();
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("operations", list)) => read.operations = Some(list_in(list)?),
                Some(("faults", list)) => read.faults = Some(list_in(list)?),
                Some(("rings", count)) => read.ring_changes = Some(number_in(count)?),
                Some(("draws", number)) => read.draws = number_in(number)?,
                None if word == "idle" => read.is_idle = true,
                None if word == "calm" => read.is_calm = true,
                _ => return Err(unreadable(word)),
            }
        }
        Ok(read)
    }
}

#[test]
fn reductions_are_read_as_they_are_written() {
    let id = |client, number| OperationId { client, number };
    let some = Reduction {
        operations: Some([id(1, 3), id(12, 0)].into()),
        faults: Some(BTreeSet::new()),
        ring_changes: Some(2),
        is_idle: true,
        is_calm: true,
        draws: 5,
    };
    assert_eq!(some.to_string(), "operations=1.3,12.0 faults= rings=2 idle calm draws=5");
    for one in [some, Reduction::default()] {
        assert_eq!(one.to_string().parse(), Ok(one.clone()));
        assert_eq!(one.has_fault(0), one.faults.is_none());
        assert_eq!(one.has_operation(id(1, 4)), one.operations.is_none());
        assert!(one.has_operation(id(1, 3)));
    }
    for wrong in ["operations=1", "faults=a", "rings=", "idle=1", "windy", "draws=-1"] {
        assert!(wrong.parse::<Reduction>().is_err(), "{wrong}");
    }
}
