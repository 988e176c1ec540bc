"""Fixtures of files that sign by Version 2: a server of their own, in which it is turned on."""

import pytest

from conftest import client_for, running_server


@pytest.fixture(scope="module")
def server():
    with running_server(settings={"MARTLET_ALLOW_SIGNATURE_V2": "true"}) as server:
        yield server
        assert server.stop() == 0, server.log()
        assert server.complaints() == []


@pytest.fixture(scope="module")
def s3(server):
    return client_for(server)
