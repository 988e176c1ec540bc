"""A machine that boots: systemd itself starts, watches, upgrades and removes the service, with all its restrictions."""

import shutil
import subprocess

from machine import check

BOOT_MAX_S = 300
# Open files that a machine's own limit allows at least, where it allows fewer than the unit asks for.
FILES_MIN = 10_000
EXPECTED = {
    "enabled_by_installation": "disabled inactive",
    "active": "active",
    "ready": "200",
    "status": "ready",
    "secrets_in_journal": "0",
    "path_in_journal": "1",
    "made": "200",
    "put": "200",
    "same": "yes",
    "privileges": "CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2",
    "user": "martlet",
    "restarted_by_upgrade": "active",
    "same_after_upgrade": "yes",
    "same_after_kill": "yes",
    # Refused as wrong usage, and not tried again.
    "wrong_settings": "2 0",
    "corrected": "active",
    "running_after_removal": "0",
    "data_after_removal": "yes",
    "end": "reached",
}
PROBE = """[Unit]
Description=Use of the service
[Service]
Type=exec
ExecStart=/probe.sh
[Install]
WantedBy=multi-user.target
"""


def check_booted(clean, folder, packages, probe, say):
    """Boots a machine with the first of two packages, and compares what the probe finds."""
    root = folder / "booted"
    subprocess.run(["cp", "-a", "--reflink=auto", clean, root], check=True)
    for name, package in zip(("first", "later"), packages):
        shutil.copy(package, root / f"{name}.deb")
    shutil.copy(probe, root / "probe.sh")
    (root / "probe.sh").chmod(0o755)
    (root / "etc/systemd/system/probe.service").write_text(PROBE)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["dpkg", "-i", "/first.deb"], ["systemctl", "enable", "probe"]):
        subprocess.run(["/usr/sbin/chroot", root, *command], env=environment, check=True, capture_output=True)
    boot = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--directory", root, "--boot"]
    try:
        done = subprocess.run(boot, capture_output=True, text=True, timeout=BOOT_MAX_S, check=False, stdin=subprocess.DEVNULL)
        told = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        told = f"the machine didn't end within {BOOT_MAX_S} s"
    log = root / "probe.log"
    check(log.exists(), f"the machine didn't boot: {told[-2000:]}")
    text = log.read_text(errors="replace")
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    # Words in any order: that of lines in /proc is the kernel's.
    wrong = {name: found.get(name) for name, value in EXPECTED.items()
             if sorted(found.get(name, "").split()) != sorted(value.split())}
    check(not wrong, f"{wrong}\n{text}")
    check(int(found["files"]) >= FILES_MIN, f"open files are limited to {found['files']}")
    say("systemd starts, watches, upgrades, kills and removes the service, with all its restrictions")
