//! Scope of a signature: access key, day, region and service.

use super::config::UNNAMED_REGION;
use crate::date::Timestamp;
use crate::messages;
use crate::refusal::{Code, Refusal};

/// `AKIDEXAMPLE/20130524/us-east-1/s3/aws4_request`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CredentialScope<'a> {
    pub(super) access_key: &'a str,
    pub(super) region: &'a str,
    day: &'a str,
    service: &'a str,
    /// Everything behind the access key.
    pub(super) text: &'a str,
}

/// Origin of a credential. It decides the wording of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialSource {
    Header,
    Query,
    Form,
}

impl CredentialSource {
    pub(super) fn malformed(self, what: &str) -> Refusal {
        match self {
            Self::Header => messages::AUTHORIZATION.with_subject(what),
            Self::Query => messages::AUTHORIZATION_QUERY.with_subject(what),
            Self::Form => Refusal::new(Code::InvalidArgument, what.to_owned()),
        }
    }
}

impl<'a> CredentialScope<'a> {
    pub(super) fn parse(credential: &'a str, place: CredentialSource) -> Result<Self, Refusal> {
        let mut parts = credential.rsplitn(5, '/');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let parsed = (next(), next(), next(), next(), next());
        let (Some("aws4_request"), Some(service), Some(region), Some(day), Some(access_key)) =
            parsed
        else {
            return Err(place.malformed(
                "the Credential is mal-formed; expecting \
                 \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"",
            ));
        };
        let text = &credential[access_key.len() + 1..];
        Ok(Self { access_key, region, day, service, text })
    }

    /// Checks that the scope is valid for a request at `time`.
    ///
    /// # Errors
    /// Another day, service or region.
    pub(super) fn check(
        &self,
        time: Timestamp,
        service: &str,
        regions: &[String],
        place: CredentialSource,
    ) -> Result<(), Refusal> {
        if !time.is_on(self.day) {
            return Err(place.malformed(&format!(
                "Invalid credential date \"{}\". This date is not the same as X-Amz-Date",
                self.day
            )));
        }
        if self.service != service {
            return Err(place.malformed(&format!(
                "incorrect service \"{}\". This endpoint belongs to \"{service}\"",
                self.service
            )));
        }
        if !regions.iter().any(|region| region == self.region) {
            let expected = regions.first().map_or(UNNAMED_REGION, String::as_str);
            let what = format!("the region '{}' is wrong; expecting '{expected}'", self.region);
            return Err(place.malformed(&what).with_detail("Region", expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_five_parts() {
        let scope = CredentialScope::parse(
            "a/b/20130524/eu-west-1/s3/aws4_request",
            CredentialSource::Header,
        )
        .unwrap();
        assert_eq!((scope.access_key, scope.region), ("a/b", "eu-west-1"));
        assert_eq!(scope.text, "20130524/eu-west-1/s3/aws4_request");
        for wrong in [
            "",
            "AKID",
            "AKID/20130524/eu-west-1/s3/aws5_request",
            "AKID/20130524//s3/aws4_request",
            "20130524/eu-west-1/s3/aws4_request",
        ] {
            let header = CredentialScope::parse(wrong, CredentialSource::Header).unwrap_err();
            assert_eq!(header.code, Code::AuthorizationHeaderMalformed, "{wrong}");
            let query = CredentialScope::parse(wrong, CredentialSource::Query).unwrap_err();
            assert_eq!(query.code, Code::AuthorizationQueryParametersError, "{wrong}");
            let form = CredentialScope::parse(wrong, CredentialSource::Form).unwrap_err();
            assert_eq!(form.code, Code::InvalidArgument, "{wrong}");
        }
    }
}
