//! Tests of rates and shares of turns at the HTTP pipeline.

use martlet_proxy::Rate;

use super::*;
use crate::access::AccountIdentity;
use crate::auth::testing::{ACCESS_KEY, SECRET};
use crate::auth::{Keys, SecretKey};
use crate::limits::LimitReason;
use crate::limits::meter::Meters;
use crate::refusal::{Code, Refusal};

/// An HTTP service that maps the documentation's key to an account with a rate. No request waits.
fn service_at(rate: Rate, requests_max: usize) -> HttpService<Recorder> {
    service_of(rate, HttpConfig { requests_max, waiting_max: 0, ..HttpConfig::default() })
}

fn service_of(rate: Rate, config: HttpConfig) -> HttpService<Recorder> {
    let who = AccountIdentity { meters: Meters::at(rate), ..AccountIdentity::named("alice") };
    let identity = Identity::Known(Arc::new(who));
    let keys = Keys::new([(ACCESS_KEY.to_owned(), SecretKey::new(SECRET), identity)]);
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let config = HttpConfig { allow_anonymous: true, ..config };
    HttpService::new(config, clock, keys, None, Recorder::default())
}

async fn get(service: &HttpService<Recorder>) -> (StatusCode, HeaderMap, String) {
    send(service, request("GET", "/b/k", &[]), UNSIGNED, b"").await
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_rate_get_retry_after() {
    let service = service_at(Rate { requests: Some(2), bytes: None }, 8);
    for _ in 0..2 {
        assert_eq!(get(&service).await.0, StatusCode::OK);
    }
    let refused = get(&service).await;
    assert_eq!((refused.0, code(&refused)), (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
    assert_eq!(refused.1["retry-after"], "1");
    let anonymous = deliver(&service, request("GET", "/b/k", &[]), b"").await;
    assert_eq!(anonymous.0, StatusCode::OK, "nobody else has that rate");
    let wrong = TestSignature { secret: "wrong", ..TestSignature::default() };
    let wrong = deliver(&service, wrong.sign(request("GET", "/b/k", &[]), UNSIGNED), b"").await;
    assert_eq!(wrong.0, StatusCode::FORBIDDEN, "whoever can't sign is told so");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(get(&service).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_bodies_are_metered_both_ways() {
    let service = service_at(Rate { requests: None, bytes: Some(10) }, 8);
    let put = request("PUT", "/b/k", &[("content-length", "36")]);
    // The reply has five more bytes.
    assert_eq!(send(&service, put, UNSIGNED, &[7; 36]).await.0, StatusCode::OK);
    let refused = get(&service).await;
    assert_eq!((code(&refused), refused.1["retry-after"].to_str().unwrap()), ("SlowDown", "4"));
    let ms: u64 = refused.1["x-amz-retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3000..=4000).contains(&ms), "{ms}");
    tokio::time::advance(Duration::from_millis(3100)).await;
    assert_eq!(get(&service).await.0, StatusCode::OK);
    assert_eq!(get(&service).await.0, StatusCode::SERVICE_UNAVAILABLE, "those were the last");
}

#[tokio::test]
async fn an_account_leaves_turns_to_others() {
    let service = service_at(Rate::default(), 16);
    let ask = || TestSignature::default().sign(request("GET", "/b/k", &[]), UNSIGNED);
    let answer = |request: Request<()>| service.answer(request.map(|()| Full::new(Bytes::new())));
    let mut held = Vec::new();
    let refused = loop {
        let response = answer(ask()).await;
        if response.status() != StatusCode::OK {
            break response;
        }
        held.push(response);
    };
    assert_eq!(refused.extensions().get(), Some(&LimitReason::Share));
    assert_eq!(held.len(), 14);
    drop(refused);
    let other = answer(request("GET", "/b/k", &[])).await;
    assert_eq!(other.status(), StatusCode::OK);
    drop((held, other));
    assert_eq!(answer(ask()).await.status(), StatusCode::OK);
}

/// A body that never sends a byte.
fn silent() -> http_body_util::combinators::BoxBody<Bytes, Infallible> {
    let nothing = futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>();
    BodyExt::boxed(http_body_util::StreamBody::new(nothing))
}

#[tokio::test]
async fn slow_clients_hold_only_their_own_turns() {
    type Ask = fn() -> Request<()>;
    const FORM: [(&str, &str); 1] = [("content-type", "multipart/form-data; boundary=x")];
    // Unsigned requests get at most an eighth.
    let asked: [(&str, usize, Ask); 3] = [
        ("alice", 2, || TestSignature::default().sign(request("POST", "/b?delete", &[]), UNSIGNED)),
        ("nobody", 14, || request("POST", "/b?delete", &[])),
        ("nobody", 14, || request("POST", "/b", &FORM)),
    ];
    for (who, refusals, slow) in asked {
        let service = service_at(Rate::default(), 16);
        let mut waiting: Vec<_> =
            (0..16).map(|_| Box::pin(service.answer(slow().map(|()| silent())))).collect();
        let mut refused = 0;
        for one in &mut waiting {
            if let Some(response) = futures::FutureExt::now_or_never(one) {
                assert_eq!(response.extensions().get(), Some(&LimitReason::Share), "{who}");
                refused += 1;
            }
        }
        assert_eq!(refused, refusals, "{who}");
        let other = if who == "alice" {
            deliver(&service, request("GET", "/b/k", &[]), b"").await
        } else {
            get(&service).await
        };
        assert_eq!(other.0, StatusCode::OK, "the others find a turn while {who} sends slowly");
    }
}

/// An access check of one bucket, in which anonymous requests may delete objects.
#[derive(Debug)]
struct OpenBucket;

impl AnonymousCheck for OpenBucket {
    fn check_anonymous<'a>(
        &'a self,
        operation: Operation,
        bucket: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        let may = (operation, bucket) == (Operation::DeleteObjects, Some("open"));
        let judged = if may { Ok(()) } else { Err(Refusal::new(Code::AccessDenied, "no")) };
        Box::pin(std::future::ready(judged))
    }
}

#[tokio::test]
async fn requests_that_no_policy_can_allow_are_refused_before_the_body() {
    let service = service_at(Rate::default(), 16).checked_by(Arc::new(OpenBucket));
    for target in ["/shut?delete", "/open?tagging", "/open/k?uploadId=1"] {
        let method = if target.ends_with('g') { "PUT" } else { "POST" };
        let asked = request(method, target, &[]).map(|()| silent());
        let refused = futures::FutureExt::now_or_never(service.answer(asked));
        assert_eq!(refused.unwrap().status(), StatusCode::FORBIDDEN, "{target}");
    }
    let allowed = service.answer(request("POST", "/open?delete", &[]).map(|()| silent()));
    assert!(futures::FutureExt::now_or_never(allowed).is_none(), "its body is waited for");
    let signed = TestSignature::default().sign(request("POST", "/shut?delete", &[]), UNSIGNED);
    let signed = service.answer(signed.map(|()| silent()));
    assert!(futures::FutureExt::now_or_never(signed).is_none(), "others are judged later");
}

/// A body that sends this many bytes, and then nothing.
fn half_sent(bytes: usize) -> http_body_util::combinators::BoxBody<Bytes, Infallible> {
    let sent = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from(vec![b' '; bytes])))]);
    let sent = futures::StreamExt::chain(sent, futures::stream::pending());
    BodyExt::boxed(http_body_util::StreamBody::new(sent))
}

#[tokio::test]
async fn documents_share_a_memory_budget_and_get_slow_down_beyond() {
    let config = HttpConfig {
        allow_anonymous: true,
        document_bytes_max: 32 << 20,
        requests_max: 1024,
        ..HttpConfig::default()
    };
    let (service, _) = service_with(config);
    let ask = || request("POST", "/b/k?uploadId=1", &[]).map(|()| half_sent(2_000_000));
    let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(service.answer(ask()))).collect();
    let mut refused = 0;
    for one in &mut waiting {
        if let Some(response) = futures::FutureExt::now_or_never(one) {
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()["retry-after"], "1");
            assert_eq!(response.extensions().get(), Some(&LimitReason::Overload));
            refused += 1;
        }
    }
    assert_eq!(refused, 18, "two of 2 MiB are an eighth");
    let signed = TestSignature::default().sign(request("POST", "/b/k?uploadId=1", &[]), UNSIGNED);
    let (status, ..) = deliver(&service, signed, b"<CompleteMultipartUpload/>").await;
    assert_eq!(status, StatusCode::OK, "others have memory");
    drop(waiting);
    assert!(futures::FutureExt::now_or_never(service.answer(ask())).is_none());
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_turns_wait_and_all_are_answered() {
    let config = HttpConfig { requests_max: 4, waiting_max: 64, ..HttpConfig::default() };
    let service = service_of(Rate::default(), config);
    let answers = (0..60).map(|number| {
        let service = service.clone();
        tokio::spawn(async move {
            let asked = request("GET", &format!("/b/{number}"), &[]);
            let asked = TestSignature::default().sign(asked, UNSIGNED);
            let response = service.answer(asked.map(|()| Full::new(Bytes::new()))).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            response.status()
        })
    });
    let begun = tokio::time::Instant::now();
    for status in futures::future::join_all(answers).await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    assert!(begun.elapsed() >= Duration::from_millis(1500), "four at a time");
    let [part, upload, other] = service.queue_figures();
    assert_eq!((part.waits, upload.waits, other.waits, other.waiting), (0, 0, 56, 0));
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_too_long_get_slow_down() {
    let config = HttpConfig { requests_max: 1, waiting_max: 2, ..HttpConfig::default() };
    let service = service_of(Rate::default(), config);
    let ask = || TestSignature::default().sign(request("GET", "/b/k", &[]), UNSIGNED);
    let held = service.answer(ask().map(|()| Full::new(Bytes::new()))).await;
    let begun = tokio::time::Instant::now();
    let refused = get(&service).await;
    assert_eq!((refused.0, code(&refused)), (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
    assert_eq!(begun.elapsed(), Duration::from_secs(20));
    assert_eq!(refused.1["retry-after"], "1");
    assert_eq!(refused.1["x-amz-retry-after"], "1000");
    let wrong = TestSignature { secret: "wrong", ..TestSignature::default() };
    let wrong = deliver(&service, wrong.sign(request("GET", "/b/k", &[]), UNSIGNED), b"").await;
    assert_eq!(wrong.0, StatusCode::FORBIDDEN, "no forged request stands in the queue");
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(get(&service))).collect();
    for one in &mut waiting {
        assert!(futures::FutureExt::now_or_never(one).is_none());
    }
    let beyond = futures::FutureExt::now_or_never(get(&service)).unwrap();
    assert_eq!(beyond.0, StatusCode::SERVICE_UNAVAILABLE, "all seats are taken");
    drop(waiting);
    drop(held);
    assert_eq!(get(&service).await.0, StatusCode::OK);
    let left = service.queue_figures()[2];
    assert_eq!((left.waiting, left.expired), (0, 3));
}
