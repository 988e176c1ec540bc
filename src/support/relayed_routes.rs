//! Routes that may be read of other processes, with the processes that have them and their replies.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use martlet_admin_api::accounts::ListPage;
use martlet_admin_api::audit::{AUDIT, AuditPage};
use martlet_admin_api::events::{EVENTS, EventTargetLine, PARKED, ParkedPage};
use martlet_admin_api::jobs::{JOB, JOBS, JobLine};
use martlet_admin_api::principals::AdminRole;
use martlet_admin_api::processes::{QUERY_BYTES_MAX, RelayQuery};
use martlet_admin_api::{ProcessWorkers, SETTINGS, STATUS, ServerStatus, SettingsReply, WORKERS};
use martlet_serving::access::RouteAccess;
use martlet_serving::operator::refuse;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::directory::{ListedProcess, has_s3, has_targets};

/// Refusal, with its HTTP status and its sentence.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl Refusal {
    /// Makes a refusal of a request that may succeed later.
    pub(super) fn unavailable(sentence: impl Into<String>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, sentence.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refuse(self.0, &self.1)
    }
}

/// Route that may be read of other processes.
pub(super) struct RelayedRoute {
    pub(super) path: &'static str,
    pub(super) access: RouteAccess,
    /// Returns true for the roles of processes that have the route.
    is_of: fn(&str) -> bool,
    /// Decodes a reply into the type of the route, and encodes it again.
    pub(super) decoded: fn(&[u8]) -> serde_json::Result<Vec<u8>>,
}

impl RelayedRoute {
    const fn new<T: Serialize + DeserializeOwned>(
        path: &'static str,
        access: RouteAccess,
        is_of: fn(&str) -> bool,
    ) -> Self {
        Self { path, access, is_of, decoded: decoded::<T> }
    }

    /// Returns true if a role of the process has the route.
    pub(super) fn is_of(&self, process: &ListedProcess) -> bool {
        process.roles.iter().any(|role| (self.is_of)(role))
    }
}

pub(super) static ROUTES: [RelayedRoute; 8] = [
    RelayedRoute::new::<AuditPage>(AUDIT, RouteAccess::Operate, has_s3),
    RelayedRoute::new::<ListPage<JobLine>>(JOBS, RouteAccess::Read, has_s3),
    RelayedRoute::new::<JobLine>(JOB, RouteAccess::Read, has_s3),
    RelayedRoute::new::<ListPage<EventTargetLine>>(EVENTS, RouteAccess::Read, has_targets),
    RelayedRoute::new::<ParkedPage>(PARKED, RouteAccess::Operate, has_targets),
    RelayedRoute::new::<SettingsReply>(SETTINGS, RouteAccess::Read, is_any),
    RelayedRoute::new::<ServerStatus>(STATUS, RouteAccess::Read, is_any),
    RelayedRoute::new::<Vec<ProcessWorkers>>(WORKERS, RouteAccess::Read, is_any),
];

fn is_any(_: &str) -> bool {
    true
}

fn decoded<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&serde_json::from_slice::<T>(bytes)?)
}

/// Finds the route of a request, and checks the role of its principal and its query.
pub(super) fn route_of(
    query: &RelayQuery,
    role: AdminRole,
) -> Result<&'static RelayedRoute, Refusal> {
    let Some(route) = ROUTES.iter().find(|route| route.path == query.route) else {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        let sentence = format!("route must be one of {}", paths.join(", "));
        return Err(Refusal(StatusCode::BAD_REQUEST, sentence));
    };
    if !route.access.admits(role) {
        return Err(Refusal(StatusCode::FORBIDDEN, route.access.refusal(role)));
    }
    let text = query.query.as_deref().unwrap_or_default();
    if text.len() > QUERY_BYTES_MAX || !is_query(text) {
        let sentence =
            format!("query must be encoded for a URL, in {QUERY_BYTES_MAX} bytes at most");
        return Err(Refusal(StatusCode::BAD_REQUEST, sentence));
    }
    Ok(route)
}

/// Returns true for the query of a URL: RFC 3986, section 3.4.
fn is_query(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_encoded = byte == b'%'
            && [bytes.next(), bytes.next()]
                .iter()
                .all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()));
        if !is_encoded && !is_plain(byte) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(route: &str, query: &str, role: AdminRole) -> Option<StatusCode> {
        let query = RelayQuery {
            process: "proxy p2".to_owned(),
            route: route.to_owned(),
            query: Some(query.to_owned()),
        };
        route_of(&query, role).err().map(|refusal| refusal.0)
    }

    #[test]
    fn queries_have_the_characters_of_rfc_3986_alone() {
        for query in ["", "a=1&b=%20%c3%BC+x", "after=-._~!$&'()*+,;=:@/?"] {
            assert_eq!(refusal(AUDIT, query, AdminRole::Operator), None, "{query}");
        }
        for odd in
            ["\"", "<", ">", "\\", "^", "{", "|", "}", "`", "#", " ", "\r\n", "ü", "%", "%4", "%4g"]
        {
            let query = format!("a={odd}");
            assert_eq!(
                refusal(AUDIT, &query, AdminRole::Operator),
                Some(StatusCode::BAD_REQUEST),
                "{query}"
            );
        }
        let long = "a".repeat(QUERY_BYTES_MAX + 1);
        assert_eq!(refusal(AUDIT, &long, AdminRole::Operator), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn the_role_is_checked_before_the_query() {
        assert_eq!(refusal(AUDIT, "#", AdminRole::Viewer), Some(StatusCode::FORBIDDEN));
        assert_eq!(refusal(SETTINGS, "", AdminRole::Viewer), None);
        assert_eq!(refusal("/metrics", "", AdminRole::Operator), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn a_process_has_the_routes_of_all_its_roles() {
        let process = |roles: &[&str]| ListedProcess {
            name: roles[0].to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            address: Err(String::new()),
            is_private: false,
            own: false,
        };
        let count = |roles: &[&str]| {
            let process = process(roles);
            ROUTES.iter().filter(|route| route.is_of(&process)).count()
        };
        assert_eq!(count(&["storage node n1"]), 3);
        assert_eq!(count(&["storage node n1", "replicator n1"]), 5);
        assert_eq!(count(&["storage node n1", "proxy n1"]), ROUTES.len());
    }

    #[test]
    fn a_reply_of_another_shape_is_not_passed_on() {
        let audit = ROUTES[0].decoded;
        assert!(audit(br#"{"items":[null],"next":"","more":false}"#).is_err());
        assert!(audit(b"<html>").is_err());
        let page = serde_json::to_vec(&AuditPage::default()).unwrap();
        assert_eq!(audit(&page).unwrap(), page);
    }
}
