//! Users with their own policies: allowed, denied, and undecided requests.

use martlet_proxy::Role;

use crate::world::{TestReply, World};

fn statement(effect: &str, action: &str, resource: &str) -> String {
    format!(
        r#"{{"Effect": "{effect}", "Action": "{action}", "Resource": "arn:aws:s3:::{resource}"}}"#
    )
}

fn policy(statements: &[String]) -> String {
    format!(r#"{{"Version": "2012-10-17", "Statement": [{}]}}"#, statements.join(","))
}

/// A tenant with a bucket, and its user carol.
async fn world(role: Role) -> World {
    let world = World::new();
    world.tenant("t", "TKEY").await;
    world.user("t", "carol", role, "CKEY").await;
    world.call("PUT", "/bkt").by("TKEY").send().await.expect(200);
    world.call("PUT", "/bkt/k").by("TKEY").body("x").send().await.expect(200);
    world
}

async fn give(world: &World, statements: &[String]) {
    let policy = Some(policy(statements));
    world.accounts.users().set_policy("t", "carol", policy).await.unwrap();
}

async fn carol(world: &World, method: &'static str, target: &str) -> TestReply {
    world.call(method, target).by("CKEY").send().await
}

async fn put_policy(world: &World, by: &str, bucket: &str, effect: &str, who: &str) {
    let policy = format!(
        r#"{{"Statement": [{{"Effect": "{effect}", "Principal": {{"AWS": "{who}"}},
            "Action": "s3:GetObject", "Resource": "arn:aws:s3:::{bucket}/*"}}]}}"#
    );
    let call = world.call("PUT", &format!("/{bucket}?policy")).by(by).body(policy);
    call.send().await.expect(204);
}

#[tokio::test]
async fn a_user_may_do_what_its_policy_allows() {
    let world = world(Role::Admin).await;
    carol(&world, "GET", "/bkt/k").await.expect(200);
    give(&world, &[statement("Allow", "s3:PutObject", "bkt/in/*")]).await;
    carol(&world, "PUT", "/bkt/in/k").await.expect(200);
    let tagged = world.call("PUT", "/bkt/in/k").by("CKEY").header("x-amz-tagging", "a=b");
    tagged.send().await.refused(403, "AccessDenied");
    for (method, target) in [
        ("PUT", "/bkt/k"),
        ("GET", "/bkt/k"),
        ("GET", "/bkt"),
        ("GET", "/"),
        ("PUT", "/other"),
        ("GET", "/bkt?policy"),
        ("PUT", "/bkt?policy"),
    ] {
        carol(&world, method, target).await.refused(403, "AccessDenied");
    }
    give(
        &world,
        &[
            statement("Allow", "s3:ListAllMyBuckets", "*"),
            statement("Allow", "s3:CreateBucket", "of-carol-*"),
        ],
    )
    .await;
    carol(&world, "GET", "/").await.expect(200);
    carol(&world, "PUT", "/of-carol-1").await.expect(200);
    carol(&world, "PUT", "/of-dave").await.refused(403, "AccessDenied");
    for (name, value) in [
        ("x-amz-acl", "public-read"),
        ("x-amz-object-ownership", "BucketOwnerEnforced"),
        ("x-amz-bucket-object-lock-enabled", "true"),
    ] {
        let call = world.call("PUT", "/of-carol-2").by("CKEY").header(name, value);
        call.send().await.refused(403, "AccessDenied");
    }
    world.accounts.users().set_policy("t", "carol", None).await.unwrap();
    carol(&world, "GET", "/bkt/k").await.expect(200);
    world.call("GET", "/bkt/k").by("TKEY").send().await.expect(200);
}

#[tokio::test]
async fn a_bucket_policy_admits_a_user_without_an_own_allow() {
    let world = world(Role::Admin).await;
    give(&world, &[statement("Allow", "s3:ListBucket", "bkt")]).await;
    carol(&world, "GET", "/bkt/k").await.refused(403, "AccessDenied");
    put_policy(&world, "TKEY", "bkt", "Allow", "arn:aws:iam::t:user/carol").await;
    carol(&world, "GET", "/bkt/k").await.expect(200);
    let both = [statement("Allow", "s3:*", "*"), statement("Deny", "s3:GetObject", "bkt/*")];
    give(&world, &both).await;
    carol(&world, "GET", "/bkt/k").await.refused(403, "AccessDenied");
    give(&world, &both[..1]).await;
    carol(&world, "GET", "/bkt/k").await.expect(200);
    put_policy(&world, "TKEY", "bkt", "Deny", "arn:aws:iam::t:user/carol").await;
    carol(&world, "GET", "/bkt/k").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn a_role_stays_a_ceiling_over_the_policy() {
    let world = world(Role::ReadOnly).await;
    give(&world, &[statement("Allow", "s3:*", "*")]).await;
    carol(&world, "GET", "/bkt/k").await.expect(200);
    carol(&world, "PUT", "/bkt/k").await.refused(403, "AccessDenied");
    carol(&world, "DELETE", "/bkt").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn access_across_tenants_needs_both_policies() {
    let world = world(Role::Admin).await;
    world.call("PUT", "/alices").send().await.expect(200);
    world.put("/alices/k", "x").await;
    give(&world, &[statement("Allow", "s3:*", "*")]).await;
    carol(&world, "GET", "/alices/k").await.refused(403, "AccessDenied");
    put_policy(&world, "ALICE", "alices", "Allow", "t").await;
    carol(&world, "GET", "/alices/k").await.expect(200);
    give(&world, &[statement("Allow", "s3:*", "bkt/*")]).await;
    carol(&world, "GET", "/alices/k").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn lists_open_nothing_that_a_policy_is_silent_about() {
    let world = world(Role::Admin).await;
    let call = world.call("PUT", "/alices").header("x-amz-acl", "public-read-write");
    call.send().await.expect(200);
    let put = world.call("PUT", "/alices/k").header("x-amz-acl", "public-read").body("x");
    put.send().await.expect(200);
    carol(&world, "GET", "/alices/k").await.expect(200);
    give(&world, &[statement("Allow", "s3:PutObject", "bkt/*")]).await;
    carol(&world, "GET", "/alices/k").await.refused(403, "AccessDenied");
    carol(&world, "PUT", "/alices/new").await.refused(403, "AccessDenied");
    let acl = world.call("PUT", "/bkt/new").by("CKEY").header("x-amz-acl", "public-read");
    acl.send().await.refused(403, "AccessDenied");
    give(&world, &[statement("Allow", "s3:GetObject", "alices/*")]).await;
    carol(&world, "GET", "/alices/k").await.expect(200);
}

#[tokio::test]
async fn tag_conditions_hold_in_user_policies_too() {
    let world = world(Role::Admin).await;
    let tagged = world.call("PUT", "/bkt/tagged").by("TKEY").header("x-amz-tagging", "team=a");
    tagged.body("x").send().await.expect(200);
    let statement = r#"{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*",
        "Condition": {"StringEquals": {"s3:ExistingObjectTag/team": "a"}}}"#;
    give(&world, &[statement.to_owned()]).await;
    carol(&world, "GET", "/bkt/tagged").await.expect(200);
    carol(&world, "GET", "/bkt/k").await.refused(403, "AccessDenied");
}
