//! Settings of a target that is a broker, and the client that they describe.

use std::path::Path;
use std::sync::Arc;

use martlet_serving::Failure;

use super::super::retry::DeliveryFailure;
use super::super::spool::SpooledMessage;
use super::acknowledged::Acknowledged;
use super::address::{BrokerAddress, Protocol};
use super::amqp::{AmqpClient, AmqpConnection};
use super::batch_limits::BatchLimits;
use super::credentials::{Credentials, LastSecret};
use super::endpoint::{Endpoint, connector};
use super::kafka::{KafkaClient, KafkaConnection};
use super::nats::{NatsClient, NatsConnection};
use super::redis::{RedisClient, RedisConnection, form};

/// Virtual host of AMQP without a setting.
const VIRTUAL_HOST: &str = "/";

/// Settings of a broker.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct BrokerSettings<'a> {
    /// `SCHEME://HOST:PORT/NAME`.
    pub(in super::super) address: &'a str,
    pub(in super::super) ca_file: Option<&'a Path>,
    pub(in super::super) user: Option<&'a str>,
    pub(in super::super) password_file: Option<&'a Path>,
    /// File with a token for NATS.
    pub(in super::super) token_file: Option<&'a Path>,
    pub(in super::super) nats_jetstream: Option<bool>,
    pub(in super::super) redis_stream: Option<bool>,
    pub(in super::super) redis_max_entries: Option<u64>,
    pub(in super::super) redis_database: Option<u32>,
    pub(in super::super) amqp_exchange: Option<&'a str>,
    pub(in super::super) amqp_virtual_host: Option<&'a str>,
    pub(in super::super) kafka_sasl: Option<&'a str>,
}

/// Setting of one protocol, and true if it has a value.
struct ProtocolSetting(&'static str, Protocol, bool);

impl BrokerSettings<'_> {
    /// Refuses settings of another protocol than the address's.
    fn check(&self, protocol: Protocol) -> Result<(), Failure> {
        let settings = [
            ProtocolSetting("token_file", Protocol::Nats, self.token_file.is_some()),
            ProtocolSetting("nats_jetstream", Protocol::Nats, self.nats_jetstream.is_some()),
            ProtocolSetting("redis_stream", Protocol::Redis, self.redis_stream.is_some()),
            ProtocolSetting("redis_max_entries", Protocol::Redis, self.redis_max_entries.is_some()),
            ProtocolSetting("redis_database", Protocol::Redis, self.redis_database.is_some()),
            ProtocolSetting("amqp_exchange", Protocol::Amqp, self.amqp_exchange.is_some()),
            ProtocolSetting("amqp_virtual_host", Protocol::Amqp, self.amqp_virtual_host.is_some()),
            ProtocolSetting("kafka_sasl", Protocol::Kafka, self.kafka_sasl.is_some()),
        ];
        let foreign = settings.iter().find(|it| it.2 && it.1 != protocol);
        foreign.map_or(Ok(()), |ProtocolSetting(name, of, _)| {
            Err(Failure::usage(format!("{name} is for {of:?}, and the broker is {protocol:?}")))
        })
    }

    fn credentials(&self) -> Result<Credentials, Failure> {
        let (secret_file, setting) = match (self.password_file, self.token_file) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage("a broker takes password_file or token_file, not both"));
            }
            (None, Some(path)) if self.user.is_none() => (Some(path), "token_file"),
            (None, Some(_)) => return Err(Failure::usage("token_file needs no user")),
            (path, None) => (path, "password_file"),
        };
        let secret_file = secret_file.map(Path::to_owned);
        let (user, last) = (self.user.map(str::to_owned), LastSecret::default());
        let credentials = Credentials { user, secret_file, setting, last };
        credentials.check()?;
        Ok(credentials)
    }

    fn endpoint(&self, address: &BrokerAddress) -> Result<Endpoint, Failure> {
        if self.ca_file.is_some() && !address.is_tls {
            return Err(Failure::usage(
                "ca_file needs a broker with TLS: amqps, kafkas, natss, tls or rediss",
            ));
        }
        let tls = address.is_tls.then(|| connector(self.ca_file)).transpose()?;
        Ok(Endpoint { hosts: address.hosts.clone(), tls, credentials: self.credentials()? })
    }

    /// Returns the client. Inconsistent settings are usage errors. No connection is made.
    pub(in super::super) fn client(&self) -> Result<BrokerClient, Failure> {
        let address = BrokerAddress::parse(self.address)?;
        self.check(address.protocol)?;
        let endpoint = self.endpoint(&address)?;
        let credentials = endpoint.credentials.clone();
        let has_user = endpoint.credentials.user.is_some();
        let has_password = self.password_file.is_some();
        let name = &address.name;
        let client = match address.protocol {
            Protocol::Nats if has_user != has_password => {
                return Err(Failure::usage("a NATS target needs user and password_file together"));
            }
            Protocol::Nats => {
                let is_jetstream = self.nats_jetstream.unwrap_or_default();
                ProtocolClient::Nats(NatsClient::new(endpoint, name, is_jetstream)?)
            }
            Protocol::Redis if has_user && !has_password => {
                return Err(Failure::usage("user of a Redis target needs password_file"));
            }
            Protocol::Redis => {
                let is_stream = self.redis_stream.unwrap_or_default();
                let form = form(is_stream, self.redis_max_entries)?;
                let database = self.redis_database.unwrap_or_default();
                ProtocolClient::Redis(RedisClient { endpoint, key: name.clone(), form, database })
            }
            Protocol::Amqp => {
                let virtual_host = self.amqp_virtual_host.unwrap_or(VIRTUAL_HOST);
                let exchange = self.amqp_exchange.unwrap_or_default();
                ProtocolClient::Amqp(AmqpClient::new(endpoint, virtual_host, exchange, name)?)
            }
            Protocol::Kafka => {
                ProtocolClient::Kafka(KafkaClient::new(endpoint, name, self.kafka_sasl)?)
            }
        };
        let text = format!("{:?} at {}", address.protocol, address.hosts[0]);
        Ok(BrokerClient { client: Arc::new(client), credentials, text: text.into() })
    }
}

enum ProtocolClient {
    Nats(NatsClient),
    Redis(RedisClient),
    Amqp(AmqpClient),
    Kafka(KafkaClient),
    /// Client that panics.
    #[cfg(test)]
    Broken,
}

/// Client of a broker. Clones share their settings.
#[derive(Clone)]
pub(in super::super) struct BrokerClient {
    client: Arc<ProtocolClient>,
    credentials: Credentials,
    /// Protocol and host, for logs.
    text: Arc<str>,
}

impl std::fmt::Debug for BrokerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Connection of any protocol.
pub(super) enum BrokerConnection {
    Nats(Box<NatsConnection>),
    Redis(Box<RedisConnection>),
    Amqp(Box<AmqpConnection>),
    Kafka(Box<KafkaConnection>),
}

impl BrokerClient {
    /// Returns a failure for logs, with a short reason that has no secret.
    pub(super) fn for_logs(&self, failure: DeliveryFailure) -> DeliveryFailure {
        self.credentials.without_secret(failure)
    }

    /// Connects to the broker.
    pub(super) async fn connect(&self) -> Result<BrokerConnection, DeliveryFailure> {
        Ok(match &*self.client {
            ProtocolClient::Nats(it) => BrokerConnection::Nats(Box::new(it.connect().await?)),
            ProtocolClient::Redis(it) => BrokerConnection::Redis(Box::new(it.connect().await?)),
            ProtocolClient::Amqp(it) => BrokerConnection::Amqp(Box::new(it.connect().await?)),
            ProtocolClient::Kafka(it) => BrokerConnection::Kafka(Box::new(it.connect().await?)),
            #[cfg(test)]
            ProtocolClient::Broken => panic!("a reply broke the client"),
        })
    }

    /// Makes a client that panics.
    #[cfg(test)]
    pub(super) fn broken() -> Self {
        let client = Arc::new(ProtocolClient::Broken);
        Self { client, credentials: Credentials::default(), text: "broken".into() }
    }
}

impl BrokerConnection {
    /// Delivers messages, and notes those that were acknowledged.
    pub(super) async fn publish(
        &mut self,
        messages: &[SpooledMessage],
        acknowledged: &Acknowledged,
        limits: &BatchLimits,
    ) -> Result<(), DeliveryFailure> {
        match self {
            Self::Nats(it) => it.publish(messages, acknowledged, limits).await,
            Self::Redis(it) => it.publish(messages, acknowledged, limits).await,
            Self::Amqp(it) => it.publish(messages, acknowledged).await,
            Self::Kafka(it) => it.publish(messages, acknowledged, limits).await,
        }
    }

    /// Closes an idle connection.
    pub(super) async fn close(self) {
        if let Self::Amqp(connection) = self {
            connection.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: BrokerSettings<'_>) -> String {
        settings.client().unwrap_err().to_string()
    }

    #[test]
    fn settings_of_another_protocol_are_refused() {
        let of = |address| BrokerSettings { address, ..BrokerSettings::default() };
        let text = refusal(BrokerSettings { nats_jetstream: Some(true), ..of("redis://h/k") });
        assert_eq!(text, "nats_jetstream is for Nats, and the broker is Redis");
        let text = refusal(BrokerSettings { kafka_sasl: Some("plain"), ..of("nats://h/s") });
        assert!(text.starts_with("kafka_sasl is for Kafka"), "{text}");
        let path = Some(Path::new("/f"));
        assert!(refusal(BrokerSettings { ca_file: path, ..of("nats://h/s") }).contains("with TLS"));
        let text = refusal(BrokerSettings { token_file: path, ..of("amqp://h/q") });
        assert!(text.starts_with("token_file is for Nats"), "{text}");
    }

    #[test]
    fn bounds_of_redis_streams_are_checked() {
        let of = |count| BrokerSettings {
            address: "redis://h/k",
            redis_stream: Some(true),
            redis_max_entries: Some(count),
            ..BrokerSettings::default()
        };
        for count in [0, i64::MAX.unsigned_abs() + 1, u64::MAX] {
            let text = refusal(of(count));
            let expected = format!("from 1 to 9223372036854775807, not {count}");
            assert!(text.contains(&expected), "{text}");
        }
        for count in [1, i64::MAX.unsigned_abs()] {
            of(count).client().unwrap();
        }
        let list = BrokerSettings { redis_stream: Some(false), ..of(7) };
        assert!(refusal(list).contains("needs redis_stream = true"));
    }

    #[test]
    fn credentials_and_names_are_checked() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("password");
        std::fs::write(&file, "s3cret\n").unwrap();
        let of = |address| BrokerSettings {
            address,
            user: Some("me"),
            password_file: Some(&file),
            ..BrokerSettings::default()
        };
        for address in ["nats://h/s", "redis://h/k", "amqp://h/q"] {
            let client = of(address).client().unwrap();
            assert!(!format!("{client:?}").contains("s3cret"), "{client:?}");
        }
        BrokerSettings { kafka_sasl: Some("plain"), ..of("kafka://h/t") }.client().unwrap();
        assert!(refusal(of("kafka://h/t")).contains("either all of kafka_sasl"));
        let alone = |address| BrokerSettings { password_file: None, ..of(address) };
        assert!(refusal(alone("nats://h/s")).contains("user and password_file together"));
        assert!(refusal(alone("redis://h/k")).contains("needs password_file"));
        assert!(refusal(alone("amqp://h/q")).contains("needs user and password_file"));
        let both = BrokerSettings { token_file: Some(&file), ..of("nats://h/s") };
        assert!(refusal(both).contains("not both"));
        assert!(refusal(of("nats://h/a.*")).contains("not a subject of NATS"));
        assert!(refusal(of("nats://h/a..b")).contains("not a subject of NATS"));
        assert!(refusal(of("kafka://h/a%20b")).contains("not a topic of Kafka"));
        let long = format!("amqp://h/{}", "q".repeat(256));
        assert!(refusal(of(&long)).contains("at most 255 bytes"));
        let text = refusal(BrokerSettings { kafka_sasl: Some("plaim"), ..of("kafka://h/t") });
        assert!(text.contains("did you mean plain?"), "{text}");
    }
}
