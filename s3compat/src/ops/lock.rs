//! Object lock: `PutObjectLockConfiguration`, `GetObjectLockConfiguration`, `PutObjectRetention`,
//! `GetObjectRetention`, `PutObjectLegalHold`, `GetObjectLegalHold`, and locks in replies to reads.

use http::{HeaderMap, HeaderName, StatusCode};
use martlet_protocol::entry::Object;
use martlet_protocol::lock::{BucketLock, Bypass, DefaultRetention, Lock, Period, Retention};
use martlet_proxy::{ObjectName, ReadAfter, ReadConditions, Selection};
use s3s::dto::{
    DefaultRetention as WireDefault, ObjectLockConfiguration, ObjectLockEnabled,
    ObjectLockLegalHold, ObjectLockLegalHoldStatus, ObjectLockRetention, ObjectLockRetentionMode,
    ObjectLockRule,
};
use s3s::{S3Error, S3Result};

use super::operations::Operations;
use super::settings::missing;
use crate::access::Action;
use crate::attributes::stamp_headers;
use crate::authorization::Authorization;
use crate::errors::{custom, s3_error};
use crate::fields::flag;
use crate::lock::{
    hold_name, hold_of, mode_name, mode_of, ms_of, wire_date, write_hold, write_retention,
};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

/// Header of a request that bypasses retentions in governance mode.
pub(super) const BYPASS: HeaderName = HeaderName::from_static("x-amz-bypass-governance-retention");
/// Maximum default retention, in days and in years.
const DAYS_MAX: u32 = 36_500;
const YEARS_MAX: u32 = 100;

fn malformed() -> S3Error {
    messages::MALFORMED_XML.error()
}

/// Locks that a request bypasses. The access check decides if it may.
pub(super) fn bypass_of(requested: Option<bool>) -> Bypass {
    if requested == Some(true) { Bypass::Governance } else { Bypass::Nothing }
}

/// Validates a retention period within S3's limits.
fn period(days: Option<i32>, years: Option<i32>) -> S3Result<Period> {
    let within = |requested: i32, maximum: u32| {
        let count = u32::try_from(requested).ok().filter(|count| (1..=maximum).contains(count));
        count.ok_or_else(|| {
            custom(
                "InvalidRetentionPeriod",
                "Default retention period must be a positive integer value, of at most 36500 days \
                 or 100 years.",
                StatusCode::BAD_REQUEST,
            )
        })
    };
    match (days, years) {
        (Some(days), None) => Ok(Period::Days(within(days, DAYS_MAX)?)),
        (None, Some(years)) => Ok(Period::Years(within(years, YEARS_MAX)?)),
        _ => Err(malformed()),
    }
}

/// Parses a bucket's lock configuration.
pub(super) fn bucket_lock(configuration: Option<ObjectLockConfiguration>) -> S3Result<BucketLock> {
    let Some(configuration) = configuration else {
        return Err(messages::NO_BODY.error());
    };
    let enabled = configuration.object_lock_enabled.as_ref().map(ObjectLockEnabled::as_str);
    if enabled != Some(ObjectLockEnabled::ENABLED) {
        return Err(malformed());
    }
    let Some(rule) = configuration.rule else { return Ok(BucketLock::default()) };
    let default = rule.default_retention.ok_or_else(malformed)?;
    let mode = default.mode.as_ref().and_then(|mode| mode_of(mode.as_str()));
    let mode = mode.ok_or_else(malformed)?;
    let period = period(default.days, default.years)?;
    Ok(BucketLock { default: Some(DefaultRetention { mode, period }) })
}

/// The inverse of [`bucket_lock`].
pub(super) fn wire_bucket_lock(lock: BucketLock) -> ObjectLockConfiguration {
    let count = |count: u32| i32::try_from(count).ok();
    let rule = lock.default.map(|DefaultRetention { mode, period }| {
        let (days, years) = match period {
            Period::Days(days) => (count(days), None),
            Period::Years(years) => (None, count(years)),
        };
        let mode = Some(ObjectLockRetentionMode::from_static(mode_name(mode)));
        ObjectLockRule { default_retention: Some(WireDefault { days, mode, years }) }
    });
    let enabled = ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED);
    ObjectLockConfiguration { object_lock_enabled: Some(enabled), rule }
}

/// Retention in a document. None if the document removes the retention.
pub(super) fn retention(requested: Option<&ObjectLockRetention>) -> S3Result<Option<Retention>> {
    let requested = requested.ok_or_else(malformed)?;
    match (&requested.mode, &requested.retain_until_date) {
        (None, None) => Ok(None),
        (Some(mode), Some(date)) => {
            let mode = mode_of(mode.as_str()).ok_or_else(malformed)?;
            Ok(Some(Retention { mode, until_ms: ms_of(date.clone()) }))
        }
        _ => Err(malformed()),
    }
}

/// Legal hold in a document.
pub(super) fn legal_hold(requested: Option<&ObjectLockLegalHold>) -> S3Result<bool> {
    let status = requested.and_then(|requested| requested.status.as_ref());
    status.and_then(|status| hold_of(status.as_str())).ok_or_else(malformed)
}

fn no_lock() -> S3Error {
    missing(
        "NoSuchObjectLockConfiguration",
        "The specified object does not have a ObjectLock configuration",
    )
}

/// Adds an object's lock to the headers of a read, as far as the reader may see it. An unreadable
/// lock is omitted.
pub(super) async fn add_lock(
    headers: &mut HeaderMap,
    authorization: Option<&Authorization>,
    name: ObjectName<'_>,
    object: &Object,
) -> S3Result<()> {
    let Ok(lock) = Lock::of(&object.attributes.marks) else { return Ok(()) };
    let Some(authorization) = authorization.filter(|_| !lock.is_empty()) else { return Ok(()) };
    if let Some(retention) = lock.retention
        && authorization.permits(Action::GetObjectRetention, name).await?
    {
        write_retention(headers, retention);
    }
    if let Some(is_on) = lock.legal_hold
        && authorization.permits(Action::GetObjectLegalHold, name).await?
    {
        write_hold(headers, is_on);
    }
    Ok(())
}

impl Operations {
    pub(super) async fn get_object_lock_configuration(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let lock = self.store.buckets().object_lock(request.bucket()).await.map_err(s3_error)?;
        let lock = lock.ok_or_else(|| {
            missing(
                "ObjectLockConfigurationNotFoundError",
                "Object Lock configuration does not exist for this bucket",
            )
        })?;
        Reply::xml(&wire_bucket_lock(lock))
    }

    pub(super) async fn put_object_lock_configuration(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let configuration = request.parse_optional_document()?;
        request.refuse_conditions()?;
        let lock = bucket_lock(configuration)?;
        self.store.buckets().set_object_lock(request.bucket(), lock).await.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::OK))
    }

    /// Lock of an object, and the read token. Refuses a bucket without object lock.
    async fn lock_of(&self, request: &OperationRequest) -> S3Result<(Lock, ReadAfter)> {
        let (bucket, name) = (request.bucket(), request.object_name()?);
        let conditions = ReadConditions::default();
        let read = self.store.head(bucket, name, Selection::Whole, &conditions).await;
        let read = read.map_err(s3_error)?;
        self.store.buckets().check_lockable(bucket).await.map_err(s3_error)?;
        let lock = Lock::of(&read.object.attributes.marks);
        let lock = lock.map_err(|error| s3_error(error.into()))?;
        Ok((lock, self.store.token(bucket, name.key, read.stamp)))
    }

    pub(super) async fn get_object_retention(&self, request: &OperationRequest) -> S3Result<Reply> {
        let (lock, token) = self.lock_of(request).await?;
        let retention = lock.retention.ok_or_else(no_lock)?;
        let retention = ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from_static(mode_name(retention.mode))),
            retain_until_date: Some(wire_date(retention.until_ms)),
        };
        Ok(Reply::xml(&retention)?.with_headers(stamp_headers(token)))
    }

    pub(super) async fn put_object_retention(&self, request: &OperationRequest) -> S3Result<Reply> {
        let bypass = bypass_of(flag(&request.headers, &BYPASS)?);
        let document: ObjectLockRetention = request.parse_whole_document()?;
        let retention = retention(Some(&document))?;
        self.check_retention(request, retention).await?;
        request.refuse_conditions()?;
        let name = request.object_name()?;
        let written =
            self.store.versions().set_retention(request.bucket(), name, retention, bypass).await;
        let stamp = written.map_err(s3_error)?.stamp;
        let token = self.store.token(request.bucket(), request.key(), stamp);
        Ok(Reply::empty(StatusCode::OK).with_headers(stamp_headers(token)))
    }

    pub(super) async fn get_object_legal_hold(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let (lock, token) = self.lock_of(request).await?;
        let is_on = lock.legal_hold.ok_or_else(no_lock)?;
        let status = Some(ObjectLockLegalHoldStatus::from_static(hold_name(is_on)));
        Ok(Reply::xml(&ObjectLockLegalHold { status })?.with_headers(stamp_headers(token)))
    }

    pub(super) async fn put_object_legal_hold(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let document: ObjectLockLegalHold = request.parse_whole_document()?;
        let is_on = legal_hold(Some(&document))?;
        self.check_legal_hold(request, is_on).await?;
        request.refuse_conditions()?;
        let name = request.object_name()?;
        let written = self.store.versions().set_legal_hold(request.bucket(), name, is_on).await;
        let stamp = written.map_err(s3_error)?.stamp;
        let token = self.store.token(request.bucket(), request.key(), stamp);
        Ok(Reply::empty(StatusCode::OK).with_headers(stamp_headers(token)))
    }
}

#[cfg(test)]
mod tests {
    use martlet_protocol::lock::RetentionMode;

    use super::*;

    fn rule(mode: Option<&'static str>, days: Option<i32>, years: Option<i32>) -> ObjectLockRule {
        let mode = mode.map(ObjectLockRetentionMode::from_static);
        ObjectLockRule { default_retention: Some(WireDefault { days, mode, years }) }
    }

    fn read(enabled: Option<&'static str>, rule: Option<ObjectLockRule>) -> Result<(), String> {
        let object_lock_enabled = enabled.map(ObjectLockEnabled::from_static);
        let configuration = ObjectLockConfiguration { object_lock_enabled, rule };
        let lock = bucket_lock(Some(configuration.clone()));
        let lock = lock.map_err(|error| error.code().as_str().to_owned())?;
        assert_eq!(wire_bucket_lock(lock), configuration);
        Ok(())
    }

    #[test]
    fn a_configuration_is_whole_or_refused() {
        let enabled = Some("Enabled");
        assert_eq!(read(enabled, None), Ok(()));
        assert_eq!(read(enabled, Some(rule(Some("GOVERNANCE"), Some(1), None))), Ok(()));
        assert_eq!(read(enabled, Some(rule(Some("COMPLIANCE"), None, Some(100)))), Ok(()));
        let malformed = Err("MalformedXML".to_owned());
        for (enabled, rule) in [
            (None, None),
            (Some("Disabled"), Some(rule(Some("GOVERNANCE"), Some(1), None))),
            (enabled, Some(ObjectLockRule { default_retention: None })),
            (enabled, Some(rule(Some("governance"), Some(1), None))),
            (enabled, Some(rule(None, Some(1), None))),
            (enabled, Some(rule(Some("GOVERNANCE"), None, None))),
            (enabled, Some(rule(Some("GOVERNANCE"), Some(1), Some(1)))),
        ] {
            assert_eq!(read(enabled, rule.clone()), malformed, "{enabled:?} {rule:?}");
        }
        let nothing = bucket_lock(None).unwrap_err();
        assert_eq!(nothing.code().as_str(), "MissingRequestBodyError");
        let period = Err("InvalidRetentionPeriod".to_owned());
        for (days, years) in
            [(Some(0), None), (Some(36_501), None), (None, Some(-1)), (None, Some(101))]
        {
            assert_eq!(read(enabled, Some(rule(Some("GOVERNANCE"), days, years))), period);
        }
    }

    #[test]
    fn a_retention_is_whole_or_none() {
        let requested = |mode: Option<&'static str>, date: Option<u64>| {
            let mode = mode.map(ObjectLockRetentionMode::from_static);
            let requested = ObjectLockRetention { mode, retain_until_date: date.map(wire_date) };
            retention(Some(&requested)).map_err(|error| error.code().as_str().to_owned())
        };
        let expected = Retention { mode: RetentionMode::Compliance, until_ms: 7 };
        assert_eq!(requested(Some("COMPLIANCE"), Some(7)), Ok(Some(expected)));
        assert_eq!(requested(None, None), Ok(None));
        for (mode, date) in
            [(Some("COMPLIANCE"), None), (None, Some(7)), (Some("compliance"), Some(7))]
        {
            assert_eq!(requested(mode, date), Err("MalformedXML".to_owned()));
        }
        assert!(retention(None).is_err());
    }

    #[test]
    fn a_legal_hold_is_on_or_off() {
        let requested = |status: Option<&'static str>| {
            let status = status.map(ObjectLockLegalHoldStatus::from_static);
            legal_hold(Some(&ObjectLockLegalHold { status }))
        };
        assert!(requested(Some("ON")).unwrap() && !requested(Some("OFF")).unwrap());
        for wrong in [None, Some("on"), Some("")] {
            assert_eq!(requested(wrong).unwrap_err().code().as_str(), "MalformedXML");
        }
        assert!(legal_hold(None).is_err());
    }

    #[test]
    fn only_a_true_bypass_passes_over_anything() {
        assert_eq!(bypass_of(Some(true)), Bypass::Governance);
        assert_eq!([bypass_of(None), bypass_of(Some(false))], [Bypass::Nothing; 2]);
    }
}
