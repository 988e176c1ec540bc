//! A store in memory behind the whole S3 service, and signed requests for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DeviceId, ManualClock, PolicyId};
use martlet_proxy::{Accounts, Cluster, MasterKey, NewKey, ObjectStore, StoreOptions, Vault};
use martlet_ring::Ring;
use martlet_ring::fixtures::device;
use martlet_s3compat::auth::Keys;
use martlet_s3compat::http::HttpConfig;
use martlet_s3compat::{BucketLogs, DeliveryOptions, EventSink, Observers, S3Service, TokenKey};
use sha2::{Digest, Sha256};

/// 2026-01-01T00:00:00Z.
const NOW_MS: u64 = 1_767_225_600_000;
const AMZ_DATE: &str = "20260101T000000Z";
const SCOPE: &str = "20260101/us-east-1/s3/aws4_request";
const HOST: &str = "127.0.0.1:9000";
const SECRET: &str = "the secret of all keys of this bench";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Lifetime of cached buckets and keys: longer than any run, so that counts do not depend on time.
const CACHE_MS: u64 = 24 * 60 * 60 * 1000;

/// A request with its signature.
pub(crate) type SignedRequest = Request<Full<Bytes>>;

/// A service with its store, and logs of buckets as every server has: their delivery does not run. The
/// tenants `red` and `blue` have access keys of these names.
pub(crate) struct World {
    pub(crate) service: S3Service,
    pub(crate) store: ObjectStore,
    /// Canonical id of the tenant `blue`.
    pub(crate) blue: String,
    observers: Observers,
}

impl World {
    /// Makes a store of as many devices as copies.
    pub(crate) async fn new(copies: u32) -> Self {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let ids: Vec<DeviceId> = (1..=copies).map(DeviceId).collect();
        let node: Arc<dyn Backend> = Arc::new(MemoryBackend::new(clock.clone(), ids.clone()));
        let devices: Vec<_> =
            ids.iter().map(|id| device(id.0, format!("n{}", id.0), "d1")).collect();
        let ring =
            Ring::of_devices(PolicyId(0), ids.len(), &devices).expect("a device for each copy");
        let ring = Arc::new(ring);
        let nodes: HashMap<_, _> = ids.into_iter().map(|id| (id, node.clone())).collect();
        let cluster = Cluster::new(ring.clone(), vec![ring], nodes).expect("devices have a node");
        let options = StoreOptions {
            bucket_cache_ms: CACHE_MS,
            account_cache_ms: CACHE_MS,
            ..StoreOptions::default()
        };
        let store = ObjectStore::new(cluster, clock.clone(), options);
        let accounts = Accounts::new(store.clone(), Vault::new(vec![MasterKey::new(&[1; 32])]));
        tenant(&accounts, "red").await;
        let blue = tenant(&accounts, "blue").await;
        let keys = Keys::new([]).with_accounts(accounts);
        let tokens = TokenKey::derive(&[5; 32]);
        let options = DeliveryOptions { interval: Duration::MAX, region: "us-east-1".into() };
        let (logs, _) = BucketLogs::new(store.clone(), clock.clone(), options);
        let observers = Observers { bucket_logs: Some(logs), ..Observers::default() };
        let service = S3Service::new(store.clone(), HttpConfig::default(), clock, keys, tokens)
            .observed_by(observers.clone());
        Self { service, store, blue, observers }
    }

    /// This world with a receiver of events, too, that drops them.
    pub(crate) fn observed(self) -> Self {
        let observers = Observers { sink: Some(Arc::new(DroppingSink)), ..self.observers };
        Self { service: self.service.observed_by(observers.clone()), observers, ..self }
    }

    /// Executes a request of the preparation, which must succeed.
    pub(crate) async fn prepare(&self, request: SignedRequest) {
        let target = format!("{} {}", request.method(), request.uri());
        let reply = self.service.call(request).await;
        let status = reply.status();
        let body = reply.into_body().collect().await.expect("the reply is whole").to_bytes();
        assert!(status.is_success(), "{target}: {status} {}", String::from_utf8_lossy(&body));
    }
}

/// Receiver of events that drops them.
#[derive(Debug)]
struct DroppingSink;

impl EventSink for DroppingSink {
    fn admits(&self, _target: &str, _tenant: &str) -> bool {
        true
    }

    fn offer(&self, _target: &str, _owner: &str, _message: Bytes) {}
}

/// Creates a tenant with an access key of the same name, and returns the tenant's canonical id.
async fn tenant(accounts: &Accounts, name: &str) -> String {
    let made = accounts.tenants().create(name, None, Vec::new()).await.expect("the name is free");
    let key = NewKey {
        tenant: name.into(),
        user: None,
        given: Some((name.to_uppercase(), SECRET.into())),
        networks: Vec::new(),
    };
    accounts.keys().create(key).await.expect("the key is free");
    made.canonical_id
}

/// Signs a request by an access key. The target's query must be sorted, and encoded as S3 does.
pub(crate) fn signed(
    access_key: &str,
    method: &Method,
    target: &str,
    more: &[(&str, &str)],
    body: Bytes,
) -> SignedRequest {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = if query.is_empty() || query.contains('=') {
        query.to_owned()
    } else {
        format!("{query}=")
    };
    let mut headers = more.to_vec();
    headers.extend([("host", HOST), ("x-amz-content-sha256", UNSIGNED), ("x-amz-date", AMZ_DATE)]);
    headers.sort_unstable();
    let lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let lines = lines.concat();
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{UNSIGNED}");
    let hash = hex::encode(Sha256::digest(canonical));
    let time = UNIX_EPOCH + Duration::from_millis(NOW_MS);
    let key = generate_signing_key(SECRET, time, "us-east-1", "s3");
    let text = format!("AWS4-HMAC-SHA256\n{AMZ_DATE}\n{SCOPE}\n{hash}");
    let signature = calculate_signature(key, text.as_bytes());
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={access_key}/{SCOPE}, SignedHeaders={names}, \
         Signature={signature}"
    );
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request
        .header("authorization", authorization)
        .header("content-length", body.len())
        .body(Full::new(body))
        .expect("all parts are plain ASCII")
}
