"""Faults of the test of alerts by subject, in the groups in which they happen, and alerts that no fault brings about."""

from faults.deliveries import FullLogDisk, FullProcessLog, HangingLogDisk, RefusingHook, SilentHook
from faults.devices import FillingDisk, FlickeringDisk, HangingDisk, LateAudit, WipedDisk, WrongBytes
from faults.members import CutReplicator, DeadNode, LongOutage, TwoDeadNodes, WrongClock
from faults.requests import EndingCertificate, Herd, IdleConnections, LeavingReaders, Overload, UnfinishedCheckpoint

# Faults that happen together. None hides another one's alerts.
GROUPS = [
    (RefusingHook, HangingLogDisk, UnfinishedCheckpoint, WrongBytes, LeavingReaders, Herd, FillingDisk, EndingCertificate),
    (Overload,),
    (FullProcessLog,),
    (DeadNode, SilentHook, FullLogDisk, IdleConnections),
    (TwoDeadNodes,),
    (WipedDisk,),
    (HangingDisk, LateAudit),
    (FlickeringDisk,),
    (CutReplicator, WrongClock),
    # The last one: the cluster has four nodes from then on.
    (LongOutage,),
]

# Alerts that no fault of this test brings about, each with the reason.
NOT_MADE = {
    "MartletWorkerPanics": "A panic is a fault of the program, and no input from outside is known to bring one about. A full "
                           "disk of a log did, and FullProcessLog tries that. "
                           "`replicator/src/runner/tests.rs` has a worker that panics: it is counted and made anew.",
    "MartletCopiesDiffer": "Senders hash what they send, so no fault of this release stores two contents under one id. "
                           "`replicator/src/audit/copies/tests.rs` has such copies.",
}


def wrong(names):
    """Returns sentences about alerts that have neither a fault nor a reason, and about names that are no alerts."""
    made = {name for kinds in GROUPS for kind in kinds for name in kind.expected}
    possible = {name for kinds in GROUPS for kind in kinds for name in kind.possible}
    found = [f"{name} has neither a fault in GROUPS nor a reason in NOT_MADE" for name in names
             if name not in made and name not in NOT_MADE]
    found += [f"{name} has a reason in NOT_MADE, and a fault makes it" for name in NOT_MADE if name in made]
    found += [f"{name} is named by a fault or in NOT_MADE, and is no alert"
              for name in sorted({*made, *possible, *NOT_MADE} - set(names))]
    return found + [f"{name} has no reason in NOT_MADE" for name, reason in NOT_MADE.items() if not reason.strip()]
