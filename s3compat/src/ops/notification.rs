//! Notification rules of a bucket: `GetBucketNotificationConfiguration` and
//! `PutBucketNotificationConfiguration`.
//!
//! The settings of the process define the targets. The end of an ARN names a target:
//! `arn:martlet:sqs:::NAME`. Any partition (not empty) and account are accepted. The
//! service must be sns, sqs or lambda, by the kind of the rule. The region must be empty or the
//! store's.

use std::collections::HashSet;

use http::{HeaderName, StatusCode};
use martlet_protocol::Setting;
use martlet_protocol::id::random_bytes;
use s3s::dto::{
    Event, FilterRule, FilterRuleName, GetBucketNotificationConfigurationOutput,
    LambdaFunctionConfiguration, NotificationConfiguration, NotificationConfigurationFilter,
    QueueConfiguration, S3KeyFilter, TopicConfiguration,
};
use s3s::{S3Error, S3Result};

use super::operations::Operations;
use crate::errors::{internal, s3_error};
use crate::events::{Rule, RuleConflict, Rules, TargetKind, is_known, target_of};
use crate::fields::flag;
use crate::messages;
use crate::reply::Reply;
use crate::request::OperationRequest;

const SKIP_VALIDATION: HeaderName = HeaderName::from_static("x-amz-skip-destination-validation");

/// Maximum number of rules of a bucket, as in S3.
const RULES_MAX: usize = 100;
/// Maximum length of a prefix or suffix, in bytes.
const END_BYTES_MAX: usize = 1024;
/// Maximum length of an id, in characters.
const ID_CHARS_MAX: usize = 255;

impl Operations {
    pub(super) async fn get_bucket_notification_configuration(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let bucket = request.bucket();
        let document = self.store.buckets().setting(bucket, Setting::Notification).await;
        let document = document.map_err(s3_error)?;
        let rules = document.map_or_else(|| Some(Rules::default()), |it| Rules::of(&it));
        let Some(Rules(rules)) = rules else {
            tracing::error!(bucket, "could not read the notification rules of a bucket");
            return Err(internal());
        };
        let mut output = GetBucketNotificationConfigurationOutput::default();
        for rule in rules {
            to_wire(rule, &mut output);
        }
        Reply::xml(&output)
    }

    pub(super) async fn put_bucket_notification_configuration(
        &self,
        request: &OperationRequest,
    ) -> S3Result<Reply> {
        let configuration: NotificationConfiguration = request.parse_document()?;
        let skips_validation = flag(&request.headers, &SKIP_VALIDATION)? == Some(true);
        request.refuse_conditions()?;
        let sink = &request.context.observation.sink;
        let rules = from_wire(configuration, &self.region)?;
        let tenant =
            if rules.0.is_empty() { None } else { Some(self.tenant_of(request.bucket()).await?) };
        let is_known = |name: &str| {
            let sink = sink.as_ref().zip(tenant.as_deref());
            sink.is_some_and(|(sink, tenant)| sink.admits(name, tenant))
        };
        let mut targets: Vec<String> = Vec::new();
        for rule in &rules.0 {
            let target = target_of(&rule.arn).filter(|name| is_known(name));
            targets.push(target.ok_or_else(unknown_target)?.to_owned());
        }
        let bucket = request.bucket();
        if rules.0.is_empty() {
            self.unset(bucket, Setting::Notification).await?;
        } else {
            let put =
                self.store.buckets().put_setting(bucket, Setting::Notification, rules.document());
            put.await.map_err(s3_error)?;
        }
        let mut reply = Reply::empty(StatusCode::OK);
        if !skips_validation {
            targets.sort_unstable();
            targets.dedup();
            reply.effects.configured_targets = targets;
        }
        Ok(reply)
    }
}

impl Operations {
    /// Name of the tenant that owns a bucket.
    async fn tenant_of(&self, bucket: &str) -> S3Result<String> {
        let owner = self.store.bucket(bucket).await.map_err(s3_error)?.owner.clone();
        let account = self.store.directory().account_called(&owner).await.map_err(s3_error)?;
        Ok(account.map_or(owner, |account| account.name))
    }
}

fn unknown_target() -> S3Error {
    messages::NOTIFICATION_TARGET.error()
}

/// A rule of one of S3's three kinds, before validation.
struct RequestedRule {
    kind: TargetKind,
    id: Option<String>,
    arn: String,
    events: Vec<String>,
    filter: Option<NotificationConfigurationFilter>,
}

fn texts(events: Vec<Event>) -> Vec<String> {
    events.into_iter().map(String::from).collect()
}

pub(super) fn from_wire(given: NotificationConfiguration, region: &str) -> S3Result<Rules> {
    if given.event_bridge_configuration.is_some() {
        return Err(messages::NOTIFICATION_BRIDGE.error());
    }
    let topics = given.topic_configurations.unwrap_or_default().into_iter();
    let topics = topics.map(|it| RequestedRule {
        kind: TargetKind::Topic,
        id: it.id,
        arn: it.topic_arn,
        events: texts(it.events),
        filter: it.filter,
    });
    let queues = given.queue_configurations.unwrap_or_default().into_iter();
    let queues = queues.map(|it| RequestedRule {
        kind: TargetKind::Queue,
        id: it.id,
        arn: it.queue_arn,
        events: texts(it.events),
        filter: it.filter,
    });
    let functions = given.lambda_function_configurations.unwrap_or_default().into_iter();
    let functions = functions.map(|it| RequestedRule {
        kind: TargetKind::Function,
        id: it.id,
        arn: it.lambda_function_arn,
        events: texts(it.events),
        filter: it.filter,
    });
    let rules: Vec<Rule> = topics
        .chain(queues)
        .chain(functions)
        .map(|given| rule(given, region))
        .collect::<S3Result<_>>()?;
    if rules.len() > RULES_MAX {
        return Err(messages::NOTIFICATION_COUNT.with_subject(RULES_MAX).into());
    }
    let rules = Rules(rules);
    match rules.clash() {
        None => Ok(rules),
        Some(clash) => {
            let sentence = match clash {
                RuleConflict::Id => messages::NOTIFICATION_IDS,
                RuleConflict::Event => messages::NOTIFICATION_OVERLAP,
                RuleConflict::Filter => messages::NOTIFICATION_AMBIGUOUS,
            };
            Err(sentence.error())
        }
    }
}

fn rule(given: RequestedRule, region: &str) -> S3Result<Rule> {
    let RequestedRule { kind, id, arn, mut events, filter } = given;
    check_arn(kind, &arn, region)?;
    // Rules are compared event by event, so repeated events are dropped.
    let mut named = HashSet::new();
    events.retain(|event| named.insert(event.clone()));
    if events.is_empty() || !events.iter().all(|event| is_known(event)) {
        return Err(messages::NOTIFICATION_EVENT.error());
    }
    let id = id.filter(|id| !id.is_empty());
    if id.as_ref().is_some_and(|id| id.chars().count() > ID_CHARS_MAX) {
        return Err(messages::NOTIFICATION_ID.with_subject(ID_CHARS_MAX).into());
    }
    let id = id.unwrap_or_else(|| hex::encode(random_bytes::<16>()));
    let (prefix, suffix) = ends(filter)?;
    Ok(Rule { id, kind, arn, events, prefix, suffix })
}

fn check_arn(kind: TargetKind, arn: &str, region: &str) -> S3Result<()> {
    let service = match kind {
        TargetKind::Topic => "sns",
        TargetKind::Queue => "sqs",
        TargetKind::Function => "lambda",
    };
    let fields: Vec<&str> = arn.splitn(6, ':').collect();
    let [_, partition, given, its_region, ..] = fields[..] else { return Err(bad_arn()) };
    if target_of(arn).is_none() || partition.is_empty() || given != service {
        return Err(bad_arn());
    }
    if !its_region.is_empty() && its_region != region {
        return Err(messages::NOTIFICATION_REGION.error());
    }
    Ok(())
}

fn bad_arn() -> S3Error {
    messages::NOTIFICATION_ARN.error()
}

/// Prefix and suffix in a filter.
fn ends(
    filter: Option<NotificationConfigurationFilter>,
) -> S3Result<(Option<String>, Option<String>)> {
    let rules = filter.and_then(|filter| filter.key).and_then(|key| key.filter_rules);
    let (mut prefix, mut suffix) = (None, None);
    for FilterRule { name, value } in rules.unwrap_or_default() {
        let name = name.as_ref().map(FilterRuleName::as_str).unwrap_or_default();
        let end = match name.to_ascii_lowercase().as_str() {
            "prefix" => &mut prefix,
            "suffix" => &mut suffix,
            _ => {
                return Err(messages::NOTIFICATION_FILTER.error());
            }
        };
        let value = value.unwrap_or_default();
        if value.len() > END_BYTES_MAX {
            return Err(messages::NOTIFICATION_FILTER_VALUE.with_subject(END_BYTES_MAX).into());
        }
        if end.replace(value).is_some() {
            return Err(messages::NOTIFICATION_FILTERS
                .with_subject(name.to_ascii_lowercase())
                .into());
        }
    }
    Ok((prefix, suffix))
}

pub(super) fn to_wire(rule: Rule, output: &mut GetBucketNotificationConfigurationOutput) {
    let Rule { id, kind, arn, events, prefix, suffix } = rule;
    let end = |name: &'static str, value: Option<String>| {
        let name = Some(FilterRuleName::from_static(name));
        value.map(|value| FilterRule { name, value: Some(value) })
    };
    let ends: Vec<_> =
        [end("Prefix", prefix), end("Suffix", suffix)].into_iter().flatten().collect();
    let filter = (!ends.is_empty()).then_some(NotificationConfigurationFilter {
        key: Some(S3KeyFilter { filter_rules: Some(ends) }),
    });
    let events = events.into_iter().map(Into::into).collect();
    let id = Some(id);
    match kind {
        TargetKind::Topic => output
            .topic_configurations
            .get_or_insert_default()
            .push(TopicConfiguration { events, filter, id, topic_arn: arn }),
        TargetKind::Queue => output
            .queue_configurations
            .get_or_insert_default()
            .push(QueueConfiguration { events, filter, id, queue_arn: arn }),
        TargetKind::Function => output
            .lambda_function_configurations
            .get_or_insert_default()
            .push(LambdaFunctionConfiguration { events, filter, id, lambda_function_arn: arn }),
    }
}

#[cfg(test)]
mod tests;
