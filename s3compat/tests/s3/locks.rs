//! Object lock over the wire: locking, visibility, and bypass.

use crate::world::{TestReply, TestRequest, World};

/// A time after the tests' clock, a later time, and a time before the clock.
const LATER: &str = "2026-01-03T00:00:00Z";
const LATEST: &str = "2026-01-05T00:00:00Z";
const OVER: &str = "2025-12-31T00:00:00Z";
const MODE: &str = "x-amz-object-lock-mode";
const UNTIL: &str = "x-amz-object-lock-retain-until-date";
const HOLD: &str = "x-amz-object-lock-legal-hold";
const BYPASS: &str = "x-amz-bypass-governance-retention";

/// A world with a bucket `bkt` whose objects can be locked.
async fn locked() -> World {
    let world = World::new();
    let create = world.call("PUT", "/bkt").header("x-amz-bucket-object-lock-enabled", "true");
    create.send().await.expect(200);
    world
}

async fn put(world: &World, target: &str, body: String) -> TestReply {
    world.call("PUT", target).body(body).send().await
}

fn retention(mode: &str, date: &str) -> String {
    format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{date}</RetainUntilDate></Retention>")
}

fn hold(status: &str) -> String {
    format!("<LegalHold><Status>{status}</Status></LegalHold>")
}

fn configuration(rule: &str) -> String {
    format!(
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}\
         </ObjectLockConfiguration>"
    )
}

fn rule(default: &str) -> String {
    configuration(&format!("<Rule><DefaultRetention>{default}</DefaultRetention></Rule>"))
}

fn delete<'a>(world: &'a World, key: &str, version: &str) -> TestRequest<'a> {
    world.call("DELETE", &format!("/bkt/{key}?versionId={version}"))
}

/// Writes an object with this retention, and returns its version.
async fn put_retained(world: &World, key: &str, mode: &str) -> String {
    let call = world.call("PUT", &format!("/bkt/{key}")).header(MODE, mode).header(UNTIL, LATER);
    call.body("x").send().await.expect(200).header("x-amz-version-id").to_owned()
}

#[tokio::test]
async fn a_bucket_has_locks_from_its_beginning_or_later_and_for_good() {
    let world = locked().await;
    let suspended = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    assert_eq!(world.get("/bkt?versioning").await.expect(200).one("Status"), "Enabled");
    put(&world, "/bkt?versioning", suspended.into()).await.refused(409, "InvalidBucketState");
    let bare = world.get("/bkt?object-lock").await.expect(200);
    assert_eq!((bare.one("ObjectLockEnabled").as_str(), bare.all("Rule").len()), ("Enabled", 0));
    world.call("PUT", "/other").send().await.expect(200);
    let missing = "ObjectLockConfigurationNotFoundError";
    world.get("/other?object-lock").await.refused(404, missing);
    world.get("/none?object-lock").await.refused(404, "NoSuchBucket");
    let set = |world, body| put(world, "/other?object-lock", body);
    set(&world, configuration("")).await.refused(409, "InvalidBucketState");
    let enabled = suspended.replace("Suspended", "Enabled");
    put(&world, "/other?versioning", enabled).await.expect(200);
    set(&world, rule("<Days>7</Days><Mode>COMPLIANCE</Mode>")).await.expect(200);
    let told = world.get("/other?object-lock").await.expect(200);
    assert_eq!((told.one("Mode").as_str(), told.one("Days").as_str()), ("COMPLIANCE", "7"));
    put(&world, "/other?versioning", suspended.into()).await.refused(409, "InvalidBucketState");
    for (body, code) in [
        (rule("<Days>1</Days><Years>1</Years><Mode>GOVERNANCE</Mode>"), "MalformedXML"),
        (rule("<Days>1</Days><Mode>governance</Mode>"), "MalformedXML"),
        (configuration("").replace("Enabled<", "Disabled<"), "MalformedXML"),
        (String::new(), "MissingRequestBodyError"),
        (rule("<Days>0</Days><Mode>GOVERNANCE</Mode>"), "InvalidRetentionPeriod"),
        (rule("<Years>-1</Years><Mode>GOVERNANCE</Mode>"), "InvalidRetentionPeriod"),
    ] {
        set(&world, body).await.refused(400, code);
    }
    assert_eq!(world.get("/other?object-lock").await.one("Days"), "7", "nothing changed");
}

#[tokio::test]
async fn retention_is_set_shown_and_loosened_by_bypass_alone() {
    let world = locked().await;
    let version = world.put("/bkt/k", "x").await.header("x-amz-version-id").to_owned();
    world.get("/bkt/k?retention").await.refused(404, "NoSuchObjectLockConfiguration");
    let set = |mode, date| put(&world, "/bkt/k?retention", retention(mode, date));
    set("GOVERNANCE", LATEST).await.expect(200);
    let told = world.get(&format!("/bkt/k?retention&versionId={version}")).await.expect(200);
    assert_eq!(told.one("Mode"), "GOVERNANCE");
    assert_eq!(told.one("RetainUntilDate"), "2026-01-05T00:00:00.000Z");
    let head = world.call("HEAD", "/bkt/k").send().await.expect(200);
    assert_eq!((head.header(MODE), head.header(UNTIL)), ("GOVERNANCE", "2026-01-05T00:00:00.000Z"));
    set("GOVERNANCE", LATER).await.refused(403, "AccessDenied");
    set("COMPLIANCE", LATEST).await.refused(403, "AccessDenied");
    let none = "<Retention/>".to_owned();
    put(&world, "/bkt/k?retention", none.clone()).await.refused(403, "AccessDenied");
    let past =
        |body: String| world.call("PUT", "/bkt/k?retention").header(BYPASS, "true").body(body);
    past(none).send().await.expect(200);
    world.get("/bkt/k?retention").await.refused(404, "NoSuchObjectLockConfiguration");
    set("COMPLIANCE", LATER).await.expect(200);
    for body in [retention("COMPLIANCE", "2026-01-02T00:00:00Z"), retention("GOVERNANCE", LATEST)] {
        past(body.clone()).send().await.refused(403, "AccessDenied");
        past(body).by("ROOT").send().await.refused(403, "AccessDenied");
    }
    set("COMPLIANCE", LATEST).await.expect(200);
    set("COMPLIANCE", OVER).await.refused(400, "InvalidArgument");
    for body in [retention("abc", LATER), "<Retention><Mode>GOVERNANCE</Mode></Retention>".into()] {
        put(&world, "/bkt/k?retention", body).await.refused(400, "MalformedXML");
    }
    put(&world, "/bkt/none?retention", retention("GOVERNANCE", LATER))
        .await
        .refused(404, "NoSuchKey");
}

#[tokio::test]
async fn a_legal_hold_is_on_until_it_is_off() {
    let world = locked().await;
    let version = world.put("/bkt/k", "x").await.header("x-amz-version-id").to_owned();
    world.get("/bkt/k?legal-hold").await.refused(404, "NoSuchObjectLockConfiguration");
    put(&world, "/bkt/k?legal-hold", hold("on")).await.refused(400, "MalformedXML");
    put(&world, "/bkt/k?legal-hold", hold("ON")).await.expect(200);
    assert_eq!(world.get("/bkt/k?legal-hold").await.expect(200).one("Status"), "ON");
    assert_eq!(world.get("/bkt/k").await.header(HOLD), "ON");
    delete(&world, "k", &version).header(BYPASS, "true").send().await.refused(403, "AccessDenied");
    put(&world, "/bkt/k?legal-hold", hold("OFF")).await.expect(200);
    assert_eq!(world.get("/bkt/k?legal-hold").await.one("Status"), "OFF");
    delete(&world, "k", &version).send().await.expect(204);
}

#[tokio::test]
async fn a_bucket_without_locks_knows_none_of_it() {
    let world = World::with_bucket().await;
    world.put("/bkt/k", "x").await;
    put(&world, "/bkt/k?retention", retention("GOVERNANCE", LATER))
        .await
        .refused(400, "InvalidRequest");
    put(&world, "/bkt/k?legal-hold", hold("ON")).await.refused(400, "InvalidRequest");
    for target in ["/bkt/k?retention", "/bkt/k?legal-hold"] {
        world.get(target).await.refused(400, "InvalidRequest");
    }
    let held = world.call("PUT", "/bkt/new").header(HOLD, "ON").body("x");
    held.send().await.refused(400, "InvalidRequest");
    let upload = world.call("POST", "/bkt/new?uploads").header(HOLD, "ON");
    upload.send().await.refused(400, "InvalidRequest");
    world.get("/bkt/new").await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn locked_versions_survive_single_and_batch_deletes() {
    let world = locked().await;
    let governed = put_retained(&world, "g", "GOVERNANCE").await;
    let compliant = put_retained(&world, "c", "COMPLIANCE").await;
    let free = world.put("/bkt/f", "x").await.header("x-amz-version-id").to_owned();
    delete(&world, "g", &governed).send().await.refused(403, "AccessDenied");
    for by in ["ALICE", "ROOT"] {
        let call = delete(&world, "c", &compliant).header(BYPASS, "true").by(by);
        call.send().await.refused(403, "AccessDenied");
    }
    world.call("DELETE", "/bkt/g").send().await.expect(204);
    world.put("/bkt/c", "over it").await;
    let all = [("g", &governed), ("c", &compliant), ("f", &free)];
    let object = |(key, id): &(&str, &String)| {
        format!("<Object><Key>{key}</Key><VersionId>{id}</VersionId></Object>")
    };
    let document = all.iter().map(object).collect::<Vec<_>>().concat();
    let many = |past: bool| {
        let call = world.call("POST", "/bkt?delete").body(format!("<Delete>{document}</Delete>"));
        if past { call.header(BYPASS, "true") } else { call }
    };
    let reply = many(false).send().await.expect(200);
    assert_eq!(reply.all("Code"), ["AccessDenied"; 2]);
    assert_eq!(reply.all("Deleted").len(), 1);
    let reply = many(true).send().await.expect(200);
    assert_eq!((reply.all("Code").len(), reply.all("Deleted").len()), (1, 2));
    let got = world.get(&format!("/bkt/c?versionId={compliant}")).await.expect(200);
    assert_eq!((got.text().as_str(), got.header(MODE)), ("x", "COMPLIANCE"));
    world.get(&format!("/bkt/g?versionId={governed}")).await.refused(404, "NoSuchVersion");
}

#[tokio::test]
async fn every_write_of_an_object_may_set_a_lock() {
    let world = locked().await;
    let lock = |call: TestRequest<'static>| call.header(MODE, "COMPLIANCE").header(UNTIL, LATER);
    let world: &'static World = Box::leak(Box::new(world));
    let shown = |reply: &TestReply| {
        assert_eq!((reply.header(MODE), reply.header(HOLD)), ("COMPLIANCE", "ON"));
    };
    let source = lock(world.call("PUT", "/bkt/source")).header(HOLD, "ON").body("bytes");
    source.send().await.expect(200);
    shown(&world.get("/bkt/source").await);
    let copy = |target| world.call("PUT", target).header("x-amz-copy-source", "/bkt/source");
    copy("/bkt/plain").send().await.expect(200);
    let plain = world.get("/bkt/plain").await.expect(200);
    assert!(!plain.has(MODE) && !plain.has(HOLD), "a copy has a lock of its own or none");
    lock(copy("/bkt/copy")).header(HOLD, "ON").send().await.expect(200);
    shown(&world.get("/bkt/copy").await);
    let upload = lock(world.call("POST", "/bkt/upload?uploads")).header(HOLD, "ON").send().await;
    let id = upload.expect(200).one("UploadId");
    let part = format!("/bkt/upload?partNumber=1&uploadId={id}");
    let stray = lock(world.call("PUT", &part)).body("bytes").send().await;
    stray.refused(501, "NotImplemented");
    let etag = world.put(&part, "bytes").await.header("etag").to_owned();
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let complete = world.call("POST", &format!("/bkt/upload?uploadId={id}")).body(document);
    let version = complete.send().await.expect(200).header("x-amz-version-id").to_owned();
    shown(&world.get("/bkt/upload").await);
    delete(world, "upload", &version).send().await.refused(403, "AccessDenied");
    for (mode, date) in [("COMPLIANCE", OVER), ("compliance", LATER)] {
        let call = world.call("PUT", "/bkt/wrong").header(MODE, mode).header(UNTIL, date);
        call.body("x").send().await.refused(400, "InvalidArgument");
    }
    let half = world.call("PUT", "/bkt/wrong").header(MODE, "COMPLIANCE").body("x").send().await;
    half.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn a_default_retention_locks_objects_without_lock_headers() {
    let world = locked().await;
    let years = rule("<Years>1</Years><Mode>GOVERNANCE</Mode>");
    put(&world, "/bkt?object-lock", years).await.expect(200);
    let version = world.put("/bkt/k", "x").await.header("x-amz-version-id").to_owned();
    let told = world.get("/bkt/k?retention").await.expect(200);
    assert_eq!(told.one("RetainUntilDate"), "2027-01-01T00:00:00.000Z");
    delete(&world, "k", &version).send().await.refused(403, "AccessDenied");
    delete(&world, "k", &version).header(BYPASS, "true").send().await.expect(204);
}

#[tokio::test]
async fn policies_govern_setting_reading_and_bypassing_locks() {
    let world = locked().await;
    world.put("/bkt/k", "x").await;
    let allow = |actions: &str, condition: &str| {
        format!(
            r#"{{"Effect": "Allow", "Principal": {{"CanonicalUser": "bob"}},
                "Action": [{actions}], "Resource": "arn:aws:s3:::bkt/*" {condition}}}"#
        )
    };
    let few_days = r#", "Condition": {"NumericLessThanEquals":
        {"s3:object-lock-remaining-retention-days": "2"},
        "StringEquals": {"s3:object-lock-mode": "GOVERNANCE"}}"#;
    let only_on = r#", "Condition": {"StringEquals": {"s3:object-lock-legal-hold": "ON"}}"#;
    let statements = [
        allow(r#""s3:GetObject", "s3:PutObject", "s3:DeleteObjectVersion""#, ""),
        allow(r#""s3:PutObjectRetention""#, few_days),
        allow(r#""s3:PutObjectLegalHold", "s3:GetObjectLegalHold""#, only_on),
        allow(r#""s3:GetObjectLegalHold""#, ""),
    ];
    let policy = format!(r#"{{"Version": "2012-10-17", "Statement": [{}]}}"#, statements.join(","));
    put(&world, "/bkt?policy", policy).await.expect(204);
    let bob =
        |method, target: &str, body: String| world.call(method, target).by("BOB").body(body).send();
    let target = "/bkt/k?retention";
    bob("PUT", target, retention("GOVERNANCE", LATEST)).await.refused(403, "AccessDenied");
    bob("PUT", target, retention("COMPLIANCE", LATER)).await.refused(403, "AccessDenied");
    bob("PUT", target, retention("GOVERNANCE", LATER)).await.expect(200);
    bob("GET", target, String::new()).await.refused(403, "AccessDenied");
    bob("PUT", "/bkt/k?legal-hold", hold("ON")).await.expect(200);
    bob("PUT", "/bkt/k?legal-hold", hold("OFF")).await.refused(403, "AccessDenied");
    let seen = bob("GET", "/bkt/k", String::new()).await.expect(200);
    assert!(!seen.has(MODE) && seen.header(HOLD) == "ON", "of a retention it is not told");
    put(&world, "/bkt/k?legal-hold", hold("OFF")).await.expect(200);
    // The policy also applies to headers.
    let write = |date| {
        let call = world.call("PUT", "/bkt/own").by("BOB").body("x");
        call.header(MODE, "GOVERNANCE").header(UNTIL, date).send()
    };
    write(LATEST).await.expect(403);
    let version = write(LATER).await.expect(200).header("x-amz-version-id").to_owned();
    for by in ["BOB", "ALICE"] {
        let past = delete(&world, "own", &version).header(BYPASS, "true").by(by).send().await;
        past.expect(if by == "ALICE" { 204 } else { 403 });
    }
}
