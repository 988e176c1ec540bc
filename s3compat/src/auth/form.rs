//! Signatures of HTML forms. A signature covers the form's policy document, as it came.

use super::authenticator::Authenticator;
use super::caller::Caller;
use super::scope::{CredentialScope, CredentialSource};
use super::signature::{is_equal, mismatch};
use super::v2;
use crate::access::Identity;
use crate::date::Timestamp;
use crate::messages;
use crate::refusal::Refusal;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Fields of a signature of Version 4. One is enough to recognize such a form.
const V4_FIELDS: [&str; 4] =
    ["x-amz-signature", "x-amz-credential", "x-amz-algorithm", "x-amz-date"];
/// Fields of a signature of Version 2.
const V2_FIELDS: [&str; 2] = ["signature", "awsaccesskeyid"];

impl Authenticator {
    /// Access key that a form names.
    pub(crate) fn form_key<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Option<&'a str> {
        let scope = field("x-amz-credential").map(|scope| scope.split('/').next().unwrap_or(scope));
        scope.or_else(|| field("awsaccesskeyid"))
    }

    /// Authenticates a form. `field` returns fields by their lower-case names. A form without
    /// policy and signature is anonymous.
    ///
    /// # Errors
    /// A signature without a policy, a policy without a signature, a wrong signature, or an address
    /// outside the signer's networks.
    pub(crate) fn authenticate_form<'a>(
        &self,
        field: impl Fn(&str) -> Option<&'a str>,
        caller: &Caller,
    ) -> Result<Identity, Refusal> {
        let identity = self.prove_form(field, caller)?;
        if let Some(who) = identity.who() {
            who.check_source(caller.peer)?;
        }
        Ok(identity)
    }

    fn prove_form<'a>(
        &self,
        field: impl Fn(&str) -> Option<&'a str>,
        caller: &Caller,
    ) -> Result<Identity, Refusal> {
        let has = |names: &[&str]| names.iter().any(|name| field(name).is_some());
        if field("x-amz-security-token").is_some() && !caller.is_session {
            return Err(Refusal::invalid_token());
        }
        let (is_v4, is_v2) = (has(&V4_FIELDS), has(&V2_FIELDS));
        match field("policy") {
            None if is_v4 || is_v2 => Err(missing("Policy")),
            None => Ok(Identity::Anonymous),
            Some(policy) if is_v4 => self.form_v4(policy, field, caller),
            Some(_) if !self.config.allow_v2 => Err(Refusal::unsupported_mechanism()),
            Some(policy) => self.form_v2(policy, field, caller),
        }
    }

    fn form_v4<'a>(
        &self,
        policy: &str,
        field: impl Fn(&str) -> Option<&'a str>,
        caller: &Caller,
    ) -> Result<Identity, Refusal> {
        let get = |name: &str, shown| field(name).ok_or_else(|| missing(shown));
        let algorithm = get("x-amz-algorithm", "X-Amz-Algorithm")?;
        if algorithm != ALGORITHM {
            return Err(messages::FORM_ALGORITHM.argument("X-Amz-Algorithm", algorithm));
        }
        let scope = CredentialScope::parse(
            get("x-amz-credential", "X-Amz-Credential")?,
            CredentialSource::Form,
        )?;
        let date = get("x-amz-date", "X-Amz-Date")?;
        let time = Timestamp::parse_basic(date)
            .ok_or_else(|| messages::FORM_DATE.argument("X-Amz-Date", date))?;
        scope.check(time, "s3", &self.config.regions, CredentialSource::Form)?;
        let signature = get("x-amz-signature", "X-Amz-Signature")?;
        let key = scope.access_key;
        let site = self.site(caller);
        let credential = site.credential(key)?;
        let expected = credential.signing_key(time, scope.region).sign(policy.as_bytes());
        if !is_equal(&expected, signature) {
            return Err(mismatch(key, signature, policy));
        }
        Ok(credential.identity().clone())
    }

    fn form_v2<'a>(
        &self,
        policy: &str,
        field: impl Fn(&str) -> Option<&'a str>,
        caller: &Caller,
    ) -> Result<Identity, Refusal> {
        let key = field("awsaccesskeyid").ok_or_else(|| missing("AWSAccessKeyId"))?;
        let signature = field("signature").ok_or_else(|| missing("Signature"))?;
        let site = self.site(caller);
        let credential = site.credential(key)?;
        if !is_equal(&v2::sign(credential.secret(), policy), signature) {
            return Err(mismatch(key, signature, policy));
        }
        Ok(credential.identity().clone())
    }

    /// Time at which signatures are checked.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.clock.now_ms())
    }
}

fn missing(name: &str) -> Refusal {
    messages::FORM_FIELD.named(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use martlet_protocol::ManualClock;

    use super::*;
    use crate::auth::AuthConfig;
    use crate::auth::testing::{ACCESS_KEY, NOW_MS, keys};
    use crate::refusal::Code;

    const POLICY: &str = "eyJjb25kaXRpb25zIjpbXX0=";

    fn identity(fields: &[(&str, &str)], allow_v2: bool) -> Result<Identity, Code> {
        let config = AuthConfig { allow_v2, ..AuthConfig::default() };
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let authenticator = Authenticator::new(config, clock, keys());
        let field =
            |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
        authenticator.authenticate_form(field, &Caller::default()).map_err(|refusal| refusal.code)
    }

    fn v4_fields(signature: &str) -> Vec<(&'static str, String)> {
        vec![
            ("policy", POLICY.to_owned()),
            ("x-amz-algorithm", ALGORITHM.to_owned()),
            ("x-amz-credential", format!("{ACCESS_KEY}/20130524/us-east-1/s3/aws4_request")),
            ("x-amz-date", "20130524T000000Z".to_owned()),
            ("x-amz-signature", signature.to_owned()),
        ]
    }

    fn borrowed<'a>(fields: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
        fields.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    #[test]
    fn version_4_signs_the_policy() {
        let keys = keys();
        let key = keys.lookup(ACCESS_KEY).unwrap();
        let good = key.signing_key(Timestamp::from_unix_ms(NOW_MS), "us-east-1");
        let good = good.sign(POLICY.as_bytes());
        let fields = v4_fields(&good);
        assert_eq!(identity(&borrowed(&fields), false), Ok(Identity::known("root")));
        let forged = v4_fields(&"0".repeat(64));
        assert_eq!(identity(&borrowed(&forged), true), Err(Code::SignatureDoesNotMatch));
        for at in 0..fields.len() {
            let mut fields = fields.clone();
            fields.remove(at);
            assert_eq!(identity(&borrowed(&fields), true), Err(Code::InvalidArgument), "{at}");
        }
    }

    #[test]
    fn version_2_signs_the_policy_where_it_is_allowed() {
        let keys = keys();
        let signature = v2::sign(keys.lookup(ACCESS_KEY).unwrap().secret(), POLICY);
        let fields =
            [("policy", POLICY), ("awsaccesskeyid", ACCESS_KEY), ("signature", &signature)];
        assert_eq!(identity(&fields, true), Ok(Identity::known("root")));
        assert_eq!(identity(&fields, false), Err(Code::InvalidRequest));
        let wrong = [fields[0], fields[1], ("signature", "x")];
        assert_eq!(identity(&wrong, true), Err(Code::SignatureDoesNotMatch));
        let nobody = [fields[0], ("awsaccesskeyid", "nobody"), fields[2]];
        assert_eq!(identity(&nobody, true), Err(Code::InvalidAccessKeyId));
        assert_eq!(identity(&fields[..2], true), Err(Code::InvalidArgument));
        assert_eq!(identity(&fields[1..], true), Err(Code::InvalidArgument));
    }

    #[test]
    fn a_form_without_both_is_anonymous() {
        assert_eq!(identity(&[("key", "k")], true), Ok(Identity::Anonymous));
        assert_eq!(identity(&[("policy", POLICY)], true), Err(Code::InvalidArgument));
        assert_eq!(identity(&[("x-amz-security-token", "t")], true), Err(Code::InvalidToken));
    }
}
