//! S3's actions in policies, those of this store, and the scope of each.

use super::glob::{Atom, atoms, matches};
use super::malformed::MalformedPolicy;

/// Kind of resource that an action applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// The service. Bucket policies don't apply.
    Service,
    /// A bucket.
    Bucket,
    /// An object.
    Object,
}

/// Declares the actions by name, with the prefix of each group.
macro_rules! actions {
    ($($scope:ident $prefix:literal: $($name:ident)*;)*) => {
        /// An action, by its name without prefix.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Action { $($($name,)*)* }

        impl Action {
            /// All actions.
            pub(crate) const ALL: &'static [Self] = &[$($(Self::$name,)*)*];

            /// Name of the action, with its prefix.
            pub(crate) fn name(self) -> &'static str {
                match self { $($(Self::$name => concat!($prefix, stringify!($name)),)*)* }
            }

            /// True if the resource of the action is an account, whose ARN is not one of S3.
            pub(crate) fn is_of_account(self) -> bool {
                self.name().starts_with("iam:")
            }

            /// Scope of the action.
            pub(crate) fn scope(self) -> ResourceKind {
                match self { $($(Self::$name)|* => ResourceKind::$scope,)* }
            }
        }
    };
}

actions! {
    Service "s3:": CreateBucket ListAllMyBuckets;
    Service "iam:": CreateAccessKey DeleteAccessKey ListAccessKeys UpdateAccessKey;
    Bucket "s3:":
        DeleteBucket DeleteBucketPolicy DeleteBucketWebsite GetAccelerateConfiguration
        GetAnalyticsConfiguration GetBucketAcl GetBucketCORS GetBucketLocation GetBucketLogging
        GetBucketNotification GetBucketObjectLockConfiguration GetBucketOwnershipControls
        GetBucketPolicy GetBucketPolicyStatus GetBucketPublicAccessBlock GetBucketRequestPayment
        GetBucketTagging GetBucketVersioning GetBucketWebsite GetEncryptionConfiguration
        GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration
        GetMetricsConfiguration GetReplicationConfiguration ListBucket ListBucketMultipartUploads
        ListBucketVersions PutAccelerateConfiguration PutAnalyticsConfiguration PutBucketAcl
        PutBucketCORS PutBucketLogging PutBucketNotification PutBucketObjectLockConfiguration
        PutBucketOwnershipControls PutBucketPolicy PutBucketPublicAccessBlock
        PutBucketRequestPayment PutBucketTagging PutBucketVersioning PutBucketWebsite
        PutEncryptionConfiguration PutIntelligentTieringConfiguration PutInventoryConfiguration
        PutLifecycleConfiguration PutMetricsConfiguration PutReplicationConfiguration;
    Bucket "martlet:":
        CommitCheckpoint DeleteCheckpoint GetCheckpoint GetCheckpointRules HoldCheckpoint
        PutCheckpointRules;
    Object "s3:":
        AbortMultipartUpload BypassGovernanceRetention DeleteObject DeleteObjectTagging
        DeleteObjectVersion DeleteObjectVersionTagging GetObject GetObjectAcl GetObjectAttributes
        GetObjectLegalHold GetObjectRetention GetObjectTagging GetObjectTorrent GetObjectVersion
        GetObjectVersionAcl GetObjectVersionAttributes GetObjectVersionForReplication
        GetObjectVersionTagging GetObjectVersionTorrent ListMultipartUploadParts
        ObjectOwnerOverrideToBucketOwner PutObject PutObjectAcl PutObjectLegalHold
        PutObjectRetention PutObjectTagging PutObjectVersionAcl PutObjectVersionTagging
        ReplicateDelete ReplicateObject ReplicateTags RestoreObject;
}

/// A set of actions: one bit for each, in the order of [`Action::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActionSet(u128);

const _: () = assert!(Action::ALL.len() <= 128, "each action needs a bit");

impl ActionSet {
    /// Actions that a pattern in lower case matches.
    fn matching(pattern: &[Atom]) -> Self {
        let is_one = |action: &&Action| matches(pattern, &action.name().to_ascii_lowercase());
        Self(Action::ALL.iter().filter(is_one).fold(0, |set, action| set | Self::bit(*action)))
    }

    fn bit(action: Action) -> u128 {
        1 << (action as u32)
    }

    fn has(self, action: Action) -> bool {
        self.0 & Self::bit(action) != 0
    }
}

/// Actions as a policy names them: in any case, with `*` and `?`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Actions {
    /// Actions that each name matches.
    by_name: Vec<ActionSet>,
    all: ActionSet,
}

impl Actions {
    /// Reads names. Each name must match at least one action.
    pub(super) fn parse(names: &[&str]) -> Result<Self, MalformedPolicy> {
        let read = |name: &&str| {
            let pattern: Vec<Atom> = atoms(&name.to_ascii_lowercase()).collect();
            let actions = ActionSet::matching(&pattern);
            (actions != ActionSet(0))
                .then_some(actions)
                .ok_or_else(|| MalformedPolicy::new("Policy has invalid action"))
        };
        let by_name: Vec<ActionSet> = names.iter().map(read).collect::<Result<_, _>>()?;
        let all = ActionSet(by_name.iter().fold(0, |all, actions| all | actions.0));
        Ok(Self { by_name, all })
    }

    /// True if one of the names matches the action.
    pub(super) fn name(&self, action: Action) -> bool {
        self.all.has(action)
    }

    /// True if each name matches an action in one of the scopes.
    pub(super) fn all_fit(&self, scopes: &[ResourceKind]) -> bool {
        // S3 accepts `CreateBucket` in a bucket's policy, though the policy never applies to it.
        let scope_of = |action: Action| match action {
            Action::CreateBucket => ResourceKind::Bucket,
            action => action.scope(),
        };
        self.by_name.iter().all(|named| {
            let mut all = Action::ALL.iter();
            all.any(|action| named.has(*action) && scopes.contains(&scope_of(*action)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_patterns_in_any_case() {
        let actions = Actions::parse(&["S3:getobject*", "s3:PutObject"]).unwrap();
        assert!(actions.name(Action::GetObject) && actions.name(Action::GetObjectVersionTagging));
        assert!(actions.name(Action::PutObject) && !actions.name(Action::PutObjectAcl));
        let groups = [("*", ""), ("s3:*", "s3:"), ("martlet:*", "martlet:"), ("iam:*", "iam:")];
        for (all, prefix) in groups {
            let all_actions = Actions::parse(&[all]).unwrap();
            let is_meant = |action: &Action| action.name().starts_with(prefix);
            let as_meant = |action: &Action| all_actions.name(*action) == is_meant(action);
            assert!(Action::ALL.iter().all(as_meant), "{all}");
        }
    }

    #[test]
    fn unknown_actions_are_refused() {
        for name in ["s3:GetObjects", "GetObject", "ec2:*", "", "s3:", "s3:get?"] {
            let error = Actions::parse(&["s3:GetObject", name]).unwrap_err();
            assert_eq!(error.to_string(), "Policy has invalid action", "{name}");
        }
    }

    #[test]
    fn actions_apply_to_buckets_or_objects() {
        let fit = |name: &str, scope| Actions::parse(&[name]).unwrap().all_fit(&[scope]);
        assert!(
            fit("s3:GetObject", ResourceKind::Object) && !fit("s3:GetObject", ResourceKind::Bucket)
        );
        assert!(
            fit("s3:ListBucket", ResourceKind::Bucket)
                && !fit("s3:ListBucket", ResourceKind::Object)
        );
        assert!(fit("s3:*", ResourceKind::Bucket) && fit("s3:*", ResourceKind::Object));
        for made in ["s3:CreateBucket", "s3:Create*"] {
            assert!(fit(made, ResourceKind::Bucket) && !fit(made, ResourceKind::Object), "{made}");
        }
    }

    #[test]
    fn every_action_is_named_once() {
        let names: std::collections::HashSet<_> =
            Action::ALL.iter().map(|action| action.name().to_ascii_lowercase()).collect();
        assert_eq!(names.len(), Action::ALL.len());
        assert!(names.contains("s3:getbucketcors"));
    }
}
