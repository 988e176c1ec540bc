//! Bucket policies: access that they give to other accounts, and denials for everyone.

use martlet_protocol::limits::POLICY_BYTES_MAX;
use martlet_proxy::Role;

use crate::world::{TestReply, World};

/// A policy of these statements for `bkt`.
fn policy(statements: &[&str]) -> String {
    let statements: Vec<String> = statements.iter().map(|one| format!("{{{one}}}")).collect();
    format!(r#"{{"Version": "2012-10-17", "Statement": [{}]}}"#, statements.join(","))
}

/// A statement; `rest` may hold conditions.
fn statement(effect: &str, who: &str, actions: &str, resource: &str, rest: &str) -> String {
    format!(
        r#""Effect": "{effect}", "Principal": {who}, "Action": {actions},
           "Resource": "arn:aws:s3:::{resource}" {rest}"#
    )
}

const EVERYONE: &str = r#""*""#;
/// A fixed identity without a tenant.
const BOB: &str = r#"{"CanonicalUser": "bob"}"#;

async fn put_policy(world: &World, statements: &[&str]) -> TestReply {
    world.call("PUT", "/bkt?policy").body(policy(statements)).send().await
}

/// A world with `bkt`, these keys, and a policy of these statements.
async fn world(keys: &[&str], statements: &[&str]) -> World {
    let world = World::with_bucket().await;
    for key in keys {
        world.put(&format!("/bkt/{key}"), "x").await;
    }
    put_policy(&world, statements).await.expect(204);
    world
}

#[tokio::test]
async fn a_policy_is_kept_as_it_was_put() {
    let world = World::with_bucket().await;
    world.get("/bkt?policy").await.refused(404, "NoSuchBucketPolicy");
    assert_eq!(world.get("/bkt?policyStatus").await.expect(200).one("IsPublic"), "false");
    let public = statement("Allow", EVERYONE, r#""s3:GetObject""#, "bkt/*", "");
    let document = policy(&[&public]) + "\n ";
    world.call("PUT", "/bkt?policy").body(document.clone()).send().await.expect(204);
    assert_eq!(world.get("/bkt?policy").await.expect(200).text(), document);
    assert_eq!(world.get("/bkt?policyStatus").await.expect(200).one("IsPublic"), "true");
    let private = statement("Allow", BOB, r#""s3:GetObject""#, "bkt/*", "");
    put_policy(&world, &[&private]).await.expect(204);
    assert_eq!(world.get("/bkt?policyStatus").await.expect(200).one("IsPublic"), "false");
    world.call("DELETE", "/bkt?policy").send().await.expect(204);
    world.call("DELETE", "/bkt?policy").send().await.expect(204);
    world.get("/bkt?policy").await.refused(404, "NoSuchBucketPolicy");
    world.get("/none?policy").await.refused(404, "NoSuchBucket");
}

#[tokio::test]
async fn invalid_bucket_policies_are_refused_and_change_nothing() {
    let world = World::with_bucket().await;
    let good = statement("Allow", BOB, r#""s3:GetObject""#, "bkt/*", "");
    put_policy(&world, &[&good]).await.expect(204);
    let elsewhere = statement("Allow", BOB, r#""s3:GetObject""#, "other/*", "");
    let unknown = statement(
        "Allow",
        BOB,
        r#""s3:GetObject""#,
        "bkt/*",
        r#", "Condition":
        {"StringEquals": {"aws:SourceVpc": "vpc-1"}}"#,
    );
    let long = policy(&[&good]) + &" ".repeat(POLICY_BYTES_MAX);
    for (body, sentence) in [
        (String::new(), "Policies must be valid JSON and the first byte must be"),
        ("<Policy/>".to_owned(), "Policies must be valid JSON and the first byte must be"),
        (policy(&[&elsewhere]), "Policy has invalid resource"),
        (policy(&[&unknown]), "Policy has an invalid condition key"),
        (long, "exceeds the maximum allowed size"),
    ] {
        let reply = world.call("PUT", "/bkt?policy").body(body).send().await;
        reply.refused(400, "MalformedPolicy");
        assert!(reply.one("Message").contains(sentence), "{reply:?}");
    }
    let reply = world.call("PUT", "/bkt?policy").header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    reply.body(policy(&[&good])).send().await.refused(400, "BadDigest");
    assert_eq!(world.get("/bkt?policy").await.text(), policy(&[&good]));
}

#[tokio::test]
async fn anonymous_requests_have_the_grants_of_all_users() {
    let get = statement("Allow", EVERYONE, r#"["s3:GetObject"]"#, "bkt/public/*", "");
    let world = world(&["public/a", "private/a"], &[&get]).await;
    for access in [None, Some("BOB")] {
        let send = |method: &'static str, target: &'static str| {
            let call = world.call(method, target);
            async move {
                match access {
                    None => call.send_unsigned().await,
                    Some(key) => call.by(key).send().await,
                }
            }
        };
        assert_eq!(send("GET", "/bkt/public/a").await.expect(200).text(), "x");
        send("HEAD", "/bkt/public/a").await.expect(200);
        send("GET", "/bkt/private/a").await.refused(403, "AccessDenied");
        send("HEAD", "/bkt/private/a").await.expect(403);
        send("PUT", "/bkt/public/a").await.refused(403, "AccessDenied");
        send("DELETE", "/bkt/public/a").await.refused(403, "AccessDenied");
        send("GET", "/bkt?list-type=2").await.refused(403, "AccessDenied");
        send("GET", "/bkt?policy").await.refused(403, "AccessDenied");
        send("DELETE", "/bkt?policy").await.refused(403, "AccessDenied");
        send("DELETE", "/bkt").await.refused(403, "AccessDenied");
        send("GET", "/none/k").await.refused(404, "NoSuchBucket");
    }
    world.call("GET", "/").send_unsigned().await.refused(403, "AccessDenied");
    world.call("PUT", "/new").send_unsigned().await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn missing_keys_are_denied_without_list_permission() {
    let get = statement("Allow", EVERYONE, r#""s3:GetObject""#, "bkt/*", "");
    let list = statement("Allow", BOB, r#""s3:ListBucket""#, "bkt", "");
    let world = world(&["k"], &[&get, &list]).await;
    world.call("GET", "/bkt/none").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/none").by("BOB").send().await.refused(404, "NoSuchKey");
    world.get("/bkt/none").await.refused(404, "NoSuchKey");
    assert_eq!(world.call("GET", "/bkt").by("BOB").send().await.expect(200).one("Key"), "k");
}

#[tokio::test]
async fn others_write_and_delete_where_they_may() {
    let write = r#"["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]"#;
    let write = statement("Allow", BOB, write, "bkt/bob/*", "");
    let world = world(&["bob/a", "alice/a"], &[&write]).await;
    let bob = |method, target| world.call(method, target).by("BOB");
    bob("PUT", "/bkt/bob/b").body("new").send().await.expect(200);
    bob("PUT", "/bkt/alice/b").body("new").send().await.refused(403, "AccessDenied");
    let tagged = bob("PUT", "/bkt/bob/c").header("x-amz-tagging", "a=b").send().await;
    tagged.refused(403, "AccessDenied");
    let upload = bob("POST", "/bkt/bob/m?uploads").send().await.expect(200).one("UploadId");
    let part = format!("/bkt/bob/m?partNumber=1&uploadId={upload}");
    bob("PUT", &part).body("part").send().await.expect(200);
    let whole = format!("/bkt/bob/m?uploadId={upload}");
    bob("GET", &whole).send().await.refused(403, "AccessDenied");
    bob("DELETE", &whole).send().await.expect(204);
    let keys = "<Delete><Object><Key>bob/a</Key></Object><Object><Key>alice/a</Key></Object>\
                <Object><Key>alice/none</Key></Object></Delete>";
    let reply = bob("POST", "/bkt?delete").body(keys).send().await.expect(200);
    assert_eq!(reply.all("Key"), ["bob/a", "alice/a", "alice/none"]);
    assert_eq!(reply.all("Code"), ["AccessDenied", "AccessDenied"]);
    world.get("/bkt/alice/a").await.expect(200);
    world.get("/bkt/bob/a").await.refused(404, "NoSuchKey");
    world.call("POST", "/bkt?delete").body(keys).send_unsigned().await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn a_deny_is_for_the_owner_too_but_for_the_policy_itself() {
    let deny = statement("Deny", EVERYONE, r#""s3:*""#, "bkt*", "");
    let world = world(&["k"], &[&deny]).await;
    world.get("/bkt/k").await.refused(403, "AccessDenied");
    world.get("/bkt").await.refused(403, "AccessDenied");
    let keys = "<Delete><Object><Key>k</Key></Object></Delete>";
    let reply = world.call("POST", "/bkt?delete").body(keys).send().await.expect(200);
    assert_eq!(reply.all("Code"), ["AccessDenied"]);
    world.get("/bkt?policy").await.expect(200);
    world.call("DELETE", "/bkt?policy").send().await.expect(204);
    world.get("/bkt/k").await.expect(200);
}

#[tokio::test]
async fn conditions_are_kept() {
    let from = r#", "Condition": {"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}}"#;
    let get = statement("Allow", EVERYONE, r#""s3:GetObject""#, "bkt/*", from);
    let prefix = r#", "Condition": {"StringLike": {"s3:prefix": "public/*"},
                     "NumericLessThanEquals": {"s3:max-keys": "10"}}"#;
    let list = statement("Allow", BOB, r#""s3:ListBucket""#, "bkt", prefix);
    let class = r#", "Condition": {"StringNotEquals": {"s3:x-amz-storage-class": "STANDARD"}}"#;
    let deny = statement("Deny", BOB, r#""s3:PutObject""#, "bkt/*", class);
    let put = statement("Allow", BOB, r#""s3:PutObject""#, "bkt/*", "");
    let world = world(&["k"], &[&get, &list, &deny, &put]).await;
    world.call("GET", "/bkt/k").from("192.0.2.9").send_unsigned().await.expect(200);
    world.call("GET", "/bkt/k").from("::ffff:192.0.2.9").send_unsigned().await.expect(200);
    world.call("GET", "/bkt/k").from("198.51.100.9").send_unsigned().await.expect(403);
    world.call("GET", "/bkt/k").send_unsigned().await.expect(403);
    let bob = |method, target| world.call(method, target).by("BOB");
    bob("GET", "/bkt?prefix=public%2F&max-keys=10").send().await.expect(200);
    bob("GET", "/bkt?prefix=public%2F&max-keys=11").send().await.expect(403);
    bob("GET", "/bkt?prefix=public%2F").send().await.expect(403);
    bob("GET", "/bkt?prefix=private%2F&max-keys=1").send().await.expect(403);
    bob("PUT", "/bkt/a").send().await.expect(403);
    let standard = ("x-amz-storage-class", "STANDARD");
    bob("PUT", "/bkt/a").header(standard.0, standard.1).send().await.expect(200);
    // An upload is judged when it begins; requests for its parts don't repeat the header.
    bob("POST", "/bkt/m?uploads").send().await.expect(403);
    let begun = bob("POST", "/bkt/m?uploads").header(standard.0, standard.1).send().await;
    let upload = begun.expect(200).one("UploadId");
    let part = format!("/bkt/m?partNumber=1&uploadId={upload}");
    bob("PUT", &part).body("part").send().await.expect(200);
}

#[tokio::test]
async fn tags_decide_who_reads_and_who_writes_them() {
    let public = r#", "Condition": {"StringEquals": {"s3:ExistingObjectTag/class": "public"}}"#;
    let get = statement("Allow", EVERYONE, r#""s3:GetObject""#, "bkt/*", public);
    let sets = r#", "Condition": {"StringEquals": {"s3:RequestObjectTag/class": "public"},
                   "ForAllValues:StringEquals": {"s3:RequestObjectTagKeys": ["class"]}}"#;
    let tag = statement("Allow", BOB, r#"["s3:PutObject", "s3:PutObjectTagging"]"#, "bkt/*", sets);
    let world = world(&["plain"], &[&get, &tag]).await;
    let tagged = world.call("PUT", "/bkt/open").header("x-amz-tagging", "class=public");
    tagged.body("x").send().await.expect(200);
    world.call("GET", "/bkt/open").send_unsigned().await.expect(200);
    world.call("GET", "/bkt/plain").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/none").send_unsigned().await.refused(403, "AccessDenied");
    let set = |key: &str, value: &str| {
        let document = format!(
            "<Tagging><TagSet><Tag><Key>{key}</Key><Value>{value}</Value></Tag></TagSet></Tagging>"
        );
        world.call("PUT", "/bkt/plain?tagging").by("BOB").body(document).send()
    };
    set("class", "secret").await.refused(403, "AccessDenied");
    set("other", "public").await.refused(403, "AccessDenied");
    set("class", "public").await.expect(200);
    world.call("GET", "/bkt/plain").send_unsigned().await.expect(200);
    let put =
        |tags: &str| world.call("PUT", "/bkt/new").by("BOB").header("x-amz-tagging", tags).send();
    put("class=public").await.expect(200);
    put("class=public&more=1").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn copies_need_to_read_what_they_copy() {
    let get = statement("Allow", BOB, r#""s3:GetObject""#, "bkt/open/*", "");
    let world = world(&["open/a", "closed/a"], &[&get]).await;
    let tagged = world.call("PUT", "/bkt/open/tagged").header("x-amz-tagging", "a=b");
    tagged.send().await.expect(200);
    world.call("PUT", "/bobs").by("BOB").send().await.expect(200);
    let copy =
        |source: &str| world.call("PUT", "/bobs/k").by("BOB").header("x-amz-copy-source", source);
    copy("bkt/open/a").send().await.expect(200);
    copy("/bkt/closed/a").send().await.refused(403, "AccessDenied");
    copy("/bkt/open%2Ftagged").send().await.refused(403, "AccessDenied");
    let plain = copy("/bkt/open/tagged").header("x-amz-tagging-directive", "REPLACE");
    plain.send().await.expect(200);
    copy("/none/a").send().await.refused(404, "NoSuchBucket");
    copy("/bkt/open/none").send().await.refused(403, "AccessDenied");
    let upload = world.call("POST", "/bobs/m?uploads").by("BOB").send().await.one("UploadId");
    let part = format!("/bobs/m?partNumber=1&uploadId={upload}");
    let part = |source: &str| {
        world.call("PUT", &part).by("BOB").header("x-amz-copy-source", source).send()
    };
    part("bkt/open/a").await.expect(200);
    part("bkt/closed/a").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn a_public_access_block_keeps_the_public_out() {
    let block = |policy: bool, restrict: bool| {
        format!(
            "<PublicAccessBlockConfiguration><BlockPublicPolicy>{policy}</BlockPublicPolicy>\
             <RestrictPublicBuckets>{restrict}</RestrictPublicBuckets>\
             </PublicAccessBlockConfiguration>"
        )
    };
    let public = statement("Allow", EVERYONE, r#""s3:GetObject""#, "bkt/*", "");
    let bobs = statement("Allow", BOB, r#""s3:GetObject""#, "bkt/*", "");
    let world = world(&["k"], &[&public]).await;
    let set = |policy, restrict| {
        world.call("PUT", "/bkt?publicAccessBlock").body(block(policy, restrict)).send()
    };
    set(false, true).await.expect(200);
    world.call("GET", "/bkt/k").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/k").by("BOB").send().await.refused(403, "AccessDenied");
    world.get("/bkt/k").await.expect(200);
    put_policy(&world, &[&bobs]).await.expect(204);
    world.call("GET", "/bkt/k").by("BOB").send().await.expect(200);
    set(true, false).await.expect(200);
    put_policy(&world, &[&public]).await.refused(403, "AccessDenied");
    assert_eq!(world.get("/bkt?policy").await.text(), policy(&[&bobs]));
    put_policy(&world, &[&bobs]).await.expect(204);
    set(false, false).await.expect(200);
    put_policy(&world, &[&public]).await.expect(204);
    world.call("GET", "/bkt/k").send_unsigned().await.expect(200);
}

#[tokio::test]
async fn a_recreated_user_inherits_no_grants() {
    let world = World::new();
    world.tenant("red", "RED").await;
    world.call("PUT", "/bkt").by("RED").send().await.expect(200);
    world.call("PUT", "/bkt/k").by("RED").body("x").send().await.expect(200);
    let put = async |who: &str| {
        let allow = statement("Allow", who, r#""s3:GetObject""#, "bkt/*", "");
        world.call("PUT", "/bkt?policy").by("RED").body(policy(&[&allow])).send().await
    };
    let get = async |by: &str| world.call("GET", "/bkt/k").by(by).send().await;
    for nobody in ["blue", "arn:aws:iam::blue:root", "arn:aws:iam::red:user/carol"] {
        let reply = put(&format!(r#"{{"AWS": "{nobody}"}}"#)).await;
        reply.refused(400, "MalformedPolicy");
        assert_eq!(reply.one("Message"), "Invalid principal in policy", "{nobody}");
    }
    world.tenant("blue", "BLUE").await;
    world.user("blue", "carol", Role::Admin, "CAROL").await;
    let whole = r#"{"AWS": "arn:aws:iam::blue:root"}"#;
    put(whole).await.expect(204);
    get("BLUE").await.expect(200);
    get("CAROL").await.expect(200);
    put(r#"{"AWS": "arn:aws:iam::blue:user/carol"}"#).await.expect(204);
    get("CAROL").await.expect(200);
    get("BLUE").await.refused(403, "AccessDenied");
    // Another user of the same name.
    world.accounts.keys().delete("CAROL").await.unwrap();
    world.accounts.users().delete("blue", "carol").await.unwrap();
    world.user("blue", "carol", Role::Admin, "CAROL2").await;
    get("CAROL2").await.refused(403, "AccessDenied");
    // Another tenant of the same name.
    put(whole).await.expect(204);
    get("CAROL2").await.expect(200);
    for key in ["CAROL2", "BLUE"] {
        world.accounts.keys().delete(key).await.unwrap();
    }
    world.accounts.users().delete("blue", "carol").await.unwrap();
    world.accounts.tenants().delete("blue").await.unwrap();
    world.tenant("blue", "BLUE2").await;
    get("BLUE2").await.refused(403, "AccessDenied");
    let shown = world.call("GET", "/bkt?policy").by("RED").send().await.expect(200).text();
    assert!(shown.contains("arn:aws:iam::blue:root"), "{shown}");
}
