//! Target buckets of logs: their consent, and the access control lists of logs.

use martlet_protocol::entry::{Bucket, Marks};

use super::settings::Logging;
use crate::access::{Acl, Action, Context, Question, Requester, ResourceArn};
use crate::authorization::{AccessDecision, AclSettings, BucketAccess, mark};

/// Returns true if the target bucket accepts logs of requests to `bucket`, a bucket of `owner`.
pub(crate) fn may_deliver(target: &Bucket, bucket: &str, owner: &str, logging: &Logging) -> bool {
    let requester = Requester::LogDelivery;
    let access = BucketAccess::of(&requester, &logging.target, target);
    let mut context = Context::default();
    context.add("aws:SourceArn", format!("arn:aws:s3:::{bucket}"));
    context.add("aws:SourceAccount", owner);
    context.add("s3:ResourceAccount", &target.owner);
    let log = ResourceArn::of(&logging.target, Some(&logging.prefix));
    let question = Question {
        requester: &requester,
        action: Action::PutObject,
        arn: log.as_str(),
        is_new: true,
        context: &context,
    };
    access.allows(&question) == AccessDecision::Yes
}

/// Sets the access control list of a log: the configured grants.
pub(crate) fn mark_log(marks: &mut Marks, target: &Bucket, logging: &Logging) {
    if logging.grants.is_empty() || AclSettings::of(&target.settings).is_enforced() {
        return;
    }
    let mut acl = Acl::private(&target.owner);
    acl.grants.extend(logging.grants.iter().cloned());
    mark(marks, &acl, &target.owner);
}

#[cfg(test)]
mod tests {
    use martlet_protocol::entry::BucketState;
    use martlet_protocol::{BucketId, Level, PolicyId, Setting, Settings};

    use super::*;
    use crate::logging::KeyFormat;

    fn logs(setting: Setting, document: &[u8]) -> Bucket {
        let mut settings = Settings::default();
        settings.set(setting, document.to_vec()).unwrap();
        Bucket {
            id: BucketId([1; 16]),
            created_ms: 0,
            generation: 0,
            state: BucketState::Open,
            index_shards: 1,
            policy: PolicyId(0),
            owner: "alice".into(),
            consistency: Level::default(),
            settings,
        }
    }

    fn takes(policy: &str) -> bool {
        let target = logs(Setting::Policy, policy.as_bytes());
        let logging = Logging {
            target: "logs".into(),
            prefix: "p/".into(),
            format: KeyFormat::Simple,
            grants: Vec::new(),
        };
        may_deliver(&target, "source", "alice", &logging)
    }

    #[test]
    fn a_target_takes_logs_by_its_policy() {
        let policy =
            |principal: &str, action: &str, resource: &str, source: &str, account: &str| {
                takes(&format!(
                    r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow",
                "Principal": {principal}, "Action": "{action}",
                "Resource": "arn:aws:s3:::logs/{resource}", "Condition": {{
                "ArnLike": {{"aws:SourceArn": "arn:aws:s3:::{source}"}},
                "StringEquals": {{"aws:SourceAccount": "{account}"}}}}}}]}}"#
                ))
            };
        let service = r#"{"Service": "logging.s3.amazonaws.com"}"#;
        assert!(policy(service, "s3:PutObject", "p/", "source", "alice"));
        assert!(policy(service, "s3:PutObject", "p*", "sour*", "alice"));
        let other = r#"{"Service": "logging.s3.amazonaws.comx"}"#;
        for (principal, action, resource, source, account) in [
            (r#"{"AWS": "*"}"#, "s3:PutObject", "p/", "source", "alice"),
            (other, "s3:PutObject", "p/", "source", "alice"),
            (service, "s3:GetObject", "p/", "source", "alice"),
            (service, "s3:PutObject", "q/", "source", "alice"),
            (service, "s3:PutObject", "p/", "another", "alice"),
            (service, "s3:PutObject", "p/", "source", "bob"),
        ] {
            assert!(
                !policy(principal, action, resource, source, account),
                "{principal} {action} {resource} {source} {account}"
            );
        }
    }
}
