"""What every client has to be able to do, in the same words for all of them.

A client is an object with these methods; names and bodies are exact, nothing may be changed on the way:

    make_bucket()                 the bucket, which is not there yet
    put(key, data)                the way the client does it when left alone
    get(key) -> bytes
    keys(prefix) -> [str]         all keys below a prefix, page after page
    delete(key)
    remove_bucket()               the bucket, which is empty by then

and, where the client has such a thing,

    put_parts(key, data)          in parts, explicitly
    get_range(key, first, last)   bytes first..=last
    put_many({key: data})         many small objects, the way the client does that
    delete_many(keys)             these, in as few requests as the client makes of it
    empty()                       everything in the bucket
    more(rng)                     whatever only this client does

What a client has no way to do it names in `without`, with the reason; those steps are told as left out.
"""

import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

MIB = 1 << 20
LARGE_BYTES = 64 * MIB + 12_345
PARTS_BYTES = 3 * 8 * MIB + 7
MANY = 1500

# The keys that clients, servers and the HTTP between them get wrong; two are as long as keys may be.
ODD_NAMES = json.loads((Path(__file__).parent / "odd_keys.json").read_text())
ODD_KEYS = ["odd/" + name for name in [*ODD_NAMES, "k" * 1020, "ü" * 510]]


def main(client):
    """Makes all round trips; the last line tells which."""
    left_out = dict(getattr(client, "without", {}))
    steps = [(name, partial(step, client)) for name, step in STEPS if name not in left_out]
    summary = ", ".join(run(steps))
    for name, why in left_out.items():
        summary += f"; without {name}: {why}"
    print(summary)
    sys.exit(0)


def run(steps):
    """Takes steps, which are a name and a function of a generator of numbers; the names of those done."""
    seed = int(os.environ.get("MARTLET_SEED") or time.time_ns() % 1_000_000)
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    done = []
    for name, step in steps:
        begun = time.monotonic()
        step(rng)
        print(f"{name}: {time.monotonic() - begun:.2f} s", flush=True)
        done.append(name)
    return done


def begin(client, _):
    client.make_bucket()


def small(client, rng):
    for size in (0, 1, 4096, 100_000):
        round_trip(client, f"small/{size}", rng.randbytes(size))
    round_trip(client, "small/1", b"another")


def large(client, rng):
    round_trip(client, "large", rng.randbytes(LARGE_BYTES))


def parts(client, rng):
    data = rng.randbytes(PARTS_BYTES)
    client.put_parts("parts", data)
    same(client.get("parts"), data, "parts")


def ranges(client, rng):
    data = rng.randbytes(3 * MIB + 5)
    client.put("ranges", data)
    for first, last in [(0, 0), (1, 9), (65_535, 65_536), (MIB - 1, 2 * MIB), (len(data) - 3, len(data) - 1)]:
        same(client.get_range("ranges", first, last), data[first:last + 1], f"bytes {first}-{last}")


def many(client, _):
    objects = {f"many/{number:04}": b"%d" % number for number in range(MANY)}
    put_many = getattr(client, "put_many", None)
    if put_many:
        put_many(objects)
    else:
        for key, data in objects.items():
            client.put(key, data)
    same(sorted(client.keys("many/")), sorted(objects), "the listing")
    same(client.get("many/1234"), b"1234", "many/1234")


def odd_keys(client, rng):
    impossible = {"odd/" + name for name in getattr(client, "impossible_keys", ())}
    names = [key for key in ODD_KEYS if key not in impossible]
    bodies = {key: b"" if key.endswith("/") else rng.randbytes(20) for key in names}
    # Clients that are commands take a while to start: several at a time.
    with ThreadPoolExecutor(getattr(client, "threads", 1)) as pool:
        list(pool.map(lambda key: round_trip(client, key, bodies[key]), names))
        same(sorted(client.keys("odd/")), sorted(names), "the listing of odd keys")
        one_by_one, at_once = (names[:5], names[5:]) if hasattr(client, "delete_many") else (names, [])
        list(pool.map(client.delete, one_by_one))
    if at_once:
        client.delete_many(at_once)
    same(client.keys("odd/"), [], "the listing after odd keys were deleted")


def more(client, rng):
    if hasattr(client, "more"):
        client.more(rng)


def end(client, _):
    if hasattr(client, "empty"):
        client.empty()
    else:
        client.delete_many(client.keys(""))
    same(client.keys(""), [], "the listing of an empty bucket")
    client.remove_bucket()


STEPS = [
    ("bucket", begin), ("small", small), (f"{LARGE_BYTES // MIB} MiB", large), ("parts", parts), ("ranges", ranges),
    (f"{MANY} keys", many), ("odd keys", odd_keys), ("more", more), ("removal", end),
]


def round_trip(client, key, data):
    client.put(key, data)
    same(client.get(key), data, repr(key))


def same(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: expected {brief(expected)}, found {brief(found)}")


def brief(value):
    if isinstance(value, bytes) and len(value) > 60:
        return f"{len(value)} bytes"
    if isinstance(value, (list, set)) and len(value) > 30:
        return f"{len(value)} items"
    return repr(value)
