//! Tests of cross-origin requests against fixed rules.

use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN};
use http::{HeaderName, StatusCode};

use super::*;

/// Bucket `b` has one rule, `closed` has none, and no other bucket exists.
#[derive(Debug)]
pub(in crate::http) struct FixedCorsRules;

impl CorsRules for FixedCorsRules {
    fn of<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Option<Vec<CORSRule>>, Refusal>> {
        let rule = CORSRule {
            allowed_headers: Some(vec!["x-amz-*".to_owned()]),
            allowed_methods: vec!["GET".to_owned()],
            allowed_origins: vec!["http://*.page".to_owned()],
            expose_headers: None,
            id: None,
            max_age_seconds: None,
        };
        Box::pin(async move {
            match bucket {
                "b" => Ok(Some(vec![rule])),
                "closed" => Ok(None),
                "broken" => Err(Refusal::new(Code::SlowDown, "later")),
                _ => Err(Refusal::new(Code::NoSuchBucket, "there is none")),
            }
        })
    }
}

const METHOD: &str = "access-control-request-method";
const HEADERS: &str = "access-control-request-headers";

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    });
    pairs.collect()
}

async fn preflight(path: &str, pairs: &[(&'static str, &str)]) -> Result<HeaderMap, Refusal> {
    let domains = ["localhost".to_owned()];
    let uri: Uri = path.parse().unwrap();
    let asked = CrossOriginRequest::preflight(&uri, &headers(pairs), &domains)?;
    asked.expect("it goes to a bucket").answer(&FixedCorsRules).await
}

async fn actual(method: Method, path: &str, pairs: &[(&'static str, &str)]) -> Option<HeaderMap> {
    let domains = ["localhost".to_owned()];
    let uri: Uri = path.parse().unwrap();
    let crossing = CrossOriginRequest::actual(&method, &uri, &headers(pairs), &domains)?;
    Some(crossing.headers(&FixedCorsRules).await)
}

#[tokio::test]
async fn a_preflight_is_granted_by_path_and_by_host() {
    let asked = [("origin", "http://a.page"), (METHOD, "GET"), (HEADERS, "X-Amz-Date , x-amz-a,")];
    for (path, host) in [("/b/k?X-Amz-Signature=0", "127.0.0.1"), ("/k", "b.localhost:9000")] {
        let asked = [&asked[..], &[("host", host)]].concat();
        let granted = preflight(path, &asked).await.unwrap();
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_ORIGIN], "http://a.page");
        assert_eq!(granted[ACCESS_CONTROL_ALLOW_HEADERS], "x-amz-date, x-amz-a");
        assert_eq!(granted[VARY], VARIES);
    }
}

#[tokio::test]
async fn a_preflight_that_no_rule_allows_is_forbidden() {
    for (path, origin, method, kind) in [
        ("/b", "http://a.page", "PUT", "BUCKET"),
        ("/b/k", "http://elsewhere", "GET", "OBJECT"),
        ("/closed/k", "http://a.page", "GET", "OBJECT"),
        ("/missing", "http://a.page", "GET", "BUCKET"),
    ] {
        let refusal = preflight(path, &[("origin", origin), (METHOD, method)]).await.unwrap_err();
        assert_eq!(refusal.code, Code::AccessForbidden, "{path}");
        assert_eq!(refusal.code.status(), StatusCode::FORBIDDEN);
        let details = [("Method", method.to_owned()), ("ResourceType", kind.to_owned())];
        assert_eq!(refusal.details, details);
    }
    let asked = [("origin", "http://a.page"), (METHOD, "GET"), (HEADERS, "content-type")];
    assert_eq!(preflight("/b", &asked).await.unwrap_err().code, Code::AccessForbidden);
    let refusal = preflight("/broken", &asked).await.unwrap_err();
    assert_eq!(refusal.code, Code::SlowDown);
}

#[tokio::test]
async fn a_preflight_without_a_requested_method_is_a_bad_request() {
    let many = vec!["x-amz-a"; HEADERS_MAX + 1].join(",");
    let origin = ("origin", "http://a.page");
    let wrong: [&[(&'static str, &str)]; 5] = [
        &[],
        &[(METHOD, "GET")],
        &[origin],
        &[origin, (METHOD, "TRACE")],
        &[origin, (METHOD, "GET"), (HEADERS, &many)],
    ];
    for pairs in wrong {
        assert_eq!(preflight("/b/k", pairs).await.unwrap_err().code, Code::BadRequest, "{pairs:?}");
    }
    let none = CrossOriginRequest::preflight(&Uri::from_static("/"), &HeaderMap::new(), &[]);
    assert!(none.unwrap().is_none(), "the service itself has no rules");
}

#[tokio::test]
async fn replies_have_allow_origin_and_vary_headers() {
    let origin = ("origin", "http://a.page");
    let granted = actual(Method::GET, "/b/k", &[origin]).await.unwrap();
    assert_eq!(granted[ACCESS_CONTROL_ALLOW_ORIGIN], "http://a.page");
    let refused = actual(Method::PUT, "/b/k", &[origin]).await.unwrap();
    assert_eq!((refused.len(), &refused[VARY]), (1, &VARIES));
    let granted = actual(Method::PUT, "/b/k", &[origin, (METHOD, "GET")]).await.unwrap();
    assert_eq!(granted[ACCESS_CONTROL_ALLOW_ORIGIN], "http://a.page");
    for bucket in ["/closed/k", "/missing", "/broken"] {
        assert!(actual(Method::GET, bucket, &[origin]).await.unwrap().is_empty(), "{bucket}");
    }
    assert!(actual(Method::GET, "/b/k", &[]).await.is_none());
    assert!(actual(Method::GET, "/", &[origin]).await.is_none());
}
