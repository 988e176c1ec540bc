//! A store in memory behind the whole S3 service, and a client that signs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use martlet_protocol::extent_token::ExtentTokenKey;
use martlet_protocol::testing::MemoryBackend;
use martlet_protocol::{Backend, DataPort, DeviceId, ManualClock, Network, PolicyId};
use martlet_proxy::{
    Accounts, Cluster, MasterKey, NewKey, NewUser, ObjectStore, Role, StoreOptions, Vault,
};
use martlet_ring::{Device, Node, Ring};
use martlet_s3compat::auth::{Identity, Keys, SecretKey};
use martlet_s3compat::http::{HttpConfig, ResponseBody};
use martlet_s3compat::{
    InPlaceConfig, Peer, S3Service, SessionKey, TlsParameters, TlsVersion, TokenKey,
};
use md5::Md5;
use sha2::{Digest, Sha256};

/// 2026-01-01T00:00:00Z.
pub(crate) const NOW_MS: u64 = 1_767_225_600_000;
const AMZ_DATE: &str = "20260101T000000Z";
const SCOPE: &str = "20260101/us-east-1/s3/aws4_request";
const HOST: &str = "127.0.0.1:9000";
const SECRET: &str = "a secret that only tests know";
/// URL of the device's data port.
pub(crate) const DATA_URL: &str = "http://n1:9002";
/// Small parts make uploads of several parts cheap.
pub(crate) const PART_BYTES_MIN: u64 = 16;

/// A service with its store.
pub(crate) struct World {
    service: S3Service,
    pub(crate) store: ObjectStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) node: Arc<MemoryBackend>,
    pub(crate) device: DeviceId,
    /// Tenants, users and keys of the store.
    pub(crate) accounts: Accounts,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_policies(Vec::new())
    }

    /// A world with further storage policies over its device.
    pub(crate) fn with_policies(others: Vec<Arc<Ring>>) -> Self {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let device = DeviceId(1);
        let node = Arc::new(MemoryBackend::new(clock.clone(), [device]));
        let ring = Arc::new(Ring::of_devices(PolicyId(0), 1, &[in_ring(device)]).unwrap());
        let nodes = HashMap::from([(device, node.clone() as Arc<dyn Backend>)]);
        let data = std::iter::once(ring.clone()).chain(others).collect();
        let cluster = Cluster::new(ring, data, nodes).unwrap();
        Self::over(cluster, clock, node, device)
    }

    /// A service with empty caches over a cluster, of which this is one node.
    pub(crate) fn over(
        cluster: Cluster,
        clock: Arc<ManualClock>,
        node: Arc<MemoryBackend>,
        device: DeviceId,
    ) -> Self {
        let options = StoreOptions {
            part_bytes_min: PART_BYTES_MIN,
            // Changes of accounts apply at once.
            account_cache_ms: 0,
            ..StoreOptions::default()
        };
        let store = ObjectStore::new(cluster, clock.clone(), options);
        let secret = SecretKey::new(SECRET);
        let keys = Keys::new([
            ("ALICE".to_owned(), secret.clone(), Identity::known("alice")),
            ("BOB".to_owned(), secret.clone(), Identity::known("bob")),
            ("ROOT".to_owned(), secret, Identity::known("root")),
        ]);
        let accounts = Accounts::new(store.clone(), Vault::new(vec![MasterKey::new(&[1; 32])]));
        let sessions = SessionKey::derive(&[5; 32]);
        let keys = keys.with_accounts(accounts.clone()).with_sessions(
            accounts.clone(),
            sessions,
            Vec::new(),
        );
        let tokens = TokenKey::derive(&[5; 32]);
        let config = HttpConfig { allow_anonymous: true, ..HttpConfig::default() };
        let service = S3Service::new(store.clone(), config, clock.clone(), keys, tokens);
        Self { service, store, clock, node, device, accounts }
    }

    /// Puts the device behind a data port, and returns the key of the tokens.
    pub(crate) fn with_data_port(self) -> (Self, ExtentTokenKey) {
        self.with_data_port_at(DATA_URL)
    }

    /// Puts the device behind a data port of this URL, and returns the key of the tokens.
    pub(crate) fn with_data_port_at(mut self, url: &str) -> (Self, ExtentTokenKey) {
        let key = ExtentTokenKey::derive(&[6; 32]);
        let port = DataPort::new(url, "0f").unwrap();
        self.store.topology().set_data_ports(Arc::new(move |_| Some(port.clone())));
        let config = InPlaceConfig::new(key.clone(), u64::MAX);
        self.service = self.service.reading_in_place(config);
        (self, key)
    }

    /// A world with the bucket `bkt`.
    pub(crate) async fn with_bucket() -> Self {
        let world = Self::new();
        world.call("PUT", "/bkt").send().await.expect(200);
        world
    }

    /// Creates a tenant with this access key, and returns the tenant's canonical id.
    pub(crate) async fn tenant(&self, name: &str, access_key: &str) -> String {
        let display_name = format!("{name} by name");
        let made = self.accounts.tenants().create(name, Some(&display_name), Vec::new()).await;
        self.key(name, None, access_key).await;
        made.unwrap().canonical_id
    }

    /// Creates a user of a tenant with this access key.
    pub(crate) async fn user(&self, tenant: &str, name: &str, role: Role, access_key: &str) {
        let new = NewUser { tenant: tenant.into(), name: name.into(), role };
        self.accounts.users().create(new).await.unwrap();
        self.key(tenant, Some(name), access_key).await;
    }

    pub(crate) async fn key(&self, tenant: &str, user: Option<&str>, access_key: &str) {
        self.key_within(tenant, user, access_key, Vec::new()).await;
    }

    /// Makes an access key that is good within networks.
    pub(crate) async fn key_within(
        &self,
        tenant: &str,
        user: Option<&str>,
        access_key: &str,
        networks: Vec<Network>,
    ) {
        let new = NewKey {
            tenant: tenant.into(),
            user: user.map(str::to_owned),
            given: Some((access_key.into(), SECRET.into())),
            networks,
        };
        self.accounts.keys().create(new).await.unwrap();
    }

    /// Begins a request; path and query are encoded as on the wire.
    pub(crate) fn call(&self, method: &'static str, target: &str) -> TestRequest<'_> {
        TestRequest {
            world: self,
            method,
            target: target.to_owned(),
            access_key: "ALICE".to_owned(),
            secret: SECRET.to_owned(),
            payload: "UNSIGNED-PAYLOAD",
            headers: Vec::new(),
            body: Bytes::new(),
            peer: None,
            tls: None,
        }
    }

    /// Follows a presigned link of an access key to `path`.
    pub(crate) async fn link(&self, access_key: &str, path: &str) -> TestReply {
        let credential = format!("{access_key}%2F{}", SCOPE.replace('/', "%2F"));
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={AMZ_DATE}\
             &X-Amz-Expires=600&X-Amz-SignedHeaders=host"
        );
        let canonical = format!("GET\n{path}\n{query}\nhost:{HOST}\n\nhost\nUNSIGNED-PAYLOAD");
        let signature = sign("AWS4-HMAC-SHA256", &hex::encode(Sha256::digest(canonical)));
        let request = Request::get(format!("{path}?{query}&X-Amz-Signature={signature}"));
        let request = request.header("host", HOST).body(Full::new(Bytes::new())).unwrap();
        TestReply::of(self.service.call(request).await).await
    }

    pub(crate) async fn put(&self, target: &str, body: impl Into<Bytes>) -> TestReply {
        self.call("PUT", target).body(body).send().await.expect(200)
    }

    pub(crate) async fn get(&self, target: &str) -> TestReply {
        self.call("GET", target).send().await
    }
}

pub(crate) fn in_ring(id: DeviceId) -> Device {
    Device {
        id,
        region: 1,
        zone: 1,
        node: Node { name: format!("n{}", id.0), address: "127.0.0.1:6200".into() },
        name: "d1".into(),
        weight: 100.0,
        meta: String::new(),
    }
}

/// A request that can be changed before it is sent.
pub(crate) struct TestRequest<'a> {
    world: &'a World,
    method: &'static str,
    target: String,
    access_key: String,
    secret: String,
    payload: &'static str,
    headers: Vec<(String, String)>,
    body: Bytes,
    peer: Option<Peer>,
    tls: Option<TlsParameters>,
}

impl TestRequest<'_> {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn by(mut self, access_key: &str) -> Self {
        access_key.clone_into(&mut self.access_key);
        self
    }

    /// Signs by a session, with its token.
    pub(crate) fn of_session(mut self, session: &SessionCredentials) -> Self {
        self.access_key.clone_from(&session.access_key);
        self.secret.clone_from(&session.secret);
        self.header("x-amz-security-token", &session.token)
    }

    /// Sets the client's address.
    pub(crate) fn from(mut self, address: &str) -> Self {
        self.peer = Some(Peer(address.parse().unwrap()));
        self
    }

    /// Sends by a connection in TLS 1.3.
    pub(crate) fn over_tls(mut self) -> Self {
        self.tls = Some(TlsParameters { version: TlsVersion::V1_3, cipher: None });
        self
    }

    /// Sets `x-amz-content-sha256`.
    pub(crate) fn payload(mut self, payload: &'static str) -> Self {
        self.payload = payload;
        self
    }

    pub(crate) async fn send(self) -> TestReply {
        let authorization = self.sign();
        self.request(Some(authorization)).await
    }

    /// Sends a body that is made from the request's own signature.
    pub(crate) async fn send_chunks(self, body: impl FnOnce(&str) -> Vec<u8>) -> TestReply {
        let authorization = self.sign();
        let seed = authorization.rsplit('=').next().unwrap_or_default();
        let body = body(seed);
        self.body(body).request(Some(authorization)).await
    }

    pub(crate) async fn send_unsigned(self) -> TestReply {
        self.request(None).await
    }

    fn all_headers(&self) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        headers.push(("host".into(), HOST.into()));
        headers.push(("x-amz-date".into(), AMZ_DATE.into()));
        headers.push(("x-amz-content-sha256".into(), self.payload.into()));
        // DeleteObjects requires a checksum.
        if self.target.ends_with("?delete")
            && !headers.iter().any(|(name, _)| name == "content-md5")
        {
            let digest = STANDARD.encode(Md5::digest(&self.body));
            headers.push(("content-md5".into(), digest));
        }
        headers.sort();
        headers
    }

    fn sign(&self) -> String {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut pairs: Vec<String> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
            .collect();
        pairs.sort();
        let headers = self.all_headers();
        let lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let canonical = format!(
            "{}\n{path}\n{}\n{}\n{names}\n{}",
            self.method,
            pairs.join("&"),
            lines.concat(),
            self.payload
        );
        let hash = hex::encode(Sha256::digest(canonical));
        let signature = sign_with(&self.secret, "s3", &hash);
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{SCOPE}, SignedHeaders={names}, Signature={signature}",
            self.access_key
        )
    }

    async fn request(self, authorization: Option<String>) -> TestReply {
        let mut request = Request::builder().method(self.method).uri(&self.target);
        for (name, value) in self.all_headers() {
            request = request.header(name, value);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        if !self.headers.iter().any(|(name, _)| name == "content-length") {
            request = request.header("content-length", self.body.len());
        }
        let mut request = request.body(Full::new(self.body)).unwrap();
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(tls) = self.tls {
            request.extensions_mut().insert(tls);
        }
        TestReply::of(self.world.service.call(request).await).await
    }
}

/// Credentials of a session.
#[derive(Clone)]
pub(crate) struct SessionCredentials {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) token: String,
}

/// Signature of a request with this hash, for a service.
fn sign_with(secret: &str, service: &str, hash: &str) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(NOW_MS);
    let key = generate_signing_key(secret, time, "us-east-1", service);
    let scope = SCOPE.replace("s3", service);
    let text = format!("AWS4-HMAC-SHA256\n{AMZ_DATE}\n{scope}\n{hash}");
    calculate_signature(key, text.as_bytes())
}

impl World {
    /// Posts a form to the token service, signed by a key or by a session.
    pub(crate) async fn ask_tokens(
        &self,
        by: &str,
        session: Option<&SessionCredentials>,
        form: &str,
    ) -> TestReply {
        let (access_key, secret) =
            session.map_or((by, SECRET), |it| (it.access_key.as_str(), it.secret.as_str()));
        let kind = "application/x-www-form-urlencoded";
        let mut headers = vec![("content-type", kind), ("host", HOST), ("x-amz-date", AMZ_DATE)];
        headers.extend(session.map(|it| ("x-amz-security-token", it.token.as_str())));
        headers.sort_unstable();
        let lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let lines = lines.concat();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let payload = hex::encode(Sha256::digest(form));
        let canonical = format!("POST\n/\n\n{lines}\n{names}\n{payload}");
        let signature = sign_with(secret, "sts", &hex::encode(Sha256::digest(canonical)));
        let scope = SCOPE.replace("s3", "sts");
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, \
             Signature={signature}"
        );
        let mut request = Request::post("/").header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(form.to_owned()))).unwrap();
        TestReply::of(self.service.call(request).await).await
    }

    /// Posts an unsigned form to the token service.
    pub(crate) async fn ask_tokens_unsigned(&self, form: &str) -> TestReply {
        let request = Request::post("/")
            .header("host", HOST)
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .body(Full::new(Bytes::from(form.to_owned())));
        TestReply::of(self.service.call(request.unwrap()).await).await
    }
}

/// Signature at the tests' time, of a string with this algorithm and content.
pub(crate) fn sign(kind: &str, content: &str) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(NOW_MS);
    let key = generate_signing_key(SECRET, time, "us-east-1", "s3");
    calculate_signature(key, format!("{kind}\n{AMZ_DATE}\n{SCOPE}\n{content}").as_bytes())
}

/// A reply.
#[derive(Debug)]
pub(crate) struct TestReply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Result<Bytes, String>,
}

impl TestReply {
    async fn of(response: Response<ResponseBody>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.map_err(|error| error.to_string()),
        }
    }

    /// Returns the reply, which must have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Checks that the reply is an error with this status and code.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) {
        let told = self.all("Code");
        assert_eq!(
            (self.status, told.first().map(String::as_str)),
            (status, Some(code)),
            "{self:?}"
        );
        assert_eq!(self.all("RequestId").len(), 1, "every error names its request");
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.body.clone().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    /// Contents of all elements of a name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let pieces = text.split(&open).skip(1).filter_map(|rest| rest.split_once(&close));
        pieces.map(|(inner, _)| inner.to_owned()).collect()
    }

    /// Content of the only element of a name.
    #[track_caller]
    pub(crate) fn one(&self, name: &str) -> String {
        let mut all = self.all(name);
        assert_eq!(all.len(), 1, "{name} in {self:?}");
        all.remove(0)
    }
}
