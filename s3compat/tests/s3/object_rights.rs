//! Rights on one object of a request that names or makes another one, and on versions of a view.

use martlet_proxy::Role;

use crate::world::{TestReply, World};

fn policy(statements: &[&str]) -> String {
    format!(r#"{{"Version": "2012-10-17", "Statement": [{}]}}"#, statements.join(","))
}

/// A statement about objects of `data`, without its principal.
fn about_data(effect: &str, actions: &str, principal: &str, condition: &str) -> String {
    format!(
        r#"{{"Effect": "{effect}", {principal} "Action": {actions},
            "Resource": "arn:aws:s3:::data/*", "Condition": {condition}}}"#
    )
}

const X_IS_SET: &str = r#"{"StringEquals": {"s3:RequestObjectTag/project": "x"}}"#;
const X_IS_THERE: &str = r#"{"StringEquals": {"s3:ExistingObjectTag/project": "x"}}"#;
const MINE: &str = r#"{"Effect": "Allow", "Action": "s3:*",
    "Resource": ["arn:aws:s3:::mine", "arn:aws:s3:::mine/*"]}"#;

/// A tenant with the buckets `data` and `mine`, an object `secret` of project y, and the user carol.
async fn world() -> World {
    let world = World::new();
    world.tenant("t", "TKEY").await;
    world.user("t", "carol", Role::ReadWrite, "CKEY").await;
    for bucket in ["/data", "/mine"] {
        world.call("PUT", bucket).by("TKEY").send().await.expect(200);
    }
    let secret = world.call("PUT", "/data/secret").by("TKEY").body("a secret");
    secret.header("x-amz-tagging", "project=y").send().await.expect(200);
    world
}

async fn give(world: &World, statements: &[&str]) {
    let policy = Some(policy(statements));
    world.accounts.users().set_policy("t", "carol", policy).await.unwrap();
}

async fn tag(world: &World, headers: &[(&str, &str)], project: &str) -> TestReply {
    let document = format!(
        "<Tagging><TagSet><Tag><Key>project</Key><Value>{project}</Value></Tag></TagSet></Tagging>"
    );
    let mut call = world.call("PUT", "/data/secret?tagging").by("CKEY").body(document);
    for (name, value) in headers {
        call = call.header(name, value);
    }
    call.send().await
}

#[tokio::test]
async fn rights_to_write_tagged_objects_are_none_to_tag_those_of_others() {
    let put = r#""s3:PutObject""#;
    for by_bucket in [false, true] {
        let world = world().await;
        let of = |principal: &str| {
            [
                about_data("Allow", put, principal, X_IS_SET),
                about_data("Allow", r#""s3:GetObject""#, principal, X_IS_THERE),
            ]
        };
        if by_bucket {
            let who = r#""Principal": {"AWS": "arn:aws:iam::t:user/carol"},"#;
            let [write, read] = of(who);
            let document = policy(&[&write, &read]);
            world.call("PUT", "/data?policy").by("TKEY").body(document).send().await.expect(204);
            give(&world, &[MINE]).await;
        } else {
            let [write, read] = of("");
            give(&world, &[&write, &read]).await;
        }
        let get = || world.call("GET", "/data/secret").by("CKEY").send();
        get().await.refused(403, "AccessDenied");
        tag(&world, &[], "x").await.refused(403, "AccessDenied");
        get().await.refused(403, "AccessDenied");
        let own = world.call("PUT", "/data/own").by("CKEY").header("x-amz-tagging", "project=x");
        own.send().await.expect(200);
        world.call("GET", "/data/own").by("CKEY").send().await.expect(200);
    }
}

#[tokio::test]
async fn headers_and_tags_for_a_new_object_open_no_other() {
    let world = world().await;
    let all = about_data("Allow", r#""s3:*""#, "", X_IS_SET);
    give(&world, &[&all, MINE]).await;
    let x = ("x-amz-tagging", "project=x");
    for (method, target) in
        [("GET", "/data/secret"), ("HEAD", "/data/secret"), ("DELETE", "/data/secret")]
    {
        let call = world.call(method, target).by("CKEY").header(x.0, x.1);
        call.send().await.expect(403);
    }
    // The tags of a document are those that count, not those of a header.
    tag(&world, &[x], "y").await.refused(403, "AccessDenied");
    tag(&world, &[], "x").await.expect(200);
}

/// Copies of `source` into `mine`: whole, with new tags, and as a part.
async fn copies(world: &World, source: &str) -> [TestReply; 3] {
    let copy = || world.call("PUT", "/mine/c").by("CKEY").header("x-amz-copy-source", source);
    let tagged = || copy().header("x-amz-tagging-directive", "REPLACE");
    let begun = world.call("POST", "/mine/m?uploads").by("CKEY").send().await.expect(200);
    let part = format!("/mine/m?partNumber=1&uploadId={}", begun.one("UploadId"));
    let part = world.call("PUT", &part).by("CKEY").header("x-amz-copy-source", source);
    [
        tagged().send().await,
        tagged().header("x-amz-tagging", "project=x").send().await,
        part.send().await,
    ]
}

#[tokio::test]
async fn the_source_of_a_copy_is_judged_without_what_the_new_object_gets() {
    let world = world().await;
    let all = about_data("Allow", r#""s3:*""#, "", X_IS_SET);
    give(&world, &[&all, MINE]).await;
    for reply in copies(&world, "data/secret").await {
        reply.refused(403, "AccessDenied");
    }
    // Keys of headers too, and what the query names for the target.
    for condition in [
        r#"{"StringEquals": {"s3:x-amz-storage-class": "STANDARD"}}"#,
        r#"{"StringEquals": {"s3:x-amz-acl": "private"}}"#,
        r#"{"StringEquals": {"s3:if-none-match": "*"}}"#,
    ] {
        give(&world, &[&about_data("Allow", r#""s3:*""#, "", condition), MINE]).await;
        let copy = world.call("PUT", "/mine/c").by("CKEY");
        let copy = copy.header("x-amz-copy-source", "data/secret").header("if-none-match", "*");
        let copy = copy.header("x-amz-storage-class", "STANDARD").header("x-amz-acl", "private");
        copy.send().await.refused(403, "AccessDenied");
    }
    give(&world, &[&about_data("Allow", r#""s3:GetObject*""#, "", "{}"), MINE]).await;
    for reply in copies(&world, "data/secret").await {
        reply.expect(200);
    }
}

#[tokio::test]
async fn a_deny_about_the_source_holds_for_parts_and_tagged_copies() {
    let world = world().await;
    let deny = about_data(
        "Deny",
        r#""s3:GetObject""#,
        "",
        r#"{"Null": {"s3:RequestObjectTag/project": "true"}}"#,
    );
    let all = about_data("Allow", r#""s3:*""#, "", "{}");
    give(&world, &[&all, &deny, MINE]).await;
    world.call("GET", "/data/secret").by("CKEY").send().await.refused(403, "AccessDenied");
    for reply in copies(&world, "data/secret").await {
        reply.refused(403, "AccessDenied");
    }
}

/// The bucket `train` with a checkpoint whose file had this tag when it was committed.
async fn trained(tag: &str) -> World {
    let (world, _) = World::new().with_data_port();
    world.call("PUT", "/train").send().await.expect(200);
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    world.call("PUT", "/train?versioning").body(versioning).send().await.expect(200);
    // Writes are ordered above the moment at which versioning began.
    world.clock.advance_ms(3000);
    let rules = r#"{"rules": [{"pattern": "run/*/", "profile": "megatron"}]}"#;
    let put = world.call("PUT", "/train?checkpoints").body(rules).send().await;
    assert!(put.status < 300, "{put:?}");
    put_tagged(&world, tag, "as committed").await;
    let marker = world.put("/train/run/1/metadata.json", "{}").await;
    assert!(marker.header("x-martlet-checkpoint").contains("committed"), "{marker:?}");
    let get = r#""Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": ["arn:aws:s3:::train", "arn:aws:s3:::train/*"]"#;
    let deny = r#""Effect": "Deny", "Principal": "*", "Action": "s3:GetObject*",
        "Resource": "arn:aws:s3:::train/*",
        "Condition": {"StringEquals": {"s3:ExistingObjectTag/class": "secret"}}"#;
    let document = policy(&[&format!("{{{get}}}"), &format!("{{{deny}}}")]);
    world.call("PUT", "/train?policy").body(document).send().await.expect(204);
    world
}

const FILE: &str = "/train/run/1/a.bin";
const VIEWED: &str = "/train--committed/run/1/a.bin";

async fn put_tagged(world: &World, tag: &str, body: &'static str) {
    let put = world.call("PUT", FILE).header("x-amz-tagging", &format!("class={tag}"));
    put.body(body).send().await.expect(200);
}

/// Status of anonymous reads: GET, HEAD and locate.
async fn reads(world: &World, target: &str) -> [u16; 3] {
    let locate = format!("{target}?locate");
    let mut found = [0; 3];
    for (at, (method, target)) in
        [("GET", target), ("HEAD", target), ("GET", locate.as_str())].into_iter().enumerate()
    {
        found[at] = world.call(method, target).send_unsigned().await.status;
    }
    found
}

#[tokio::test]
async fn the_tags_of_a_view_are_those_of_the_version_that_it_serves() {
    let world = trained("secret").await;
    assert_eq!(reads(&world, FILE).await, [403; 3]);
    assert_eq!(reads(&world, VIEWED).await, [403; 3]);
    put_tagged(&world, "none", "the next save begins").await;
    assert_eq!(reads(&world, FILE).await, [200; 3]);
    assert_eq!(reads(&world, VIEWED).await, [403; 3], "the pinned version has its tags");
    let by_header = world.call("GET", FILE).header("x-martlet-view", "committed");
    by_header.send_unsigned().await.refused(403, "AccessDenied");
    world.call("DELETE", FILE).send().await.expect(204);
    assert_eq!(reads(&world, VIEWED).await, [403; 3], "deleted in the bucket alone");
    // Tags of the current version hide nothing in the view.
    let world = trained("none").await;
    put_tagged(&world, "secret", "the next save begins").await;
    assert_eq!(reads(&world, FILE).await, [403; 3]);
    assert_eq!(reads(&world, VIEWED).await, [200; 3]);
    let viewed = world.call("GET", VIEWED).send_unsigned().await;
    assert_eq!(viewed.text(), "as committed");
    let none = world.call("GET", "/train--committed/run/1/none").send_unsigned().await;
    none.refused(404, "NoSuchKey");
}
