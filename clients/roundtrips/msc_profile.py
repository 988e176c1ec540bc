"""The profile of multi-storage-client for the server under test. Imported before its package."""

import json
import os
import tempfile
from pathlib import Path

PROFILE = "train"
_config = {"profiles": {PROFILE: {
    "storage_provider": {"type": "s3", "options": {
        "base_path": "", "endpoint_url": "${AWS_ENDPOINT_URL}", "region_name": os.environ["AWS_REGION"]}},
    # Keys come from the variables of AWS, read when a client is made.
    "credentials_provider": {"type": "S3Credentials", "options": {
        "access_key": "${AWS_ACCESS_KEY_ID}", "secret_key": "${AWS_SECRET_ACCESS_KEY}"}},
}}}

_file = Path(tempfile.mkdtemp()) / "msc.json"
_file.write_text(json.dumps(_config))
os.environ["MSC_CONFIG"] = str(_file)
