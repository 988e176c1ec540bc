//! Address of a broker: `SCHEME://HOST[:PORT]/NAME`.
//!
//! The scheme names the protocol, and NAME the topic, subject, key or routing key that gets the
//! messages. Only Kafka takes several hosts, separated by commas.
//!
//! Invariant: an address holds no credentials, so that it may be logged. Errors don't repeat an
//! address that was refused.

use std::fmt;

use martlet_serving::{Failure, nearest};
use percent_encoding::percent_decode_str;

/// Maximum number of hosts in an address.
const HOSTS_MAX: usize = 16;
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 512;

/// Protocol of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Amqp,
    Kafka,
    Nats,
    Redis,
}

/// Scheme of an address.
struct Scheme {
    name: &'static str,
    protocol: Protocol,
    is_tls: bool,
    port: u16,
}

const fn scheme(name: &'static str, protocol: Protocol, is_tls: bool, port: u16) -> Scheme {
    Scheme { name, protocol, is_tls, port }
}

/// Known schemes with their default ports.
const SCHEMES: [Scheme; 9] = [
    scheme("amqp", Protocol::Amqp, false, 5672),
    scheme("amqps", Protocol::Amqp, true, 5671),
    scheme("kafka", Protocol::Kafka, false, 9092),
    scheme("kafkas", Protocol::Kafka, true, 9093),
    scheme("nats", Protocol::Nats, false, 4222),
    scheme("natss", Protocol::Nats, true, 4222),
    scheme("redis", Protocol::Redis, false, 6379),
    scheme("rediss", Protocol::Redis, true, 6379),
    scheme("tls", Protocol::Nats, true, 4222),
];

/// Host and port of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokerHost {
    /// Name or IP address, without brackets.
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for BrokerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            return write!(f, "[{}]:{}", self.name, self.port);
        }
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// Address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokerAddress {
    pub(super) protocol: Protocol,
    pub(super) is_tls: bool,
    /// At least one host.
    pub(super) hosts: Vec<BrokerHost>,
    /// Topic, subject, key or routing key.
    pub(super) name: String,
}

impl BrokerAddress {
    /// Parses an address.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            usage("it must have the form SCHEME://HOST:PORT/NAME, such as nats://10.0.0.9/events")
        })?;
        let scheme = known(scheme)?;
        if rest.contains('@') {
            return Err(usage(
                "it must not contain credentials: use user and password_file, or token_file",
            ));
        }
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Vec<BrokerHost> =
            hosts.split(',').map(|text| host(text, scheme.port)).collect::<Result<_, _>>()?;
        if hosts.len() > 1 && scheme.protocol != Protocol::Kafka {
            return Err(usage(format!(
                "{} takes one host, not {}: use a name with several addresses",
                scheme.name,
                hosts.len()
            )));
        }
        if hosts.len() > HOSTS_MAX {
            return Err(usage(format!("it names {} hosts, {HOSTS_MAX} at most", hosts.len())));
        }
        let name = decoded_name(name)?;
        Ok(Self { protocol: scheme.protocol, is_tls: scheme.is_tls, hosts, name })
    }
}

fn usage(why: impl fmt::Display) -> Failure {
    Failure::usage(format!("the broker's address can't be used: {why}"))
}

fn known(name: &str) -> Result<&'static Scheme, Failure> {
    if let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.name == name) {
        return Ok(scheme);
    }
    let names: Vec<&str> = SCHEMES.iter().map(|scheme| scheme.name).collect();
    let meant = nearest(name, names.iter().copied());
    let hint = meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default();
    Err(usage(format!(
        "its scheme is unknown{hint}. Brokers have {}; webhooks have http and https",
        names.join(", ")
    )))
}

fn host(text: &str, default_port: u16) -> Result<BrokerHost, Failure> {
    let refused = || usage("a host must have the form NAME, NAME:PORT, [IPV6] or [IPV6]:PORT");
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or_else(refused)?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or_else(refused)?),
            };
            (name, port)
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_plain);
    let is_bracketed = text.starts_with('[') == name.contains(':');
    let port = port.map_or(Ok(default_port), str::parse).map_err(|_| refused())?;
    if !is_name || !is_bracketed || port == 0 {
        return Err(refused());
    }
    Ok(BrokerHost { name: name.to_owned(), port })
}

/// Returns the name in an address. A slash in a name is written as `%2F`, so that a path of two
/// parts, which other programs read differently, is refused.
fn decoded_name(path: &str) -> Result<String, Failure> {
    if path.contains(['/', '?', '#']) {
        return Err(usage(
            "one name follows the host; write %2F, %3F and %23 for /, ? and # in it",
        ));
    }
    let name =
        percent_decode_str(path).decode_utf8().map_err(|_| usage("its name is not UTF-8"))?;
    if name.is_empty() {
        return Err(usage("a topic, subject, key or routing key must follow the host and a slash"));
    }
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(usage(format!(
            "its name must have at most {NAME_BYTES_MAX} bytes, and no control characters"
        )));
    }
    Ok(name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        BrokerAddress::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn addresses_have_default_ports_and_decoded_names() {
        let address = BrokerAddress::parse("tls://nats.example/a.b%2Fc").unwrap();
        assert_eq!((address.protocol, address.is_tls), (Protocol::Nats, true));
        assert_eq!(address.hosts[0].to_string(), "nats.example:4222");
        assert_eq!(address.name, "a.b/c");
        let address = BrokerAddress::parse("kafka://k1,[2001:db8::1]:19092/t").unwrap();
        let hosts: Vec<String> = address.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["k1:9092", "[2001:db8::1]:19092"]);
        assert_eq!(BrokerAddress::parse("amqps://h/q").unwrap().hosts[0].port, 5671);
    }

    #[test]
    fn unknown_schemes_are_refused_with_those_that_are_known() {
        let text = refusal("natz://h/x");
        assert!(
            text.contains("did you mean nats?") && text.contains("amqp, amqps, kafka"),
            "{text}"
        );
        let text = refusal("mqtt-over-carrier-pigeon://h/x");
        assert!(!text.contains("did you mean") && text.contains("rediss, tls"), "{text}");
        assert!(refusal("h:1/x").contains("SCHEME://HOST:PORT/NAME"));
    }

    #[test]
    fn several_hosts_are_for_kafka_alone() {
        let text = refusal("redis://a,b,c/events");
        assert!(text.contains("redis takes one host, not 3"), "{text}");
        assert!(refusal("nats://a:1,b:2/events").contains("takes one host"));
        let many = ["k"; 17].join(",");
        assert!(refusal(&format!("kafka://{many}/t")).contains("17 hosts, 16 at most"));
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        for text in ["redis://:s3cret@h/k", "amqp://me:s3/cret@h/q", "nats://h/x?password=s3cret"] {
            let refusal = refusal(text);
            assert!(!refusal.contains("s3"), "{refusal}");
        }
        assert!(refusal("redis://:s3cret@h/k").contains("password_file"));
    }

    #[test]
    fn mistakes_in_hosts_and_names_are_refused() {
        for text in
            ["nats:///x", "nats://h:0/x", "nats://h:port/x", "nats://h:65536/x", "nats://[::1/x"]
        {
            assert!(refusal(text).contains("a host must have the form"), "{text}");
        }
        assert!(refusal("nats://[h]/x").contains("a host must have the form"));
        assert!(refusal("redis://h/0/events").contains("one name follows the host"));
        assert!(refusal("redis://h").contains("must follow the host"));
        assert!(refusal("redis://h/a%0Ab").contains("no control characters"));
        assert!(refusal("redis://h/%FF").contains("not UTF-8"));
        assert!(refusal(&format!("redis://h/{}", "x".repeat(513))).contains("at most 512 bytes"));
    }
}
