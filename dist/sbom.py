#!/usr/bin/env python3
"""Makes a bill of materials reproducible: one time, one serial number, no path of the machine that built.

Usage: sbom.py FILE FOLDER VERSION; FOLDER is the tree that the file's paths lie in.
"""

import datetime
import json
import os
import sys
import uuid

# Components that a bill of the binary has to name; without one of them the bill is of something else.
EXPECTED = ["librocksdb-sys", "tokio", "rustls", "hyper"]


def main():
    file, folder, version = sys.argv[1:]
    with open(file, encoding="utf-8") as opened:
        text = opened.read().replace(f"file://{folder}", "file:///martlet")
    bill = json.loads(text)
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    time = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bill["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    bill["metadata"]["component"]["version"] = version
    bill["components"].sort(key=lambda it: it["bom-ref"])
    bill.get("dependencies", []).sort(key=lambda it: it["ref"])
    names = {component["name"] for component in bill["components"]}
    missing = [name for name in EXPECTED if name not in names]
    if missing:
        sys.exit(f"sbom: {', '.join(missing)} is missing among {len(names)} components")
    bill.pop("serialNumber", None)
    content = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}"
    print(json.dumps(bill, sort_keys=True, indent=1))


if __name__ == "__main__":
    main()
