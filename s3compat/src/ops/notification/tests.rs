//! Tests of configurations as clients send them.

use super::*;

const REGION: &str = "us-east-1";
const ARN: &str = "arn:martlet:sqs:::hook";

fn queue(
    id: Option<&str>,
    arn: &str,
    events: &[&str],
    ends: &[(&str, &str)],
) -> QueueConfiguration {
    let rule = |(name, value): &(&str, &str)| FilterRule {
        name: Some(FilterRuleName::from((*name).to_owned())),
        value: Some((*value).to_owned()),
    };
    let key = S3KeyFilter { filter_rules: Some(ends.iter().map(rule).collect()) };
    QueueConfiguration {
        events: events.iter().map(|name| (*name).to_owned().into()).collect(),
        filter: (!ends.is_empty()).then_some(NotificationConfigurationFilter { key: Some(key) }),
        id: id.map(str::to_owned),
        queue_arn: arn.to_owned(),
    }
}

fn read(queues: Vec<QueueConfiguration>) -> Result<Rules, (String, String)> {
    let given = NotificationConfiguration {
        queue_configurations: Some(queues),
        ..NotificationConfiguration::default()
    };
    from_wire(given, REGION).map_err(|error| {
        let message = error.message().unwrap_or_default().to_owned();
        (error.code().as_str().to_owned(), message)
    })
}

const ALL: &[&str] = &["s3:ObjectCreated:*"];

#[test]
fn targets_are_named_by_the_end_of_an_arn() {
    assert_eq!(target_of(ARN), Some("hook"));
    assert_eq!(target_of("arn:aws:lambda:eu:12:function:hook"), Some("hook"));
    assert_eq!(target_of("arn:aws:sns:us-east-1:123456789012:a-b"), Some("a-b"));
    for wrong in
        ["", "hook", "arn:martlet:sqs:::", "urn:martlet:sqs:::hook", "arn:martlet:sqs:hook"]
    {
        assert_eq!(target_of(wrong), None, "{wrong}");
    }
}

#[test]
fn rules_come_back_as_they_went_in() {
    let given = queue(Some("one"), ARN, ALL, &[("Prefix", "a/"), ("suffix", ".jpg")]);
    let rules = read(vec![given]).unwrap();
    let mut output = GetBucketNotificationConfigurationOutput::default();
    to_wire(rules.0[0].clone(), &mut output);
    let back = output.queue_configurations.unwrap().remove(0);
    assert_eq!((back.id.as_deref(), back.queue_arn.as_str()), (Some("one"), ARN));
    let ends = back.filter.unwrap().key.unwrap().filter_rules.unwrap();
    let ends: Vec<_> = ends
        .iter()
        .map(|end| (end.name.as_ref().unwrap().as_str(), end.value.as_deref().unwrap()))
        .collect();
    assert_eq!(ends, [("Prefix", "a/"), ("Suffix", ".jpg")]);
    assert_eq!(output.topic_configurations, None);
}

#[test]
fn rules_without_an_id_get_one() {
    let put = queue(None, ARN, &["s3:ObjectCreated:Put"], &[]);
    let gone = queue(Some(""), ARN, &["s3:ObjectRemoved:*"], &[]);
    let rules = read(vec![put, gone]).unwrap();
    assert_eq!(rules.0[0].id.len(), 32);
    assert_ne!(rules.0[0].id, rules.0[1].id);
}

#[test]
fn malformed_values_are_refused() {
    let twice = [("prefix", "a"), ("Prefix", "b")];
    let long = "x".repeat(1025);
    for (given, why) in [
        (queue(None, ARN, &["s3:ObjectCreated:Nothing"], &[]), "event is not supported"),
        (queue(None, ARN, &[], &[]), "event is not supported"),
        (queue(None, "hook", ALL, &[]), "ARN"),
        (queue(None, "arn:martlet:sns:::hook", ALL, &[]), "ARN"),
        (queue(None, "arn:aws:sqs:eu-west-1:1:hook", ALL, &[]), "region"),
        (queue(None, ARN, ALL, &[("infix", "a")]), "either prefix or suffix"),
        (queue(None, ARN, ALL, &twice), "more than one prefix"),
        (queue(None, ARN, ALL, &[("suffix", &long)]), "1024 bytes"),
        (queue(Some(&long), ARN, ALL, &[]), "255 characters"),
    ] {
        let (code, message) = read(vec![given]).unwrap_err();
        assert_eq!(code, "InvalidArgument", "{message}");
        assert!(message.contains(why), "{message}");
    }
    let both = vec![queue(Some("a"), ARN, ALL, &[]), queue(Some("b"), ARN, ALL, &[])];
    assert!(read(both).unwrap_err().1.contains("overlap"));
    let many = (0..101).map(|at| queue(None, ARN, ALL, &[("prefix", &format!("{at:03}/"))]));
    assert!(read(many.collect()).unwrap_err().1.contains("at most 100"));
}

#[test]
fn there_is_no_event_bridge() {
    let given = NotificationConfiguration {
        event_bridge_configuration: Some(s3s::dto::EventBridgeConfiguration {}),
        ..NotificationConfiguration::default()
    };
    assert_eq!(from_wire(given, REGION).unwrap_err().code().as_str(), "NotImplemented");
    assert_eq!(from_wire(NotificationConfiguration::default(), REGION).unwrap(), Rules::default());
}

#[test]
fn repeated_rules_are_kept_once() {
    let many: Vec<&str> = ["s3:ObjectCreated:Put", "s3:ObjectRemoved:*"].repeat(4000);
    let rules = read(vec![queue(None, ARN, &many, &[])]).unwrap();
    assert_eq!(rules.0[0].events, ["s3:ObjectCreated:Put", "s3:ObjectRemoved:*"]);
}
