//! Principals that match requesters by name and by bound id.

use std::sync::Arc;

use super::*;
use crate::access::{AccountIdentity, Requester};

fn parse(text: &str) -> Result<Principals, MalformedPolicy> {
    Principals::parse(&Json::parse(text).unwrap())
}

fn names(text: &str, name: &str) -> bool {
    parse(text).unwrap().name(&Requester::named(name).subject())
}

#[test]
fn everyone_is_everyone() {
    for text in [r#""*""#, r#"{"AWS": "*"}"#, r#"{"AWS": ["alice", "*"]}"#] {
        let everyone = parse(text).unwrap();
        assert!(everyone.name(&Subject::Anonymous) && everyone.has_everyone(), "{text}");
        assert!(names(text, "bob"), "{text}");
    }
}

#[test]
fn an_account_has_many_names() {
    for text in [
        r#"{"AWS": "alice"}"#,
        r#"{"AWS": "arn:aws:iam::alice:root"}"#,
        r#"{"AWS": ["arn:aws:iam::alice:user/alice"]}"#,
        r#"{"AWS": "arn:aws:iam:::user/alice"}"#,
        r#"{"CanonicalUser": "alice"}"#,
        r#"{"AWS": "x", "CanonicalUser": ["y", "alice"]}"#,
    ] {
        assert!(names(text, "alice") && !names(text, "bob"), "{text}");
        let named = parse(text).unwrap();
        assert!(!named.name(&Subject::Anonymous) && !named.has_everyone(), "{text}");
    }
    let carol = AccountIdentity {
        user: "carol".into(),
        canonical_id: "c0ffee".into(),
        ..AccountIdentity::named("alice")
    };
    let other = Requester::User(Arc::new(carol));
    assert!(parse(r#"{"AWS": "arn:aws:iam::alice:root"}"#).unwrap().name(&other.subject()));
    assert!(!parse(r#"{"AWS": "arn:aws:iam::alice:user/alice"}"#).unwrap().name(&other.subject()));
    assert!(parse(r#"{"AWS": "arn:aws:iam::alice:user/carol"}"#).unwrap().name(&other.subject()));
    assert_eq!(other.arn().unwrap(), "arn:aws:iam::alice:user/carol");
    for (text, is_named) in [
        (r#"{"AWS": "c0ffee"}"#, true),
        (r#"{"AWS": "arn:aws:iam::c0ffee:user/carol"}"#, true),
        (r#"{"CanonicalUser": "c0ffee"}"#, true),
        (r#"{"CanonicalUser": "alice"}"#, false),
        (r#"{"AWS": "arn:aws:iam:::user/c0ffee"}"#, false),
        (r#"{"AWS": "arn:aws:iam:::user/carol"}"#, false),
    ] {
        assert_eq!(parse(text).unwrap().name(&other.subject()), is_named, "{text}");
    }
    let account =
        AccountIdentity { canonical_id: "c0ffee".into(), ..AccountIdentity::named("alice") };
    let account = Requester::User(Arc::new(account));
    for text in [
        r#"{"AWS": "arn:aws:iam:::user/c0ffee"}"#,
        r#"{"AWS": "arn:aws:iam::alice:user/c0ffee"}"#,
        r#"{"AWS": "arn:aws:iam:::user/alice"}"#,
    ] {
        assert!(parse(text).unwrap().name(&account.subject()), "{text}");
    }
}

#[test]
fn a_bound_name_keeps_its_principal() {
    let of = |account: &str, id: &str, user: Option<&str>| {
        let user_id = user.map(|user| format!("id of {user}").into());
        let user = user.unwrap_or(account).into();
        let canonical_id = id.into();
        Requester::User(Arc::new(AccountIdentity {
            user,
            user_id,
            canonical_id,
            ..AccountIdentity::named(account)
        }))
    };
    let bound = |text: &str| {
        let mut principals = parse(text).unwrap();
        let ids = principals.names().map(|name| {
            let id = match &name.member {
                None => "1".to_owned(),
                Some((PrincipalKind::User, user)) if *user == name.account => "1".to_owned(),
                Some((_, member)) => format!("id of {member}"),
            };
            (name, id)
        });
        let bindings = Bindings::new(b"", ids.collect::<Vec<_>>());
        principals.bind(&bindings);
        principals
    };
    let (first, second) = (of("alice", "1", None), of("alice", "2", None));
    for text in [
        r#"{"AWS": "alice"}"#,
        r#"{"AWS": "arn:aws:iam::alice:root"}"#,
        r#"{"AWS": "arn:aws:iam::alice:user/alice"}"#,
        r#"{"AWS": "arn:aws:iam:::user/alice"}"#,
    ] {
        assert!(
            bound(text).name(&first.subject()) && !bound(text).name(&second.subject()),
            "{text}"
        );
    }
    let carol = bound(r#"{"AWS": "arn:aws:iam::alice:user/carol"}"#);
    assert!(carol.name(&of("alice", "1", Some("carol")).subject()));
    assert!(
        !carol.name(&of("alice", "2", Some("carol")).subject()) && !carol.name(&first.subject())
    );
    let mut other = of("alice", "1", Some("carol"));
    if let Requester::User(who) = &mut other {
        Arc::make_mut(who).user_id = Some("of a later carol".into());
    }
    assert!(!carol.name(&other.subject()));
    let mut unbound = parse(r#"{"AWS": ["alice", "arn:aws:iam::alice:user/carol"]}"#).unwrap();
    unbound.bind(&Bindings::new(b"", []));
    assert!(!unbound.name(&first.subject()) && !unbound.name(&other.subject()), "nobody was found");
}

#[test]
fn the_service_that_delivers_logs_is_named_or_not_meant() {
    let means = |text: &str| parse(text).unwrap().name(&Subject::LogDelivery);
    assert!(means(r#"{"Service": "logging.s3.amazonaws.com"}"#));
    assert!(means(r#"{"Service": ["sns.amazonaws.com", "logging.s3.amazonaws.com"]}"#));
    assert!(!means(r#"{"Service": "cloudtrail.amazonaws.com"}"#));
    assert!(!means(r#"{"Service": "logs.eu-west-1.amazonaws.com"}"#));
    assert!(SERVICES.is_sorted());
    assert!(!means(r#""*""#) && !means(r#"{"AWS": "*"}"#));
    assert!(!names(r#"{"Service": "logging.s3.amazonaws.com"}"#, "alice"));
}

#[test]
fn principals_that_do_not_exist_are_refused() {
    for text in [
        r#""alice""#,
        "{}",
        "[]",
        "null",
        r#"{"AWS": []}"#,
        r#"{"AWS": ""}"#,
        r#"{"AWS": {"a": 1}}"#,
        r#"{"AWS": "arn:aws:iam::alice:user/*"}"#,
        r#"{"AWS": "arn:aws:iam::*:root"}"#,
        r#"{"AWS": "arn:aws:iam::alice:role/*"}"#,
        r#"{"AWS": "arn:aws:sts::alice:assumed-role/r"}"#,
        r#"{"AWS": "arn:aws:s3:::bucket"}"#,
        r#"{"AWS": "a*"}"#,
        r#"{"Service": "*"}"#,
        r#"{"Service": "logging"}"#,
        r#"{"Service": "logging.s3.amazonaws.comx"}"#,
        r#"{"Service": "no-such-service.amazonaws.com"}"#,
        r#"{"Service": "sns.x.amazonaws.com"}"#,
        r#"{"Service": ".amazonaws.com"}"#,
        r#"{"Federated": "x"}"#,
        r#"{"CanonicalUser": "*"}"#,
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert_eq!(error, "Invalid principal in policy", "{text}");
    }
}
