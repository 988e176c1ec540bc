//! Requesters that trust documents admit, and documents that are refused.

use std::sync::Arc;

use martlet_proxy::Role;

use super::*;
use crate::access::AccountIdentity;

fn user(account: &str, name: &str, role: Role) -> Requester {
    Requester::User(Arc::new(AccountIdentity {
        user: name.into(),
        role,
        ..AccountIdentity::named(account)
    }))
}

fn document(principal: &str, rest: &str) -> String {
    format!(
        r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Principal": {principal},
            "Action": "sts:AssumeRole*"{rest}}}]}}"#
    )
}

fn signed(text: &str, requester: &Requester) -> bool {
    let context = &Context::default().with("aws:SourceIp", "10.0.0.1");
    let way = AssumeMethod::AssumeRole;
    Trust::parse(text).unwrap().admits(AssumeRequest { way, requester, provider: None, context })
}

fn web(text: &str, provider: &str, subject: &str) -> bool {
    let mut context = Context::default();
    context.add_trust("token:sub", subject);
    context.add_trust("token:aud", "app");
    context.add_trust("token:aud", "other");
    Trust::parse(text).unwrap().admits(AssumeRequest {
        way: AssumeMethod::AssumeRoleWithWebIdentity,
        requester: &Requester::Anonymous,
        provider: Some(provider),
        context: &context,
    })
}

#[test]
fn only_named_principals_may_assume_the_role() {
    let text = document(r#"{"AWS": "arn:aws:iam::alice:user/carol"}"#, "");
    assert!(signed(&text, &user("alice", "carol", Role::ReadOnly)));
    assert!(!signed(&text, &user("alice", "dave", Role::Admin)));
    assert!(!signed(&text, &user("bob", "carol", Role::Admin)));
    assert!(!signed(&text, &Requester::Anonymous));
    assert!(!web(&text, "idp.example", "me"), "a token is not a principal");
}

#[test]
fn limited_principals_need_to_be_named_themselves() {
    for principal in [r#""*""#, r#"{"AWS": "alice"}"#, r#"{"AWS": "arn:aws:iam::alice:root"}"#] {
        let text = document(principal, "");
        assert!(signed(&text, &Requester::named("alice")), "{principal}");
        assert!(signed(&text, &user("alice", "carol", Role::Admin)), "{principal}");
        assert!(!signed(&text, &user("alice", "carol", Role::ReadWrite)), "{principal}");
        assert!(!signed(&text, &Requester::Anonymous), "{principal}");
    }
    let both = document(r#"{"AWS": ["alice", "arn:aws:iam::alice:user/carol"]}"#, "");
    assert!(signed(&both, &user("alice", "carol", Role::ReadWrite)));
    assert!(!signed(&both, &user("alice", "dave", Role::ReadWrite)));
}

#[test]
fn a_deny_wins_and_binds_the_limited_too() {
    let text = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::alice:user/carol"},
         "Action": "sts:AssumeRole"},
        {"Effect": "Deny", "Principal": {"AWS": "alice"}, "Action": "sts:*",
         "Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}]}"#;
    assert!(!signed(text, &user("alice", "carol", Role::ReadOnly)));
    assert!(signed(
        &text.replace("10.0.0.0/8", "192.0.2.0/24"),
        &user("alice", "carol", Role::ReadOnly)
    ));
}

#[test]
fn tokens_of_a_provider_are_accepted_by_their_claims() {
    for provider in [
        "https://idp.example/realm",
        "idp.example/realm/",
        "arn:aws:iam::x:oidc-provider/idp.example/realm",
    ] {
        let text = document(
            &format!(r#"{{"Federated": "{provider}"}}"#),
            r#", "Condition": {"StringLike": {"idp.example/realm:sub": "job:*"},
                "StringEquals": {"idp.example/realm:aud": "app"}}"#,
        );
        assert!(web(&text, "idp.example/realm", "job:7"), "{provider}");
        assert!(!web(&text, "idp.example/realm", "me"), "{provider}");
        assert!(!web(&text, "idp.example", "job:7"), "{provider}");
        assert!(!signed(&text, &Requester::named("alice")), "{provider}");
    }
    let denied = r#"{"Statement": [{"Effect": "Allow", "Principal": {"Federated": "idp.example"},
        "Action": "sts:*"}, {"Effect": "Deny", "Principal": "*", "Action": "sts:*"}]}"#;
    assert!(!web(denied, "idp.example", "me"));
    assert!(web(
        &denied.replace(r#""*", "Action": "sts:*"}]"#, r#"{"AWS": "x"}, "Action": "sts:*"}]"#),
        "idp.example",
        "me"
    ));
    let only_signed = document(r#"{"Federated": "idp.example"}"#, "").replace("Role*", "Role");
    assert!(!web(&only_signed, "idp.example", "me"));
}

#[test]
fn conditions_that_cannot_be_evaluated_are_refused() {
    let aws = r#"{"AWS": "alice"}"#;
    for text in [
        String::new(),
        "[]".into(),
        "{}".into(),
        r#"{"Statement": []}"#.into(),
        document(r#"{"Federated": ["a.example", "b.example"]}"#, ""),
        document(r#"{"Federated": "arn:aws:iam::x:saml-provider/a"}"#, ""),
        document(r#"{"Federated": "*"}"#, ""),
        document(r#"{"Service": "x"}"#, ""),
        document(r#"{"AWS": "alice", "Federated": "a.example"}"#, ""),
        document(aws, r#", "Resource": "*""#),
        document(aws, r#", "NotPrincipal": "*""#),
        document(aws, r#", "Condition": {"StringEquals": {"s3:prefix": "a"}}"#),
        document(aws, r#", "Condition": {"StringEquals": {"a.example:sub": "a"}}"#),
        document(
            r#"{"Federated": "a.example"}"#,
            r#", "Condition": {"StringEquals": {"b.example:sub": "a"}}"#,
        ),
        document(aws, "").replace("sts:AssumeRole*", "sts:TagSession"),
        document(aws, "").replace("Allow", "Perhaps"),
        document(aws, "").replace("2012-10-17", "2040-01-01"),
        " ".repeat(TRUST_BYTES_MAX + 1),
    ] {
        assert!(Trust::parse(&text).is_err(), "{text}");
    }
    let external = document(aws, r#", "Condition": {"StringEquals": {"sts:ExternalId": "x"}}"#);
    assert!(!signed(&external, &Requester::named("alice")), "it was not said");
}
