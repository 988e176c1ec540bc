//! Target that is a message broker: Kafka, NATS, Redis or AMQP (`RabbitMQ`).
//!
//! ```text
//! spool ─▶ lane ─▶ connection ─▶ broker
//!            └─ positions of messages that the broker acknowledged
//! ```
//!
//! * [`address`], [`credentials`], [`settings`]: the broker of a target, as settings name it.
//! * [`endpoint`], [`staggered`], [`receive_buffer`]: connections, and bytes from them.
//! * [`nats`], [`redis`], [`amqp`] with `amqp_frames`, [`kafka`]: the protocols.
//! * [`lane`]: one attempt within its time, and the connection between attempts.
//! * [`acknowledged`]: messages behind one that was not acknowledged. [`object_key`]: their keys.
//! * [`batch_limits`]: smaller batches for brokers that are slow, or refuse one message of a batch.
//!
//! Invariants:
//! * The broker's faults keep messages in the spool, without a limit on attempts: no connection,
//!   refused credentials, no topic, stream, exchange or queue, no leader, no room. A broker that
//!   refuses a message itself gets it [`Limits::refusals`](super::retry::Limits::refusals) times.
//! * An attempt, from the connection to the last acknowledgement, ends within a time limit.
//!   Acknowledgements until then count.
//! * A lane has one connection, and one for each leader in Kafka. It is opened for a message, and
//!   closed when the lane is idle, an attempt has failed or the connection is five minutes old.

mod acknowledged;
mod address;
mod amqp;
mod amqp_frames;
mod batch_limits;
mod credentials;
mod endpoint;
mod kafka;
mod lane;
mod nats;
mod object_key;
mod receive_buffer;
mod redis;
mod settings;
mod staggered;
#[cfg(test)]
mod testing;

pub(super) use self::lane::BrokerLane;
pub(super) use self::settings::BrokerSettings;
