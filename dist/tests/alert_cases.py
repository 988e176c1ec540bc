"""Series under which each alert fires and ends, for `promtool test rules`.

Every case begins as a healthy cluster of three nodes. Minute 60 brings the fault, and a later minute ends it.
"""

import dataclasses

import metrics as m

START, END = 60, 1440
CLUSTER = 'cluster="prod"'
WORKER = "replicate-data"


@dataclasses.dataclass(frozen=True)
class Case:
    """Fault of an alert: the series that differ, and minutes at which the alert is silent, fires, and has ended."""

    series: dict
    labels: dict
    value: str
    silent: int
    fires: int
    ended: int


def flat(value, minutes=END):
    """Returns samples of one value."""
    return f"{value}x{minutes - 1}"


def spell(quiet, fault, minutes):
    """Returns samples that have another value for some minutes."""
    return f"{flat(quiet, START)} {flat(fault, minutes)} {flat(quiet)}"


def burst(step, minutes):
    """Returns a counter that rises by a step each minute for some minutes."""
    return f"{flat(0, START)} {step}+{step}x{minutes - 1} {flat(step * minutes)}"


def ramp(first, step, minutes):
    """Returns a gauge that changes by a step each minute for some minutes, and comes back."""
    return f"{flat(first, START)} {first}{step:+}x{minutes - 1} {flat(first)}"


def labelled(metric, **labels):
    """Returns the selector of a series of the cluster."""
    return metric.of(CLUSTER, *(f'{key}="{value}"' for key, value in labels.items()))


def node(metric, at, seen_by="p1:9001"):
    """Returns a series of a node, as one member sees it."""
    return labelled(metric, instance=seen_by, node=f"n{at}")


def device(metric, at=1):
    """Returns a series of the device of a node."""
    return labelled(metric, instance=f"n{at}:6201", device=f"d{at}")


def worker(metric, name=WORKER):
    """Returns a series of a worker."""
    return labelled(metric, instance="r1:6301", worker=name)


def request(operation, status):
    """Returns the counter of an operation's replies."""
    return labelled(m.REQUESTS, instance="p1:9001", operation=operation, status=status)


def bucket(bound):
    """Returns a bucket of the time until the first byte of reads."""
    return labelled(m.FIRST_BYTE_BUCKET, instance="p1:9001", operation="GetObject", le=bound)


def event(metric, instance="p1:9001"):
    """Returns a series of an event target."""
    return labelled(metric, instance=instance, target="hook")


def process(metric, instance, **labels):
    """Returns a series of a process."""
    return labelled(metric, instance=instance, **labels)


UP = 'up{cluster="prod",job="martlet-proxy",instance="p1:9001"}'
LIMITED = process(m.REQUESTS_LIMITED, "p1:9001", limit="overload")
CUT, READ = process(m.DATA_PORT_CUT, "n1:6201"), process(m.DATA_PORT_REQUESTS, "n1:6201", tenant="root", status="200")
LOST_LINES = process(m.LOG_LINES_LOST, "p1:9001", log="own")
READY = process(m.READY, "p1:9001")
WRITABLE = process(m.AUDIT_WRITABLE, "p1:9001")
CERTIFICATE = process(m.CERTIFICATE_END, "p1:9001", certificate="s3_tls")
EPOCHS = [process(m.RING_EPOCH, instance, ring="index") for instance in ("p1:9001", "n1:6201")]
JOB = {"job": "martlet-proxy"}
OPEN, LIMIT = (process(it, "p1:9001", **JOB) for it in (m.OPEN_DESCRIPTORS, m.DESCRIPTORS_MAX))
PENDING = process(m.CHECKPOINT_OLDEST_PENDING, "r1:6301")
TIB, YEAR_S = 2**40, 365 * 86_400


def healthy():
    """Returns the series of a healthy cluster under load."""
    series = {READY: flat(1), WRITABLE: flat(1), CERTIFICATE: flat(YEAR_S), OPEN: flat(300), LIMIT: flat(1024), **{it: flat(7) for it in EPOCHS},
              UP: flat(1), LIMITED: flat(0), LOST_LINES: flat(0), PENDING: flat(20), CUT: flat(0), READ: "0+60x1440",
              request("GetObject", "200"): "0+6000x1440", request("PutObject", "503"): flat(0),
              bucket("0.5"): "0+6000x1440", bucket("2.0"): "0+6000x1440", bucket("8.0"): "0+6000x1440",
              bucket("+Inf"): "0+6000x1440", event(m.EVENTS_WAITING_BYTES): flat(0), event(m.EVENTS_DELIVERED): "0+10x1440",
              event(m.EVENTS_REFUSED_BYTES): flat(0), event(m.EVENTS_LOST): flat(0)}
    for at in (1, 2, 3):
        for seen_by in ("p1:9001", "r1:6301"):
            series[node(m.NODE_UP, at, seen_by)] = flat(1)
        series |= {node(m.NODE_CLOCK_AHEAD, at): flat(0.003), node(m.NODE_CLOCK_BEHIND, at): flat(0)}
        series |= {device(m.DEVICE_UP, at): flat(1), device(m.DEVICE_FULL, at): flat(0), device(m.DEVICE_VOTING, at): flat(1),
                   device(m.DEVICE_TERM, at): flat(4), device(m.DEVICE_HINTS, at): flat(0),
                   device(m.DEVICE_SIZE, at): flat(TIB), device(m.DEVICE_FREE, at): f"{TIB // 3}-1000x1440",
                   device(m.DEVICE_REOPENED, at): flat(0), device(m.DEVICE_CORRUPT_READS, at): flat(0),
                   device(m.DEVICE_QUARANTINED, at): flat(0)}
    # A device that is out for minutes shows zeros, and comes back as it was: 65 % full, with files in quarantine.
    for metric, value in ((m.DEVICE_UP, 1), (m.DEVICE_QUARANTINED, 2), (m.DEVICE_FREE, int(0.35 * TIB)), (m.DEVICE_SIZE, TIB)):
        series[device(metric, 3)] = f"{flat(value, 126)} {flat(0, 4)} {flat(value)}"
    for name in (WORKER, "audit"):
        series |= {worker(m.WORKER_STEPS, name): "0+60x1440", worker(m.WORKER_FAILURES, name): flat(0),
                   worker(m.WORKER_PANICS, name): flat(0), worker(m.WORKER_OLDEST_AGE, name): flat(60)}
    # Work that comes and goes is no fault.
    series[worker(m.WORKER_BACKLOG)] = "100-1x99 0x1400"
    # So is what a process that starts anew finds, and does within the hour.
    series[process(m.WORKER_BACKLOG, "r2:6301", worker=WORKER)] = f"_x89 {flat(9, 50)} {flat(0)}"
    series[process(m.DEVICE_HINTS, "n4:6201", device="d4")] = f"_x99 {flat(9, 40)} {flat(0)}"
    return series


HOUR_S = 3600
AT_NODE, AT_DEVICE = {"cluster": "prod", "node": "n3"}, {"cluster": "prod", "instance": "n1:6201", "device": "d1"}
AT_CLUSTER, AT_TARGET = {"cluster": "prod"}, {"cluster": "prod", "target": "hook"}
AT_PROXY = {"cluster": "prod", "instance": "p1:9001"}
AT_WORKER = {"cluster": "prod", "instance": "r1:6301", "worker": WORKER}


def silent_nodes(minutes, *numbers):
    """Returns series of nodes that no member has an answer from."""
    seen_by = ("p1:9001", "r1:6301")
    return {node(m.NODE_UP, at, by): spell(1, 0, minutes) for at in numbers for by in seen_by}


CASES = {
    "MartletTargetDown": [Case(
        {UP: spell(1, 0, 20)}, {"cluster": "prod", "job": "martlet-proxy", "instance": "p1:9001"}, "", 64, 66, 81)],
    "MartletNodeDown": [Case(silent_nodes(20, 3), AT_NODE, "", 64, 66, 81)],
    "MartletNodePartlyReachable": [Case({node(m.NODE_UP, 3): spell(1, 0, 20)}, AT_NODE, "", 69, 71, 81)],
    "MartletQuorumAtRisk": [
        Case(silent_nodes(20, 2, 3), AT_CLUSTER, "2", 61, 63, 81),
        # A node is silent, and the device of another one has no votes. A full device serves.
        Case({**silent_nodes(20, 3), device(m.DEVICE_VOTING, 1): spell(1, 0, 20), device(m.DEVICE_UP, 2): spell(1, 0, 20),
              device(m.DEVICE_FULL, 2): spell(0, 1, 20)}, AT_CLUSTER, "2", 61, 63, 81),
    ],
    "MartletRingTermsDiffer": [Case({device(m.DEVICE_TERM, 1): spell(4, 3, 60)}, AT_CLUSTER, "1", 89, 91, 121)],
    "MartletClockSkew": [Case({node(m.NODE_CLOCK_BEHIND, 3): spell(0, 89.997, 20)}, AT_NODE, "1m 30s", 64, 66, 81)],
    "MartletDeviceDown": [Case({device(m.DEVICE_UP): spell(1, 0, 20)}, AT_DEVICE, "", 64, 66, 81)],
    "MartletDeviceReopens": [Case({device(m.DEVICE_REOPENED): burst(1, 4)}, AT_DEVICE, "4", 61, 64, 130)],
    "MartletDeviceWithoutVotes": [Case({device(m.DEVICE_VOTING): spell(1, 0, 60)}, AT_DEVICE, "", 89, 91, 121)],
    # A full device is not up, and it is neither down nor about to be full.
    "MartletDeviceFull": [Case({device(m.DEVICE_FULL): spell(0, 1, 20), device(m.DEVICE_UP): spell(1, 0, 20),
                                device(m.DEVICE_FREE): spell(TIB // 3, 2**30, 20)}, AT_DEVICE, "", 64, 66, 81)],
    "MartletDeviceFullSoon": [Case({device(m.DEVICE_FREE): ramp(TIB // 3, -(2**29), 200)}, AT_DEVICE, "", 107, 110, 800)],
    "MartletCorruptReads": [Case({device(m.DEVICE_CORRUPT_READS): burst(1, 1)}, AT_DEVICE, "1", 59, 61, 122)],
    "MartletQuarantineGrows": [Case({device(m.DEVICE_QUARANTINED): f"{flat(1, START)} {flat(3)}"}, AT_DEVICE, "2", 59, 61, 122)],
    "MartletNoWorkers": [Case(
        {worker(m.WORKER_STEPS, name): f"0+60x59 _x20 {flat(0)}" for name in (WORKER, "audit")}, AT_CLUSTER, "", 72, 76, 81)],
    "MartletHintsNotFalling": [Case({device(m.DEVICE_HINTS): spell(0, 7, 180)}, AT_DEVICE, "7", 133, 136, 241)],
    "MartletRepairNotFalling": [Case({worker(m.WORKER_BACKLOG): spell(0, 9, 180)}, AT_WORKER, "", 148, 151, 241)],
    "MartletRepairOld": [Case({worker(m.WORKER_OLDEST_AGE): spell(0, 7 * HOUR_S, 60)}, AT_WORKER, "7h 0m 0s", 74, 76, 121)],
    "MartletAuditBehind": [Case({worker(m.WORKER_OLDEST_AGE, "audit"): spell(0, 36 * 24 * HOUR_S, 120)},
                                {**AT_WORKER, "worker": "audit"}, "36d 0h 0m 0s", 119, 121, 181)],
    "MartletCopiesDiffer": [Case({worker(m.WORKER_DIFFERING, "audit"): spell(0, 2, 20)},
                                 {**AT_WORKER, "worker": "audit"}, "2", 59, 61, 81)],
    "MartletWorkerFails": [Case({worker(m.WORKER_FAILURES): burst(90, 60)}, AT_WORKER, "", 80, 90, 135)],
    "MartletWorkerPanics": [Case({worker(m.WORKER_PANICS): burst(1, 1)}, AT_WORKER, "1", 59, 61, 122)],
    "MartletErrors": [Case({request("PutObject", "503"): burst(600, 30)}, AT_CLUSTER, "9.091%", 64, 75, 96)],
    "MartletReadsSlow": [Case({bucket(bound): f"0+6000x60 366000+5000x29 {511000 + 6000}+6000x1400" for bound in ("0.5", "2.0")},
                              AT_CLUSTER, "7.64s", 69, 85, 96)],
    "MartletSlowDown": [Case({LIMITED: burst(600, 30)}, AT_CLUSTER, "10%", 69, 80, 96)],
    "MartletDataPortCut": [Case({CUT: burst(6, 60)}, AT_CLUSTER, "10%", 75, 78, 136)],
    "MartletCheckpointPending": [Case({PENDING: spell(20, 2 * HOUR_S, 20)}, AT_CLUSTER, "2h 0m 0s", 64, 66, 81)],
    "MartletEventsWaiting": [Case({event(m.EVENTS_WAITING_BYTES): spell(0, 2048, 60),
                                   event(m.EVENTS_DELIVERED): f"0+10x59 {flat(590, 60)} 600+10x1300"}, AT_TARGET, "2ki", 88, 91, 121)],
    "MartletEventsParked": [Case({event(m.EVENTS_REFUSED_BYTES): spell(0, 2048, 20)}, AT_TARGET, "2ki", 64, 66, 81)],
    "MartletEventsLost": [Case({event(m.EVENTS_LOST): burst(1, 1)}, AT_TARGET, "1", 59, 61, 122)],
    "MartletNotReady": [Case({READY: spell(1, 0, 20)}, AT_PROXY, "0", 69, 71, 81)],
    "MartletRingEpochsDiffer": [Case({EPOCHS[0]: spell(7, 8, 60)}, {"cluster": "prod", "ring": "index"}, "1", 89, 91, 121)],
    "MartletDescriptorsLow": [Case({OPEN: spell(300, 1000, 20)}, {**AT_PROXY, **JOB}, "1000", 64, 66, 81)],
    "MartletCertificateEnds": [Case({CERTIFICATE: spell(YEAR_S, 21 * 86_400 + HOUR_S, 120)},
                                    {**AT_PROXY, "certificate": "s3_tls"}, "20d 22h 57m 0s", 119, 123, 181)],
    "MartletAuditLogFails": [Case({WRITABLE: spell(1, 0, 20)}, AT_PROXY, "0", 61, 63, 81)],
    "MartletAccessLogLost": [Case({LOST_LINES: burst(1, 1)}, {"cluster": "prod", "log": "own"}, "1", 59, 61, 122)],
}
