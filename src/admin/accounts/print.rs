//! Text output for tenants, users, roles and keys.

use martlet_admin_api::accounts::{KeyLine, TenantLine, UserLine};
use martlet_admin_api::principals::AdminKeyLine;
use martlet_admin_api::roles::{RoleLine, UserPolicy};
use martlet_protocol::Network;

use crate::admin::limits::rate;
use crate::admin::print::time;
use crate::columns::table;

fn rows(pairs: &[(&str, &str)]) -> String {
    let rows: Vec<_> =
        pairs.iter().map(|(name, value)| vec![(*name).to_owned(), (*value).to_owned()]).collect();
    table(&rows, &[])
}

fn state(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

fn networks(networks: &[Network]) -> String {
    if networks.is_empty() {
        return "anywhere".to_owned();
    }
    networks.iter().map(Network::to_string).collect::<Vec<_>>().join(", ")
}

fn header(names: &[&str]) -> Vec<Vec<String>> {
    vec![names.iter().map(|name| (*name).to_owned()).collect()]
}

/// Formats a tenant.
pub(super) fn tenant(line: &TenantLine) -> String {
    rows(&[
        ("tenant", &line.tenant),
        ("canonical id", &line.canonical_id),
        ("display name", &line.display_name),
        ("state", state(line.enabled)),
        ("from", &networks(&line.networks)),
        ("rate", &rate(&line.rate)),
    ])
}

/// Formats tenants as a table.
pub(super) fn tenants(lines: &[TenantLine]) -> String {
    let mut rows = header(&["tenant", "state", "from", "display name", "canonical id"]);
    rows.extend(lines.iter().cloned().map(|line| {
        let TenantLine { tenant, canonical_id, display_name, enabled, networks: from, .. } = line;
        vec![tenant, state(enabled).to_owned(), networks(&from), display_name, canonical_id]
    }));
    table(&rows, &[])
}

/// Formats a user.
pub(super) fn user(line: &UserLine) -> String {
    rows(&[
        ("tenant", &line.tenant),
        ("user", &line.user),
        ("principal", &line.arn),
        ("role", &line.role),
        ("policy", if line.has_policy { "its own" } else { "none" }),
        ("state", state(line.enabled)),
    ])
}

/// Formats a user's policy.
pub(super) fn user_policy(line: &UserPolicy) -> String {
    match &line.policy {
        Some(policy) => format!("{policy}\n"),
        None => format!("the user {}/{} has no policy\n", line.tenant, line.user),
    }
}

/// Formats a role.
pub(super) fn role(line: &RoleLine) -> String {
    let about = rows(&[
        ("tenant", &line.tenant),
        ("role", &line.role),
        ("principal", &line.arn),
        ("sessions", &format!("{} s at most", line.max_session_seconds)),
        ("state", state(line.enabled)),
    ]);
    let trust = line.trust.as_deref().unwrap_or("the tenant's own keys");
    format!("{about}\npolicy:\n{}\n\ntrust:\n{trust}\n", line.policy)
}

/// Formats roles as a table.
pub(super) fn roles(lines: &[RoleLine]) -> String {
    let mut rows = header(&["role", "state", "sessions", "principal"]);
    rows.extend(lines.iter().cloned().map(|line| {
        let RoleLine { role, arn, enabled, max_session_seconds, .. } = line;
        vec![role, state(enabled).to_owned(), format!("{max_session_seconds} s"), arn]
    }));
    table(&rows, &[])
}

/// Formats users as a table.
pub(super) fn users(lines: &[UserLine]) -> String {
    let mut rows = header(&["user", "role", "state", "principal"]);
    rows.extend(lines.iter().cloned().map(|line| {
        let UserLine { user, arn, role, enabled, .. } = line;
        vec![user, role, state(enabled).to_owned(), arn]
    }));
    table(&rows, &[])
}

fn end(expires_ms: Option<u64>) -> String {
    expires_ms.map_or_else(|| "no end".to_owned(), time)
}

/// Formats an admin key, with its secret if that is new.
pub(super) fn admin_key(line: &AdminKeyLine) -> String {
    let (until, since) = (end(line.expires_ms), time(line.created_ms));
    let mut pairs = vec![("admin key", line.key.as_str())];
    pairs.extend(line.secret.as_deref().map(|secret| ("secret", secret)));
    pairs.extend([
        ("name", line.name.as_str()),
        ("role", line.role.as_str()),
        ("tenant", line.tenant.as_deref().unwrap_or("-")),
        ("created", &since),
        ("until", &until),
    ]);
    rows(&pairs)
}

/// Formats admin keys as a table.
pub(super) fn admin_keys(lines: &[AdminKeyLine]) -> String {
    let mut rows = header(&["admin key", "role", "tenant", "until", "name"]);
    rows.extend(lines.iter().cloned().map(|line| {
        let AdminKeyLine { key, role, tenant, expires_ms, name, .. } = line;
        vec![key, role, tenant.unwrap_or_else(|| "-".to_owned()), end(expires_ms), name]
    }));
    table(&rows, &[])
}

/// Formats an access key, with its secret if that is new.
pub(super) fn key(line: &KeyLine) -> String {
    let (from, at) = (networks(&line.networks), rate(&line.rate));
    let mut pairs = vec![("access key", line.access_key.as_str())];
    pairs.extend(line.secret_key.as_deref().map(|secret| ("secret key", secret)));
    pairs.extend([
        ("tenant", line.tenant.as_str()),
        ("user", line.user.as_deref().unwrap_or("the whole tenant")),
        ("canonical id", &line.canonical_id),
        ("display name", &line.display_name),
        ("state", state(line.enabled)),
        ("from", &from),
        ("rate", &at),
        ("default view", if line.view.is_empty() { "bucket" } else { &line.view }),
        ("secret stored", if line.sealed { "encrypted by a master key" } else { "in clear" }),
    ]);
    let mut text = rows(&pairs);
    if line.secret_key.is_some() {
        text += "\nThe secret is shown only this once.\n";
    }
    text
}

/// Formats access keys as a table.
pub(super) fn keys(lines: &[KeyLine]) -> String {
    let mut rows = header(&["access key", "tenant", "user", "state", "from", "secret"]);
    rows.extend(lines.iter().map(|line| {
        vec![
            line.access_key.clone(),
            line.tenant.clone(),
            line.user.clone().unwrap_or_default(),
            state(line.enabled).to_owned(),
            networks(&line.networks),
            if line.sealed { "sealed" } else { "in clear" }.to_owned(),
        ]
    }));
    table(&rows, &[])
}

#[cfg(test)]
mod tests {
    use martlet_admin_api::limits::RateLine;

    use super::*;

    fn line(secret_key: Option<&str>) -> KeyLine {
        KeyLine {
            access_key: "AKID".into(),
            secret_key: secret_key.map(str::to_owned),
            tenant: "research".into(),
            user: None,
            canonical_id: "c0ffee".into(),
            display_name: "The group".into(),
            created_ms: 1,
            rotated_ms: 1,
            enabled: true,
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            rate: RateLine { requests: Some(7), bytes: None },
            view: "committed".into(),
            sealed: false,
        }
    }

    #[test]
    fn a_secret_is_shown_where_it_was_made() {
        let text = key(&line(Some("very secret")));
        for words in [
            "very secret",
            "this once",
            "c0ffee",
            "The group",
            "in clear",
            "10.0.0.0/8",
            "7 requests/s",
            "committed",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let shown = key(&line(None));
        assert!(!shown.contains("secret key") && !shown.contains("this once"), "{shown}");
        let json = serde_json::to_string(&line(None)).unwrap();
        assert!(!json.contains("secret_key"), "{json}");
    }

    #[test]
    fn lists_have_a_line_for_each() {
        let tenant = TenantLine {
            tenant: "research".into(),
            canonical_id: "c0ffee".into(),
            display_name: "The group".into(),
            created_ms: 1,
            enabled: false,
            networks: Vec::new(),
            rate: RateLine::default(),
        };
        let text = tenants(std::slice::from_ref(&tenant));
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("disabled") && text.contains("anywhere"), "{text}");
        let user = UserLine {
            tenant: "research".into(),
            user: "carol".into(),
            arn: "arn:aws:iam::research:user/carol".into(),
            role: "read-only".into(),
            has_policy: false,
            created_ms: 1,
            enabled: true,
        };
        assert!(users(&[user]).contains("read-only"));
        let lent = RoleLine {
            tenant: "research".into(),
            role: "reader".into(),
            arn: "arn:aws:iam::research:role/reader".into(),
            created_ms: 1,
            enabled: true,
            max_session_seconds: 3600,
            policy: "{}".into(),
            trust: None,
        };
        assert!(role(&lent).contains("the tenant's own keys"));
        assert!(roles(&[lent]).contains("role/reader"));
        assert_eq!(keys(&[line(None), line(None)]).lines().count(), 3);
    }
}
