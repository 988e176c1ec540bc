//! Tenants: each with its own buckets, hidden from other tenants unless a policy permits access.

use martlet_proxy::{DefaultView, Role};

use crate::world::{TestReply, World};

/// The tenants `red` and `blue`, each with a bucket of its name that holds the key `k`. Returns the
/// tenants' ids.
async fn world() -> (World, [String; 2]) {
    let world = World::new();
    let ids = [world.tenant("red", "RED").await, world.tenant("blue", "BLUE").await];
    for (bucket, key) in [("/red-bkt", "RED"), ("/blue-bkt", "BLUE")] {
        world.call("PUT", bucket).by(key).send().await.expect(200);
        world.call("PUT", &format!("{bucket}/k")).body("x").by(key).send().await.expect(200);
    }
    (world, ids)
}

async fn by(world: &World, key: &'static str, method: &'static str, target: &str) -> TestReply {
    world.call(method, target).by(key).send().await
}

async fn put_policy(world: &World, key: &'static str, bucket: &str, who: &str, actions: &str) {
    let document = format!(
        r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Principal": {who},
            "Action": {actions}, "Resource": ["arn:aws:s3:::{bucket}", "arn:aws:s3:::{bucket}/*"]}}]}}"#
    );
    let put = world.call("PUT", &format!("/{bucket}?policy")).by(key).body(document);
    put.send().await.expect(204);
}

#[tokio::test]
async fn each_tenant_sees_its_own_and_root_sees_all() {
    let (world, ids) = world().await;
    for (key, buckets, id, name) in [
        ("RED", vec!["red-bkt"], ids[0].as_str(), "red by name"),
        ("BLUE", vec!["blue-bkt"], ids[1].as_str(), "blue by name"),
        ("ROOT", vec!["blue-bkt", "red-bkt"], "root", "root"),
    ] {
        let listed = by(&world, key, "GET", "/").await.expect(200);
        assert_eq!(listed.all("Name"), buckets);
        assert_eq!((listed.one("ID"), listed.one("DisplayName")), (id.into(), name.into()));
    }
    for (method, target) in [
        ("GET", "/blue-bkt"),
        ("GET", "/blue-bkt/k"),
        ("GET", "/blue-bkt/none"),
        ("PUT", "/blue-bkt/new"),
        ("DELETE", "/blue-bkt/k"),
        ("DELETE", "/blue-bkt"),
        ("GET", "/blue-bkt?policy"),
        ("GET", "/blue-bkt?acl"),
    ] {
        by(&world, "RED", method, target).await.refused(403, "AccessDenied");
    }
    by(&world, "RED", "HEAD", "/blue-bkt").await.expect(403);
    by(&world, "RED", "PUT", "/blue-bkt").await.refused(409, "BucketAlreadyExists");
    by(&world, "RED", "PUT", "/red-bkt").await.expect(200);
    assert_eq!(by(&world, "ROOT", "GET", "/blue-bkt/k").await.expect(200).text(), "x");
    by(&world, "ROOT", "DELETE", "/blue-bkt/k").await.expect(204);
}

#[tokio::test]
async fn owners_are_returned_with_id_and_name_to_every_caller() {
    let (world, [red, _]) = world().await;
    for key in ["RED", "ROOT"] {
        for target in ["/red-bkt?acl", "/red-bkt/k?acl"] {
            let acl = by(&world, key, "GET", target).await.expect(200);
            assert_eq!(acl.all("ID"), [red.as_str(), red.as_str()], "owner and grantee");
            assert_eq!(acl.all("DisplayName"), ["red by name", "red by name"]);
        }
        let listed = by(&world, key, "GET", "/red-bkt?list-type=2&fetch-owner=true").await;
        let owner = (listed.one("ID"), listed.one("DisplayName"));
        assert_eq!(owner, (red.clone(), "red by name".to_owned()));
    }
}

#[tokio::test]
async fn a_policy_lets_another_tenant_in_by_any_of_its_names() {
    let (world, [_, blue]) = world().await;
    for who in [
        r#"{"AWS": "arn:aws:iam::blue:root"}"#.to_owned(),
        r#"{"AWS": "blue"}"#.to_owned(),
        r#"{"AWS": "arn:aws:iam:::user/blue"}"#.to_owned(),
        format!(r#"{{"CanonicalUser": "{blue}"}}"#),
        format!(r#"{{"AWS": "arn:aws:iam::{blue}:root"}}"#),
        r#""*""#.to_owned(),
    ] {
        put_policy(&world, "RED", "red-bkt", &who, r#""s3:GetObject""#).await;
        assert_eq!(by(&world, "BLUE", "GET", "/red-bkt/k").await.expect(200).text(), "x", "{who}");
        by(&world, "BLUE", "PUT", "/red-bkt/k").await.refused(403, "AccessDenied");
        by(&world, "BLUE", "GET", "/red-bkt").await.refused(403, "AccessDenied");
        by(&world, "RED", "DELETE", "/red-bkt?policy").await.expect(204);
        by(&world, "BLUE", "GET", "/red-bkt/k").await.refused(403, "AccessDenied");
    }
}

#[tokio::test]
async fn users_do_what_their_role_lets_them() {
    let (world, _) = world().await;
    world.user("red", "reader", Role::ReadOnly, "READER").await;
    world.user("red", "writer", Role::ReadWrite, "WRITER").await;
    world.user("red", "admin", Role::Admin, "ADMIN").await;
    for (key, may_write, may_manage) in
        [("READER", false, false), ("WRITER", true, false), ("ADMIN", true, true)]
    {
        assert_eq!(by(&world, key, "GET", "/").await.expect(200).one("Name"), "red-bkt");
        assert_eq!(by(&world, key, "GET", "/red-bkt").await.expect(200).all("Key")[0], "k");
        assert_eq!(by(&world, key, "GET", "/red-bkt/k").await.expect(200).text(), "x");
        by(&world, key, "GET", "/blue-bkt/k").await.refused(403, "AccessDenied");
        let status = |may| if may { 200 } else { 403 };
        let made = format!("/{}-bkt", key.to_lowercase());
        by(&world, key, "PUT", "/red-bkt/new").await.expect(status(may_write));
        by(&world, key, "PUT", &made).await.expect(status(may_manage));
        let copy = world.call("PUT", "/red-bkt/copy").by(key);
        let copy = copy.header("x-amz-copy-source", "/red-bkt/k").send().await;
        copy.expect(status(may_write));
        let many = "<Delete><Object><Key>copy</Key></Object></Delete>";
        let many = world.call("POST", "/red-bkt?delete").by(key).body(many).send().await;
        let told = many.expect(200).all("Code");
        assert_eq!(told.is_empty(), may_write, "{told:?}");
        let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
        let tags = world.call("PUT", "/red-bkt?tagging").by(key).body(tags).send().await;
        tags.expect(if may_manage { 204 } else { 403 });
    }
}

#[tokio::test]
async fn no_policy_lifts_a_user_above_its_role() {
    let (world, _) = world().await;
    world.user("red", "reader", Role::ReadOnly, "READER").await;
    let who = r#"{"AWS": ["arn:aws:iam::red:user/reader", "arn:aws:iam::red:root"]}"#;
    for (key, bucket) in [("RED", "red-bkt"), ("BLUE", "blue-bkt")] {
        put_policy(&world, key, bucket, who, r#""s3:*""#).await;
        by(&world, "READER", "GET", &format!("/{bucket}/k")).await.expect(200);
        let put = by(&world, "READER", "PUT", &format!("/{bucket}/new")).await;
        put.refused(403, "AccessDenied");
    }
    // The tenant's other keys have the tenant's permissions.
    by(&world, "RED", "PUT", "/blue-bkt/new").await.expect(200);
}

#[tokio::test]
async fn disabled_and_unknown_keys_are_refused() {
    let (world, _) = world().await;
    by(&world, "NOBODY", "GET", "/").await.refused(403, "InvalidAccessKeyId");
    let desk = &world.accounts;
    desk.keys().change("RED", Some(true), None).await.unwrap();
    by(&world, "RED", "GET", "/").await.refused(403, "InvalidAccessKeyId");
    desk.keys().change("RED", Some(false), None).await.unwrap();
    by(&world, "RED", "GET", "/").await.expect(200);
    desk.tenants().change("red", Some(true), None).await.unwrap();
    by(&world, "RED", "GET", "/red-bkt/k").await.refused(403, "InvalidAccessKeyId");
    by(&world, "BLUE", "GET", "/blue-bkt/k").await.expect(200);
    desk.tenants().change("red", Some(false), None).await.unwrap();
    desk.keys().rotate("RED", Some("another secret altogether".into())).await.unwrap();
    by(&world, "RED", "GET", "/").await.refused(403, "SignatureDoesNotMatch");
}

#[tokio::test]
async fn a_keys_default_view_is_that_of_complete_checkpoints() {
    let (world, _) = world().await;
    let put =
        |target: &'static str, body: &'static str| world.call("PUT", target).body(body).by("RED");
    let versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    put("/red-bkt?versioning", versioning).send().await.expect(200);
    world.clock.advance_ms(3_000);
    let rules = r#"{"rules": [{"pattern": "s-*/", "profile": "custom", "markers": ["done"]}]}"#;
    put("/red-bkt?checkpoints", rules).send().await.expect(204);
    world.clock.advance_ms(3_000);
    put("/red-bkt/s-1/a", "one").send().await.expect(200);
    put("/red-bkt/s-1/done", "").send().await.expect(200);
    put("/red-bkt/s-1/a", "two").send().await.expect(200);
    world.accounts.keys().change_view("RED", DefaultView::Committed).await.unwrap();
    let get = |target: &'static str| by(&world, "RED", "GET", target);
    assert_eq!(get("/red-bkt/s-1/a").await.expect(200).text(), "one");
    assert_eq!(
        get("/red-bkt?list-type=2").await.expect(200).all("Key"),
        ["k", "s-1/a", "s-1/done"]
    );
    put("/red-bkt/s-2/a", "").send().await.refused(405, "MethodNotAllowed");
    by(&world, "RED", "PUT", "/red-bkt?checkpoint=s-1%2F&hold=60").await.expect(200);
    // Other buckets are what they are, and one header selects the bucket itself.
    by(&world, "RED", "PUT", "/red-two").await.expect(200);
    put("/red-two/k", "x").send().await.expect(200);
    let bucket = world.call("GET", "/red-bkt/s-1/a").by("RED").header("x-martlet-view", "bucket");
    assert_eq!(bucket.send().await.expect(200).text(), "two");
    let none = world.call("GET", "/red-bkt/s-1/a").by("RED").header("x-martlet-view", "newest");
    none.send().await.refused(400, "InvalidArgument");
    world.accounts.keys().change_view("RED", DefaultView::Bucket).await.unwrap();
    assert_eq!(get("/red-bkt/s-1/a").await.expect(200).text(), "two");
}

#[tokio::test]
async fn requests_come_from_where_they_may() {
    let (world, _) = world().await;
    let from = |address: &'static str| world.call("GET", "/red-bkt/k").by("RED").from(address);
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let desk = &world.accounts;
    desk.keys()
        .change("RED", None, Some(networks(&["10.0.0.0/8", "2001:db8::/32"])))
        .await
        .unwrap();
    for address in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"] {
        from(address).send().await.expect(200);
    }
    from("192.0.2.1").send().await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", "/red-bkt/k").await.refused(403, "AccessDenied");
    desk.tenants().change("red", None, Some(networks(&["10.1.0.0/16"]))).await.unwrap();
    from("10.1.2.3").send().await.expect(200);
    from("10.2.0.1").send().await.refused(403, "AccessDenied");
    desk.keys().change("RED", None, Some(Vec::new())).await.unwrap();
    desk.tenants().change("red", None, Some(Vec::new())).await.unwrap();
    from("192.0.2.1").send().await.expect(200);
}

#[tokio::test]
async fn links_and_forms_are_signed_with_keys_of_tenants_too() {
    let (world, _) = world().await;
    let policy = r#"{"expiration": "2026-01-02T00:00:00Z", "conditions": [{"bucket": "red-bkt"},
        {"key": "form"}, {"x-amz-algorithm": "AWS4-HMAC-SHA256"}, {"x-amz-date": "20260101T000000Z"},
        ["starts-with", "$x-amz-credential", ""]]}"#;
    let policy = base64(policy.as_bytes());
    let key = aws_sigv4::sign::v4::generate_signing_key(
        "a secret that only tests know",
        std::time::UNIX_EPOCH + std::time::Duration::from_millis(crate::world::NOW_MS),
        "us-east-1",
        "s3",
    );
    let signature = aws_sigv4::sign::v4::calculate_signature(key, policy.as_bytes());
    let field = |name: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    for (access_key, status) in [("RED", 204), ("BLUE", 403), ("NOBODY", 403)] {
        let credential = format!("{access_key}/20260101/us-east-1/s3/aws4_request");
        let form = [
            field("key", "form"),
            field("policy", &policy),
            field("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            field("x-amz-credential", &credential),
            field("x-amz-date", "20260101T000000Z"),
            field("x-amz-signature", &signature),
            field("file", "from a form"),
            "--x--\r\n".to_owned(),
        ];
        let call = world.call("POST", "/red-bkt");
        let call = call.header("content-type", "multipart/form-data; boundary=x");
        call.body(form.concat()).send_unsigned().await.expect(status);
    }
    let stored = by(&world, "RED", "GET", "/red-bkt/form").await.expect(200);
    assert_eq!(stored.text(), "from a form");
    for (access_key, status) in [("RED", 200), ("BLUE", 403), ("NOBODY", 403)] {
        world.link(access_key, "/red-bkt/form").await.expect(status);
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
