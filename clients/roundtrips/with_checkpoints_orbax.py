"""Orbax into checkpoint sets, with jax on the CPU.

Orbax's folders, documents and renames work on `s3://` by etils and s3fs. Its arrays don't: of remote stores it has a
TensorStore driver for Google's alone. Here `s3://` folders get TensorStore's own S3 driver at that place, and all
else is Orbax: the temporary folder, `commit_success.txt` in it, the arrays' OCDBT merge, and the rename.
"""

import os
import warnings
from urllib.parse import urlsplit

# Savers are forked, before jax does anything.
warnings.filterwarnings("ignore", message="os.fork")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from orbax.checkpoint._src.path import gcs_utils  # noqa: E402
from orbax.checkpoint._src.serialization import tensorstore_utils  # noqa: E402

import checkpoint_sets  # noqa: E402

_normalize_path, _use_gcs_driver = tensorstore_utils._normalize_path, tensorstore_utils._use_gcs_driver
_get_kvstore = gcs_utils.get_kvstore_for_gcs


def kvstore(path):
    """TensorStore's description of a folder."""
    path = urlsplit(str(path))
    if path.scheme != "s3":
        return _get_kvstore(path.geturl())
    return {"driver": "s3", "bucket": path.netloc, "path": path.path.strip("/") + "/",
            "endpoint": os.environ["AWS_ENDPOINT_URL"], "aws_region": os.environ["AWS_REGION"],
            "aws_credentials": {"type": "environment"}}


tensorstore_utils._normalize_path = lambda path: _normalize_path(path).replace("s3:/", "s3://")
tensorstore_utils._use_gcs_driver = lambda path: path.startswith("s3://") or _use_gcs_driver(path)
gcs_utils.get_kvstore_for_gcs = kvstore


class Orbax:
    name = "orbax"
    # The rename takes less than a second here.
    rule = {"profile": "orbax", "settle": 5}
    saves_again = False

    def state_of(self, seed):
        numbers = np.random.default_rng(seed)
        return {"embedding": numbers.standard_normal((3, 1 << 18), dtype=np.float32),
                "layers": [numbers.standard_normal((64, 100 + at), dtype=np.float32) for at in range(3)]}

    def save(self, where, state):
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
            # What a killed saver left in the folder is deleted first.
            checkpointer.save(f"s3://{where}".rstrip("/"), args=ocp.args.StandardSave(arrays(state)), force=True)

    def load(self, where, like):
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
            return checkpointer.restore(f"s3://{where}".rstrip("/"), args=ocp.args.StandardRestore(arrays(like)))

    def equal(self, one, another):
        same = jax.tree.map(lambda left, right: np.array_equal(np.asarray(left), right), one, another)
        return all(jax.tree.leaves(same))


def arrays(state):
    return jax.tree.map(jax.numpy.asarray, state)


if __name__ == "__main__":
    checkpoint_sets.main(Orbax())
