//! Ownership of objects by a bucket's ownership controls, and the effect of a public access block
//! on lists.

use crate::world::{TestReply, World};

/// Gives an object to the owner of its bucket.
const GIVEN: Option<&str> = Some("bucket-owner-full-control");

async fn world() -> (World, [String; 2]) {
    let world = World::new();
    let ids = [world.tenant("red", "RED").await, world.tenant("blue", "BLUE").await];
    world.call("PUT", "/bkt").by("RED").send().await.expect(200);
    let policy = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
        "Action": "s3:*", "Resource": ["arn:aws:s3:::bkt", "arn:aws:s3:::bkt/*"]}]}"#;
    world.call("PUT", "/bkt?policy").by("RED").body(policy).send().await.expect(204);
    (world, ids)
}

async fn put(world: &World, key: &'static str, target: &str, acl: Option<&str>) -> TestReply {
    let call = world.call("PUT", target).by(key);
    match acl {
        Some(acl) => call.header("x-amz-acl", acl).send().await,
        None => call.send().await,
    }
}

async fn set_ownership(world: &World, kind: &str) -> TestReply {
    let document = format!(
        "<OwnershipControls><Rule><ObjectOwnership>{kind}</ObjectOwnership></Rule>\
         </OwnershipControls>"
    );
    world.call("PUT", "/bkt?ownershipControls").by("RED").body(document).send().await
}

async fn owner(world: &World, target: &str) -> String {
    let told = world.call("GET", &format!("{target}?acl")).by("BLUE").send().await.expect(200);
    told.all("ID").swap_remove(0)
}

#[tokio::test]
async fn ownership_controls_decide_the_owner() {
    let (world, [red, blue]) = world().await;
    for (kind, plain, given) in [
        ("ObjectWriter", &blue, &blue),
        ("BucketOwnerPreferred", &blue, &red),
        ("BucketOwnerEnforced", &red, &red),
    ] {
        set_ownership(&world, kind).await.expect(200);
        put(&world, "BLUE", "/bkt/plain", None).await.expect(200);
        put(&world, "BLUE", "/bkt/given", GIVEN).await.expect(200);
        assert_eq!(owner(&world, "/bkt/plain").await, *plain, "{kind}");
        assert_eq!(owner(&world, "/bkt/given").await, *given, "{kind}");
        let upload = world.call("POST", "/bkt/up?uploads").by("BLUE").send().await.one("UploadId");
        let parts = world.call("GET", &format!("/bkt/up?uploadId={upload}")).by("BLUE").send();
        let ids = parts.await.expect(200).all("ID");
        assert_eq!(ids, [blue.clone(), plain.clone()], "the initiator and the owner: {kind}");
    }
    for acl in ["private", "public-read", "bucket-owner-read"] {
        let put = put(&world, "BLUE", "/bkt/k", Some(acl)).await;
        put.refused(400, "AccessControlListNotSupported");
        let begin = world.call("POST", "/bkt/k?uploads").by("BLUE").header("x-amz-acl", acl);
        begin.send().await.refused(400, "AccessControlListNotSupported");
    }
    for target in ["/bkt?acl", "/bkt/plain?acl"] {
        let put = put(&world, "RED", target, Some("private")).await;
        put.refused(400, "AccessControlListNotSupported");
    }
}

#[tokio::test]
async fn where_the_owner_owns_all_no_list_counts() {
    let (world, [red, blue]) = world().await;
    put(&world, "BLUE", "/bkt/blues", Some("public-read")).await.expect(200);
    world.call("DELETE", "/bkt?policy").by("RED").send().await.expect(204);
    world.call("GET", "/bkt/blues").send_unsigned().await.expect(200);
    world.call("GET", "/bkt/blues").by("BLUE").send().await.expect(200);
    put(&world, "RED", "/bkt?acl", Some("public-read")).await.expect(200);
    let refused = set_ownership(&world, "BucketOwnerEnforced").await;
    refused.refused(400, "InvalidBucketAclWithObjectOwnership");
    put(&world, "RED", "/bkt?acl", Some("private")).await.expect(200);
    set_ownership(&world, "BucketOwnerEnforced").await.expect(200);
    world.call("GET", "/bkt/blues").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/blues").by("BLUE").send().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/blues").by("RED").send().await.expect(200);
    let told = world.call("GET", "/bkt/blues?acl").by("RED").send().await.expect(200);
    assert_eq!(told.all("ID"), [red.as_str(), red.as_str()]);
    let listed = world.call("GET", "/bkt").by("RED").send().await.expect(200);
    assert_eq!(listed.one("ID"), red);
    world.call("DELETE", "/bkt?ownershipControls").by("RED").send().await.expect(204);
    world.call("GET", "/bkt/blues").by("RED").send().await.expect(200);
    let listed = world.call("GET", "/bkt").by("RED").send().await.expect(200);
    assert_eq!(listed.one("ID"), blue, "it is hers again");
}

#[tokio::test]
async fn a_block_refuses_public_lists_or_ignores_them() {
    let (world, _) = world().await;
    world.call("DELETE", "/bkt?policy").by("RED").send().await.expect(204);
    let block = |block: bool, ignore: bool| {
        let document = format!(
            "<PublicAccessBlockConfiguration><BlockPublicAcls>{block}</BlockPublicAcls>\
             <IgnorePublicAcls>{ignore}</IgnorePublicAcls></PublicAccessBlockConfiguration>"
        );
        world.call("PUT", "/bkt?publicAccessBlock").by("RED").body(document).send()
    };
    let is_public = async || {
        let status = world.call("GET", "/bkt?policyStatus").by("RED").send().await;
        status.expect(200).one("IsPublic").to_lowercase() == "true"
    };
    assert!(!is_public().await);
    put(&world, "RED", "/bkt?acl", Some("public-read")).await.expect(200);
    put(&world, "RED", "/bkt/k", Some("public-read")).await.expect(200);
    world.call("GET", "/bkt").send_unsigned().await.expect(200);
    assert!(is_public().await);
    block(true, false).await.expect(200);
    for acl in ["public-read", "public-read-write", "authenticated-read"] {
        for target in ["/bkt?acl", "/bkt/k?acl", "/bkt/new"] {
            put(&world, "RED", target, Some(acl)).await.refused(403, "AccessDenied");
        }
    }
    put(&world, "RED", "/bkt/new", Some("private")).await.expect(200);
    world.call("GET", "/bkt/k").send_unsigned().await.expect(200);
    block(false, true).await.expect(200);
    world.call("GET", "/bkt").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/k").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/k").by("BLUE").send().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/k").by("RED").send().await.expect(200);
    assert!(!is_public().await);
    put(&world, "RED", "/bkt/new", Some("public-read")).await.expect(200);
}

#[tokio::test]
async fn a_policy_has_the_last_word_about_lists() {
    let (world, _) = world().await;
    let policy = r#"{"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::bkt/*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::bkt/*",
         "Condition": {"StringLike": {"s3:x-amz-acl": "public*"}}},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObjectAcl", "Resource": "arn:aws:s3:::bkt/no/*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bkt/shut"}]}"#;
    world.call("PUT", "/bkt?policy").by("RED").body(policy).send().await.expect(204);
    put(&world, "BLUE", "/bkt/k", None).await.expect(200);
    put(&world, "BLUE", "/bkt/k", Some("public-read")).await.refused(403, "AccessDenied");
    put(&world, "BLUE", "/bkt/k", Some("authenticated-read")).await.expect(200);
    let no = put(&world, "BLUE", "/bkt/no/k", Some("authenticated-read")).await;
    no.refused(403, "AccessDenied");
    put(&world, "BLUE", "/bkt/shut", Some("authenticated-read")).await.expect(200);
    world.call("GET", "/bkt/k").by("RED").send().await.expect(200);
    world.call("GET", "/bkt/shut").by("BLUE").send().await.refused(403, "AccessDenied");
    world.call("GET", "/bkt/k?acl").by("RED").send().await.refused(403, "AccessDenied");
}
