//! Console of a process with accounts: its settings, its port and its end.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use clap::Args;
use hyper_util::service::TowerToHyperService;
use martlet_console::{ConsoleParts, S3Parts, S3Slot};
use martlet_protocol::{Clock, SystemClock};
use martlet_s3compat::S3Service;
use martlet_s3compat::auth::UNNAMED_REGION;
use martlet_serving::Failure;
use martlet_serving::access::AdminAccess;
use martlet_serving::listen::{self, ConnectionLimits, HEAD_BYTES_MAX, Limits, Port};
use martlet_serving::operator::{Operator, bind_console};
use martlet_serving::settings::{CommonSettings, list, span};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::identity::StoreTokens;
use super::measure::MeasuredService;
use super::s3_port::S3Settings;

/// Default address of the console of an embedded server. Clusters have none by default.
pub(crate) const SERVER_CONSOLE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9003);
/// Bounds on connections of browsers, which have up to six each.
const PLACES: ConnectionLimits =
    ConnectionLimits { all: 128, keyless: 96, keyless_per_address: 32 };
/// Upper limit on the timeout for the head of a request.
const HEADER_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Drain time of connections. Pages load again by themselves.
const FAREWELL: Duration = Duration::from_secs(1);

/// Flags of the console.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct ConsoleArgs {
    /// Address of the console for browsers, or off [default: 127.0.0.1:9003 for a server, else off]
    #[arg(long, value_name = "HOST:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_address: Option<String>,
    /// Host name by which browsers reach the console, besides localhost and IP addresses; repeatable
    #[arg(long = "console-host", value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    console_hosts: Vec<String>,
    /// URL by which browsers reach the console behind a proxy [default: the host of the request]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_url: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    oidc: ConsoleOidcArgs,
}

/// Flags of logins by an identity provider.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Logins by an identity provider")]
#[expect(clippy::struct_field_names, reason = "a field has the name of its setting")]
struct ConsoleOidcArgs {
    /// Id of the console at the provider of --oidc-issuer
    #[arg(long, value_name = "ID", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_oidc_client_id: Option<String>,
    /// File with the console's secret at the provider [default: a public client]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_oidc_client_secret_file: Option<PathBuf>,
    /// Scope of logins; repeatable [default: openid]
    #[arg(long = "console-oidc-scope", value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    console_oidc_scopes: Vec<String>,
    /// Role that logins take on
    #[arg(long, value_name = "ARN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_oidc_role: Option<String>,
    /// Claim of the ID token with the ARN of the role, in place of one role for all
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_oidc_role_claim: Option<String>,
    /// Length of the role's session, 15m to 12h [default: 1h]
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_oidc_session: Option<String>,
    /// Name of the provider on the page of the login [default: the host of --oidc-issuer]
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    console_oidc_label: Option<String>,
}

/// Settings of the console.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "a field has the name of its setting")]
pub(crate) struct ConsoleSettings {
    /// Address of the console. Default: 127.0.0.1:9003 for an embedded server, else none.
    pub(crate) console_address: Option<ConsoleAddress>,
    /// Host names of the console besides `localhost` and IP addresses.
    #[serde(deserialize_with = "list")]
    pub(crate) console_hosts: Vec<String>,
    /// URL by which browsers reach the console, without a path. Default: the host of each request.
    pub(crate) console_url: Option<String>,
    /// Id of the console at the identity provider. Without one there are no logins by it.
    pub(crate) console_oidc_client_id: Option<String>,
    /// File with the console's secret at the provider. Default: a public client.
    pub(crate) console_oidc_client_secret_file: Option<PathBuf>,
    /// Scopes of logins.
    #[serde(deserialize_with = "list")]
    pub(crate) console_oidc_scopes: Vec<String>,
    /// ARN of the role that all logins take on.
    pub(crate) console_oidc_role: Option<String>,
    /// Claim of the ID token that has the ARN of the role.
    pub(crate) console_oidc_role_claim: Option<String>,
    /// Length of the role's session.
    #[serde(deserialize_with = "span")]
    pub(crate) console_oidc_session: Duration,
    /// Name of the provider for people. Default: the issuer's host.
    pub(crate) console_oidc_label: Option<String>,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            console_address: None,
            console_hosts: Vec::new(),
            console_url: None,
            console_oidc_client_id: None,
            console_oidc_client_secret_file: None,
            console_oidc_scopes: vec!["openid".to_owned()],
            console_oidc_role: None,
            console_oidc_role_claim: None,
            console_oidc_session: Duration::from_hours(1),
            console_oidc_label: None,
        }
    }
}

/// Surroundings of a console in its process.
#[derive(Clone, Copy)]
pub(crate) struct ConsoleHost<'a> {
    /// Address without a setting, which another process may have. `None` for no console.
    pub(crate) default: Option<SocketAddr>,
    /// Gate of the admin address.
    pub(crate) operator: &'a Arc<Operator>,
    /// Access key of the root identity.
    pub(crate) root_key: &'a str,
    /// Place of the S3 service that the process will have.
    pub(crate) slot: &'a S3Slot,
    /// Settings of the S3 port, with the identity provider.
    pub(crate) s3: &'a S3Settings,
    /// Settings of the process.
    pub(crate) common: &'a CommonSettings,
}

/// Address of the console, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum ConsoleAddress {
    /// No console.
    Off,
    /// Console at this address.
    At(SocketAddr),
}

impl TryFrom<String> for ConsoleAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let wrong = |_| format!("{text:?} is not an address: write 127.0.0.1:9003, or off");
        text.parse().map(Self::At).map_err(wrong)
    }
}

/// Bound port of a console.
struct OpenConsole {
    port: Port,
    url: String,
}

/// Clock of the gate, which judges signatures by the cluster's time; the machine's until the process
/// is open.
struct GateClock(Arc<Operator>);

impl fmt::Debug for GateClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateClock")
    }
}

impl Clock for GateClock {
    fn now_ms(&self) -> u64 {
        self.0.clock().map_or_else(|| SystemClock.now_ms(), |clock| clock.now_ms())
    }
}

/// Console that is served, or none.
#[derive(Default)]
pub(crate) struct RunningConsole {
    /// URL for browsers.
    pub(crate) url: Option<String>,
    server: Option<ConsoleServer>,
}

struct ConsoleServer {
    stop: watch::Sender<bool>,
    task: JoinHandle<bool>,
}

impl ConsoleSettings {
    /// Names of these settings.
    pub(crate) const NAMES: [&str; 10] = [
        "console_address",
        "console_hosts",
        "console_url",
        "console_oidc_client_id",
        "console_oidc_client_secret_file",
        "console_oidc_scopes",
        "console_oidc_role",
        "console_oidc_role_claim",
        "console_oidc_session",
        "console_oidc_label",
    ];

    /// Serves the console over the routes of the admin address, if there is one, and over the S3
    /// service of the process.
    pub(crate) async fn serve(&self, host: ConsoleHost<'_>) -> Result<RunningConsole, Failure> {
        let ConsoleHost { default, operator, root_key, slot, s3, common } = host;
        let Some(OpenConsole { port, url }) = self.listen(default, common).await? else {
            return Ok(RunningConsole::default());
        };
        self.check_redirect(listen::address_of(&port.listener)?)?;
        let router = martlet_console::router(ConsoleParts {
            admin: operator.clone().router(),
            clock: Arc::new(GateClock(operator.clone())),
            hosts: self.console_hosts.clone(),
            url: self.console_url.clone(),
            is_secure: port.certificate.is_some() || self.is_behind_tls(),
            root_key: root_key.to_owned(),
            s3: slot.clone(),
            oidc: self.oidc(s3)?,
        });
        let limits = Limits {
            places: PLACES,
            header_timeout: common.header_timeout.min(HEADER_TIMEOUT_MAX),
            write_idle: common.body_idle_timeout,
            head_bytes: HEAD_BYTES_MAX,
        };
        let (stop, stopped) = watch::channel(false);
        let service = TowerToHyperService::new(router);
        // Requests of HTTP/1.1 have their host in a header, which the console checks.
        let serving = listen::serve(port.for_http1(), service, limits, stopped, FAREWELL);
        let server = ConsoleServer { stop, task: tokio::spawn(serving) };
        Ok(RunningConsole { url: Some(url), server: Some(server) })
    }

    /// Returns true if browsers reach the console over TLS that a proxy ends: cookies are then for TLS
    /// alone, although the port has no certificate.
    fn is_behind_tls(&self) -> bool {
        self.console_url.as_ref().is_some_and(|url| url.starts_with("https:"))
    }

    async fn listen(
        &self,
        default: Option<SocketAddr>,
        common: &CommonSettings,
    ) -> Result<Option<OpenConsole>, Failure> {
        let port = match (self.console_address, default) {
            (Some(ConsoleAddress::Off), _) | (None, None) => return Ok(None),
            (Some(ConsoleAddress::At(address)), _) => bind_console(address, common).await?,
            (None, Some(address)) => match bind_console(address, common).await {
                Ok(port) => port,
                Err(failure) => {
                    tracing::info!(reason = %failure, "there is no console");
                    return Ok(None);
                }
            },
        };
        let scheme = if port.certificate.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listen::address_of(&port.listener)?);
        tracing::info!(console = %url, pages = martlet_console::is_built(), "listening for browsers");
        Ok(Some(OpenConsole { port, url }))
    }
}

/// Returns the S3 service of this process as the console uses it. `is_secure` is true if the port
/// at `address` has TLS. The audit log of `access` records logins by an identity provider.
pub(crate) fn s3_parts(
    service: &MeasuredService<S3Service>,
    address: SocketAddr,
    is_secure: bool,
    access: &AdminAccess,
) -> S3Parts {
    let service = service.clone();
    let id_tokens = Arc::new(StoreTokens(service.inner().clone()));
    let answer = tower::service_fn(move |request: Request| service.answer(request));
    let routes = Router::new().fallback_service(answer);
    let parts = S3Parts::new(routes, UNNAMED_REGION.to_owned(), address, is_secure);
    S3Parts { id_tokens: Some(id_tokens), audit: access.tenant_audit.clone(), ..parts }
}

impl RunningConsole {
    /// Stops the console, and waits for its connections.
    pub(crate) async fn end(self) {
        if let Some(ConsoleServer { stop, task }) = self.server {
            stop.send_replace(true);
            let _ = task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_mistakes_named() {
        let read = |text: &str| ConsoleAddress::try_from(text.to_owned());
        assert_eq!(read("off"), Ok(ConsoleAddress::Off));
        assert_eq!(read("127.0.0.1:9003"), Ok(ConsoleAddress::At(SERVER_CONSOLE)));
        assert!(read("here").unwrap_err().contains("or off"));
    }

    #[test]
    fn cookies_are_for_tls_where_a_proxy_ends_it() {
        let of = |url: Option<&str>| {
            let console_url = url.map(str::to_owned);
            ConsoleSettings { console_url, ..ConsoleSettings::default() }.is_behind_tls()
        };
        assert!(of(Some("https://console.example.com")));
        assert!(!of(Some("http://console.example.com")) && !of(None));
    }

    #[tokio::test]
    async fn a_taken_default_is_no_failure_and_a_taken_setting_is_one() {
        let common = CommonSettings::default();
        let at = |address| ConsoleSettings {
            console_address: Some(ConsoleAddress::At(address)),
            ..ConsoleSettings::default()
        };
        let free = "127.0.0.1:0".parse().unwrap();
        let first = at(free).listen(None, &common).await.unwrap().unwrap();
        let taken = listen::address_of(&first.port.listener).unwrap();
        let unset = ConsoleSettings::default();
        assert!(unset.listen(Some(taken), &common).await.unwrap().is_none());
        assert!(unset.listen(None, &common).await.unwrap().is_none());
        let refusal = at(taken).listen(None, &common).await.err().unwrap().to_string();
        assert!(refusal.contains("--console-address"), "{refusal}");
    }
}
