//! Attacks on the gate: wrong credentials, replays, swapped bodies, clocks, and keys that have ended.

use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use martlet_admin_api::principals::AdminRole;

use super::{HOUR_MS, Kind, NOW_MS, TENANTS, TestProcess, sign};
use crate::AdminToken;
use crate::access::principal::AdminKeyState;
use crate::access::{AdminSecret, SessionClaims, SigningKey};

#[tokio::test]
async fn requests_without_valid_credentials_look_nothing_up() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::Operator);
    let wrong = SigningKey { secret: "another".into(), ..key.clone() };
    let foreign = AdminSecret::derive(&[8; 32]);
    let of_other_cluster = foreign.seal(&process.session(&key, HOUR_MS));
    let other_token = AdminToken::of(b"other").to_text();
    let mut answers = vec![
        process.send(Request::get("/operate").body(Body::empty()).unwrap()).await,
        process.signed(&wrong, "GET", "/operate", "").await,
        process.bearer("GET", "/operate", &of_other_cluster).await,
        process.bearer("GET", "/operate", &other_token).await,
        process.bearer("GET", "/operate", "").await,
        process.bearer("GET", "/nothing", "x").await,
    ];
    let twice = Request::get("/operate")
        .header(header::AUTHORIZATION, "Bearer x")
        .header(header::AUTHORIZATION, format!("Bearer {}", AdminToken::of(b"secret").to_text()));
    answers.push(process.send(twice.body(Body::empty()).unwrap()).await);
    // The head of a huge body is refused without a byte of the body.
    let endless = futures::stream::pending::<Result<Bytes, std::io::Error>>();
    let huge = Request::put("/operate").body(Body::from_stream(endless)).unwrap();
    answers.push(process.send(huge).await);
    for answer in answers {
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{answer:?}");
        assert!(answer.text.contains("error"), "{answer:?}");
    }
    assert_eq!(process.accounts.lookups.load(Ordering::Relaxed), 0);
    assert_eq!(process.reached.load(Ordering::Relaxed), 0);
    for folder in ["", TENANTS] {
        assert!(process.records(folder).is_empty(), "strangers leave no records");
    }
}

#[tokio::test]
async fn a_change_can_not_be_replayed_and_a_body_not_be_swapped() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::Operator);
    let request = || sign(&key, "PUT", "/operate", "{}", process.now_ms());
    let (first, mut swapped) = (request(), request());
    let mut again = Request::put("/operate");
    for (name, value) in first.headers() {
        again = again.header(name, value);
    }
    let again = again.body(Body::from("{}")).unwrap();
    assert_eq!(process.send(first).await.status, StatusCode::OK);
    let answer = process.send(again).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(answer.text.contains("used before"), "{}", answer.text);
    *swapped.body_mut() = Body::from(r#"{"x": 1}"#);
    let answer = process.send(swapped).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(answer.text.contains("not the one that was signed"), "{}", answer.text);
    assert_eq!(process.reached.load(Ordering::Relaxed), 1);
    let mut unsigned_content = request();
    let headers = unsigned_content.headers_mut();
    let name = HeaderName::from_static("x-amz-content-sha256");
    headers.insert(name, HeaderValue::from_static("UNSIGNED-PAYLOAD"));
    assert_eq!(process.send(unsigned_content).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn dates_bound_replays_also_across_a_restart() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::Operator);
    let answer = async |method: &str, at_ms: u64| {
        process.send(sign(&key, method, "/operate", "", at_ms)).await
    };
    let five_min_ms = 5 * 60 * 1000;
    process.clock.0.store(NOW_MS + HOUR_MS, Ordering::Relaxed);
    let now_ms = process.now_ms();
    for at_ms in [now_ms - five_min_ms, now_ms, now_ms + five_min_ms] {
        assert_eq!(answer("PUT", at_ms).await.status, StatusCode::OK);
    }
    for at_ms in [now_ms - five_min_ms - 1000, now_ms + five_min_ms + 1000] {
        let answer = answer("PUT", at_ms).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert!(answer.text.contains("set the clock"), "{}", answer.text);
    }
    process.clock.0.store(NOW_MS + 1000, Ordering::Relaxed);
    let before = answer("PUT", NOW_MS - 1000).await;
    assert!(before.text.contains("before the process began"), "{}", before.text);
    assert_eq!(answer("GET", NOW_MS - 1000).await.status, StatusCode::OK);
}

#[tokio::test]
async fn revoked_and_expired_keys_and_their_sessions_are_refused() {
    let process = TestProcess::new(Kind::WithAccounts).await;
    let key = process.key(AdminRole::Operator);
    let [one, two] = [(); 2].map(|()| process.session(&key, HOUR_MS));
    let status = async |claims: &SessionClaims| {
        process.bearer("GET", "/operate", &process.secret.seal(claims)).await.status
    };
    assert_eq!((status(&one).await, status(&two).await), (StatusCode::OK, StatusCode::OK));
    let change = |change: &dyn Fn(&mut AdminKeyState)| {
        change(process.accounts.keys.lock().get_mut(&key.id).unwrap());
    };
    change(&|state| state.ended.push(one.id.clone()));
    assert_eq!(status(&one).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&two).await, StatusCode::OK);
    // A session has no role that its key doesn't have. A session that may read alone operates nothing.
    let viewer = SessionClaims { role: AdminRole::Viewer, ..two.clone() };
    assert_eq!(status(&viewer).await, StatusCode::FORBIDDEN);
    let of_tenant = SessionClaims { role: AdminRole::TenantAdmin, ..two.clone() };
    assert_eq!(status(&of_tenant).await, StatusCode::UNAUTHORIZED);
    change(&|state| state.sessions_from_ms = two.began_ms + 1);
    assert_eq!(status(&two).await, StatusCode::UNAUTHORIZED);
    process.clock.0.fetch_add(1000, Ordering::Relaxed);
    let three = process.session(&key, HOUR_MS);
    assert_eq!(status(&three).await, StatusCode::OK);
    process.clock.0.fetch_add(HOUR_MS, Ordering::Relaxed);
    assert_eq!(status(&three).await, StatusCode::UNAUTHORIZED, "its hour is over");

    assert_eq!(process.signed(&key, "GET", "/operate", "").await.status, StatusCode::OK);
    change(&|state| state.expires_ms = Some(NOW_MS));
    let expired = process.signed(&key, "GET", "/operate", "").await;
    assert_eq!(expired.status, StatusCode::UNAUTHORIZED);
    let another = process.key(AdminRole::Operator);
    let session = process.session(&another, HOUR_MS);
    process.accounts.keys.lock().clear();
    assert_eq!(status(&session).await, StatusCode::UNAUTHORIZED);
    let revoked = process.signed(&another, "GET", "/operate", "").await;
    assert!(revoked.text.contains("revoked"), "{}", revoked.text);
    process.accounts.is_out.store(true, Ordering::Relaxed);
    let unknown = process.signed(&another, "GET", "/operate", "").await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE);
}
