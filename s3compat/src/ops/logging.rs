//! Access logs of a bucket: `GetBucketLogging` and `PutBucketLogging`.
//!
//! The target is a bucket of the same owner, possibly the source bucket itself. The target must
//! accept logs: by a policy that names the service `logging.s3.amazonaws.com`, or by a list that
//! names the log delivery group. The policy is evaluated for `target/prefix`, with the source
//! bucket as `aws:SourceArn` and its owner as `aws:SourceAccount`.

use http::StatusCode;
use martlet_protocol::Setting;
use martlet_protocol::limits::KEY_BYTES_MAX;
use s3s::dto::{
    BucketLoggingStatus, BucketLogsPermission, GetBucketLoggingOutput, Grant as WireGrant,
    LoggingEnabled, PartitionDateSource, PartitionedPrefix, Permission as WirePermission,
    SimplePrefix, TargetGrant, TargetObjectKeyFormat,
};
use s3s::{S3Error, S3Result};

use super::acl::{OwnerNames, resolve_grants};
use super::operations::Operations;
use crate::access::{Acl, Grant};
use crate::authorization::AclSettings;
use crate::errors::{custom, denied, internal, s3_error};
use crate::logging::{KeyFormat, Logging, may_deliver};
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

/// Maximum length of a log's key after its prefix, in bytes.
const AFTER_PREFIX_BYTES: usize = 256;
/// Permissions on logs that a configuration can grant.
const PERMISSIONS: [&str; 3] = ["FULL_CONTROL", "READ", "WRITE"];

impl Operations {
    pub(super) async fn get_bucket_logging(&self, request: &OperationRequest) -> S3Result<Reply> {
        let bucket = request.bucket();
        let document = self.store.buckets().setting(bucket, Setting::Logging).await;
        let Some(document) = document.map_err(s3_error)? else {
            return Reply::xml(&GetBucketLoggingOutput::default());
        };
        let Some(logging) = Logging::of(&document) else {
            tracing::error!(bucket, "could not read the logging settings of a bucket");
            return Err(internal());
        };
        let owner = self.store.bucket(bucket).await.map_err(s3_error)?.owner.clone();
        let acl = Acl { owner: owner.clone(), grants: logging.grants.clone() };
        let (_, grants) = OwnerNames::new(&self.store, &owner, false).await.write(&acl).await;
        let logging_enabled = Some(to_wire(logging, grants));
        Reply::xml(&GetBucketLoggingOutput { logging_enabled })
    }

    pub(super) async fn put_bucket_logging(&self, request: &OperationRequest) -> S3Result<Reply> {
        let status: BucketLoggingStatus = request.parse_document()?;
        request.refuse_conditions()?;
        let authorization = request.authorization()?;
        let owner = authorization.bucket_access().owner().to_owned();
        // An allow by policy is not enough: logs belong to the owner.
        if !authorization.requester().owns(&owner) {
            return Err(denied());
        }
        let bucket = request.bucket();
        let Some(enabled) = status.logging_enabled else {
            self.unset(bucket, Setting::Logging).await?;
            return Ok(Reply::empty(StatusCode::OK));
        };
        let logging = self.logging_of(enabled, &owner).await?;
        let target = self.store.bucket(&logging.target).await.map_err(|error| match error {
            martlet_proxy::Error::NoSuchBucket => no_target(),
            other => s3_error(other),
        })?;
        if target.owner != owner {
            return Err(no_target());
        }
        if !logging.grants.is_empty() && AclSettings::of(&target.settings).is_enforced() {
            return Err(messages::LOGGING_GRANTS.error());
        }
        if !may_deliver(&target, bucket, &owner, &logging) {
            return Err(denied());
        }
        let put = self.store.buckets().put_setting(bucket, Setting::Logging, logging.document());
        put.await.map_err(s3_error)?;
        Ok(Reply::empty(StatusCode::OK))
    }

    async fn logging_of(&self, enabled: LoggingEnabled, owner: &str) -> S3Result<Logging> {
        let format = key_format(enabled.target_object_key_format)?;
        if enabled.target_prefix.len() > KEY_BYTES_MAX - AFTER_PREFIX_BYTES {
            return Err(messages::LOGGING_PREFIX.error());
        }
        let wire = enabled.target_grants.unwrap_or_default().into_iter().map(wire_grant);
        let wire: Vec<WireGrant> = wire.collect::<S3Result<_>>()?;
        let grants: Vec<Grant> = resolve_grants(&self.store, wire, owner).await?;
        Ok(Logging { target: enabled.target_bucket, prefix: enabled.target_prefix, format, grants })
    }
}

fn no_target() -> S3Error {
    custom(
        "InvalidTargetBucketForLogging",
        "The target bucket for logging does not exist, is not owned by you, or does not have the \
         appropriate grants for the log-delivery group.",
        StatusCode::BAD_REQUEST,
    )
}

fn malformed() -> S3Error {
    messages::MALFORMED_XML.error()
}

pub(super) fn key_format(given: Option<TargetObjectKeyFormat>) -> S3Result<KeyFormat> {
    let Some(given) = given else { return Ok(KeyFormat::Simple) };
    let partitioned = match (given.simple_prefix, given.partitioned_prefix) {
        (Some(_), Some(_)) => return Err(malformed()),
        (_, None) => return Ok(KeyFormat::Simple),
        (None, Some(partitioned)) => partitioned,
    };
    let source = partitioned.partition_date_source;
    match source.as_ref().map(PartitionDateSource::as_str) {
        Some(PartitionDateSource::EVENT_TIME) => Ok(KeyFormat::ByEvent),
        None | Some(PartitionDateSource::DELIVERY_TIME) => Ok(KeyFormat::ByDelivery),
        Some(_) => Err(malformed()),
    }
}

pub(super) fn wire_grant(grant: TargetGrant) -> S3Result<WireGrant> {
    let TargetGrant { grantee, permission } = grant;
    let permission = permission.ok_or_else(malformed)?;
    if !PERMISSIONS.contains(&permission.as_str()) {
        return Err(malformed());
    }
    let permission = Some(WirePermission::from(permission.as_str().to_owned()));
    Ok(WireGrant { grantee, permission })
}

pub(super) fn to_wire(logging: Logging, grants: Vec<WireGrant>) -> LoggingEnabled {
    let Logging { target, prefix, format, .. } = logging;
    let partitioned = |source: &'static str| TargetObjectKeyFormat {
        partitioned_prefix: Some(PartitionedPrefix {
            partition_date_source: Some(PartitionDateSource::from_static(source)),
        }),
        simple_prefix: None,
    };
    let target_object_key_format = Some(match format {
        KeyFormat::Simple => {
            TargetObjectKeyFormat { partitioned_prefix: None, simple_prefix: Some(SimplePrefix {}) }
        }
        KeyFormat::ByDelivery => partitioned(PartitionDateSource::DELIVERY_TIME),
        KeyFormat::ByEvent => partitioned(PartitionDateSource::EVENT_TIME),
    });
    let permission = |it: WirePermission| BucketLogsPermission::from(it.as_str().to_owned());
    let grants: Vec<TargetGrant> = grants
        .into_iter()
        .map(|WireGrant { grantee, permission: given }| TargetGrant {
            grantee,
            permission: given.map(permission),
        })
        .collect();
    LoggingEnabled {
        target_bucket: target,
        target_grants: (!grants.is_empty()).then_some(grants),
        target_object_key_format,
        target_prefix: prefix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(source: Option<&str>) -> Result<KeyFormat, String> {
        let partitioned = source.map(|source| PartitionedPrefix {
            partition_date_source: Some(PartitionDateSource::from(source.to_owned())),
        });
        let given = TargetObjectKeyFormat { partitioned_prefix: partitioned, simple_prefix: None };
        key_format(Some(given)).map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn keys_have_three_formats() {
        assert_eq!(key_format(None).unwrap(), KeyFormat::Simple);
        assert_eq!(format(None), Ok(KeyFormat::Simple));
        assert_eq!(format(Some("EventTime")), Ok(KeyFormat::ByEvent));
        assert_eq!(format(Some("DeliveryTime")), Ok(KeyFormat::ByDelivery));
        assert_eq!(format(Some("kaboom")), Err("MalformedXML".to_owned()));
    }
}
