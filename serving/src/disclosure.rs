//! Disclosure of settings: the values that may leave the process, for status and support.
//!
//! A value is shown because its name is in a list of plain settings, never because it looks
//! harmless. A name in no list is hidden, and a test of the program finds it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Settings by name, in the form in which they may be shown.
pub type ShownSettings = BTreeMap<String, String>;

/// Text in place of a hidden value.
pub const HIDDEN: &str = "(not shown)";

/// Settings whose values are shown: addresses, paths, numbers, times and names of machines.
pub const PLAIN: [&str; 85] = [
    "access_log",
    "admin_address",
    "admin_allow_clear",
    "admin_allow_token",
    "admin_tls_certificate",
    "admin_tls_key",
    "allow_signature_v2",
    "audit_log",
    "audit_rate",
    "body_idle_timeout",
    "bucket_log_interval",
    "cluster_key_file",
    "console_address",
    "console_hosts",
    "console_oidc_client_id",
    "console_oidc_client_secret_file",
    "console_oidc_label",
    "console_oidc_role_claim",
    "console_oidc_scopes",
    "console_oidc_session",
    "credentials_file",
    "data_address",
    "data_dir",
    "data_tls_certificate",
    "data_tls_key",
    "default_policy",
    "devices",
    "direct_bytes",
    "direct_socket",
    "direct_uids",
    "document_buffer",
    "document_timeout",
    "domains",
    "drain_timeout",
    "first_key_file",
    "header_timeout",
    "internal_address",
    "lifecycle_day_seconds",
    "log",
    "log_format",
    "master_key_file",
    "max_anonymous_requests",
    "max_client_traces",
    "max_connections",
    "max_data_requests",
    "max_notification_attempts",
    "max_notification_refusals",
    "max_requests",
    "max_threads",
    "max_unauthenticated",
    "max_unauthenticated_per_address",
    "max_waiting_requests",
    "memory",
    "min_body_rate",
    "name",
    "nodes",
    "notification_spool",
    "oidc_audiences",
    "oidc_ca_file",
    "oidc_jwks_file",
    "otlp_ca_file",
    "otlp_headers_file",
    "policies",
    "reclaim_age",
    "reclaim_grace",
    "replicate_rate",
    "request_wait_timeout",
    "reserve",
    "rings",
    "roles",
    "s3_address",
    "s3_tls_certificate",
    "s3_tls_key",
    "seal_secrets",
    "sse_master_key_file",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "trace_attributes",
    "trace_keys",
    "trace_sample",
    "trace_service",
    "upload_age",
    "window_cache",
    "write_buffer",
];
/// Settings with URLs, which may have passwords and tokens: scheme and host are shown.
pub const ORIGINS: [&str; 5] =
    ["console_url", "data_url", "notifications", "oidc_issuer", "otlp_endpoint"];
/// Schemes of URLs whose host is shown: those of HTTP and of brokers.
const SCHEMES: [&str; 11] = [
    "amqp", "amqps", "http", "https", "kafka", "kafkas", "nats", "natss", "redis", "rediss", "tls",
];
/// Settings of a target of events that name its place.
const PLACES: [&str; 3] = ["webhook", "queue_file", "broker"];
/// Settings that are hidden: secrets, and names of customers.
pub const SECRET: [&str; 7] = [
    "console_oidc_role",
    "first_bucket",
    "first_tenant",
    "master_keys",
    "root_access_key",
    "root_secret_key",
    "sse_master_key",
];

/// Returns the values of all settings in the form in which they may be shown.
pub(crate) fn shown(values: BTreeMap<String, Value>) -> ShownSettings {
    let line = |(name, value): (String, Value)| {
        let text = if PLAIN.contains(&name.as_str()) {
            plain(&value)
        } else if ORIGINS.contains(&name.as_str()) {
            origins(&value)
        } else {
            HIDDEN.to_owned()
        };
        (name, text)
    };
    values.into_iter().map(line).collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the origins of all URLs in a value, with the names before them.
fn origins(value: &Value) -> String {
    match value {
        Value::String(text) => text.split(',').map(named_origin).collect::<Vec<_>>().join(", "),
        Value::Array(items) => items.iter().map(origins).collect::<Vec<_>>().join(", "),
        Value::Object(table) => {
            let target = |(name, target): (&String, &Value)| {
                let place = PLACES.iter().find_map(|place| target.get(*place));
                let place = place.and_then(Value::as_str).map_or(HIDDEN.to_owned(), origin);
                format!("{name}={place}")
            };
            table.iter().map(target).collect::<Vec<_>>().join(", ")
        }
        _ => HIDDEN.to_owned(),
    }
}

/// Returns `NAME=URL` or `URL` with the origin of the URL.
fn named_origin(text: &str) -> String {
    let is_name =
        |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_:*".contains(c));
    match text.trim().split_once('=') {
        Some((name, place)) if is_name(name) => format!("{name}={}", origin(place)),
        _ => origin(text.trim()),
    }
}

/// Returns scheme and host of a URL, or the path of a file. User names and passwords stand before
/// an `@`, so that nothing of a URL with one is shown but its scheme.
fn origin(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return if text.starts_with('/') { text.to_owned() } else { HIDDEN.to_owned() };
    };
    if !SCHEMES.contains(&scheme) {
        return HIDDEN.to_owned();
    }
    if rest.contains('@') {
        return format!("{scheme}://{HIDDEN}");
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown_as(name: &str, value: Value) -> String {
        shown(BTreeMap::from([(name.to_owned(), value)])).remove(name).unwrap()
    }

    #[test]
    fn plain_settings_are_shown_and_others_are_hidden() {
        assert_eq!(shown_as("max_requests", json!(7)), "7");
        assert_eq!(shown_as("s3_address", json!("127.0.0.1:1")), "127.0.0.1:1");
        assert_eq!(shown_as("devices", json!({"d1": "/a"})), "{\"d1\":\"/a\"}");
        for name in SECRET {
            assert_eq!(shown_as(name, json!("s3cret")), HIDDEN);
        }
        assert_eq!(shown_as("a_setting_of_tomorrow", json!("s3cret")), HIDDEN);
    }

    #[test]
    fn urls_are_shown_without_what_may_be_secret_in_them() {
        let url = |text: &str| shown_as("notifications", json!(text));
        assert_eq!(url("hook=https://h:1/p?token=s3cret"), "hook=https://h:1");
        assert_eq!(url("a:*=http://me:s3cret@h/p, b=/var/b"), "a:*=http://(not shown), b=/var/b");
        assert_eq!(url("a=http://me:s3/cret@h/p"), "a=http://(not shown)");
        assert_eq!(url("s3cret"), HIDDEN);
        let table = json!({"hook": {"webhook": "http://h/s3cret", "tenants": ["s3cret"]}});
        assert_eq!(shown_as("notifications", table), "hook=http://h");
        let table = json!({"bus": {"broker": "kafka://h1:1,h2:2/s3cret", "user": "s3cret"}});
        assert_eq!(shown_as("notifications", table), "bus=kafka://h1:1,h2:2");
        assert_eq!(url("bus=redis://:s3cret@h/k"), "bus=redis://(not shown)");
        assert_eq!(url("bus=natz://s3cret"), "bus=(not shown)");
        assert_eq!(
            shown_as("notifications", json!({"x": {"token_file": "s3cret"}})),
            "x=(not shown)"
        );
        assert_eq!(shown_as("data_url", json!(["http://n1:9002/s3cret"])), "http://n1:9002");
        assert_eq!(shown_as("oidc_issuer", json!("ftp://s3cret")), HIDDEN);
    }

    #[test]
    fn each_name_is_in_one_list() {
        let mut all: Vec<&str> = [&PLAIN[..], &ORIGINS, &SECRET].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
