"""Metrics that dashboards and alert rules read. Names and units stand here alone: a rename is one edit."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Metric:
    """Metric of a process: its name on the page."""

    name: str

    def of(self, *matchers):
        """Returns the selector with matchers of labels."""
        chosen = ",".join(matcher for matcher in matchers if matcher)
        return f"{self.name}{{{chosen}}}" if chosen else self.name


# Requests of S3 clients: server, proxy.
REQUESTS = Metric("martlet_requests_total")
REQUESTS_LIMITED = Metric("martlet_requests_limited_total")
REQUESTS_IN_FLIGHT = Metric("martlet_requests_in_flight")
FIRST_BYTE_BUCKET = Metric("martlet_request_first_byte_seconds_bucket")
REQUEST_BYTES = Metric("martlet_request_body_bytes_total")
REPLY_BYTES = Metric("martlet_reply_body_bytes_total")

# Requests that wait, and windows that readers share: server, proxy.
QUEUE_WAITING = Metric("martlet_queue_waiting")
QUEUE_KEY_WAITING = Metric("martlet_queue_key_waiting")
QUEUE_WAITS = Metric("martlet_queue_waits_total")
QUEUE_WAIT_TIME = Metric("martlet_queue_wait_seconds_total")
QUEUE_EXPIRED = Metric("martlet_queue_expired_total")
WINDOWS_FETCHED = Metric("martlet_windows_fetched_total")
WINDOWS_SERVED = Metric("martlet_windows_served_total")
WINDOWS_FAILED = Metric("martlet_windows_failed_total")
WINDOW_BYTES = Metric("martlet_window_bytes")
EXTENT_READ_BYTES = Metric("martlet_extent_read_bytes_total")

# Devices: server, storage node.
DEVICE_UP = Metric("martlet_device_up")
DEVICE_FULL = Metric("martlet_device_full")
DEVICE_VOTING = Metric("martlet_device_voting")
DEVICE_SIZE = Metric("martlet_device_size_bytes")
DEVICE_FREE = Metric("martlet_device_free_bytes")
DEVICE_EXTENTS = Metric("martlet_device_extents")
DEVICE_EXTENT_BYTES = Metric("martlet_device_extent_bytes")
DEVICE_VOLUME_FREE = Metric("martlet_device_volume_free_bytes")
DEVICE_WITHHELD = Metric("martlet_device_withheld_bytes")
DEVICE_QUARANTINED = Metric("martlet_device_quarantined")
DEVICE_TERM = Metric("martlet_device_term")
DEVICE_JOINED = Metric("martlet_device_joined")
DEVICE_HINTS = Metric("martlet_device_hints")
DEVICE_REOPENED = Metric("martlet_device_reopened_total")
DEVICE_CORRUPT_READS = Metric("martlet_device_corrupt_reads_total")
DEVICE_INDEX_WRITES = Metric("martlet_device_index_writes_total")
DEVICE_INDEX_SYNCS = Metric("martlet_device_index_syncs_total")
DEVICE_INDEX_READS = Metric("martlet_device_index_reads_total")
DEVICE_INDEX_BLOCKING_READS = Metric("martlet_device_index_blocking_reads_total")
DEVICE_INDEX_LISTS = Metric("martlet_device_index_lists_total")
DEVICE_EXTENT_WRITES = Metric("martlet_device_extent_writes_total")
DEVICE_EXTENT_SYNCS = Metric("martlet_device_extent_syncs_total")
DEVICE_FOLDER_SYNCS = Metric("martlet_device_folder_syncs_total")
DEVICE_BLOCKING_READS = Metric("martlet_device_blocking_reads_total")

# Nodes, as each member of a cluster sees them.
NODE_UP = Metric("martlet_node_up")
NODE_REPLIES = Metric("martlet_node_replies_total")
NODE_SILENCES = Metric("martlet_node_silences_total")
NODE_LATENCY = Metric("martlet_node_latency_seconds")
NODE_CLOCK_AHEAD = Metric("martlet_node_clock_ahead_seconds")
NODE_CLOCK_BEHIND = Metric("martlet_node_clock_behind_seconds")

# Background workers: server, replicator.
WORKER_STEPS = Metric("martlet_worker_steps_total")
WORKER_FAILURES = Metric("martlet_worker_failures_total")
WORKER_PANICS = Metric("martlet_worker_panics_total")
WORKER_YIELDS = Metric("martlet_worker_yields_total")
WORKER_RATE = Metric("martlet_worker_rate")
WORKER_ETA = Metric("martlet_worker_eta_seconds")
WORKER_BACKLOG = Metric("martlet_worker_backlog")
WORKER_AHEAD = Metric("martlet_worker_ahead")
WORKER_OLDEST_AGE = Metric("martlet_worker_oldest_age_seconds")
WORKER_DIFFERING = Metric("martlet_worker_differing_extents")
WORKER_KEPT = Metric("martlet_worker_kept_total")
WORKER_REPAIRED = Metric("martlet_worker_repaired_total")
WORKER_COPIED_BYTES = Metric("martlet_worker_copied_bytes_total")
WORKER_READ_BYTES = Metric("martlet_worker_read_bytes_total")
WORKER_FREED_BYTES = Metric("martlet_worker_freed_bytes_total")

# Checkpoint sets: server, replicator.
CHECKPOINT_GENERATIONS = Metric("martlet_checkpoint_generations")
CHECKPOINT_OLDEST_PENDING = Metric("martlet_checkpoint_oldest_pending_seconds")
CHECKPOINT_PINNED_BYTES = Metric("martlet_checkpoint_pinned_bytes")

# Events and access logs: server, proxy, replicator.
EVENTS_TAKEN = Metric("martlet_event_messages_taken_total")
EVENTS_DELIVERED = Metric("martlet_event_messages_delivered_total")
EVENTS_LOST = Metric("martlet_event_messages_lost_total")
EVENTS_WAITING_BYTES = Metric("martlet_event_waiting_bytes")
EVENTS_REFUSED_BYTES = Metric("martlet_event_refused_bytes")
EVENT_FAILURES = Metric("martlet_event_failures_total")
LOG_LINES_LOST = Metric("martlet_access_log_lines_lost_total")

# Processes, and rings of members of a cluster.
READY = Metric("martlet_ready")
OPEN_DESCRIPTORS = Metric("process_open_fds")
DESCRIPTORS_MAX = Metric("process_max_fds")
RING_EPOCH = Metric("martlet_ring_epoch")
CERTIFICATE_END = Metric("martlet_certificate_end_timestamp_seconds")

# Audit log: server, proxy.
AUDIT_WRITABLE = Metric("martlet_audit_writable")

# Reads in place: server, storage node.
DATA_PORT_REQUESTS = Metric("martlet_data_port_requests_total")
DATA_PORT_BYTES = Metric("martlet_data_port_bytes_total")
DATA_PORT_CUT = Metric("martlet_data_port_cut_total")
DATA_PORT_IN_FLIGHT = Metric("martlet_data_port_in_flight")
DIRECT_LEASES = Metric("martlet_direct_leases")
DIRECT_LEASED_BYTES = Metric("martlet_direct_leased_bytes")
DIRECT_GRANTED = Metric("martlet_direct_granted_total")
DIRECT_REFUSED = Metric("martlet_direct_refused_total")
DIRECT_REVOKED = Metric("martlet_direct_revoked_total")

# Prometheus' own.
UP = Metric("up")


def all_metrics():
    """Returns all metrics of this file."""
    return [it for it in globals().values() if isinstance(it, Metric)]
