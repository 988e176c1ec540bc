//! Tags, retention and legal hold of versions.

use super::objects::with_version;
use super::state::{BucketState, DENIED, Data, NO_KEY, NOT_ALLOWED, REQUEST};
use super::{Answer, Model};
use crate::expected::{Expected, Outcome, Row, VersionId};
use crate::operation::{Object, Operation, Retention, Version};

const NO_LOCK: Outcome = (404, "NoSuchObjectLockConfiguration");

impl Model {
    pub(super) fn annotate(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::PutTags { object, version, tags } => self.put_tags(object, *version, tags),
            Operation::GetTags { object, version } => {
                let (data, shown) = self.version(object, *version)?;
                let mut tags = data.tags.clone();
                tags.sort();
                let row = |(key, value): (String, String)| Row {
                    element: "Tag",
                    fields: vec![("Key", key.into()), ("Value", value.into())],
                };
                let rows = tags.into_iter().map(row).collect();
                Ok(with_version(Expected::success(200).document(Vec::new(), rows), shown))
            }
            Operation::DeleteTags { object, version } => {
                let (_, shown) = self.version(object, *version)?;
                self.change(object, *version, |data| data.tags.clear());
                Ok(with_version(Expected::success(204), shown))
            }
            _ => Ok(self.lock(operation).unwrap_or_else(Expected::failure)),
        }
    }

    /// Retention and legal hold
    /// (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObjectRetention.html>).
    fn lock(&mut self, operation: &Operation) -> Result<Expected, Vec<Outcome>> {
        match operation {
            Operation::PutRetention { object, version, retention, bypass } => {
                let held = self.lockable(object, *version)?.lock.retention;
                let extends = |new: Retention, held: Retention| {
                    new.compliance == held.compliance && new.until >= held.until
                };
                let is_kept =
                    held.is_none_or(|held| retention.is_some_and(|new| extends(new, held)));
                if !is_kept && (held.is_some_and(|it| it.compliance) || !bypass) {
                    return Err(vec![DENIED]);
                }
                self.change(object, *version, |data| data.lock.retention = *retention);
                Ok(Expected::success(200))
            }
            Operation::GetRetention { object, version } => {
                let retention = self.lockable(object, *version)?.lock.retention;
                let retention = retention.ok_or_else(|| vec![NO_LOCK])?;
                let mode = if retention.compliance { "COMPLIANCE" } else { "GOVERNANCE" };
                Ok(Expected::success(200).document(vec![("Mode", mode.into())], Vec::new()))
            }
            Operation::PutHold { object, version, on } => {
                self.lockable(object, *version)?;
                self.change(object, *version, |data| data.lock.hold = Some(*on));
                Ok(Expected::success(200))
            }
            Operation::GetHold { object, version } => {
                let hold = self.lockable(object, *version)?.lock.hold;
                let status = if hold.ok_or_else(|| vec![NO_LOCK])? { "ON" } else { "OFF" };
                Ok(Expected::success(200).document(vec![("Status", status.into())], Vec::new()))
            }
            other => unreachable!("{other:?} is of another part of the model"),
        }
    }

    /// `PutObjectTagging` (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObjectTagging.html>).
    fn put_tags(&mut self, object: &Object, version: Version, tags: &[(String, String)]) -> Answer {
        let (_, shown) = self.version(object, version)?;
        self.change(object, version, |data| data.tags = tags.to_vec());
        Ok(with_version(Expected::success(200), shown))
    }

    /// Finds a version in a bucket with object lock.
    fn lockable(&self, object: &Object, version: Version) -> Result<&Data, Vec<Outcome>> {
        let bucket = self.state.bucket(object.bucket).map_err(|it| vec![it])?;
        let found = self.version(object, version);
        let faults = (!bucket.lock).then_some(REQUEST).into_iter().chain(found.err());
        let faults: Vec<Outcome> = faults.collect();
        if faults.is_empty() { Ok(found.expect("there is no fault").0) } else { Err(faults) }
    }

    /// Finds a version and the id that replies name. A delete marker is none.
    fn version(
        &self,
        object: &Object,
        version: Version,
    ) -> Result<(&Data, Option<VersionId>), Outcome> {
        let bucket: &BucketState = self.state.bucket(object.bucket)?;
        let stored = bucket.find(&object.key, version)?;
        let marker = if version == Version::Current { NO_KEY } else { NOT_ALLOWED };
        Ok((stored.data.as_ref().ok_or(marker)?, bucket.shown(stored.id)))
    }

    fn change(&mut self, object: &Object, version: Version, change: impl FnOnce(&mut Data)) {
        let bucket = self.state.bucket_mut(object.bucket).expect("it was found");
        change(bucket.find_mut(&object.key, version).expect("it was found"));
    }
}
