//! Sessions of roles: permissions, ends of sessions, and invalid tokens.

use martlet_proxy::{NewKey, NewRole, Role, RoleChange};

use crate::world::{SessionCredentials, TestReply, World};

const READER: &str = r#"{"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/*"},
    {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::bkt"}]}"#;
const ARN: &str = "arn:aws:iam::t:role/reader";

fn role(trust: Option<&str>) -> NewRole {
    NewRole {
        tenant: "t".into(),
        name: "reader".into(),
        policy: READER.into(),
        trust: trust.map(str::to_owned),
        trust_ids: None,
        session_s_max: 7200,
    }
}

fn trusting(principal: &str) -> String {
    format!(
        r#"{{"Statement": {{"Effect": "Allow", "Principal": {{"AWS": "{principal}"}},
            "Action": "sts:AssumeRole"}}}}"#
    )
}

/// A tenant with a bucket of two keys and a role that may read it, and another tenant.
async fn world(trust: Option<&str>) -> World {
    let world = World::new();
    world.tenant("t", "TKEY").await;
    world.tenant("o", "OKEY").await;
    world.call("PUT", "/bkt").by("TKEY").send().await.expect(200);
    for key in ["/bkt/k", "/bkt/a/k"] {
        world.call("PUT", key).by("TKEY").body("x").send().await.expect(200);
    }
    world.accounts.roles().create(role(trust)).await.unwrap();
    world
}

fn form(more: &str) -> String {
    let arn = ARN.replace(':', "%3A").replace('/', "%2F");
    format!("Action=AssumeRole&Version=2011-06-15&RoleArn={arn}&RoleSessionName=night{more}")
}

fn session(reply: TestReply) -> SessionCredentials {
    let reply = reply.expect(200);
    SessionCredentials {
        access_key: reply.one("AccessKeyId"),
        secret: reply.one("SecretAccessKey"),
        token: reply.one("SessionToken"),
    }
}

async fn begin(world: &World, more: &str) -> SessionCredentials {
    session(world.ask_tokens("TKEY", None, &form(more)).await)
}

async fn get(world: &World, session: &SessionCredentials, target: &str) -> TestReply {
    world.call("GET", target).of_session(session).send().await
}

#[tokio::test]
async fn a_session_may_do_what_its_role_may() {
    let world = world(None).await;
    let reply = world.ask_tokens("TKEY", None, &form("")).await;
    assert_eq!(reply.one("Arn"), "arn:aws:sts::t:assumed-role/reader/night");
    assert_eq!(reply.one("Expiration"), "2026-01-01T01:00:00Z");
    assert!(reply.one("AssumedRoleId").ends_with(":night"));
    assert_eq!(reply.one("RequestId"), reply.header("x-amz-request-id"));
    let session = session(reply);
    get(&world, &session, "/bkt/k").await.expect(200);
    get(&world, &session, "/bkt?list-type=2").await.expect(200);
    for (method, target) in [
        ("PUT", "/bkt/new"),
        ("DELETE", "/bkt/k"),
        ("PUT", "/other"),
        ("GET", "/"),
        ("GET", "/bkt?policy"),
        ("GET", "/bkt?acl"),
    ] {
        let reply = world.call(method, target).of_session(&session).send().await;
        reply.refused(403, "AccessDenied");
    }
    let identity = "Action=GetCallerIdentity&Version=2011-06-15";
    let reply = world.ask_tokens("", Some(&session), identity).await.expect(200);
    assert_eq!(reply.one("Arn"), "arn:aws:sts::t:assumed-role/reader/night");
    assert_eq!(reply.one("Account"), "t");
    let reply = world.ask_tokens("TKEY", None, identity).await.expect(200);
    assert_eq!(reply.one("Arn"), "arn:aws:iam::t:user/t");
}

#[tokio::test]
async fn a_session_policy_takes_away_and_gives_nothing() {
    let world = world(None).await;
    let policy = |action: &str, resource: &str| {
        let text = format!(
            r#"{{"Statement":{{"Effect":"Allow","Action":"{action}","Resource":"{resource}"}}}}"#
        );
        format!(
            "&Policy={}",
            percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC)
        )
    };
    let less = begin(&world, &policy("s3:GetObject", "arn:aws:s3:::bkt/a/*")).await;
    get(&world, &less, "/bkt/a/k").await.expect(200);
    get(&world, &less, "/bkt/k").await.refused(403, "AccessDenied");
    get(&world, &less, "/bkt?list-type=2").await.refused(403, "AccessDenied");
    let more = begin(&world, &policy("s3:*", "*")).await;
    get(&world, &more, "/bkt/k").await.expect(200);
    let put = world.call("PUT", "/bkt/new").of_session(&more).send().await;
    put.refused(403, "AccessDenied");
    for (more, code) in [
        ("&Policy=%7B%7D".to_owned(), "MalformedPolicyDocument"),
        (policy("sts:AssumeRole", "*"), "MalformedPolicyDocument"),
        (format!("&Policy={}", "x".repeat(2049)), "ValidationError"),
    ] {
        world.ask_tokens("TKEY", None, &form(&more)).await.refused(400, code);
    }
}

#[tokio::test]
async fn a_session_lasts_for_its_requested_duration() {
    let world = world(None).await;
    for (asked, code) in [("899", 400), ("43201", 400), ("7201", 400), ("1h", 400), ("7200", 200)] {
        let form = form(&format!("&DurationSeconds={asked}"));
        assert_eq!(world.ask_tokens("TKEY", None, &form).await.status, code, "{asked}");
    }
    let session = begin(&world, "&DurationSeconds=900").await;
    world.clock.advance_ms(899_999);
    get(&world, &session, "/bkt/k").await.expect(200);
    world.clock.advance_ms(1);
    get(&world, &session, "/bkt/k").await.refused(400, "ExpiredToken");
    let asked = "Action=GetCallerIdentity&Version=2011-06-15";
    world.ask_tokens("", Some(&session), asked).await.refused(403, "ExpiredToken");
}

#[tokio::test]
async fn a_session_ends_with_its_key_or_role() {
    let trust = trusting("arn:aws:iam::o:user/carol");
    let world = world(Some(&trust)).await;
    world.user("o", "carol", Role::ReadOnly, "CKEY").await;
    let session = session(world.ask_tokens("CKEY", None, &form("")).await);
    let accounts = &world.accounts;
    let over = async || get(&world, &session, "/bkt/k").await.refused(403, "InvalidAccessKeyId");
    let alive = async || drop(get(&world, &session, "/bkt/k").await.expect(200));
    alive().await;
    for disabled in [true, false] {
        let change = RoleChange { disabled: Some(disabled), ..RoleChange::default() };
        accounts.roles().change("t", "reader", change).await.unwrap();
        if disabled { over().await } else { alive().await }
    }
    for disabled in [true, false] {
        accounts.tenants().change("t", Some(disabled), None).await.unwrap();
        if disabled { over().await } else { alive().await }
    }
    for disabled in [true, false] {
        accounts.tenants().change("o", Some(disabled), None).await.unwrap();
        if disabled { over().await } else { alive().await }
    }
    for disabled in [true, false] {
        accounts.users().change("o", "carol", Some(disabled), None).await.unwrap();
        if disabled { over().await } else { alive().await }
    }
    for disabled in [true, false] {
        accounts.keys().change("CKEY", Some(disabled), None).await.unwrap();
        if disabled { over().await } else { alive().await }
    }
    let policy = Some(READER.replace("GetObject", "PutObject"));
    accounts
        .roles()
        .change("t", "reader", RoleChange { policy, ..RoleChange::default() })
        .await
        .unwrap();
    get(&world, &session, "/bkt/k").await.refused(403, "AccessDenied");
    accounts.roles().delete("t", "reader").await.unwrap();
    over().await;
    accounts.roles().create(role(None)).await.unwrap();
    over().await;
}

#[tokio::test]
async fn another_secret_of_the_key_that_began_it_ends_a_session() {
    let world = world(Some(&trusting("t"))).await;
    let session = begin(&world, "").await;
    get(&world, &session, "/bkt/k").await.expect(200);
    world.accounts.keys().rotate("TKEY", Some("another secret altogether".into())).await.unwrap();
    get(&world, &session, "/bkt/k").await.refused(403, "InvalidAccessKeyId");
    // A new key with the name of a deleted key is another key.
    world.accounts.keys().delete("TKEY").await.unwrap();
    get(&world, &session, "/bkt/k").await.refused(403, "InvalidAccessKeyId");
    let new = NewKey {
        tenant: "t".into(),
        user: None,
        given: Some(("TKEY".into(), "a third secret of them".into())),
        networks: Vec::new(),
    };
    world.accounts.keys().create(new).await.unwrap();
    get(&world, &session, "/bkt/k").await.refused(403, "InvalidAccessKeyId");
}

#[tokio::test]
async fn a_session_token_is_valid_for_its_own_session_alone() {
    let world = world(None).await;
    let (one, other) = (begin(&world, "").await, begin(&world, "").await);
    let bare = SessionCredentials { token: String::new(), ..one.clone() };
    let call = world.call("GET", "/bkt/k").by(&one.access_key);
    call.send().await.refused(403, "InvalidAccessKeyId");
    let cut = &one.token[..one.token.len() - 8];
    let mut flipped = one.token.clone().into_bytes();
    flipped[40] = if flipped[40] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    for token in [&other.token, cut, &flipped, "t", "", &"A".repeat(9000)] {
        let made_up = SessionCredentials { token: token.to_owned(), ..bare.clone() };
        get(&world, &made_up, "/bkt/k").await.refused(400, "InvalidToken");
    }
    let stolen = SessionCredentials { secret: other.secret.clone(), ..one.clone() };
    get(&world, &stolen, "/bkt/k").await.refused(403, "SignatureDoesNotMatch");
    // A key that needs no session token must not have one.
    let call = world.call("GET", "/bkt/k").by("TKEY").header("x-amz-security-token", &one.token);
    call.send().await.refused(400, "InvalidToken");
    let call = world.call("GET", "/bkt/k").header("x-amz-security-token", &one.token);
    call.send_unsigned().await.refused(400, "InvalidToken");
}

#[tokio::test]
async fn a_role_is_assumed_by_trusted_principals() {
    let world = world(None).await;
    world.user("t", "carol", Role::Admin, "CKEY").await;
    let refused = async |by: &str| {
        world.ask_tokens(by, None, &form("")).await.refused(403, "AccessDenied");
    };
    refused("OKEY").await;
    refused("CKEY").await;
    refused("ALICE").await;
    let trust =
        |principal: &str| RoleChange { trust: Some(trusting(principal)), ..RoleChange::default() };
    let change =
        async |change| drop(world.accounts.roles().change("t", "reader", change).await.unwrap());
    change(trust("o")).await;
    refused("TKEY").await;
    let session = session(world.ask_tokens("OKEY", None, &form("")).await);
    get(&world, &session, "/bkt/k").await.expect(200);
    // A session can't begin another session.
    change(trust("*")).await;
    world.ask_tokens("", Some(&session), &form("")).await.refused(403, "AccessDenied");
    let none = form("").replace("reader", "nobody");
    world.ask_tokens("TKEY", None, &none).await.refused(403, "AccessDenied");
    let external = trusting("o").replace(
        r#""sts:AssumeRole""#,
        r#""sts:AssumeRole", "Condition": {"StringEquals": {"sts:ExternalId": "7"}}"#,
    );
    change(RoleChange { trust: Some(external), ..RoleChange::default() }).await;
    refused("OKEY").await;
    world.ask_tokens("OKEY", None, &form("&ExternalId=7")).await.expect(200);
}

#[tokio::test]
async fn access_across_tenants_needs_both_policies() {
    let world = world(None).await;
    world.call("PUT", "/theirs").by("OKEY").send().await.expect(200);
    world.call("PUT", "/theirs/k").by("OKEY").body("x").send().await.expect(200);
    let session = begin(&world, "").await;
    let policy = r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::t:role/reader"},
        "Action": "s3:GetObject", "Resource": "arn:aws:s3:::theirs/*"}]}"#;
    let put = world.call("PUT", "/theirs?policy").by("OKEY").body(policy).send().await;
    assert_eq!(put.status, 204);
    get(&world, &session, "/theirs/k").await.refused(403, "AccessDenied");
    let wider = Some(READER.replace("bkt/*", "*"));
    let change = RoleChange { policy: wider, ..RoleChange::default() };
    world.accounts.roles().change("t", "reader", change).await.unwrap();
    get(&world, &session, "/theirs/k").await.expect(200);
    let call = world.call("GET", "/theirs/k").by("TKEY");
    call.send().await.refused(403, "AccessDenied");
    world.call("DELETE", "/theirs?policy").by("OKEY").send().await.expect(204);
    get(&world, &session, "/theirs/k").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn the_service_answers_in_its_own_form() {
    let world = world(None).await;
    let identity = "Action=GetCallerIdentity&Version=2011-06-15";
    let unsigned = world.ask_tokens_unsigned(identity).await;
    unsigned.refused(403, "MissingAuthenticationToken");
    assert!(unsigned.text().starts_with("<ErrorResponse xmlns="), "{unsigned:?}");
    world.ask_tokens("NOBODY", None, identity).await.refused(403, "InvalidClientTokenId");
    let wrong = SessionCredentials {
        access_key: "TKEY".into(),
        secret: "wrong".into(),
        token: String::new(),
    };
    world.ask_tokens("", Some(&wrong), identity).await.refused(403, "InvalidClientTokenId");
    let nothing = "Action=GetSessionToken&Version=2011-06-15";
    world.ask_tokens("TKEY", None, nothing).await.refused(400, "InvalidAction");
    world.ask_tokens_unsigned(&"x".repeat(200_000)).await.refused(400, "ValidationError");
    let token = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=ab&\
                 RoleArn=arn:aws:iam::t:role/reader&WebIdentityToken=a.b.c";
    world.ask_tokens_unsigned(token).await.refused(400, "InvalidIdentityToken");
    for wrong in ["&RoleSessionName=again", "&PolicyArns.member.1.arn=x"] {
        world.ask_tokens("TKEY", None, &form(wrong)).await.refused(400, "ValidationError");
    }
    let name = form("").replace("night", "a%20b");
    world.ask_tokens("TKEY", None, &name).await.refused(400, "ValidationError");
    let arn = form("").replace("role%2Freader", "user%2Freader");
    world.ask_tokens("TKEY", None, &arn).await.refused(400, "ValidationError");
    let missing = "Action=AssumeRole&Version=2011-06-15&RoleSessionName=ab";
    world.ask_tokens("TKEY", None, missing).await.refused(400, "ValidationError");
}
