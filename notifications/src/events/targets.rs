//! Configured targets of events, as a table in the settings file or as one text in the environment.
//!
//! ```toml
//! [notifications.hook]
//! webhook = "https://hooks.example/events"
//! ca_file = "/etc/martlet/hooks-ca.pem"
//! token_file = "/etc/martlet/hooks.token"
//! tenants = ["research", "web"]
//! [notifications.audit]
//! queue_file = "/var/log/martlet/events.jsonl"
//! [notifications.bus]
//! broker = "natss://nats.example/martlet.events"
//! nats_jetstream = true
//! ```
//!
//! `MARTLET_NOTIFICATIONS=hook:*=http://10.0.0.9:8080/events,audit=/var/log/martlet/events.jsonl`
//!
//! A target accepts events of root's buckets, and of buckets of the tenants that it names. `*`
//! means every tenant; in the text form it follows the name and a colon.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use martlet_proxy::ROOT;
use martlet_serving::Failure;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::broker::{BrokerLane, BrokerSettings};
use super::destination::Destination;
use super::queue_file::QueueFile;
use super::webhook::Webhook;

/// Maximum length of a target's name.
const NAME_CHARS_MAX: usize = 64;

/// Settings of a target: either a webhook, a file or a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetSettings {
    /// URL that receives each message in a POST.
    webhook: Option<String>,
    /// File that receives each message as a line.
    queue_file: Option<PathBuf>,
    /// Address of a broker: `SCHEME://HOST:PORT/NAME`, without credentials.
    broker: Option<String>,
    /// PEM file with the accepted authorities of a webhook's or broker's certificate. Default: the
    /// authorities that the system trusts.
    ca_file: Option<PathBuf>,
    /// File with the token that is sent to a webhook or to NATS.
    token_file: Option<PathBuf>,
    /// User of a broker.
    user: Option<String>,
    /// File with the password of a broker's user.
    password_file: Option<PathBuf>,
    /// True if a stream of `JetStream` acknowledges messages.
    nats_jetstream: Option<bool>,
    /// True if the key is a stream instead of a list.
    redis_stream: Option<bool>,
    /// Number of entries to which a stream is trimmed, approximately. Default: no limit.
    redis_max_entries: Option<u64>,
    /// Number of the database. Default: 0.
    redis_database: Option<u32>,
    /// Exchange of messages. Default: the default exchange, which knows queues by their names.
    amqp_exchange: Option<String>,
    /// Virtual host. Default: `/`.
    amqp_virtual_host: Option<String>,
    /// Mechanism by which a Kafka broker authenticates the user.
    kafka_sasl: Option<String>,
    /// Tenants, besides root, whose buckets may name the target. `*` means all tenants.
    #[serde(default)]
    tenants: Vec<String>,
}

/// Name that stands for every tenant.
const ALL_TENANTS: &str = "*";

impl TargetSettings {
    fn of_text(text: &str) -> Self {
        match text.split_once("://") {
            Some(("http" | "https", _)) => {
                Self { webhook: Some(text.to_owned()), ..Self::default() }
            }
            Some(_) => Self { broker: Some(text.to_owned()), ..Self::default() },
            None => Self { queue_file: Some(text.into()), ..Self::default() },
        }
    }

    /// Returns true if a tenant's buckets may name the target.
    pub(super) fn admits(&self, tenant: &str) -> bool {
        tenant == ROOT || self.tenants.iter().any(|it| it == ALL_TENANTS || it == tenant)
    }

    /// Returns the target's destination. Inconsistent settings are usage errors. No connection is
    /// made.
    pub(super) fn destination(&self) -> Result<Destination, Failure> {
        let (ca_file, token_file) = (self.ca_file.as_deref(), self.token_file.as_deref());
        match (&self.webhook, &self.queue_file, &self.broker) {
            (Some(url), None, None) => {
                let allowed = Self {
                    webhook: self.webhook.clone(),
                    ca_file: self.ca_file.clone(),
                    token_file: self.token_file.clone(),
                    ..Self::default()
                };
                self.check_others(allowed, "a webhook", "ca_file and token_file")?;
                Webhook::new(url, ca_file, token_file).map(|it| Destination::Webhook(Arc::new(it)))
            }
            (None, Some(path), None) => {
                let allowed = Self { queue_file: self.queue_file.clone(), ..Self::default() };
                self.check_others(allowed, "a queue_file", "tenants")?;
                Ok(Destination::File(QueueFile::new(path.clone())))
            }
            (None, None, Some(address)) => {
                let client = self.broker_settings(address).client()?;
                Ok(Destination::Broker(Arc::new(BrokerLane::new(client))))
            }
            _ => Err(Failure::usage(
                "a notification target needs either webhook = \"http://…\", optionally with \
                 ca_file and token_file, or queue_file = \"…\", or broker = \"SCHEME://HOST/NAME\"",
            )),
        }
    }

    /// Refuses settings that a kind of target doesn't take. `allowed` has all others.
    fn check_others(&self, allowed: Self, kind: &str, names: &str) -> Result<(), Failure> {
        if (Self { tenants: self.tenants.clone(), ..allowed }) == *self {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{kind} takes no settings but {names}: settings of a target are either webhook, \
             queue_file or broker, and those of that kind"
        )))
    }

    fn broker_settings<'a>(&'a self, address: &'a str) -> BrokerSettings<'a> {
        BrokerSettings {
            address,
            ca_file: self.ca_file.as_deref(),
            user: self.user.as_deref(),
            password_file: self.password_file.as_deref(),
            token_file: self.token_file.as_deref(),
            nats_jetstream: self.nats_jetstream,
            redis_stream: self.redis_stream,
            redis_max_entries: self.redis_max_entries,
            redis_database: self.redis_database,
            amqp_exchange: self.amqp_exchange.as_deref(),
            amqp_virtual_host: self.amqp_virtual_host.as_deref(),
            kafka_sasl: self.kafka_sasl.as_deref(),
        }
    }
}

/// Deserializes the setting: a table, a text, or a list of texts.
pub(super) fn targets<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, TargetSettings>, D::Error> {
    deserializer.deserialize_any(TargetsVisitor)
}

/// Visitor of the setting. An untagged enum would hide which name in a table is unknown.
struct TargetsVisitor;

impl<'de> Visitor<'de> for TargetsVisitor {
    type Value = BTreeMap<String, TargetSettings>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NAME=URL or NAME=/path/to/file, or a table of targets")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(target).collect::<Result<_, _>>().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut targets = BTreeMap::new();
        while let Some(text) = items.next_element::<String>()? {
            targets.append(&mut TargetsVisitor.visit_str::<A::Error>(&text)?);
        }
        Ok(targets)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(table))
    }
}

/// Parses a target as text: `NAME=PLACE`, or `NAME:*=PLACE` for all tenants.
fn target(item: &str) -> Result<(String, TargetSettings), &'static str> {
    let form = "write NAME=https://host/path, NAME=nats://host/subject or NAME=/path/to/file";
    let (name, place) = item.split_once('=').ok_or(form)?;
    let (name, is_for_all) = match name.trim().strip_suffix(":*") {
        Some(name) => (name, true),
        None => (name.trim(), false),
    };
    let tenants = is_for_all.then(|| ALL_TENANTS.to_owned()).into_iter().collect();
    let target = TargetSettings { tenants, ..TargetSettings::of_text(place.trim()) };
    Ok((name.to_owned(), target))
}

/// Refuses invalid names and targets.
pub(super) fn check(targets: &BTreeMap<String, TargetSettings>) -> Result<(), Failure> {
    for (name, target) in targets {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_plain) {
            return Err(Failure::usage(format!(
                "invalid name \"{name}\" of a notification target: use at most {NAME_CHARS_MAX} \
                 letters, digits, '-' and '_', since it ends an ARN"
            )));
        }
        target.destination()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use martlet_serving::settings::MergedSettings;

    use super::*;

    #[derive(Deserialize)]
    struct TargetsOnly {
        #[serde(deserialize_with = "targets")]
        notifications: BTreeMap<String, TargetSettings>,
    }

    fn read_targets(
        file: &str,
        variable: Option<&str>,
    ) -> Result<BTreeMap<String, TargetSettings>, Failure> {
        let environment =
            |name: &str| variable.filter(|_| name == "MARTLET_NOTIFICATIONS").map(str::to_owned);
        let args = BTreeMap::<String, String>::new();
        let merged = MergedSettings::gather(&["notifications"], &args, environment, Some(file))?;
        merged.extract::<TargetsOnly>().map(|only| only.notifications)
    }

    #[test]
    fn a_file_and_the_environment_give_equal_settings() {
        let file =
            "[notifications.hook]\nwebhook = 'http://h:1/p'\n[notifications.f]\nqueue_file = '/f'";
        let table = read_targets(file, None).unwrap();
        let text = read_targets("", Some("hook=http://h:1/p, f=/f")).unwrap();
        assert_eq!(table, text);
        assert_eq!(table.keys().collect::<Vec<_>>(), ["f", "hook"]);
        check(&table).unwrap();
    }

    #[test]
    fn a_target_is_for_root_and_for_those_that_it_names() {
        let file = "[notifications.some]\nqueue_file = '/f'\ntenants = ['red', 'blue']\n\
                    [notifications.none]\nqueue_file = '/f'";
        let table = read_targets(file, None).unwrap();
        let admits = |target: &str, tenant: &str| table[target].admits(tenant);
        assert!(admits("some", "red") && admits("some", "blue") && admits("some", "root"));
        assert!(!admits("some", "green") && admits("none", "root") && !admits("none", "red"));
        let text = read_targets("", Some("all:*=/f, none=/g")).unwrap();
        assert!(text["all"].admits("red") && !text["none"].admits("red"));
        check(&text).unwrap();
    }

    #[test]
    fn errors_name_the_valid_values() {
        let refusal = |file: &str| {
            let read = read_targets(file, None).and_then(|targets| check(&targets));
            read.unwrap_err().to_string()
        };
        let file = "[notifications.a]\nqueue_file = '/f'\ntoken_file = '/t'";
        assert!(refusal(file).contains("a queue_file takes no settings but tenants"));
        let file = "[notifications.a]\nwebhook = 'http://h/'\nuser = 'me'";
        assert!(refusal(file).contains("a webhook takes no settings but ca_file"));
        assert!(refusal("[notifications.a]\nwebhook = '/h'").contains("http://host:port"));
        assert!(refusal("[notifications.a]").contains("either webhook"));
        let both = "[notifications.a]\nwebhook = 'http://h/'\nqueue_file = '/f'";
        assert!(refusal(both).contains("either webhook"));
        assert!(refusal("[notifications.'a/b']\nqueue_file = '/f'").contains("it ends an ARN"));
        let unknown = refusal("[notifications.a]\nwebhok = 'http://h:1/'");
        assert!(unknown.contains("notifications") && unknown.contains("line 1"), "{unknown}");
        assert!(unknown.contains("`webhok`") && unknown.contains("`webhook`"), "{unknown}");
        assert!(read_targets("", Some("hook")).is_err());
        assert_eq!(read_targets("notifications = ['a=/f', 'b=/g']", None).unwrap().len(), 2);
        let both = "[notifications.a]\nbroker = 'nats://h/s'\nqueue_file = '/f'";
        assert!(refusal(both).contains("either webhook"));
        let text = read_targets("", Some("a=natz://h/s")).and_then(|it| check(&it)).unwrap_err();
        assert!(text.to_string().contains("did you mean nats?"), "{text}");
    }

    #[test]
    fn a_broker_is_named_by_its_scheme() {
        let table = "[notifications.a]\nbroker = 'kafka://k:1/t'\n\
                     [notifications.b]\nbroker = 'redis://r/k'";
        let table = read_targets(table, None).unwrap();
        let text = read_targets("", Some("a=kafka://k:1/t, b=redis://r/k")).unwrap();
        assert_eq!(table, text);
        check(&table).unwrap();
        let many = "[notifications.a]\nbroker = 'redis://r/k'\nredis_stream = true\n\
                    redis_max_entries = 0";
        let refusal = read_targets(many, None).and_then(|it| check(&it)).unwrap_err();
        assert!(refusal.to_string().contains("redis_max_entries must be from 1"), "{refusal}");
    }
}
