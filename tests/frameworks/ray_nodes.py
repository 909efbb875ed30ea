"""A cluster of Ray on this host: nodes of their own, with GPUs that are none."""

import contextlib
import os
import shutil
import tempfile
import warnings
from unittest import mock

from tests.needs import framework

framework("ray")


@contextlib.contextmanager
def head():
    """A cluster of one node without GPUs, and the variables that lead there."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a socket's name must stay short
    variables = {
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",  # a token would be left in the user's home
    }
    with mock.patch.dict(os.environ, variables), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from ray.cluster_utils import Cluster

            options = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
            cluster = Cluster(initialize_head=True, head_node_args=options)
            try:
                yield cluster, {**variables, "RAY_ADDRESS": cluster.address}
            finally:
                cluster.shutdown()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def add_gpu(cluster, kind):
    """One more node, with a GPU of that type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resources = {f"accelerator_type:{kind}": 1}
        cluster.add_node(num_cpus=1, num_gpus=1, resources=resources)
