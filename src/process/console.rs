//! Console of a process with accounts: its settings, its port and its end.

use std::fmt;
use std::net::SocketAddr;
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
use martlet_serving::listen::{self, ConnectionLimits, HEAD_BYTES_MAX, Limits, Port};
use martlet_serving::operator::{Operator, bind_console};
use martlet_serving::settings::{CommonSettings, list};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::measure::MeasuredService;

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
}

/// Settings of the console.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConsoleSettings {
    /// Address of the console. Default: 127.0.0.1:9003 for an embedded server, else none.
    pub(crate) console_address: Option<ConsoleAddress>,
    /// Host names of the console besides `localhost` and IP addresses.
    #[serde(deserialize_with = "list")]
    pub(crate) console_hosts: Vec<String>,
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
    pub(crate) const NAMES: [&str; 2] = ["console_address", "console_hosts"];

    /// Serves the console over the routes of the admin address, if there is one, and over the S3
    /// service that `s3` will have. `default` is used without a setting; another process may have
    /// its port.
    pub(crate) async fn serve(
        &self,
        default: Option<SocketAddr>,
        operator: &Arc<Operator>,
        root_key: &str,
        s3: &S3Slot,
        common: &CommonSettings,
    ) -> Result<RunningConsole, Failure> {
        let Some(OpenConsole { port, url }) = self.listen(default, common).await? else {
            return Ok(RunningConsole::default());
        };
        let router = martlet_console::router(ConsoleParts {
            admin: operator.clone().router(),
            clock: Arc::new(GateClock(operator.clone())),
            hosts: self.console_hosts.clone(),
            is_secure: port.certificate.is_some(),
            root_key: root_key.to_owned(),
            s3: s3.clone(),
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
/// at `address` has TLS.
pub(crate) fn s3_parts(
    service: &MeasuredService<S3Service>,
    address: SocketAddr,
    is_secure: bool,
) -> S3Parts {
    let service = service.clone();
    let answer = tower::service_fn(move |request: Request| service.answer(request));
    S3Parts {
        routes: Router::new().fallback_service(answer),
        region: UNNAMED_REGION.to_owned(),
        address,
        is_secure,
    }
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
