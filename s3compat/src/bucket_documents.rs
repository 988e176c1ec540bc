//! Parsed settings of a bucket, kept beside its cached metadata.
//!
//! A request reads its bucket's policy, list, logging, notification and lifecycle settings. Each
//! document is parsed at its first use after the bucket was looked up or changed.

use std::sync::{Arc, OnceLock};

use martlet_protocol::Setting;
use martlet_protocol::entry::Bucket;
use martlet_protocol::lifecycle::Lifecycle;

use crate::access::{Acl, Bindings, Policy};
use crate::authorization::{AclSettings, is_restricted};
use crate::events::Rules;
use crate::logging::{LoggedBucket, Logging};

/// Parsed settings of a bucket.
#[derive(Debug)]
pub(crate) struct BucketDocuments {
    pub(crate) access: AccessDocuments,
    rules: OnceLock<Option<Rules>>,
    logged: OnceLock<Option<Arc<LoggedBucket>>>,
    lifecycle: OnceLock<Option<Lifecycle>>,
}

/// Settings that decide about access to a bucket.
#[derive(Debug)]
pub(crate) struct AccessDocuments {
    pub(crate) policy: Option<Policy>,
    /// True if the policy can't be read.
    pub(crate) is_unreadable: bool,
    /// True if the bucket's public policy is restricted: only the owner has access.
    pub(crate) is_closed: bool,
    /// None if only the bucket's owner has access, or lists are disabled.
    pub(crate) acl: Option<Acl>,
    pub(crate) control: AclSettings,
}

impl BucketDocuments {
    /// Returns the parsed settings of the bucket `name`.
    pub(crate) fn of(name: &str, bucket: &Bucket) -> Arc<Self> {
        bucket.settings.parsed(|| Self {
            access: AccessDocuments::parse(name, bucket),
            rules: OnceLock::new(),
            logged: OnceLock::new(),
            lifecycle: OnceLock::new(),
        })
    }

    /// Notification rules. None if the bucket has none, or none that can be read.
    pub(crate) fn rules(&self, name: &str, bucket: &Bucket) -> Option<&Rules> {
        let rules = self.rules.get_or_init(|| {
            let rules = Rules::of(bucket.settings.get(Setting::Notification)?);
            if rules.is_none() {
                tracing::error!(bucket = name, "could not read the notification rules of a bucket");
            }
            rules
        });
        rules.as_ref()
    }

    /// The bucket with its log settings. None if the bucket has no logging.
    pub(crate) fn logged(&self, name: &str, bucket: &Bucket) -> Option<&Arc<LoggedBucket>> {
        let parse = || {
            let logging = Logging::of(bucket.settings.get(Setting::Logging)?)?;
            let (bucket, owner) = (name.to_owned(), bucket.owner.clone());
            Some(Arc::new(LoggedBucket { bucket, owner, logging }))
        };
        self.logged.get_or_init(parse).as_ref()
    }

    /// Lifecycle rules. None if the bucket has none, or none that can be read.
    pub(crate) fn lifecycle(&self, bucket: &Bucket) -> Option<&Lifecycle> {
        let parse = || Lifecycle::of(bucket.settings.get(Setting::Lifecycle)?).ok();
        self.lifecycle.get_or_init(parse).as_ref()
    }
}

impl AccessDocuments {
    fn parse(name: &str, bucket: &Bucket) -> Self {
        let settings = &bucket.settings;
        let policy = settings.get(Setting::Policy).map(|document| {
            let ids = settings.get(Setting::PolicyPrincipals);
            let bindings = Bindings::decode(ids, document);
            Policy::parse(document, name).map(|policy| policy.bound(bindings.as_ref()))
        });
        let policy = policy.transpose();
        let is_unreadable = policy.is_err();
        if let Err(error) = &policy {
            tracing::error!(bucket = name, %error, "could not read a bucket's policy");
        }
        let policy = policy.unwrap_or_default();
        let is_public = policy.as_ref().is_some_and(Policy::is_public);
        let control = AclSettings::of(settings);
        let acl = settings.get(Setting::Acl).filter(|_| !control.is_enforced());
        Self {
            policy,
            is_unreadable,
            is_closed: is_public && is_restricted(settings),
            acl: acl.map(|document| Acl::decode(document, &bucket.owner)),
            control,
        }
    }
}
