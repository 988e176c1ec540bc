//! Form parameters of a request: a closed list for each action.

use super::reply::{StsCode, StsError};
use crate::target::Query;

/// The supported version of the service.
const VERSION: &str = "2011-06-15";

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StsAction {
    AssumeRole,
    AssumeRoleWithWebIdentity,
    GetCallerIdentity,
}

impl StsAction {
    pub(super) const ALL: [Self; 3] =
        [Self::AssumeRole, Self::AssumeRoleWithWebIdentity, Self::GetCallerIdentity];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AssumeRole => "AssumeRole",
            Self::AssumeRoleWithWebIdentity => "AssumeRoleWithWebIdentity",
            Self::GetCallerIdentity => "GetCallerIdentity",
        }
    }

    /// Accepted parameters. Any other one is refused, as it might limit a session in a way that
    /// isn't enforced.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::AssumeRole => {
                &["RoleArn", "RoleSessionName", "DurationSeconds", "Policy", "ExternalId"]
            }
            Self::AssumeRoleWithWebIdentity => {
                &["RoleArn", "RoleSessionName", "DurationSeconds", "Policy", "WebIdentityToken"]
            }
            Self::GetCallerIdentity => &[],
        }
    }
}

/// The form of a request.
pub(super) struct StsForm<'a> {
    pub(super) action: StsAction,
    fields: Query<'a>,
}

impl<'a> StsForm<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, StsError> {
        let fields = Query::parse(text)
            .map_err(|refusal| StsError::validation(refusal.message.into_owned()))?;
        let name = fields.get("Action").unwrap_or_default();
        let action = StsAction::ALL.into_iter().find(|action| action.name() == name);
        let action =
            action.filter(|_| fields.get("Version") == Some(VERSION)).ok_or_else(|| {
                let version = fields.get("Version").unwrap_or_default();
                let message = format!("Could not find operation {name} for version {version}");
                StsError::new(StsCode::InvalidAction, message)
            })?;
        let is_known = |name: &str| {
            ["Action", "Version"].contains(&name) || action.parameters().contains(&name)
        };
        if let Some(pair) = fields.pairs().iter().find(|pair| !is_known(&pair.name)) {
            let message = format!("The parameter {} is not supported", pair.name);
            return Err(StsError::validation(message));
        }
        Ok(Self { action, fields })
    }

    /// Value of a parameter, if given.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    /// Value of a required parameter.
    pub(super) fn need(&self, name: &str) -> Result<&str, StsError> {
        self.get(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            StsError::validation(format!(
                "1 validation error detected: Value at '{}' failed to satisfy constraint: Member \
                 must not be null",
                in_lower_camel_case(name)
            ))
        })
    }
}

/// Name of a parameter in errors.
fn in_lower_camel_case(name: &str) -> String {
    let (first, rest) = name.split_at(name.len().min(1));
    first.to_ascii_lowercase() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> StsCode {
        StsForm::parse(text).err().unwrap().code
    }

    #[test]
    fn an_action_takes_what_it_knows() {
        let form = StsForm::parse("Action=AssumeRole&Version=2011-06-15&RoleArn=a%2Fb+c").unwrap();
        assert_eq!((form.action, form.get("RoleArn")), (StsAction::AssumeRole, Some("a/b c")));
        let missing = form.need("RoleSessionName").unwrap_err();
        assert_eq!(missing.code, StsCode::ValidationError);
        assert!(missing.message.contains("'roleSessionName'"), "{}", missing.message);
    }

    #[test]
    fn unsupported_session_limits_are_refused() {
        let base = "Action=AssumeRole&Version=2011-06-15";
        for more in ["PolicyArns.member.1.arn=x", "SerialNumber=1", "Tags.member.1.Key=a", "x=1"] {
            assert_eq!(refusal(&format!("{base}&{more}")), StsCode::ValidationError, "{more}");
        }
        assert_eq!(refusal(&format!("{base}&RoleArn=a&RoleArn=b")), StsCode::ValidationError);
        assert_eq!(refusal("Action=AssumeRole"), StsCode::InvalidAction);
        assert_eq!(refusal("Action=GetSessionToken&Version=2011-06-15"), StsCode::InvalidAction);
        assert_eq!(refusal(""), StsCode::InvalidAction);
    }
}
