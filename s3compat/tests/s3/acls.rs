//! Access control lists: permissions that they give, their documents, and settings that override
//! them.

use crate::world::{TestReply, World};

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";

/// The tenants `red` and `blue`, and `red`'s bucket `bkt`. Returns the tenants' ids.
async fn world() -> (World, [String; 2]) {
    let world = World::new();
    let ids = [world.tenant("red", "RED").await, world.tenant("blue", "BLUE").await];
    world.call("PUT", "/bkt").by("RED").send().await.expect(200);
    (world, ids)
}

async fn by(world: &World, key: &'static str, method: &'static str, target: &str) -> TestReply {
    world.call(method, target).by(key).body("x").send().await
}

async fn put_with(
    world: &World,
    (key, target): (&'static str, &str),
    headers: &[(&str, &str)],
) -> TestReply {
    let mut call = world.call("PUT", target).by(key);
    for (name, value) in headers {
        call = call.header(name, value);
    }
    call.send().await
}

async fn canned(world: &World, key: &'static str, target: &str, acl: &str) -> TestReply {
    put_with(world, (key, target), &[("x-amz-acl", acl)]).await
}

fn list(owner: &str, grants: &[(&str, &str)]) -> String {
    let grant = |(grantee, permission): &(&str, &str)| {
        let (kind, element) = match grantee {
            name if name.starts_with("http") => ("Group", format!("<URI>{name}</URI>")),
            name if name.contains('@') => {
                ("AmazonCustomerByEmail", format!("<EmailAddress>{name}</EmailAddress>"))
            }
            name => ("CanonicalUser", format!("<ID>{name}</ID>")),
        };
        format!(
            "<Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
             xsi:type=\"{kind}\">{element}</Grantee><Permission>{permission}</Permission></Grant>"
        )
    };
    let grants: String = grants.iter().map(grant).collect();
    format!(
        "<AccessControlPolicy><Owner><ID>{owner}</ID></Owner>\
         <AccessControlList>{grants}</AccessControlList></AccessControlPolicy>"
    )
}

async fn put_list(world: &World, key: &'static str, target: &str, document: String) -> TestReply {
    world.call("PUT", target).by(key).body(document).send().await
}

#[tokio::test]
async fn a_buckets_list_lets_others_do_what_it_grants() {
    let (world, [red, blue]) = world().await;
    by(&world, "RED", "PUT", "/bkt/k").await.expect(200);
    for (permission, may) in [
        ("READ", [true, false, false, false]),
        ("WRITE", [false, true, false, false]),
        ("READ_ACP", [false, false, true, false]),
        ("WRITE_ACP", [false, false, false, true]),
        ("FULL_CONTROL", [true, true, true, true]),
    ] {
        let document = list(&red, &[(&red, "FULL_CONTROL"), (&blue, permission)]);
        put_list(&world, "RED", "/bkt?acl", document.clone()).await.expect(200);
        let told = by(&world, "RED", "GET", "/bkt?acl").await.expect(200);
        assert_eq!(told.all("Permission"), ["FULL_CONTROL", permission]);
        let names = ["red by name", "blue by name", "red by name"];
        assert_eq!(told.all("DisplayName"), names, "grantees, and the owner");
        let status = |may| if may { 200 } else { 403 };
        by(&world, "BLUE", "GET", "/bkt").await.expect(status(may[0]));
        by(&world, "BLUE", "HEAD", "/bkt").await.expect(status(may[0]));
        by(&world, "BLUE", "GET", "/bkt?uploads").await.expect(status(may[0]));
        by(&world, "BLUE", "PUT", "/bkt/blue").await.expect(status(may[1]));
        by(&world, "BLUE", "GET", "/bkt?acl").await.expect(status(may[2]));
        let put = put_list(&world, "BLUE", "/bkt?acl", document).await;
        put.expect(status(may[3]));
        let many = "<Delete><Object><Key>blue</Key></Object></Delete>";
        let many = world.call("POST", "/bkt?delete").by("BLUE").body(many).send().await;
        assert_eq!(many.expect(status(may[1])).all("Code").is_empty(), may[1]);
        by(&world, "BLUE", "GET", "/bkt?policy").await.refused(403, "AccessDenied");
        by(&world, "BLUE", "GET", "/bkt/k").await.refused(403, "AccessDenied");
        world.call("GET", "/bkt").send_unsigned().await.refused(403, "AccessDenied");
        let code = if may[0] { "NoSuchKey" } else { "AccessDenied" };
        let missing = by(&world, "BLUE", "GET", "/bkt/none").await;
        missing.refused(if may[0] { 404 } else { 403 }, code);
    }
}

#[tokio::test]
async fn an_owner_without_grants_keeps_its_list_and_its_bucket() {
    let (world, [red, _]) = world().await;
    by(&world, "RED", "PUT", "/bkt/k").await.expect(200);
    put_list(&world, "RED", "/bkt?acl", list(&red, &[])).await.expect(200);
    assert_eq!(by(&world, "RED", "GET", "/bkt?acl").await.expect(200).all("Grant").len(), 0);
    by(&world, "RED", "PUT", "/bkt/k").await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", "/bkt").await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", "/bkt/k").await.expect(200);
    by(&world, "RED", "GET", "/bkt?location").await.expect(200);
    canned(&world, "RED", "/bkt?acl", "private").await.expect(200);
    by(&world, "RED", "PUT", "/bkt/k").await.expect(200);
}

#[tokio::test]
async fn an_objects_list_lets_others_read_it() {
    let (world, [red, blue]) = world().await;
    canned(&world, "RED", "/bkt/open", "public-read").await.expect(200);
    canned(&world, "RED", "/bkt/known", "authenticated-read").await.expect(200);
    by(&world, "RED", "PUT", "/bkt/shut").await.expect(200);
    put_with(&world, ("RED", "/bkt/blues"), &[("x-amz-grant-read", &format!("id=\"{blue}\""))])
        .await
        .expect(200);
    for (target, anonymous, blue, red) in [
        ("/bkt/open", 200, 200, 200),
        ("/bkt/known", 403, 200, 200),
        ("/bkt/shut", 403, 403, 200),
        ("/bkt/blues", 403, 200, 403),
        ("/bkt/none", 403, 403, 404),
    ] {
        for method in ["GET", "HEAD"] {
            world.call(method, target).send_unsigned().await.expect(anonymous);
            by(&world, "BLUE", method, target).await.expect(blue);
            by(&world, "RED", method, target).await.expect(red);
        }
        let met = world.call("GET", target).by("BLUE").header("if-none-match", "*").send().await;
        met.expect(if blue == 200 { 304 } else { 403 });
        let sizes = world.call("GET", &format!("{target}?attributes")).by("BLUE");
        let sizes = sizes.header("x-amz-object-attributes", "ObjectSize").send().await;
        sizes.expect(blue);
        by(&world, "BLUE", "GET", &format!("{target}?acl")).await.refused(403, "AccessDenied");
        by(&world, "BLUE", "GET", &format!("{target}?tagging")).await.refused(403, "AccessDenied");
        by(&world, "ROOT", "GET", target).await.expect(if target == "/bkt/none" {
            404
        } else {
            200
        });
    }
    let told = by(&world, "RED", "GET", "/bkt/open?acl").await.expect(200);
    assert_eq!(told.all("Permission"), ["READ", "FULL_CONTROL"], "groups come first");
    assert_eq!(told.all("URI"), [ALL_USERS]);
    assert_eq!(told.all("ID"), [red.as_str(), red.as_str()]);
    let both = list(&red, &[(&blue, "READ_ACP"), (&blue, "WRITE_ACP")]);
    put_list(&world, "RED", "/bkt/shut?acl", both).await.expect(200);
    by(&world, "BLUE", "GET", "/bkt/shut?acl").await.expect(200);
    by(&world, "BLUE", "GET", "/bkt/shut").await.refused(403, "AccessDenied");
    canned(&world, "BLUE", "/bkt/shut?acl", "public-read").await.expect(200);
    world.call("GET", "/bkt/shut").send_unsigned().await.expect(200);
    by(&world, "BLUE", "GET", "/bkt/shut?acl").await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn an_object_is_its_writers() {
    let (world, [red, blue]) = world().await;
    canned(&world, "RED", "/bkt?acl", "public-read-write").await.expect(200);
    by(&world, "BLUE", "PUT", "/bkt/k").await.expect(200);
    by(&world, "RED", "GET", "/bkt/k").await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", "/bkt/k?acl").await.refused(403, "AccessDenied");
    canned(&world, "RED", "/bkt/k?acl", "public-read").await.refused(403, "AccessDenied");
    let told = by(&world, "BLUE", "GET", "/bkt/k?acl").await.expect(200);
    assert_eq!(told.all("ID"), [blue.as_str(), blue.as_str()]);
    for (acl, permission, status) in
        [("bucket-owner-read", "READ", 200), ("bucket-owner-full-control", "FULL_CONTROL", 200)]
    {
        canned(&world, "BLUE", "/bkt/k", acl).await.expect(200);
        let told = by(&world, "BLUE", "GET", "/bkt/k?acl").await.expect(200);
        assert_eq!(told.all("ID"), [blue.as_str(), red.as_str(), blue.as_str()], "{acl}");
        assert_eq!(told.all("Permission"), ["FULL_CONTROL", permission]);
        by(&world, "RED", "GET", "/bkt/k").await.expect(status);
    }
    let anonymous = world.call("PUT", "/bkt/anonymous").send_unsigned().await;
    anonymous.expect(200);
    by(&world, "RED", "GET", "/bkt/anonymous").await.expect(200);
    by(&world, "ROOT", "PUT", "/bkt/roots").await.expect(200);
    by(&world, "RED", "GET", "/bkt/roots").await.expect(200);
    let listed = by(&world, "RED", "GET", "/bkt?list-type=2&fetch-owner=true").await.expect(200);
    assert_eq!(listed.all("Key"), ["anonymous", "k", "roots"]);
    assert_eq!(listed.all("ID"), [red.as_str(), blue.as_str(), red.as_str()]);
    let names = ["red by name", "blue by name", "red by name"];
    assert_eq!(by(&world, "RED", "GET", "/bkt").await.all("DisplayName"), names);
    assert_eq!(by(&world, "RED", "GET", "/bkt?versions").await.all("DisplayName"), names);
    let upload = by(&world, "BLUE", "POST", "/bkt/up?uploads").await.one("UploadId");
    let listed = by(&world, "RED", "GET", "/bkt?uploads").await.expect(200);
    assert_eq!(listed.all("ID"), [blue.as_str(), blue.as_str()], "initiator and owner");
    assert_eq!(listed.all("DisplayName"), ["blue by name", "blue by name"]);
    let part = format!("/bkt/up?partNumber=1&uploadId={upload}");
    let etag = by(&world, "BLUE", "PUT", &part).await.expect(200).header("etag").to_owned();
    let parts = by(&world, "BLUE", "GET", &format!("/bkt/up?uploadId={upload}")).await;
    assert_eq!(parts.expect(200).all("ID"), [blue.as_str(), blue.as_str()]);
    let complete = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let target = format!("/bkt/up?uploadId={upload}");
    world.call("POST", &target).by("BLUE").body(complete).send().await.expect(200);
    by(&world, "RED", "GET", "/bkt/up").await.refused(403, "AccessDenied");
    by(&world, "BLUE", "GET", "/bkt/up").await.expect(200);
    by(&world, "RED", "DELETE", "/bkt/up").await.expect(204);
}

/// A bucket policy applies only to objects that the bucket's owner owns.
#[tokio::test]
async fn a_policy_opens_nothing_that_another_account_owns() {
    let (world, _) = world().await;
    canned(&world, "RED", "/bkt?acl", "public-read-write").await.expect(200);
    by(&world, "BLUE", "PUT", "/bkt/blues").await.expect(200);
    by(&world, "RED", "PUT", "/bkt/reds").await.expect(200);
    let allow = r#"{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject*",
        "Resource": "arn:aws:s3:::bkt/*"}]}"#;
    let put = world.call("PUT", "/bkt?policy").by("RED").body(allow);
    put.send().await.expect(204);
    world.call("GET", "/bkt/reds").send_unsigned().await.expect(200);
    world.call("GET", "/bkt/blues").send_unsigned().await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", "/bkt/blues").await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", "/bkt/blues?acl").await.refused(403, "AccessDenied");
    by(&world, "BLUE", "GET", "/bkt/blues").await.expect(200);
    let copy = world.call("PUT", "/bkt/copy").by("RED").header("x-amz-copy-source", "/bkt/blues");
    copy.send().await.refused(403, "AccessDenied");
    canned(&world, "BLUE", "/bkt/blues?acl", "bucket-owner-read").await.expect(200);
    by(&world, "RED", "GET", "/bkt/blues").await.expect(200);
    world.call("GET", "/bkt/blues").send_unsigned().await.refused(403, "AccessDenied");
    canned(&world, "BLUE", "/bkt/blues?acl", "public-read").await.expect(200);
    world.call("GET", "/bkt/blues").send_unsigned().await.expect(200);
}

#[tokio::test]
async fn copies_have_lists_of_their_own() {
    let (world, [_, blue]) = world().await;
    world.call("PUT", "/blues").by("BLUE").send().await.expect(200);
    canned(&world, "RED", "/bkt/open", "public-read").await.expect(200);
    by(&world, "RED", "PUT", "/bkt/shut").await.expect(200);
    let copy = |source: &str, to: &str| {
        world.call("PUT", to).by("BLUE").header("x-amz-copy-source", source)
    };
    copy("/bkt/open", "/blues/k").send().await.expect(200);
    world.call("GET", "/blues/k").send_unsigned().await.refused(403, "AccessDenied");
    copy("/bkt/open", "/blues/k").header("x-amz-acl", "public-read").send().await.expect(200);
    world.call("GET", "/blues/k").send_unsigned().await.expect(200);
    assert!(by(&world, "BLUE", "GET", "/blues/k?acl").await.one("Owner").contains(&blue));
    copy("/bkt/shut", "/blues/k").send().await.refused(403, "AccessDenied");
    copy("/bkt/open", "/bkt/k").send().await.refused(403, "AccessDenied");
    let upload = by(&world, "BLUE", "POST", "/blues/m?uploads").await.one("UploadId");
    let part = format!("/blues/m?partNumber=1&uploadId={upload}");
    copy("/bkt/open", &part).send().await.expect(200);
    let ranged = copy("/bkt/shut", &part).header("x-amz-copy-source-range", "bytes=0-0");
    ranged.send().await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn versions_have_lists_of_their_own() {
    let (world, _) = world().await;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    world.call("PUT", "/bkt?versioning").by("RED").body(on).send().await.expect(200);
    let first = by(&world, "RED", "PUT", "/bkt/k").await.header("x-amz-version-id").to_owned();
    let second = by(&world, "RED", "PUT", "/bkt/k").await.header("x-amz-version-id").to_owned();
    let one = |version: &str| format!("/bkt/k?versionId={version}");
    let list_of = |version: &str| format!("/bkt/k?acl&versionId={version}");
    canned(&world, "RED", &list_of(&first), "public-read").await.expect(200);
    world.call("GET", &one(&first)).send_unsigned().await.expect(200);
    world.call("GET", "/bkt/k").send_unsigned().await.refused(403, "AccessDenied");
    let told = by(&world, "RED", "GET", &list_of(&second)).await.expect(200);
    assert_eq!(told.all("Permission"), ["FULL_CONTROL"]);
    canned(&world, "RED", "/bkt/k?acl", "public-read").await.expect(200);
    world.call("GET", &one(&second)).send_unsigned().await.expect(200);
    let gone = by(&world, "RED", "DELETE", "/bkt/k").await.header("x-amz-version-id").to_owned();
    world.call("GET", "/bkt/k").send_unsigned().await.refused(403, "AccessDenied");
    world.call("GET", &one(&gone)).send_unsigned().await.refused(403, "AccessDenied");
    by(&world, "RED", "GET", &one(&gone)).await.refused(405, "MethodNotAllowed");
    let plain = world.call("PUT", &list_of("null")).by("RED").send().await;
    plain.refused(400, "MissingSecurityHeader");
    canned(&world, "RED", &list_of("null"), "private").await.refused(404, "NoSuchVersion");
}

#[tokio::test]
async fn lists_that_make_no_sense_are_refused() {
    let (world, [red, blue]) = world().await;
    by(&world, "RED", "PUT", "/bkt/k").await.expect(200);
    for target in ["/bkt?acl", "/bkt/k?acl"] {
        canned(&world, "RED", target, "public-ready").await.refused(400, "InvalidArgument");
        canned(&world, "RED", target, "aws-exec-read").await.refused(501, "NotImplemented");
        for (document, status, code) in [
            (list(&blue, &[(&blue, "FULL_CONTROL")]), 403, "AccessDenied"),
            (list(&red, &[("_foo", "READ")]), 400, "InvalidArgument"),
            (list(&red, &[("http://example.com/", "READ")]), 400, "InvalidArgument"),
            (list(&red, &[("no@body.invalid", "READ")]), 400, "UnresolvableGrantByEmailAddress"),
            (list(&red, &[(&blue, "EVERYTHING")]), 400, "MalformedACLError"),
            (list(&red, &[(blue.as_str(), "READ"); 101]), 400, "MalformedACLError"),
        ] {
            put_list(&world, "RED", target, document).await.refused(status, code);
        }
        put_list(&world, "RED", target, list(&red, &[(blue.as_str(), "READ"); 100]))
            .await
            .expect(200);
        canned(&world, "RED", target, "private").await.expect(200);
        let told = by(&world, "RED", "GET", target).await.expect(200);
        assert_eq!(told.all("Permission"), ["FULL_CONTROL"]);
    }
    for grant in ["", "id=", "somebody", "id=nobody", "uri=http://example.com"] {
        let put = put_with(&world, ("RED", "/bkt/k"), &[("x-amz-grant-read", grant)]).await;
        put.refused(400, "InvalidArgument");
    }
    let address =
        put_with(&world, ("RED", "/bkt/k"), &[("x-amz-grant-read", "emailAddress=a@b.c")]);
    address.await.refused(400, "UnresolvableGrantByEmailAddress");
    world.tenant("a@b.c", "ADDRESS").await;
    let told = [("x-amz-grant-read", "emailAddress=\"a@b.c\"")];
    put_with(&world, ("RED", "/bkt/k"), &told).await.expect(200);
    by(&world, "ADDRESS", "GET", "/bkt/k").await.expect(200);
}

#[tokio::test]
async fn a_bucket_is_made_with_its_list() {
    let (world, [_, blue]) = world().await;
    canned(&world, "RED", "/open", "public-read").await.expect(200);
    world.call("GET", "/open").send_unsigned().await.expect(200);
    let grant = format!("id={blue}");
    let all = ["read", "write", "read-acp", "write-acp", "full-control"]
        .map(|name| format!("x-amz-grant-{name}"));
    let headers: Vec<_> = all.iter().map(|name| (name.as_str(), grant.as_str())).collect();
    put_with(&world, ("RED", "/granted"), &headers).await.expect(200);
    let told = by(&world, "BLUE", "GET", "/granted?acl").await.expect(200);
    let permissions = ["READ", "WRITE", "READ_ACP", "WRITE_ACP", "FULL_CONTROL"];
    assert_eq!(told.all("Permission"), permissions);
    assert_eq!(told.all("ID")[..5], vec![blue.clone(); 5]);
    let again = [("x-amz-acl", "public-read")];
    put_with(&world, ("RED", "/bkt"), &again).await.refused(409, "BucketAlreadyExists");
    put_with(&world, ("RED", "/open"), &again).await.expect(200);
    put_with(&world, ("RED", "/bkt"), &[]).await.expect(200);
    let enforced = [("x-amz-object-ownership", "BucketOwnerEnforced"), again[0]];
    let refused = put_with(&world, ("RED", "/other"), &enforced).await;
    refused.refused(400, "InvalidBucketAclWithObjectOwnership");
}
