//! Policies and trust documents: any text is refused or judged, and the order of statements and the
//! form of the JSON decide nothing.

use std::sync::Arc;

use martlet_protocol::limits::POLICY_BYTES_MAX;
use martlet_protocol::testing::fuzz_target::{FuzzTarget, InputReader, block};
use serde_json::Value;

use crate::access::{
    AccountIdentity, Action, AssumeMethod, AssumeRequest, Context, IdentityPolicy, Policy,
    PolicyDecision, Question, Requester, ResourceArn, Trust,
};

/// Documents. An input is the number of a kind, values of a request in blocks, and a document.
///
/// Properties: no document causes a panic; the time of an evaluation is bounded (libFuzzer's limit);
/// a document that is printed anew, with its statements in another order, decides as before; a
/// requester may do nothing by a statement that [`Policy::may_allow`] excludes.
pub const POLICIES: FuzzTarget =
    FuzzTarget { name: "policies", check, seeds, heap_bytes_max: 64 << 20 };

const BUCKET: &str = "bucket";

fn check(input: &[u8]) -> bool {
    let mut reader = InputReader::new(input);
    let kind = reader.byte() % 3;
    let values = [reader.text(), reader.text(), reader.text()];
    let Ok(document) = std::str::from_utf8(reader.rest()) else { return false };
    match kind {
        0 => bucket_policy(document, &values),
        1 => own_policy(document, &values),
        _ => trust(document, &values),
    }
}

/// Context of a request with values that the input chooses.
fn context(values: &[String; 3]) -> Context {
    let [first, second, third] = values;
    let mut context = Context::default();
    for key in ["aws:UserAgent", "aws:SourceIp", "aws:CurrentTime", "s3:prefix", "s3:max-keys"] {
        context.set(key, first.clone());
    }
    for key in ["aws:username", "aws:SecureTransport", "aws:PrincipalArn"] {
        context.set(key, second.clone());
    }
    context.set_existing([(second.as_str(), third.as_str())]);
    context.set_tags([(first.as_str(), third.as_str()), ("team", second.as_str())]);
    context
}

fn requesters(values: &[String; 3]) -> [Requester; 3] {
    let mut user = AccountIdentity::named("alice");
    user.user = values[1].as_str().into();
    let user = Requester::User(Arc::new(user));
    [Requester::Anonymous, user, Requester::LogDelivery]
}

/// Calls `judge` with questions about two objects, a bucket and the service.
fn for_each_question(values: &[String; 3], mut judge: impl FnMut(&Question<'_>)) {
    let questions = [
        (Action::GetObject, ResourceArn::of(BUCKET, Some(&values[2]))),
        (Action::PutObject, ResourceArn::of(BUCKET, Some("a/b"))),
        (Action::ListBucket, ResourceArn::of(BUCKET, None)),
        (Action::ListAllMyBuckets, ResourceArn::of("*", None)),
    ];
    for requester in &requesters(values) {
        for (action, arn) in &questions {
            // Each question has all steps of a request.
            let (action, arn, context) = (*action, arn.as_str(), &context(values));
            judge(&Question { requester, action, arn, is_new: false, context });
        }
    }
}

/// Prints a document anew, with its statements in the opposite order. None if the text is no JSON,
/// or the new text exceeds `bytes_max`.
fn rewritten(document: &str, bytes_max: usize) -> Option<String> {
    let mut json: Value = serde_json::from_str(document).ok()?;
    if let Some(Value::Array(statements)) = json.get_mut("Statement") {
        statements.reverse();
    }
    let text = json.to_string();
    (text.len() <= bytes_max).then_some(text)
}

fn bucket_policy(document: &str, values: &[String; 3]) -> bool {
    let Ok(policy) = Policy::parse(document.as_bytes(), BUCKET) else { return false };
    let _ = (policy.names(), policy.is_public(), policy.reads_existing_tags());
    let object = ResourceArn::of(BUCKET, Some(&values[2]));
    let _ = (policy.connection_needs(), policy.reads_context_of(&object));
    let again = rewritten(document, POLICY_BYTES_MAX).map(|text| {
        Policy::parse(text.as_bytes(), BUCKET).expect("a policy that is printed anew is one")
    });
    for_each_question(values, |question| {
        let decision = policy.evaluate(&question.of_policy());
        if let Some(again) = &again {
            assert_eq!(again.evaluate(&question.of_policy()), decision, "the order decides");
        }
        if decision == PolicyDecision::Allow {
            let subject = question.requester.subject();
            assert!(policy.may_allow(&subject, question.action), "an excluded action is allowed");
        }
    });
    true
}

fn own_policy(document: &str, values: &[String; 3]) -> bool {
    let is_good = IdentityPolicy::check(document).is_ok();
    let policy = IdentityPolicy::read(document);
    let again = rewritten(document, POLICY_BYTES_MAX).filter(|_| is_good);
    let again = again.map(|text| IdentityPolicy::read(&text));
    for_each_question(values, |question| {
        let decision = policy.evaluate(&question.of_policy());
        assert!(is_good || decision == PolicyDecision::Deny, "an unreadable policy decides");
        if let Some(again) = &again {
            assert_eq!(again.evaluate(&question.of_policy()), decision, "the order decides");
        }
    });
    is_good
}

fn trust(document: &str, values: &[String; 3]) -> bool {
    let Ok(trust) = Trust::parse(document) else { return false };
    let _ = trust.names();
    let again = rewritten(document, document.len());
    let again = again.map(|text| Trust::parse(&text).expect("a document printed anew is one"));
    for requester in &requesters(values) {
        for way in [AssumeMethod::AssumeRole, AssumeMethod::AssumeRoleWithWebIdentity] {
            let provider = (way != AssumeMethod::AssumeRole).then_some("idp.example.com");
            let context = context(values);
            let request = AssumeRequest { way, requester, provider, context: &context };
            let admits = trust.admits(request);
            if let Some(again) = &again {
                assert_eq!(again.admits(request), admits, "the order decides");
            }
        }
    }
    true
}

/// Documents of the seeds: the number of their kind, and their text.
const DOCUMENTS: [(u8, &str); 6] = [
    (
        0,
        r#"{"Version": "2012-10-17", "Id": "x", "Statement": [
            {"Sid": "one", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
             "Resource": "arn:aws:s3:::bucket/a/*",
             "Condition": {"StringLike": {"aws:UserAgent": ["aws-cli*", "?oto3"]},
                           "IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}},
            {"Effect": "Deny", "Principal": {"AWS": ["arn:aws:iam::alice:user/bob", "alice"]},
             "NotAction": ["s3:Get*", "s3:ListBucket"],
             "Resource": ["arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"]}]}"#,
    ),
    (
        0,
        r#"{"Version": "2012-10-17", "Statement":
            {"Effect": "Deny", "NotPrincipal": {"AWS": "alice"}, "Action": "s3:*",
             "NotResource": "arn:aws:s3:::bucket/${aws:username}/*",
             "Condition": {"Bool": {"aws:SecureTransport": "false"},
                           "NumericGreaterThanIfExists": {"s3:max-keys": 10},
                           "DateLessThan": {"aws:CurrentTime": "2030-01-01T00:00:00Z"}}}}"#,
    ),
    (
        0,
        r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "s3:PutObject",
             "Resource": "arn:aws:s3:::bucket/*",
             "Condition": {"ForAllValues:StringEquals": {"s3:RequestObjectTagKeys": ["team"]},
                           "Null": {"s3:x-amz-acl": true},
                           "StringNotEquals": {"s3:ExistingObjectTag/team": "ml"}}}]}"#,
    ),
    (
        1,
        r#"{"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Action": ["s3:ListAllMyBuckets", "s3:GetObject"], "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:Delete*", "Resource": "arn:aws:s3:::bucket/k?p/*"}]}"#,
    ),
    (
        2,
        r#"{"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::alice:user/bob"},
             "Action": "sts:AssumeRole",
             "Condition": {"StringEquals": {"sts:ExternalId": "7"}}}]}"#,
    ),
    (
        2,
        r#"{"Version": "2012-10-17", "Statement": {"Effect": "Allow",
            "Principal": {"Federated": "arn:aws:iam::alice:oidc-provider/idp.example.com"},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": {"idp.example.com:aud": "martlet"}}}}"#,
    ),
];

fn seeds() -> Vec<Vec<u8>> {
    let values = [block(b"10.1.2.3"), block(b"bob"), block(b"a/b")].concat();
    let seed = |(kind, document): (u8, &str)| [&[kind], &values[..], document.as_bytes()].concat();
    DOCUMENTS.into_iter().map(seed).collect()
}
