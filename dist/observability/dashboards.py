"""Dashboards of Grafana, built by its typed SDK."""

import dataclasses

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

import metrics as m
from alerts import FAILED, READS, REPAIR

WINDOW = "$__rate_interval"
CLUSTER = 'cluster=~"$cluster"'
SOURCE = "${datasource}"
# A row has 24 columns.
WIDTH, HEIGHT, SMALL_WIDTH, SMALL_HEIGHT = 12, 8, 4, 4


@dataclasses.dataclass(frozen=True)
class Query:
    """Query of a panel, and the legend of its series. `needs` names what makes data, where a quiet cluster has none."""

    expression: str
    legend: str = ""
    needs: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """Panel: a graph, or one large number."""

    title: str
    unit: str
    queries: tuple
    about: str
    is_number: bool = False


def graph(title, unit, about, *queries):
    """Returns a graph over time."""
    return Panel(title, unit, queries, about)


def number(title, unit, about, expression, needs=""):
    """Returns a panel with one number."""
    return Panel(title, unit, (Query(expression, needs=needs),), about, is_number=True)


def on(metric, *matchers):
    """Returns the selector of a metric in the chosen clusters."""
    return metric.of(CLUSTER, *matchers)


def rate(metric, *matchers):
    """Returns the rate of a counter."""
    return f"rate({on(metric, *matchers)}[{WINDOW}])"


def total(expression, *labels):
    """Returns the sum of an expression by labels."""
    return f"sum by ({', '.join(labels)}) ({expression})" if labels else f"sum({expression})"


def largest(expression, *labels):
    """Returns the largest value of an expression by labels."""
    return f"max by ({', '.join(labels)}) ({expression})" if labels else f"max({expression})"


def quantile(share, matchers, *labels):
    """Returns a quantile of the time until the first byte."""
    buckets = total(rate(m.FIRST_BYTE_BUCKET, *matchers), "le", *labels)
    return f"histogram_quantile({share}, {buckets})"


def overview():
    nodes = largest(on(m.NODE_UP), "cluster", "node")
    return [
        number("Nodes that answer", "short", "Storage nodes that a member has an answer from.", f"sum({nodes})"),
        number("Nodes out", "short", "Storage nodes that no member has an answer from.", f"sum(1 - {nodes})"),
        number("Devices that serve", "short", "Devices that are ready or full.",
               total(f"{on(m.DEVICE_UP)} + {on(m.DEVICE_FULL)}")),
        number("Devices without votes", "short", "Devices that count for nothing yet.",
               total(f"1 - {on(m.DEVICE_VOTING)}")),
        number("Requests", "reqps", "S3 requests in a second.", total(rate(m.REQUESTS))),
        number("Space used", "percentunit", "Used share of all file systems.",
               f"1 - {total(on(m.DEVICE_FREE))} / {total(on(m.DEVICE_SIZE))}"),
        graph("Alerts", "short", "Alerts of Martlet that fire, by name.",
              Query('sum by (alertname) (ALERTS{alertname=~"Martlet.*", alertstate="firing"})', "{{alertname}}", "a fault")),
        graph("Requests by status", "reqps", "S3 requests by the status of the reply.",
              Query(total(rate(m.REQUESTS), "status"), "{{status}}")),
        graph("Bytes of clients", "Bps", "Bodies of S3 requests and replies.",
              Query(total(rate(m.REQUEST_BYTES)), "received"), Query(total(rate(m.REPLY_BYTES)), "sent")),
        graph("Time to the first byte of reads", "s", "GetObject, HeadObject and listings.",
              Query(quantile(0.5, [READS]), "p50"), Query(quantile(0.99, [READS]), "p99")),
        graph("Hints and repair", "short", "Writes kept for other devices, and items that wait for repair.",
              Query(total(on(m.DEVICE_HINTS)), "hints"), Query(total(on(m.WORKER_BACKLOG, REPAIR), "worker"), "{{worker}}")),
        graph("Error of clocks", "s", "Distance of each node's clock from the median of the storage nodes.",
              Query(f"{largest(on(m.NODE_CLOCK_AHEAD), 'node')} - {largest(on(m.NODE_CLOCK_BEHIND), 'node')}", "{{node}}")),
        graph("Time until nodes reply", "s", "Recent time from a member's request to a node's reply, of the slowest member.",
              Query(largest(on(m.NODE_LATENCY), "node"), "{{node}}")),
        graph("Silences of nodes", "short", "Status requests in a second that a node did not answer.",
              Query(total(rate(m.NODE_SILENCES), "node"), "{{node}}"),
              Query(total(rate(m.NODE_REPLIES), "node"), "{{node}} replies")),
    ]


def requests():
    waits = f"{total(rate(m.QUEUE_WAIT_TIME), 'kind')} / {total(rate(m.QUEUE_WAITS), 'kind')}"
    return [
        graph("Requests by operation", "reqps", "S3 requests by operation; requests refused before routing by method.",
              Query(total(rate(m.REQUESTS), "operation"), "{{operation}}")),
        graph("Share of failed requests", "percentunit", "Requests answered by 5xx.",
              Query(f"({total(rate(m.REQUESTS, FAILED))} or vector(0)) / {total(rate(m.REQUESTS))}", "5xx")),
        graph("Failed requests", "reqps", "Requests answered by 5xx, by operation and status.",
              Query(total(rate(m.REQUESTS, FAILED), "operation", "status"), "{{operation}} {{status}}", "too few nodes")),
        graph("Refused by limits", "reqps", "Requests refused by a quota, a rate, the share of a tenant, or overload.",
              Query(total(rate(m.REQUESTS_LIMITED), "limit"), "{{limit}}", "overload")),
        graph("Median time to the first byte", "s", "By operation. A write's includes the client's body.",
              Query(quantile(0.5, [], "operation"), "{{operation}}")),
        graph("p99 of the time to the first byte", "s", "By operation. A write's includes the client's body.",
              Query(quantile(0.99, [], "operation"), "{{operation}}")),
        graph("Requests under way", "short", "Requests whose reply is not fully sent, by process.",
              Query(total(on(m.REQUESTS_IN_FLIGHT), "instance"), "{{instance}}")),
        graph("Bytes of clients by process", "Bps", "Bodies of S3 requests and replies, by process.",
              Query(total(rate(m.REQUEST_BYTES), "instance"), "{{instance}} received"),
              Query(total(rate(m.REPLY_BYTES), "instance"), "{{instance}} sent")),
        graph("Mean wait for a turn", "s", "Time that a request waited which then had its turn.",
              Query(waits, "{{kind}}", "overload")),
        graph("Events for targets", "short", "Messages in a second: taken, delivered, lost; failed attempts.",
              Query(total(rate(m.EVENTS_TAKEN), "target"), "{{target}} taken"),
              Query(total(rate(m.EVENTS_DELIVERED), "target"), "{{target}} delivered"),
              Query(total(rate(m.EVENTS_LOST), "target"), "{{target}} lost"),
              Query(total(rate(m.EVENT_FAILURES), "target"), "{{target}} failures")),
        graph("Events that wait", "bytes", "Bytes in the spools, and bytes of refused messages.",
              Query(total(on(m.EVENTS_WAITING_BYTES), "target"), "{{target}} waiting"),
              Query(total(on(m.EVENTS_REFUSED_BYTES), "target"), "{{target}} refused")),
        graph("Lost lines of access logs", "short", "Lines in a second, of the process's own log and of buckets' logs.",
              Query(total(rate(m.LOG_LINES_LOST), "log"), "{{log}}")),
    ]


def devices():
    used = f"1 - {largest(on(m.DEVICE_FREE), 'device')} / {largest(on(m.DEVICE_SIZE), 'device')}"
    ahead = 3 * 86400
    state = {"ready": m.DEVICE_UP, "full": m.DEVICE_FULL, "voting": m.DEVICE_VOTING}
    return [
        graph("State of devices", "short", "1 if a device is ready, full, or has votes.",
              *(Query(largest(on(metric), "device"), f"{{{{device}}}} {word}") for word, metric in state.items())),
        graph("Fullness", "percentunit", "Used share of each device's file system.", Query(used, "{{device}}")),
        graph("Fullness in three days", "percentunit", "At the pace of the last six hours.",
              Query(f"1 - predict_linear({on(m.DEVICE_FREE)}[6h], {ahead}) / {on(m.DEVICE_SIZE)}", "{{device}}")),
        graph("Bytes of extents", "bytes", "Extents, free bytes within volumes, and deleted extents that leases keep.",
              Query(largest(on(m.DEVICE_EXTENT_BYTES), "device"), "{{device}} extents"),
              Query(largest(on(m.DEVICE_VOLUME_FREE), "device"), "{{device}} free in volumes"),
              Query(largest(on(m.DEVICE_WITHHELD), "device"), "{{device}} withheld")),
        graph("Extents", "short", "Number of extents on each device.",
              Query(largest(on(m.DEVICE_EXTENTS), "device"), "{{device}}")),
        graph("Wrong bytes", "short", "Corrupt reads in a second, and files in quarantine.",
              Query(total(rate(m.DEVICE_CORRUPT_READS), "device"), "{{device}} corrupt reads"),
              Query(largest(on(m.DEVICE_QUARANTINED), "device"), "{{device}} quarantined")),
        graph("Reopenings", "short", "Times in a second that a device was closed after a failed sync, and opened again.",
              Query(total(rate(m.DEVICE_REOPENED), "device"), "{{device}}")),
        graph("Writes to the index", "ops", "Operations, and synced batches of them.",
              Query(total(rate(m.DEVICE_INDEX_WRITES), "device"), "{{device}} operations"),
              Query(total(rate(m.DEVICE_INDEX_SYNCS), "device"), "{{device}} syncs")),
        graph("Reads of the index", "ops", "Registers read, those that missed the cache, and listings.",
              Query(total(rate(m.DEVICE_INDEX_READS), "device"), "{{device}} reads"),
              Query(total(rate(m.DEVICE_INDEX_BLOCKING_READS), "device"), "{{device}} missed"),
              Query(total(rate(m.DEVICE_INDEX_LISTS), "device"), "{{device}} listings")),
        graph("Writes of extents", "ops", "Extents written, and syncs of data and folders.",
              Query(total(rate(m.DEVICE_EXTENT_WRITES), "device"), "{{device}} extents"),
              Query(total(rate(m.DEVICE_EXTENT_SYNCS), "device"), "{{device}} syncs"),
              Query(total(rate(m.DEVICE_FOLDER_SYNCS), "device"), "{{device}} folders")),
        graph("Reads of extents at the disk", "ops", "Chunks read on a blocking thread.",
              Query(total(rate(m.DEVICE_BLOCKING_READS), "device"), "{{device}}")),
        graph("Terms", "short", "Highest known ring change, and the last one whose data the device holds completely.",
              Query(largest(on(m.DEVICE_TERM), "device"), "{{device}} term"),
              Query(largest(on(m.DEVICE_JOINED), "device"), "{{device}} joined")),
    ]


def workers():
    age, failures = m.WORKER_OLDEST_AGE, m.WORKER_FAILURES
    return [
        number("Hints", "short", "Writes kept for other devices.", total(on(m.DEVICE_HINTS))),
        number("Items that wait for repair", "short", "Backlog of all workers that repair.",
               total(on(m.WORKER_BACKLOG, REPAIR))),
        number("Oldest unverified byte", "s", "As of the last step of the audit.",
               largest(on(age, 'worker="audit"'))),
        number("Failed steps in an hour", "short", "Of all workers.", total(f"increase({on(failures)}[1h])")),
        graph("Backlog", "short", "Items that are known to need work, by worker.",
              Query(total(on(m.WORKER_BACKLOG), "worker"), "{{worker}}")),
        graph("Oldest item that waits", "s", "By worker.",
              Query(largest(on(age), "worker"), "{{worker}}")),
        graph("Hints by device", "short", "Writes that a device keeps for others.",
              Query(largest(on(m.DEVICE_HINTS), "device"), "{{device}}")),
        graph("Rest of the pass", "short", "Items left in this pass.",
              Query(total(on(m.WORKER_AHEAD), "worker"), "{{worker}}")),
        graph("Pace", "ops", "Recent items in a second.", Query(total(on(m.WORKER_RATE), "worker"), "{{worker}}")),
        graph("Expected end", "s", "Time until the backlog is done, at the recent rate.",
              Query(largest(on(m.WORKER_ETA), "worker"), "{{worker}}", "a backlog")),
        graph("Copied", "Bps", "Bytes of copies written, and bytes read to decode fragments.",
              Query(total(rate(m.WORKER_COPIED_BYTES), "worker"), "{{worker}} written"),
              Query(total(rate(m.WORKER_READ_BYTES), "worker"), "{{worker}} read")),
        graph("Freed", "Bps", "Bytes of deleted extents.",
              Query(total(rate(m.WORKER_FREED_BYTES), "worker"), "{{worker}}")),
        graph("Repaired and kept", "ops", "Entries repaired, and items kept because a device that must agree was silent.",
              Query(total(rate(m.WORKER_REPAIRED), "worker"), "{{worker}} repaired"),
              Query(total(rate(m.WORKER_KEPT), "worker"), "{{worker}} kept")),
        graph("Failures", "ops", "Failed steps, panics, and pauses in favour of clients.",
              Query(total(rate(failures), "worker"), "{{worker}} failures"),
              Query(total(rate(m.WORKER_PANICS), "worker"), "{{worker}} panics"),
              Query(total(rate(m.WORKER_YIELDS), "worker"), "{{worker}} yields")),
        graph("Steps", "ops", "Steps of workers.", Query(total(rate(m.WORKER_STEPS), "worker"), "{{worker}}")),
    ]


def checkpoints():
    shared = f"{total(rate(m.WINDOWS_SERVED))} / {total(rate(m.WINDOWS_FETCHED))}"
    pending = m.CHECKPOINT_OLDEST_PENDING
    return [
        graph("Generations", "short", "Generations of checkpoint sets by state, as of the worker's last pass.",
              Query(total(on(m.CHECKPOINT_GENERATIONS), "state"), "{{state}}")),
        graph("Oldest pending generation", "s", "Age of the oldest pending generation.",
              Query(largest(on(pending)), "age")),
        graph("Pinned bytes", "bytes", "Bytes that generations keep; a version that several share counts for each.",
              Query(total(on(m.CHECKPOINT_PINNED_BYTES)), "pinned")),
        graph("Requests that wait", "short", "Requests that wait for their turn, by kind.",
              Query(total(on(m.QUEUE_WAITING), "kind"), "{{kind}}")),
        graph("Keys with most waiting requests", "short", "Access keys; anonymous is unsigned.",
              Query(f"topk(8, {total(on(m.QUEUE_KEY_WAITING), 'key')})", "{{key}}", "overload")),
        graph("Waits", "ops", "Waits that ended with a turn, and without one.",
              Query(total(rate(m.QUEUE_WAITS), "kind"), "{{kind}}"),
              Query(total(rate(m.QUEUE_EXPIRED), "kind"), "{{kind}} expired")),
        graph("Shared windows", "ops", "Windows that were fetched, and those that readers took.",
              Query(total(rate(m.WINDOWS_FETCHED)), "fetched"), Query(total(rate(m.WINDOWS_SERVED)), "served"),
              Query(total(rate(m.WINDOWS_FAILED)), "failed")),
        graph("Readers of a window", "short", "Windows taken for each that was fetched. A lone reader fetches none.",
              Query(shared, "readers", "a herd")),
        graph("Memory of windows", "bytes", "By process; window_cache is its bound.",
              Query(total(on(m.WINDOW_BYTES), "instance"), "{{instance}}")),
        graph("Bytes from nodes and to clients", "Bps", "Sharing keeps the bytes from nodes below those to clients.",
              Query(total(rate(m.EXTENT_READ_BYTES)), "from nodes"), Query(total(rate(m.REPLY_BYTES)), "to clients")),
    ]


def in_place():
    reads = "a read in place"
    return [
        graph("Requests at data ports", "reqps", "By status.",
              Query(total(rate(m.DATA_PORT_REQUESTS), "status"), "{{status}}", reads)),
        graph("Requests by tenant", "reqps", "By the account that located the object.",
              Query(total(rate(m.DATA_PORT_REQUESTS), "tenant"), "{{tenant}}", reads)),
        graph("Bytes by verifier", "Bps", "Bytes that the node verified, and bytes that clients verify.",
              Query(total(rate(m.DATA_PORT_BYTES), "verified"), "{{verified}}", reads)),
        graph("Bytes by tenant", "Bps", "Bytes that data ports sent.",
              Query(total(rate(m.DATA_PORT_BYTES), "tenant"), "{{tenant}}", reads)),
        graph("Replies that ended early", "ops", "Clients that left or were too slow, wrong blocks, failing disks.",
              Query(total(rate(m.DATA_PORT_CUT), "instance"), "{{instance}}")),
        graph("Reads under way", "short", "Requests whose reply is not fully sent.",
              Query(total(on(m.DATA_PORT_IN_FLIGHT), "instance"), "{{instance}}")),
        graph("Leases", "short", "Leases of extents whose descriptors clients hold.",
              Query(total(on(m.DIRECT_LEASES), "instance"), "{{instance}}")),
        graph("Leased bytes", "bytes", "Bytes of leased extents, and of deleted ones that leases keep.",
              Query(total(on(m.DIRECT_LEASED_BYTES), "instance"), "{{instance}} leased"),
              Query(total(on(m.DEVICE_WITHHELD), "instance"), "{{instance}} withheld")),
        graph("Leases granted", "ops", "Leases granted in a second.",
              Query(total(rate(m.DIRECT_GRANTED), "instance"), "{{instance}}")),
        graph("Leases refused and taken back", "ops", "By reason.",
              Query(total(rate(m.DIRECT_REFUSED), "reason"), "{{reason}} refused"),
              Query(total(rate(m.DIRECT_REVOKED), "reason"), "{{reason}} taken back")),
    ]


DASHBOARDS = {
    "overview": ("Martlet / Overview", "State of clusters at a glance.", overview),
    "requests": ("Martlet / Requests and latency", "Requests of S3 clients, limits, events and access logs.", requests),
    "devices": ("Martlet / Devices and capacity", "Devices: state, fullness, work, wrong bytes.", devices),
    "workers": ("Martlet / Workers and repair", "Background workers: backlog, age, pace, failures.", workers),
    "checkpoints": ("Martlet / Checkpoints and herds", "Checkpoint sets, queues, and windows that readers share.", checkpoints),
    "in-place": ("Martlet / Reads in place", "Data ports and direct sockets.", in_place),
}


def built_panel(panel):
    """Returns the SDK's builder of a panel."""
    source = model.DataSourceRef(type_val="prometheus", uid=SOURCE)
    if panel.is_number:
        built = stat.Panel().span(SMALL_WIDTH).height(SMALL_HEIGHT)
    else:
        legend = common.VizLegendOptions(display_mode=common.LegendDisplayMode.LIST, placement=common.LegendPlacement.BOTTOM,
                                         show_legend=True, calcs=[])
        built = timeseries.Panel().span(WIDTH).height(HEIGHT).legend(_Built(legend)).fill_opacity(8).min(0)
    built = built.title(panel.title).description(panel.about).unit(panel.unit).datasource(source)
    for at, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(chr(ord("A") + at))
        built = built.with_target(target.datasource(source))
    return built


class _Built:
    """Finished value where the SDK expects a builder."""

    def __init__(self, value):
        self.value = value

    def build(self):
        """Returns the value."""
        return self.value


def built(name):
    """Returns the model of a dashboard."""
    title, about, panels = DASHBOARDS[name]
    source = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    clusters = (dashboard.QueryVariable("cluster").label("Cluster").query(f"label_values({m.NODE_UP.name}, cluster)")
                .datasource(model.DataSourceRef(type_val="prometheus", uid=SOURCE)).multi(True).include_all(True)
                .all_value(".*").current(model.VariableOption(text="All", value="$__all"))
                .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED))
    others = dashboard.DashboardLink("Martlet").type(model.DashboardLinkType.DASHBOARDS).tags(["martlet"]).as_dropdown(True)
    page = (dashboard.Dashboard(title).uid(f"martlet-{name}").description(about).tags(["martlet"]).refresh("30s")
            .time("now-3h", "now").readonly().timezone("browser").with_variable(source).with_variable(clusters)
            .link(others.include_vars(True).keep_time(True)))
    for panel in panels():
        page = page.with_panel(built_panel(panel))
    return page.build()
