"""Every event reaches its broker at least once and in order, though the broker is killed in the middle."""

import contextlib
import json
import threading
import time

import pytest
import trustme

import brokers
from conftest import client_for, running_server

ARN = "arn:martlet:sqs:::bus"
KEYS = 8
ROUNDS = 12
KILLS = 3


@contextlib.contextmanager
def running_broker(kind, folder, **options):
    broker = kind(folder, **options)
    try:
        yield broker.start()
    finally:
        broker.kill()


def settings_of(broker, folder):
    path = folder / "martlet.toml"
    path.write_text("\n".join(["[notifications.bus]", *broker.target()]) + "\n")
    return {"flags": ["--config", str(path)]}


def until(is_so, seconds=120):
    deadline = time.monotonic() + seconds
    while True:
        found = is_so()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def sequencers(messages):
    """Keys and sequencers of messages in their order, without test events."""
    records = [record for message in messages for record in json.loads(message).get("Records", [])]
    return [(record["s3"]["object"]["key"], record["s3"]["object"]["sequencer"]) for record in records]


def put(client, number):
    key = f"key {number % KEYS}/ü"
    client.put_object(Bucket="events", Key=key, Body=b"x" * (number % 5))


def first_times(found):
    """Events in the order of their first arrival."""
    return list(dict.fromkeys(found))


def check(found, count, is_ordered_by_key):
    """All events are there, and the first arrivals of each key rise; of all keys together too, unless a broker orders
    by key. A broker that was killed may have repeats, never a gap."""
    once = first_times(found)
    assert len(once) == count, f"{len(once)} of {count} events arrived"
    by_key = {}
    for key, sequencer in once:
        by_key.setdefault(key, []).append(sequencer)
    assert len(by_key) == KEYS
    for key, values in by_key.items():
        assert values == sorted(values), f"events of {key} are out of order"
    if not is_ordered_by_key:
        values = [sequencer for _, sequencer in once]
        assert values == sorted(values), "events of several keys are out of order"
    return len(found) - len(once)


def certified(folder):
    """Broker settings with a certificate of an authority of its own."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    folder.mkdir(parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    path = folder / "server.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(path)
    return {"certificate": path}


@pytest.mark.parametrize("kind", [brokers.Nats, "tls", brokers.Redis, brokers.RedisStream, brokers.Rabbit, brokers.Kafka],
                         ids=["nats", "nats over tls", "redis list", "redis stream", "rabbitmq", "kafka (tansu)"])
def test_a_killed_broker_gets_all_events_in_order(kind, tmp_path):
    options = certified(tmp_path / "broker") if kind == "tls" else {}
    kind = brokers.Nats if kind == "tls" else kind
    is_kafka = kind is brokers.Kafka
    with running_broker(kind, tmp_path / "broker", **options) as broker:
        broker.prepare()
        with running_server(**settings_of(broker, tmp_path)) as server:
            client = client_for(server)
            client.create_bucket(Bucket="events")
            rule = {"QueueArn": ARN, "Events": ["s3:ObjectCreated:*"]}
            client.put_bucket_notification_configuration(
                Bucket="events", NotificationConfiguration={"QueueConfigurations": [rule]})
            put_count = 0
            for _ in range(ROUNDS * KEYS // 3):
                put(client, put_count)
                put_count += 1
            if is_kafka:
                # What its memory loses must have been read.
                assert until(lambda: len(first_times(sequencers(broker.messages()))) == put_count)
            broker.kill()
            for _ in range(ROUNDS * KEYS // 3):
                put(client, put_count)
                put_count += 1
            assert server.metric("martlet_event_waiting_bytes") > 0, "the spool keeps what nobody takes"
            broker.start()
            if is_kafka:
                # The topic is gone: messages wait for it.
                time.sleep(1)
                broker.prepare()
            for _ in range(ROUNDS * KEYS // 3):
                put(client, put_count)
                put_count += 1
            assert until(lambda: server.metric("martlet_event_waiting_bytes") == 0), server.log()
            found = until(lambda: (it := sequencers(broker.messages())) and len(first_times(it)) >= put_count and it)
            repeats = check(found or sequencers(broker.messages()), put_count, is_ordered_by_key=is_kafka)
            print(f"{put_count} events, {repeats} repeats, "
                  f"{server.metric('martlet_event_failures'):.0f} failed attempts")
            assert server.metric("martlet_event_messages_lost") == 0
            assert server.metric("martlet_event_messages_refused") == 0
            assert brokers.PASSWORD not in (server.folder / "log").read_text()
            assert server.stop() == 0


@pytest.mark.parametrize("kind", [brokers.Nats, brokers.Redis, brokers.RedisStream, brokers.Rabbit],
                         ids=["nats", "redis list", "redis stream", "rabbitmq"])
def test_kills_during_puts_repeat_a_bounded_number_of_events(kind, tmp_path):
    """A kill repeats the batch under way: one message where each is confirmed before the next, and never more than what
    was put."""
    with running_broker(kind, tmp_path / "broker") as broker:
        broker.prepare()
        with running_server(**settings_of(broker, tmp_path)) as server:
            client = client_for(server)
            client.create_bucket(Bucket="events")
            rule = {"QueueArn": ARN, "Events": ["s3:ObjectCreated:*"]}
            client.put_bucket_notification_configuration(
                Bucket="events", NotificationConfiguration={"QueueConfigurations": [rule]})
            ended, numbers, errors = threading.Event(), [], []

            def put_on():
                try:
                    while not ended.is_set():
                        put(client, len(numbers))
                        numbers.append(len(numbers))
                except Exception as error:  # for the test's own thread
                    errors.append(error)

            putting = threading.Thread(target=put_on)
            putting.start()
            try:
                for _ in range(KILLS):
                    delivered = server.metric("martlet_event_messages_delivered")
                    assert until(lambda least=delivered + KEYS:
                                 server.metric("martlet_event_messages_delivered") >= least)
                    broker.kill()
                    broker.start()
            finally:
                ended.set()
                putting.join()
            assert not errors, errors
            assert until(lambda: server.metric("martlet_event_waiting_bytes") == 0)
            repeats = check(sequencers(broker.messages()), len(numbers), is_ordered_by_key=False)
            print(f"{len(numbers)} events, {KILLS} kills, {repeats} repeats")
            is_singly = kind in (brokers.Nats, brokers.Rabbit)
            assert repeats <= (KILLS if is_singly else len(numbers))
            assert server.metric("martlet_event_messages_lost") == 0
            assert server.metric("martlet_event_messages_refused") == 0
            assert server.stop() == 0


@pytest.mark.parametrize("kind", [brokers.Nats, brokers.Rabbit, brokers.Kafka], ids=["nats", "rabbitmq", "kafka (tansu)"])
def test_messages_wait_for_a_place_that_does_not_exist(kind, tmp_path):
    """Without a stream, queue or topic nothing is refused: messages are there once it is made."""
    with running_broker(kind, tmp_path / "broker") as broker:
        with running_server(**settings_of(broker, tmp_path)) as server:
            client = client_for(server)
            client.create_bucket(Bucket="events")
            rule = {"QueueArn": ARN, "Events": ["s3:ObjectCreated:*"]}
            client.put_bucket_notification_configuration(
                Bucket="events", NotificationConfiguration={"QueueConfigurations": [rule]})
            for number in range(KEYS):
                put(client, number)
            assert until(lambda: server.metric("martlet_event_failures") >= 3)
            assert server.metric("martlet_event_messages_refused") == 0
            assert server.metric("martlet_event_messages_delivered") == 0
            broker.prepare()
            found = until(lambda: (it := sequencers(broker.messages())) and len(first_times(it)) >= KEYS and it)
            check(found or [], KEYS, is_ordered_by_key=kind is brokers.Kafka)
            assert server.stop() == 0
