"""The fault server, and a client on files of the test's own."""

from tests.faults.clients import make_client as make_client
from tests.faults.clients import server as server
