//! Names that the server gave: ids of versions and uploads, and times of writes.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::expected::{Text, VersionId};
use crate::operation::{Bucket, Made, Step, Version};

/// Names of one run of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
    versions: BTreeMap<Made, String>,
    uploads: BTreeMap<Step, String>,
    /// Seconds since 1970 of each write, by its order.
    modified: BTreeMap<u64, i64>,
}

impl Names {
    /// `prefix` begins the names of the buckets.
    pub(crate) fn new(prefix: String) -> Self {
        let (versions, uploads, modified) = Default::default();
        Self { prefix, versions, uploads, modified }
    }

    pub(crate) fn bucket(&self, bucket: Bucket) -> String {
        let letter = match bucket {
            Bucket::First => 'a',
            Bucket::Second => 'b',
            Bucket::Absent => 'c',
        };
        format!("{}-{letter}", self.prefix)
    }

    /// Returns `versionId` of a request. A version that was never made has an id that no version
    /// has.
    pub(crate) fn version(&self, version: Version) -> Option<String> {
        match version {
            Version::Current => None,
            Version::Null => Some("null".into()),
            Version::Missing => Some("0".repeat(48)),
            Version::Malformed => Some("nonsense".into()),
            Version::Of(made) => Some(self.made(made)),
        }
    }

    fn made(&self, made: Made) -> String {
        let unknown = || format!("{:024x}{:024x}", made.step + 1, made.index);
        self.versions.get(&made).cloned().unwrap_or_else(unknown)
    }

    pub(crate) fn upload(&self, begun: Option<Step>) -> String {
        let known = begun.and_then(|step| self.uploads.get(&step)).cloned();
        known.unwrap_or_else(|| "0".repeat(32))
    }

    /// Compares a text with the expected one. An id that is new is kept: it must not be that of
    /// another version or upload.
    pub(crate) fn check(&mut self, expected: &Text, actual: Option<&str>) -> Result<(), String> {
        let differs = |wanted: &str| Err(format!("is {actual:?}, not {wanted}"));
        match (expected, actual) {
            (Text::Is(wanted), actual) if actual.unwrap_or_default() == wanted => Ok(()),
            (Text::Is(wanted), _) => differs(&format!("{wanted:?}")),
            (Text::Absent, None)
            | (Text::Present, Some(_))
            | (Text::Version(VersionId::Null), Some("null")) => Ok(()),
            (Text::Version(VersionId::Made(made)), Some(id)) => {
                learn(&mut self.versions, *made, id)
            }
            (Text::Upload(step), Some(id)) => learn(&mut self.uploads, *step, id),
            (Text::Modified(order), Some(time)) => self.check_time(*order, time),
            _ => differs(&format!("{expected:?}")),
        }
    }

    fn check_time(&mut self, order: u64, time: &str) -> Result<(), String> {
        let parsed = OffsetDateTime::parse(time, &Rfc2822);
        let seconds = parsed.map_err(|it| format!("is no date: {time}: {it}"))?.unix_timestamp();
        let known = *self.modified.entry(order).or_insert(seconds);
        if known != seconds {
            return Err(format!("was {known} before, and is {seconds}"));
        }
        let before = self.modified.range(..order).next_back().map(|(_, it)| *it);
        let after = self.modified.range(order + 1..).next().map(|(_, it)| *it);
        if before.is_some_and(|it| it > seconds) || after.is_some_and(|it| it < seconds) {
            return Err(format!("is {seconds}, between writes at {before:?} and {after:?}"));
        }
        Ok(())
    }
}

fn learn<K: Ord + Copy + std::fmt::Debug>(
    known: &mut BTreeMap<K, String>,
    made: K,
    id: &str,
) -> Result<(), String> {
    match known.get(&made) {
        Some(wanted) if wanted == id => return Ok(()),
        Some(wanted) => return Err(format!("is {id}, not {wanted}")),
        None => {}
    }
    if let Some((other, _)) = known.iter().find(|(_, it)| *it == id) {
        return Err(format!("is {id} of {other:?}, not of {made:?}"));
    }
    known.insert(made, id.to_owned());
    Ok(())
}
