//! CORS rules of a bucket: `GetBucketCors`, `PutBucketCors`, `DeleteBucketCors`, and their lookup
//! by the HTTP pipeline.

use futures::future::BoxFuture;
use http::{HeaderName, StatusCode};
use martlet_protocol::Setting;
use martlet_proxy::{Error, ObjectStore};
use s3s::S3Result;
use s3s::dto::{CORSConfiguration, CORSRule, GetBucketCorsOutput};

use super::operations::Operations;
use crate::http::{CorsRules, is_cors_method};
use crate::messages;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request::OperationRequest;
use crate::settings::from_document;

/// Maximum number of rules of a bucket, as in S3.
const RULES_MAX: usize = 100;
/// Maximum length of a rule's id, in characters, as in S3.
const ID_CHARS_MAX: usize = 255;

/// CORS rules in the settings of a store's buckets.
pub(crate) struct BucketCorsRules(pub(crate) ObjectStore);

impl std::fmt::Debug for BucketCorsRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BucketCorsRules")
    }
}

impl CorsRules for BucketCorsRules {
    fn of<'a>(&'a self, bucket: &'a str) -> BoxFuture<'a, Result<Option<Vec<CORSRule>>, Refusal>> {
        Box::pin(async move {
            let bucket = self.0.bucket(bucket).await.map_err(|error| match error {
                Error::NoSuchBucket => messages::NO_SUCH_BUCKET.refusal(),
                error => {
                    tracing::warn!(%error, "could not read the CORS rules");
                    Refusal::try_again()
                }
            })?;
            let Some(document) = bucket.settings.get(Setting::Cors) else { return Ok(None) };
            let rules: CORSConfiguration =
                from_document(document).map_err(|_| messages::INTERNAL.refusal())?;
            Ok(Some(rules.cors_rules))
        })
    }
}

/// Refuses rules that S3 refuses.
pub(super) fn check(rules: &[CORSRule]) -> S3Result<()> {
    if rules.is_empty() {
        return Err(messages::MALFORMED_XML.error());
    }
    if rules.len() > RULES_MAX {
        return Err(messages::CORS_RULES.with_subject(RULES_MAX).into());
    }
    rules.iter().try_for_each(check_rule)
}

fn check_rule(rule: &CORSRule) -> S3Result<()> {
    if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
        return Err(messages::MALFORMED_XML.error());
    }
    if let Some(method) = rule.allowed_methods.iter().find(|method| !is_cors_method(method)) {
        return Err(messages::CORS_METHOD.with_subject(method).into());
    }
    check_patterns(rule)?;
    if rule.id.as_ref().is_some_and(|id| id.chars().count() > ID_CHARS_MAX) {
        return Err(messages::CORS_ID.with_subject(ID_CHARS_MAX).into());
    }
    Ok(())
}

/// Refuses patterns of origins and headers that have no defined match.
fn check_patterns(rule: &CORSRule) -> S3Result<()> {
    let patterns = [
        ("AllowedOrigin", Some(&rule.allowed_origins)),
        ("AllowedHeader", rule.allowed_headers.as_ref()),
    ];
    for (name, patterns) in patterns {
        let wild = patterns.into_iter().flatten().find(|it| it.matches('*').count() > 1);
        if let Some(pattern) = wild {
            return Err(messages::CORS_WILDCARD.with_subjects(name, pattern).into());
        }
    }
    if let Some(header) = rule.expose_headers.iter().flatten().find(|it| it.contains('*')) {
        return Err(messages::CORS_EXPOSED.with_subject(header).into());
    }
    if rule.allowed_origins.iter().any(|it| it.contains(char::is_control)) {
        return Err(messages::CORS_CONTROL.error());
    }
    check_names("AllowedHeader", rule.allowed_headers.as_ref())?;
    check_names("ExposeHeader", rule.expose_headers.as_ref())
}

/// Refuses texts that are no names of headers. Wildcards pass: names may contain `*`.
fn check_names(element: &str, names: Option<&Vec<String>>) -> S3Result<()> {
    let is_name = |name: &str| HeaderName::from_bytes(name.as_bytes()).is_ok();
    match names.into_iter().flatten().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => Err(messages::CORS_NAME.with_subjects(element, name).into()),
    }
}

impl Operations {
    pub(super) async fn get_bucket_cors(&self, request: &OperationRequest) -> S3Result<Reply> {
        let rules: Option<CORSConfiguration> =
            self.setting(request.bucket(), Setting::Cors).await?;
        let rules = rules.ok_or_else(|| messages::NO_SUCH_CORS.error())?;
        Reply::xml(&GetBucketCorsOutput { cors_rules: Some(rules.cors_rules) })
    }

    pub(super) async fn put_bucket_cors(&self, request: &OperationRequest) -> S3Result<Reply> {
        let configuration: CORSConfiguration = request.parse_document()?;
        request.refuse_conditions()?;
        check(&configuration.cors_rules)?;
        self.set(request.bucket(), Setting::Cors, &configuration).await?;
        Ok(Reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_bucket_cors(&self, request: &OperationRequest) -> S3Result<Reply> {
        request.refuse_conditions()?;
        self.unset(request.bucket(), Setting::Cors).await?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::to_document;

    fn rule() -> CORSRule {
        CORSRule {
            allowed_headers: Some(vec!["x-*-a".to_owned()]),
            allowed_methods: vec!["GET".to_owned(), "PUT".to_owned()],
            allowed_origins: vec!["*".to_owned(), "http://*.a.b".to_owned()],
            expose_headers: Some(vec!["ETag".to_owned()]),
            id: Some("x".repeat(255)),
            max_age_seconds: Some(-1),
        }
    }

    fn refusal(change: impl FnOnce(&mut CORSRule)) -> String {
        let mut rule = rule();
        change(&mut rule);
        check(&[rule]).unwrap_err().code().as_str().to_owned()
    }

    #[test]
    fn cors_rules_that_s3_accepts_are_kept_as_sent() {
        let rules = vec![rule(); RULES_MAX];
        check(&rules).unwrap();
        let configuration = CORSConfiguration { cors_rules: rules };
        let read: CORSConfiguration = from_document(&to_document(&configuration)).unwrap();
        assert_eq!(read, configuration);
    }

    #[test]
    fn cors_rules_that_s3_refuses_get_its_error_codes() {
        let code = |rules: &[CORSRule]| check(rules).unwrap_err().code().as_str().to_owned();
        assert_eq!(code(&[]), "MalformedXML");
        assert_eq!(code(&vec![rule(); RULES_MAX + 1]), "InvalidRequest");
        assert_eq!(refusal(|rule| rule.allowed_methods.clear()), "MalformedXML");
        assert_eq!(refusal(|rule| rule.allowed_origins.clear()), "MalformedXML");
        assert_eq!(refusal(|rule| rule.allowed_methods.push("PATCH".into())), "InvalidRequest");
        assert_eq!(refusal(|rule| rule.allowed_methods.push("get".into())), "InvalidRequest");
        assert_eq!(refusal(|rule| rule.allowed_origins.push("*.*".into())), "InvalidRequest");
        assert_eq!(refusal(|rule| rule.allowed_origins.push("a\nb".into())), "InvalidRequest");
        assert_eq!(
            refusal(|rule| rule.allowed_headers = Some(vec!["**".into()])),
            "InvalidRequest"
        );
        assert_eq!(refusal(|rule| rule.expose_headers = Some(vec!["*".into()])), "InvalidRequest");
        assert_eq!(refusal(|rule| rule.id = Some("x".repeat(256))), "InvalidRequest");
        for name in ["a b", "a:b", "a/b", "a(b)", "a[b]", "a=b", "\"a\"", ""] {
            let names = || Some(vec!["ETag".to_owned(), name.to_owned()]);
            assert_eq!(refusal(|rule| rule.allowed_headers = names()), "InvalidRequest", "{name}");
            assert_eq!(refusal(|rule| rule.expose_headers = names()), "InvalidRequest", "{name}");
        }
    }
}
