#!/opt/tidelog/bin/python -IS
"""``tidelog-rack FILE`` writes the zone of a machine of Kubernetes to a file, for ``broker.rack=${dir:FOLDER:FILE}``.

It asks the API server for the node named by the variable ``MACHINE``, with the pod's service account, which needs the
right to ``get nodes``. The zone is the label ``topology.kubernetes.io/zone``, or the one that ``ZONE_LABEL`` names. A
machine without the label has no zone: the file is empty, and the storage node has no rack. An API server that does not
answer is asked again for a minute.
"""

import http.client
import json
import os
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import quote

_ACCESS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LABEL = "topology.kubernetes.io/zone"
_TIMEOUT_S = 10.0
_DEADLINE_S = 60.0
_PAUSE_S = 1.0


class RefusedError(Exception):
    """The API server has refused the request, so that asking again does not help."""


def zone(connection, token, machine, label):
    """Return the value of a label of a machine, "" without one; ``connection`` leads to the API server.

    Raises:
        RefusedError: The API server has refused the request.
        OSError: It does not answer.
    """
    connection.request("GET", f"/api/v1/nodes/{quote(machine, safe='')}", headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status in (401, 403, 404):
        raise RefusedError(f"the API server answers {answer.status} for the machine {machine}: {_message(content)}")
    if answer.status != 200:
        raise OSError(f"the API server answers {answer.status} for the machine {machine}")
    return json.loads(content)["metadata"].get("labels", {}).get(label, "")


def _message(content):
    try:
        return json.loads(content).get("message", "")
    except ValueError:
        return content[:200].decode(errors="replace")


def _ask(environment):
    context = ssl.create_default_context(cafile=str(_ACCESS / "ca.crt"))
    host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
    try:
        token = (_ACCESS / "token").read_text()
        return zone(connection, token, environment["MACHINE"], environment.get("ZONE_LABEL", _LABEL))
    finally:
        connection.close()


def main(file, environment=os.environ, ask=_ask):
    """Write the zone, and return the exit code."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        try:
            found = ask(environment)
            break
        except RefusedError as error:
            print(error, file=sys.stderr)
            return 1
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(error, file=sys.stderr)
            if time.monotonic() > deadline:
                return 1
            time.sleep(_PAUSE_S)
    Path(file).write_text(found)
    print(f"the zone is {found}" if found else "the machine has no zone: the node has no rack")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tidelog-rack FILE")
    sys.exit(main(sys.argv[1]))
