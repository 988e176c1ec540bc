//! Checks of an ID token's claims beyond those of the token service, and the role of a login.
//!
//! OpenID Connect Core 1.0, section 3.1.3.7, lists the checks. Signature, issuer, audiences of the store
//! and time are checked before.

use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::OidcParts;
use super::page::LoginRefusal;
use crate::id_tokens::TokenClaims;

/// Beginning of the ARN of a role.
const ARN: &str = "arn:aws:iam::";
/// Maximum bytes of a role's ARN.
const ARN_BYTES_MAX: usize = 200;
/// Maximum characters of a name for people.
const NAME_CHARS_MAX: usize = 80;
/// Lengths of a session's name at the token service.
const SESSION_BYTES: std::ops::RangeInclusive<usize> = 2..=64;
/// Length of the part of a long subject that stays readable.
const READABLE_BYTES: usize = 40;

/// Role that a login takes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleSource {
    /// One role for all logins, by its ARN.
    Arn(String),
    /// The role whose ARN a claim of the ID token has.
    Claim(String),
}

/// Login whose ID token was verified.
pub(crate) struct VerifiedLogin {
    /// The ID token, for the token service.
    pub(crate) token: String,
    /// ARN of the role, and its parts.
    pub(crate) role_arn: String,
    pub(crate) tenant: String,
    pub(crate) role: String,
    /// Name of the role's session, which stands for the subject.
    pub(crate) session: String,
    /// Length of the role's session, in seconds.
    pub(crate) session_s: u64,
    /// Name for people, if the token has one.
    pub(crate) name: Option<String>,
}

impl VerifiedLogin {
    /// Checks client and nonce of a token, and finds the role.
    pub(super) fn of(
        oidc: &OidcParts,
        token: String,
        claims: &TokenClaims,
        nonce: &str,
    ) -> Result<Self, LoginRefusal> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let is_nonce = text("nonce").is_some_and(|it| it.as_bytes().ct_eq(nonce.as_bytes()).into());
        if !is_nonce || !is_for(&oidc.client_id, claims) {
            tracing::info!(is_nonce, "refused an ID token of another login or client");
            return Err(LoginRefusal::TOKEN);
        }
        let role_arn = role_of(&oidc.role, claims).ok_or(LoginRefusal::NO_ROLE)?;
        let (tenant, role) = parts_of(&role_arn).ok_or(LoginRefusal::NO_ROLE)?;
        let (tenant, role) = (tenant.to_owned(), role.to_owned());
        let session = session_name(text("sub").unwrap_or_default());
        let name = ["name", "preferred_username", "email"].into_iter().find_map(text);
        let name = name.map(|name| name.chars().filter(|it| !it.is_control()));
        let name = name.map(|name| name.take(NAME_CHARS_MAX).collect::<String>());
        let name = name.filter(|name| !name.trim().is_empty());
        let session_s = oidc.session_s;
        Ok(Self { token, role_arn, tenant, role, session, session_s, name })
    }
}

/// Returns true if a token was issued to this client: the client is an audience, and the authorized
/// party if the token names one. A token with more audiences must name one.
fn is_for(client_id: &str, claims: &TokenClaims) -> bool {
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(more)) => more.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is_party = match claims.get("azp") {
        None => audiences.len() == 1,
        Some(party) => party.as_str() == Some(client_id),
    };
    audiences.contains(&client_id) && is_party
}

/// Returns the ARN of the role. A claim is a text, or a list with one.
fn role_of(source: &RoleSource, claims: &TokenClaims) -> Option<String> {
    let arn = match source {
        RoleSource::Arn(arn) => arn,
        RoleSource::Claim(name) => match claims.get(name)? {
            Value::String(one) => one,
            Value::Array(all) => match &all[..] {
                [Value::String(one)] => one,
                _ => return None,
            },
            _ => return None,
        },
    };
    Some(arn.clone())
}

/// Returns tenant and role of an ARN.
pub(super) fn parts_of(arn: &str) -> Option<(&str, &str)> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_plain);
    let parts = arn.strip_prefix(ARN).filter(|_| arn.len() <= ARN_BYTES_MAX)?;
    parts.split_once(":role/").filter(|(tenant, role)| is_name(tenant) && is_name(role))
}

impl RoleSource {
    /// Returns true if the role can be one: its ARN is well-formed, or the claim has a name.
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Arn(arn) => parts_of(arn).is_some(),
            Self::Claim(name) => !name.is_empty(),
        }
    }
}

/// Returns the name of a subject's session: the subject itself, if the token service accepts it. Any
/// other subject keeps a readable beginning, and differs from all others by a part of its hash.
fn session_name(subject: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_+=,.@-".contains(char);
    if SESSION_BYTES.contains(&subject.len()) && subject.chars().all(is_plain) {
        return subject.to_owned();
    }
    let readable = subject.chars().take(READABLE_BYTES);
    let readable: String = readable.map(|it| if is_plain(it) { it } else { '-' }).collect();
    let hash = hex::encode(Sha256::digest(subject.as_bytes()));
    format!("{readable}-{}", &hash[..16])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> TokenClaims {
        match value {
            Value::Object(claims) => claims,
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn tokens_of_other_clients_are_refused() {
        let is_own = |value: Value| is_for("console", &claims(value));
        assert!(is_own(json!({"aud": "console"})));
        assert!(is_own(json!({"aud": ["console"], "azp": "console"})));
        assert!(is_own(json!({"aud": ["console", "api"], "azp": "console"})));
        for other in [
            json!({"aud": "api"}),
            json!({"aud": "console", "azp": "app"}),
            json!({"aud": ["console", "api"]}),
            json!({"aud": ["api"], "azp": "console"}),
            json!({"aud": "console", "azp": 7}),
            json!({}),
        ] {
            assert!(!is_own(other.clone()), "{other}");
        }
    }

    #[test]
    fn a_claim_names_one_role() {
        let arn = "arn:aws:iam::lab:role/reader";
        let of =
            |value: Value| role_of(&RoleSource::Claim("r".into()), &claims(json!({"r": value})));
        assert_eq!(of(json!(arn)).as_deref(), Some(arn));
        assert_eq!(of(json!([arn])).as_deref(), Some(arn));
        for other in [json!([arn, arn]), json!([]), json!(7), json!({}), Value::Null] {
            assert_eq!(of(other), None);
        }
        let fixed = RoleSource::Arn(arn.into());
        assert_eq!(role_of(&fixed, &claims(json!({}))).as_deref(), Some(arn));
        assert_eq!(parts_of(arn), Some(("lab", "reader")));
        for wrong in [
            "",
            "reader",
            "arn:aws:iam::lab:user/reader",
            "arn:aws:iam:::role/reader",
            "arn:aws:iam::lab:role/",
            "arn:aws:iam::lab:role/a/b",
            "arn:aws:iam::l<b:role/a",
            &format!("arn:aws:iam::lab:role/{}", "a".repeat(200)),
        ] {
            assert_eq!(parts_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sessions_are_called_by_their_subject() {
        assert_eq!(session_name("alice@example.com"), "alice@example.com");
        let (one, other) = (session_name("auth0|a"), session_name("auth0/a"));
        assert!(one.starts_with("auth0-a-") && other.starts_with("auth0-a-") && one != other);
        for subject in ["", "x", "ü", &"x".repeat(65), &"🐦".repeat(300), "a b\r\n"] {
            let name = session_name(subject);
            assert!(SESSION_BYTES.contains(&name.len()), "{name}");
            assert!(name.is_ascii() && !name.contains(['\r', '\n', ' ', '/', ':']), "{name}");
        }
    }
}
