//! The counted requests, and the buckets that they need.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::Method;

use crate::WARM_UP;
use crate::world::{SignedRequest, World, signed};

/// Counted requests of a case.
const REQUESTS: usize = 50;
/// Counted requests of cases that cost much each.
const FEW_REQUESTS: usize = 5;
/// Owner of all buckets, and a tenant that owns none.
const OWNER: &str = "RED";
const OTHER: &str = "BLUE";
const SMALL: usize = 4 << 10;
const MIB: usize = 1 << 20;
/// Statements of the policy, which is then about 20 KiB long.
const STATEMENTS: usize = 100;

/// Requests against a prepared world.
pub(crate) struct Case {
    pub(crate) world: World,
    /// Requests, those that fill the caches first.
    pub(crate) requests: Vec<SignedRequest>,
    /// HTTP status of each reply.
    pub(crate) status: u16,
}

/// Preparation of a case.
type Preparation = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Case>>>>;

/// Feature that a bucket has on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Feature {
    None,
    /// A policy of about 20 KiB, which admits another tenant.
    Policy,
    /// Access control lists, one of which admits another tenant.
    List,
    /// Access logs, delivered into another bucket.
    Logs,
    /// Notification rules for all events.
    Notifications,
    /// A quota of bytes and objects.
    Quota,
    /// Versioning.
    Versions,
    /// Three copies, each on a device of its own.
    Copies,
}

/// All cases by name.
pub(crate) fn all() -> Vec<(&'static str, Preparation)> {
    vec![
        ("get-4k", Box::new(|| Box::pin(get(Feature::None)))),
        ("get-4k-policy", Box::new(|| Box::pin(get(Feature::Policy)))),
        ("get-4k-list", Box::new(|| Box::pin(get(Feature::List)))),
        ("get-4k-logs", Box::new(|| Box::pin(get(Feature::Logs)))),
        ("get-4k-notifications", Box::new(|| Box::pin(get(Feature::Notifications)))),
        ("get-4k-quota", Box::new(|| Box::pin(get(Feature::Quota)))),
        ("get-4k-versions", Box::new(|| Box::pin(get(Feature::Versions)))),
        ("get-4k-copies", Box::new(|| Box::pin(get(Feature::Copies)))),
        ("head", Box::new(|| Box::pin(head()))),
        ("range-1m", Box::new(|| Box::pin(range()))),
        ("put-4k", Box::new(|| Box::pin(put(Feature::None)))),
        ("put-4k-policy", Box::new(|| Box::pin(put(Feature::Policy)))),
        ("put-4k-notifications", Box::new(|| Box::pin(put(Feature::Notifications)))),
        ("put-4k-quota", Box::new(|| Box::pin(put(Feature::Quota)))),
        ("put-4k-versions", Box::new(|| Box::pin(put(Feature::Versions)))),
        ("put-4k-copies", Box::new(|| Box::pin(put(Feature::Copies)))),
        ("list-1000", Box::new(|| Box::pin(list()))),
        ("delete", Box::new(|| Box::pin(delete()))),
    ]
}

async fn get(feature: Feature) -> Case {
    let world = with_bucket(feature).await;
    let grant = format!("id=\"{}\"", world.blue);
    let grants = [("x-amz-grant-read", grant.as_str())];
    let headers = if feature == Feature::List { &grants[..] } else { &[] };
    world.prepare(signed(OWNER, &Method::PUT, "/bucket/key", headers, body(SMALL))).await;
    let reader = requester(feature);
    let request = || signed(reader, &Method::GET, "/bucket/key", &[], Bytes::new());
    Case { world, requests: times(REQUESTS, |_| request()), status: 200 }
}

async fn head() -> Case {
    let world = with_bucket(Feature::None).await;
    world.prepare(signed(OWNER, &Method::PUT, "/bucket/key", &[], body(SMALL))).await;
    let request = |_| signed(OWNER, &Method::HEAD, "/bucket/key", &[], Bytes::new());
    Case { world, requests: times(REQUESTS, request), status: 200 }
}

async fn range() -> Case {
    let world = with_bucket(Feature::None).await;
    world.prepare(signed(OWNER, &Method::PUT, "/bucket/key", &[], body(4 * MIB))).await;
    let range = format!("bytes={}-{}", MIB, 2 * MIB - 1);
    let headers = [("range", range.as_str())];
    let request = |_| signed(OWNER, &Method::GET, "/bucket/key", &headers, Bytes::new());
    Case { world, requests: times(FEW_REQUESTS, request), status: 206 }
}

async fn put(feature: Feature) -> Case {
    let world = with_bucket(feature).await;
    let body = body(SMALL);
    let writer = requester(feature);
    let request =
        |at| signed(writer, &Method::PUT, &format!("/bucket/key-{at:04}"), &[], body.clone());
    Case { world, requests: times(REQUESTS, request), status: 200 }
}

async fn list() -> Case {
    let world = with_bucket(Feature::None).await;
    for at in 0..1000 {
        let key = format!("/bucket/key-{at:04}");
        world.prepare(signed(OWNER, &Method::PUT, &key, &[], body(1))).await;
    }
    let request = |_| signed(OWNER, &Method::GET, "/bucket?list-type=2", &[], Bytes::new());
    Case { world, requests: times(FEW_REQUESTS, request), status: 200 }
}

async fn delete() -> Case {
    let world = with_bucket(Feature::None).await;
    for at in 0..WARM_UP + REQUESTS {
        let key = format!("/bucket/key-{at:04}");
        world.prepare(signed(OWNER, &Method::PUT, &key, &[], body(1))).await;
    }
    let request =
        |at| signed(OWNER, &Method::DELETE, &format!("/bucket/key-{at:04}"), &[], Bytes::new());
    Case { world, requests: times(REQUESTS, request), status: 204 }
}

/// Makes the requests of a case, and those that fill its caches.
fn times(count: usize, request: impl Fn(usize) -> SignedRequest) -> Vec<SignedRequest> {
    (0..WARM_UP + count).map(request).collect()
}

fn body(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from(at % 251).expect("a remainder of 251")).collect()
}

/// Access key of the counted requests: of the tenant that the feature admits, or of the owner.
fn requester(feature: Feature) -> &'static str {
    if matches!(feature, Feature::Policy | Feature::List) { OTHER } else { OWNER }
}

/// A world with the bucket `bucket`.
async fn with_bucket(feature: Feature) -> World {
    let mut world = World::new(if feature == Feature::Copies { 3 } else { 1 }).await;
    if feature == Feature::Notifications {
        world = world.observed();
    }
    let ownership = [("x-amz-object-ownership", "ObjectWriter")];
    let headers = if feature == Feature::List { &ownership[..] } else { &[] };
    world.prepare(signed(OWNER, &Method::PUT, "/bucket", headers, Bytes::new())).await;
    let document = match feature {
        Feature::None | Feature::List | Feature::Copies => return world,
        Feature::Quota => {
            let set = world.store.buckets().change_quota("bucket", |quota| {
                (quota.bytes, quota.objects) = (Some(1 << 40), Some(1 << 30));
            });
            set.await.expect("the bucket exists");
            return world;
        }
        Feature::Policy => ("policy", policy()),
        Feature::Logs => {
            world.prepare(signed(OWNER, &Method::PUT, "/logs", &[], Bytes::new())).await;
            let admits = "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\
                 \"Principal\":{\"Service\":\"logging.s3.amazonaws.com\"},\
                 \"Action\":\"s3:PutObject\",\"Resource\":\"arn:aws:s3:::logs/*\"}]}";
            let admits = Bytes::from_static(admits.as_bytes());
            world.prepare(signed(OWNER, &Method::PUT, "/logs?policy", &[], admits)).await;
            let settings = "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket>\
                 <TargetPrefix>of/</TargetPrefix></LoggingEnabled></BucketLoggingStatus>";
            ("logging", settings.to_owned())
        }
        Feature::Notifications => (
            "notification",
            "<NotificationConfiguration><QueueConfiguration><Queue>arn:martlet:sqs:::hook</Queue>\
             <Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</Event>\
             </QueueConfiguration></NotificationConfiguration>"
                .to_owned(),
        ),
        Feature::Versions => (
            "versioning",
            "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
                .to_owned(),
        ),
    };
    let (subresource, document) = document;
    let target = format!("/bucket?{subresource}");
    world.prepare(signed(OWNER, &Method::PUT, &target, &[], document.into())).await;
    world
}

/// A policy whose last statement admits the tenant `blue`.
fn policy() -> String {
    let statement = |folder: String, actions: &str| {
        format!(
            "{{\"Effect\":\"Allow\",\"Principal\":{{\"AWS\":\"arn:aws:iam::blue:root\"}},\
             \"Action\":[{actions}],\"Resource\":\"arn:aws:s3:::bucket/{folder}*\"}}"
        )
    };
    let mut statements: Vec<String> = (0..STATEMENTS)
        .map(|at| statement(format!("folder-{at:03}-of-a-dataset/"), "\"s3:GetObject\""))
        .collect();
    statements.push(statement(String::new(), "\"s3:GetObject\",\"s3:PutObject\""));
    format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{}]}}", statements.join(","))
}
