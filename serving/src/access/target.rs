//! Names in a request: the tenant that a tenant admin must own, and the targets of audit records.
//!
//! Queries are decoded as handlers decode them. A name that occurs twice is refused: handlers refuse
//! it too, so that gate and handler never read different values.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::http::Uri;
use serde_json::Value;

use super::principal::TenantTarget;
use super::rule::TenantField;

/// Fields whose values name a target. None of them holds a secret on any route.
const NAMES: [&str; 15] = [
    "access_key",
    "bucket",
    "generation",
    "id",
    "key",
    "kind",
    "lane",
    "name",
    "role",
    "set",
    "storage_policy",
    "target",
    "tenant",
    "user",
    "view",
];
/// Maximum bytes of a value in an audit record.
const VALUE_BYTES_MAX: usize = 256;

/// Fields of a request: those of its query, or those of its JSON body.
pub(crate) struct RequestFields {
    query: Vec<(String, String)>,
    body: Option<Value>,
}

impl RequestFields {
    /// Reads the fields. A query or body that can't be decoded has none.
    pub(crate) fn of(uri: &Uri, body: &[u8]) -> Self {
        let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let query = query.map(|Query(pairs)| pairs).unwrap_or_default();
        Self { query, body: serde_json::from_slice(body).ok() }
    }

    fn in_query(&self, name: &str) -> Option<&str> {
        let mut values = self.query.iter().filter(|(other, _)| other == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value.as_str())
    }

    fn in_body(&self, name: &str) -> Option<&str> {
        self.body.as_ref()?.get(name)?.as_str()
    }

    /// Returns the item that leads to the tenant. Routes with a body name it there.
    pub(crate) fn tenant_target(&self, field: TenantField, has_body: bool) -> Option<TenantTarget> {
        let name = field.name();
        let value = if has_body { self.in_body(name) } else { self.in_query(name) }?.to_owned();
        Some(match field {
            TenantField::Tenant(_) => TenantTarget::Tenant(value),
            TenantField::Bucket(_) => TenantTarget::Bucket(value),
            TenantField::AccessKey(_) => TenantTarget::AccessKey(value),
        })
    }

    /// Returns the names of an audit record.
    pub(crate) fn names(&self) -> BTreeMap<String, String> {
        let value = |name: &str| self.in_query(name).or_else(|| self.in_body(name));
        let pair = |name: &'static str| Some((name.to_owned(), shortened(value(name)?)));
        NAMES.into_iter().filter_map(pair).collect()
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=VALUE_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantField = TenantField::Tenant("tenant");

    fn fields(target: &str, body: &str) -> RequestFields {
        RequestFields::of(&target.parse().unwrap(), body.as_bytes())
    }

    #[test]
    fn a_tenant_is_read_where_the_handler_reads_it() {
        let both = fields("/t?tenant=a", r#"{"tenant": "b"}"#);
        let tenant = |name: &str| Some(TenantTarget::Tenant(name.into()));
        assert_eq!(both.tenant_target(TENANT, false), tenant("a"));
        assert_eq!(both.tenant_target(TENANT, true), tenant("b"));
        let encoded = fields("/t?tenan%74=%61+%2Fb", "");
        assert_eq!(encoded.tenant_target(TENANT, false), tenant("a /b"));
        assert_eq!(encoded.tenant_target(TENANT, true), None);
    }

    #[test]
    fn odd_requests_name_no_tenant() {
        for target in ["/t", "/t?tenant=a&tenant=b", "/t?Tenant=a", "/t?tenant[]=a"] {
            assert_eq!(fields(target, "").tenant_target(TENANT, false), None, "{target}");
        }
        for body in ["", "[]", "null", r#"{"tenant": null}"#, r#"{"tenant": ["a"]}"#, "{"] {
            assert_eq!(fields("/t", body).tenant_target(TENANT, true), None, "{body}");
        }
    }

    #[test]
    fn records_have_names_and_no_other_values() {
        let body = r#"{"access_key": "AKID", "secret_key": "canary", "policy": "canary"}"#;
        let names = fields("/t?tenant=a&token=canary", body).names();
        let expected = [("access_key", "AKID"), ("tenant", "a")];
        assert_eq!(names, expected.map(|(name, value)| (name.into(), value.into())).into());
        let long = fields(&format!("/t?user={}", "%C3%BC".repeat(200)), "").names();
        assert_eq!(long["user"], "ü".repeat(128));
    }
}
