"""Alert rules: each with its condition, the time for which it must hold, and its texts."""

import dataclasses
import re

import metrics as m

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Workers whose backlog is data with too few copies, or at the wrong place.
REPAIR = 'worker=~"sync|ring-change|update|replicate-index|replicate-data|reconstruct"'
AUDIT = 'worker="audit"'
# Their first byte follows the request at once. A write's also waits for the client's body.
READS = 'operation=~"GetObject|HeadObject|ListObjects.*"'
FAILED = 'status=~"5.."'
OVERLOAD = 'limit=~"overload|share"'


class Times:
    """Durations of rules, divided by a scale: tests let an hour pass in a minute."""

    def __init__(self, scale=1):
        self.scale = scale

    def seconds(self, text):
        """Returns a duration such as 6h in scaled seconds."""
        number = int(text[:-1]) * UNITS[text[-1]] / self.scale
        return int(number) if number == int(number) else number

    def span(self, text):
        """Returns a duration in Prometheus' notation. Scaled ones have at least three seconds, thus two samples."""
        return text if self.scale == 1 else f"{max(3, round(self.seconds(text)))}s"


@dataclasses.dataclass(frozen=True)
class Alert:
    """Rule of an alert."""

    name: str
    severity: str
    lasts: str
    condition: str
    summary: str
    description: str

    @property
    def anchor(self):
        """Anchor of the section in docs/RUNBOOKS.md."""
        return self.name.lower()

    def rule(self, times, runbooks):
        """Returns the rule as Prometheus reads it."""
        waits = {"for": times.span(self.lasts)} if self.lasts else {}
        return {"alert": self.name, "expr": self.condition, **waits, "labels": {"severity": self.severity},
                "annotations": {"summary": self.summary, "description": self.description,
                                "runbook_url": f"{runbooks}#{self.anchor}"}}


def groups(times, jobs):
    """Returns the groups of alerts by name. `jobs` matches the scrape jobs of Martlet's processes."""
    return {"martlet-members": members(times, jobs), "martlet-devices": devices(times), "martlet-workers": workers(times),
            "martlet-requests": requests(times), "martlet-deliveries": deliveries(times)}


def members(t, jobs):
    silent = f"max by (cluster, node) ({m.NODE_UP.of()}) == bool 0"
    unserved = f"({m.DEVICE_UP.of()} == bool 0) * ({m.DEVICE_FULL.of()} == bool 0) + ({m.DEVICE_VOTING.of()} == bool 0)"
    skew = f"max by (cluster, node) ({m.NODE_CLOCK_AHEAD.of()} + {m.NODE_CLOCK_BEHIND.of()})"
    return [
        Alert("MartletTargetDown", "warning", "5m", f"{m.UP.of(jobs)} == 0",
              "{{ $labels.instance }} doesn't answer scrapes",
              "The process {{ $labels.instance }} of job {{ $labels.job }} has not answered at /metrics for 5 minutes."),
        Alert("MartletNodeDown", "warning", "5m", f"max by (cluster, node) ({m.NODE_UP.of()}) == 0",
              "Storage node {{ $labels.node }} is silent",
              "No member of cluster {{ $labels.cluster }} has had an answer from node {{ $labels.node }} for 5 minutes. "
              "Its copies don't count; with three copies, a second silent node makes keys unavailable."),
        Alert("MartletNodePartlyReachable", "warning", "10m",
              f"min by (cluster, node) ({m.NODE_UP.of()}) == 0 and max by (cluster, node) ({m.NODE_UP.of()}) == 1",
              "Only some members reach storage node {{ $labels.node }}",
              "A member of cluster {{ $labels.cluster }} has had no answer from node {{ $labels.node }} for 10 minutes, "
              "while others have. The network between them is the likely cause."),
        Alert("MartletQuorumAtRisk", "critical", "2m",
              f"sum by (cluster) (({silent}) or (clamp_max(max by (cluster, instance) ({unserved}), 1))) >= 2",
              "{{ $value }} nodes of cluster {{ $labels.cluster }} are out",
              "{{ $value }} storage nodes are silent, or have a device that doesn't serve or has no votes. Keys with two "
              "of three copies there are answered 503, and writes to them are refused."),
        Alert("MartletRingTermsDiffer", "warning", "30m",
              f"max by (cluster) ({m.DEVICE_TERM.of()}) - min by (cluster) ({m.DEVICE_TERM.of()}) > 0",
              "Devices of cluster {{ $labels.cluster }} know different ring changes",
              "The terms of ring changes that devices know have differed by {{ $value }} for 30 minutes. A member holds an "
              "older index ring, or a ring change doesn't end."),
        Alert("MartletClockSkew", "warning", "5m", f"{skew} > 5",
              "The clock of {{ $labels.node }} is {{ $value | humanizeDuration }} off",
              "The clock of node {{ $labels.node }} differs from the median of the storage nodes by "
              "{{ $value | humanizeDuration }}. At 15 minutes other members refuse its requests."),
        Alert("MartletNotReady", "warning", "10m", f"max by (cluster, instance) ({m.READY.of()}) == 0",
              "{{ $labels.instance }} is not ready",
              "The process {{ $labels.instance }} answers, and has not been ready for 10 minutes. /readyz gives the reason."),
        Alert("MartletRingEpochsDiffer", "warning", "30m",
              f"max by (cluster, ring) ({m.RING_EPOCH.of()}) - min by (cluster, ring) ({m.RING_EPOCH.of()}) > 0",
              "Members of cluster {{ $labels.cluster }} use different {{ $labels.ring }} rings",
              "The epochs of the ring {{ $labels.ring }} have differed by {{ $value }} for 30 minutes. A member doesn't reach "
              "the others, or refuses the newer ring."),
        Alert("MartletDescriptorsLow", "warning", "5m",
              f"{m.OPEN_DESCRIPTORS.of(jobs)} > 0.85 * {m.DESCRIPTORS_MAX.of(jobs)}",
              "{{ $labels.instance }} runs out of file descriptors",
              "The process {{ $labels.instance }} has {{ $value }} open descriptors, over 85 % of its limit."),
        Alert("MartletCertificateEnds", "warning", "1h",
              f"min by (cluster, instance, certificate) ({m.CERTIFICATE_END.of()}) - time() < {t.seconds('21d')}",
              "A certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
              "The certificate of the settings {{ $labels.certificate }}_* that {{ $labels.instance }} uses ends in "
              "{{ $value | humanizeDuration }}. Then its clients, or the other members, refuse connections."),
        Alert("MartletAuditLogFails", "warning", "2m", f"min by (cluster, instance) ({m.AUDIT_WRITABLE.of()}) == 0",
              "The audit log of {{ $labels.instance }} can't be written",
              "The process {{ $labels.instance }} has refused changes by the admin API and of buckets for 2 minutes, because "
              "it can't record them. Requests for objects are served."),
    ]


def devices(t):
    free_share = f"{m.DEVICE_FREE.of()} / {m.DEVICE_SIZE.of()}"
    ahead = t.seconds("3d")
    # A device that is out shows zeros: what it holds and has free comes back with it, and neither grew nor shrank.
    opened = f"({m.DEVICE_UP.of()} == 1 or {m.DEVICE_FULL.of()} == 1)"
    quarantined = f"({m.DEVICE_QUARANTINED.of()} and {opened})[{t.span('1h')}:]"
    return [
        Alert("MartletDeviceDown", "warning", "5m",
              f"{m.DEVICE_UP.of()} == 0 and {m.DEVICE_FULL.of()} == 0",
              "Device {{ $labels.device }} at {{ $labels.instance }} is out",
              "Device {{ $labels.device }} has been suspect or offline for 5 minutes. /readyz of {{ $labels.instance }} "
              "gives the reason."),
        Alert("MartletDeviceReopens", "warning", "",
              f"increase({m.DEVICE_REOPENED.of()}[{t.span('1h')}]) > 2",
              "Device {{ $labels.device }} at {{ $labels.instance }} fails again and again",
              "Device {{ $labels.device }} was closed and opened again {{ $value | humanize }} times within an hour, each "
              "time after a failed sync."),
        Alert("MartletDeviceWithoutVotes", "warning", "30m", f"{m.DEVICE_VOTING.of()} == 0",
              "Device {{ $labels.device }} at {{ $labels.instance }} has no votes",
              "Device {{ $labels.device }} has counted for nothing for 30 minutes: it is new, replaced or begun anew, and "
              "its peers have not brought it what they hold."),
        Alert("MartletDeviceFull", "critical", "5m", f"{m.DEVICE_FULL.of()} == 1",
              "Device {{ $labels.device }} at {{ $labels.instance }} is full",
              "Device {{ $labels.device }} refuses new bytes. Once too few devices of a partition take them, writes are "
              "answered 507."),
        Alert("MartletDeviceFullSoon", "warning", "30m",
              f"predict_linear({m.DEVICE_FREE.of()}[{t.span('6h')}], {ahead}) < 0.02 * {m.DEVICE_SIZE.of()}"
              f" and {free_share} < 0.4 and {m.DEVICE_FULL.of()} == 0"
              f" and min_over_time({m.DEVICE_FREE.of()}[{t.span('6h')}]) > 0",
              "Device {{ $labels.device }} at {{ $labels.instance }} will be full within three days",
              "At the pace of the last six hours, device {{ $labels.device }} is full within three days."),
        Alert("MartletCorruptReads", "warning", "", f"increase({m.DEVICE_CORRUPT_READS.of()}[{t.span('1h')}]) > 0",
              "Device {{ $labels.device }} at {{ $labels.instance }} returns wrong bytes",
              "{{ $value | humanize }} reads of device {{ $labels.device }} found bytes that differ from their checksum "
              "within an hour. Clients were served from other copies."),
        Alert("MartletQuarantineGrows", "warning", "", f"delta({quarantined}) > 0",
              "Quarantine of device {{ $labels.device }} at {{ $labels.instance }} grows",
              "{{ $value | humanize }} files or records of device {{ $labels.device }} were put into quarantine within an "
              "hour."),
    ]


def workers(t):
    hints, backlog = m.DEVICE_HINTS.of(), m.WORKER_BACKLOG.of(REPAIR)
    hour, quarter = t.span("1h"), t.span("15m")

    def stuck(gauge):
        # A process that has just started has no samples of an hour, and its few ones are no stuck hour.
        return f"min_over_time({gauge}[{hour}]) > 0 and delta({gauge}[{hour}]) >= 0 and {gauge} offset {hour} > 0"

    oldest = m.WORKER_OLDEST_AGE
    return [
        Alert("MartletNoWorkers", "critical", "10m",
              f"count by (cluster) ({m.NODE_UP.of()}) unless count by (cluster) ({m.WORKER_STEPS.of()})",
              "Cluster {{ $labels.cluster }} has no background workers",
              "No replicator of cluster {{ $labels.cluster }} answers scrapes. Nothing is repaired, verified, expired or "
              "freed."),
        Alert("MartletHintsNotFalling", "warning", "15m", stuck(hints),
              "{{ $value }} hints on {{ $labels.device }} at {{ $labels.instance }} don't get fewer",
              "Writes that device {{ $labels.device }} keeps for other devices have waited for an hour, and don't get "
              "fewer."),
        Alert("MartletRepairNotFalling", "warning", "30m", stuck(backlog),
              "The backlog of {{ $labels.worker }} at {{ $labels.instance }} doesn't fall",
              "The worker {{ $labels.worker }} has had items waiting for an hour, and not fewer at its end."),
        Alert("MartletRepairOld", "warning", "15m",
              f"{oldest.of(REPAIR)} > {t.seconds('6h')}",
              "{{ $labels.worker }} at {{ $labels.instance }} has an item of {{ $value | humanizeDuration }}",
              "The oldest item that waits for the worker {{ $labels.worker }} is {{ $value | humanizeDuration }} old."),
        Alert("MartletAuditBehind", "warning", "1h", f"{oldest.of(AUDIT)} > {t.seconds('35d')}",
              "Bytes were last verified {{ $value | humanizeDuration }} ago",
              "The audit at {{ $labels.instance }} is to read every byte within 30 days. Its oldest unverified byte is "
              "{{ $value | humanizeDuration }} old."),
        Alert("MartletCopiesDiffer", "warning", "", f"{m.WORKER_DIFFERING.of(AUDIT)} > 0",
              "Copies of {{ $value }} extents differ",
              "The audit at {{ $labels.instance }} found {{ $value }} extents with different bytes on two of their primaries. "
              "Each copy matches its own checksums, and all stay."),
        Alert("MartletWorkerFails", "warning", "15m",
              f"increase({m.WORKER_FAILURES.of()}[{quarter}]) > increase({m.WORKER_STEPS.of()}[{quarter}])",
              "The worker {{ $labels.worker }} at {{ $labels.instance }} fails",
              "More than half of the steps of the worker {{ $labels.worker }} have failed for 15 minutes."),
        Alert("MartletWorkerPanics", "warning", "", f"increase({m.WORKER_PANICS.of()}[{hour}]) > 0",
              "The worker {{ $labels.worker }} at {{ $labels.instance }} panicked",
              "The worker {{ $labels.worker }} panicked {{ $value | humanize }} times within an hour, and was made anew."),
    ]


def requests(t):
    five, quarter = t.span("5m"), t.span("15m")

    def rate(metric, *matchers, span=five):
        return f"sum by (cluster) (rate({metric.of(*matchers)}[{span}]))"

    p99 = f"histogram_quantile(0.99, sum by (cluster, le) (rate({m.FIRST_BYTE_BUCKET.of(READS)}[{five}])))"
    cut = f"{rate(m.DATA_PORT_CUT, span=quarter)} / {rate(m.DATA_PORT_REQUESTS, span=quarter)}"
    return [
        Alert("MartletErrors", "critical", "5m",
              f"{rate(m.REQUESTS, FAILED)} / {rate(m.REQUESTS)} > 0.01",
              "{{ $value | humanizePercentage }} of the requests fail",
              "{{ $value | humanizePercentage }} of the S3 requests of cluster {{ $labels.cluster }} have been answered by "
              "5xx for 5 minutes."),
        Alert("MartletReadsSlow", "warning", "10m", f"{p99} > 2",
              "Reads take {{ $value | humanizeDuration }}",
              "One in a hundred reads of cluster {{ $labels.cluster }} has waited {{ $value | humanizeDuration }} or more "
              "for its first byte, for 10 minutes."),
        Alert("MartletSlowDown", "warning", "10m",
              f"clamp_max({rate(m.REQUESTS_LIMITED, OVERLOAD)} / {rate(m.REQUESTS)}, 1) > 0.01",
              "{{ $value | humanizePercentage }} of the requests are refused for overload",
              "{{ $value | humanizePercentage }} of the requests of cluster {{ $labels.cluster }} were answered SlowDown "
              "for 10 minutes: too many requests at a time, or too many that wait."),
        Alert("MartletDataPortCut", "warning", "10m", f"{cut} > 0.05",
              "{{ $value | humanizePercentage }} of the reads in place end early",
              "{{ $value | humanizePercentage }} of the replies of data ports of cluster {{ $labels.cluster }} ended early: "
              "clients left or were too slow, blocks were wrong, or disks failed."),
        Alert("MartletCheckpointPending", "warning", "5m",
              f"max by (cluster) ({m.CHECKPOINT_OLDEST_PENDING.of()}) > {t.seconds('1h')}",
              "A checkpoint has been pending for {{ $value | humanizeDuration }}",
              "The oldest pending checkpoint generation of cluster {{ $labels.cluster }} is "
              "{{ $value | humanizeDuration }} old. Its view shows the generation before."),
    ]


def deliveries(t):
    hour, quarter = t.span("1h"), t.span("15m")

    def total(expression, by="target"):
        return f"sum by (cluster, {by}) ({expression})"

    waiting = f"min_over_time({m.EVENTS_WAITING_BYTES.of()}[{quarter}])"
    delivered = f"increase({m.EVENTS_DELIVERED.of()}[{quarter}])"
    return [
        Alert("MartletEventsWaiting", "warning", "15m", f"{total(waiting)} > 0 and {total(delivered)} == 0",
              "Target {{ $labels.target }} takes no events",
              "{{ $value | humanize1024 }}B of events wait for target {{ $labels.target }}, and none was delivered within "
              "15 minutes."),
        Alert("MartletEventsParked", "warning", "5m", f"{total(m.EVENTS_REFUSED_BYTES.of())} > 0",
              "Events that target {{ $labels.target }} refused are parked",
              "{{ $value | humanize1024 }}B of events that target {{ $labels.target }} refused lie in refused.jsonl. They "
              "are sent again only when an operator asks for it."),
        Alert("MartletEventsLost", "critical", "", f"{total(f'increase({m.EVENTS_LOST.of()}[{hour}])')} > 0",
              "Events for target {{ $labels.target }} were lost",
              "{{ $value | humanize }} events for target {{ $labels.target }} were lost within an hour: the spool was full, "
              "or the target is unknown to a process."),
        Alert("MartletAccessLogLost", "warning", "", f"{total(f'increase({m.LOG_LINES_LOST.of()}[{hour}])', 'log')} > 0",
              "Lines of access logs were lost",
              "{{ $value | humanize }} lines of access logs ({{ $labels.log }}) were lost within an hour."),
    ]


def names():
    """Returns the names of all alerts."""
    return [alert.name for group in groups(Times(), "").values() for alert in group]


assert all(re.fullmatch(r"Martlet[A-Z]\w+", name) for name in names())
