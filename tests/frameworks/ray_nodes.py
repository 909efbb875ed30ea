"""A cluster of Ray on this host: nodes of their own, with GPUs that are none."""

import contextlib
import os
import shutil
import tempfile
import warnings

from tests.needs import framework

framework("ray")


@contextlib.contextmanager
def nodes(*types):
    """A head without GPUs and a node with one GPU for each type; the variables that lead there."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a socket's name must stay short
    variables = {
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # a token would be left in the user's home
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ray.cluster_utils import Cluster

            head = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
            cluster = Cluster(initialize_head=True, head_node_args=head)
            try:
                for kind in types:
                    cluster.add_node(
                        num_cpus=1, num_gpus=1, resources={f"accelerator_type:{kind}": 1}
                    )
                yield {**variables, "RAY_ADDRESS": cluster.address}
            finally:
                cluster.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)
