"""A fault of the test of alerts."""

FIRES_MAX_S = 300
# A worker's pass of 30 s is half an hour of the scaled rules: copies that take three passes seem to stand still.
LEAVES_COPIES = ("MartletRepairNotFalling",)


class Fault:
    """Something that goes wrong: how it begins, what keeps it going, how it ends, and the alerts that it causes."""

    # Alerts that must fire, and those that may: they depend on how long a process takes to start.
    expected = ()
    possible = ()
    # Time in seconds within which all expected alerts must fire.
    fires_max_s = FIRES_MAX_S

    def __init__(self, test):
        self.test, self.cluster, self.s3 = test, test.cluster, test.cluster.s3

    def begin(self):
        """Makes the fault."""

    def go_on(self):
        """Does what the fault needs again and again."""

    def end(self):
        """Repairs it as the runbook says."""
