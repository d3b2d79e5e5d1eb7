"""``tidelog connector``: connectors of a worker of ``tidelog connect``, or of Kafka Connect, by its REST API."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tidelog_cli.options.connection import Yes, parse_pairs
from tidelog_cli.output.printing import UsageError, command_group, confirm, print_json, print_records
from tidelog_foundation.errors import ErrorCode, error_for

app = command_group("Create, change, watch and control connectors of a Connect worker.")

_TIMEOUT_S = 120.0
_JSON = {"Content-Type": "application/json"}

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the connector.")]
_Url = Annotated[
    str, typer.Option("--url", "-u", metavar="URL", envvar="TIDELOG_CONNECT_URL", help="The address of any worker.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_JsonFile = Annotated[str, typer.Argument(metavar="FILE", help="A file with JSON; - is the standard input.")]
_URL = "http://127.0.0.1:8083"
_STATES = ("RUNNING", "PAUSED", "STOPPED")


@app.command("list")
def list_connectors(url: _Url = _URL, as_json: _AsJson = False) -> None:
    """List the connectors with their states.

    Example: tidelog connector list
    """
    found = _call(url, "GET", "/connectors?expand=status&expand=info")
    if as_json:
        print_json(found)
        return
    rows = [_row(name, entry) for name, entry in found.items()]
    print_records(rows, ("name", "type", "state", "tasks", "worker", "class"))


@app.command()
def create(
    name: _Name,
    file: _JsonFile,
    state: Annotated[str, typer.Option("--state", metavar="|".join(_STATES), help="The first state.")] = "RUNNING",
    url: _Url = _URL,
) -> None:
    """Create a connector with the settings in a file.

    Example: tidelog connector create orders orders.json --state STOPPED
    """
    if state not in _STATES:
        raise UsageError(f"--state must be one of {', '.join(_STATES)}")
    body = {"name": name, "config": _settings(file), "initial_state": state}
    print_json(_call(url, "POST", "/connectors", body))


@app.command()
def show(name: _Name, url: _Url = _URL) -> None:
    """Print a connector's configuration and tasks.

    Example: tidelog connector show orders
    """
    print_json(_call(url, "GET", _path(name)))


@app.command()
def configure(
    name: _Name,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A file with all settings as JSON; - is the standard input.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-X", metavar="KEY=VALUE", help="Change this setting alone.")
    ] = None,
    removed: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove this setting.")] = None,
    url: _Url = _URL,
) -> None:
    """Replace a connector's configuration by that in a file, or change single settings.

    Example: tidelog connector configure orders --set tasks.max=4
    """
    if (file is None) == (not changes and not removed):
        raise UsageError("Pass either FILE, or --set and --unset.")
    if file is not None:
        print_json(_call(url, "PUT", f"{_path(name)}/config", _settings(file)))
        return
    body: dict[str, str | None] = {**parse_pairs(changes, "--set"), **dict.fromkeys(removed or ())}
    print_json(_call(url, "PATCH", f"{_path(name)}/config", body))


@app.command()
def validate(file: _JsonFile, url: _Url = _URL) -> None:
    """Validate settings without creating a connector. Exit with 1 if there are errors.

    Example: tidelog connector validate orders.json
    """
    # The name comes with the creation.
    settings = {"name": "validated", **_settings(file)}
    plugin = str(settings.get("connector.class", ""))
    found = _call(url, "PUT", f"/connector-plugins/{quote(plugin, safe='')}/config/validate", settings)
    errors = [
        {"setting": entry["value"]["name"], "error": error}
        for entry in found["configs"]
        for error in entry["value"]["errors"]
    ]
    print_records(errors, ("setting", "error"))
    if errors:
        raise typer.Exit(1)


@app.command()
def status(name: _Name, url: _Url = _URL, as_json: _AsJson = False) -> None:
    """Show the state of a connector and its tasks. Exit with 1 if one has failed.

    Example: tidelog connector status orders
    """
    found = _call(url, "GET", f"{_path(name)}/status")
    parts = [{"part": "connector", **found["connector"]}]
    parts += [{"part": f"task {task['id']}", **task} for task in found["tasks"]]
    if as_json:
        print_json(found)
    else:
        print_records(parts, ("part", "state", "worker_id", "trace"))
    if any(part["state"] == "FAILED" for part in parts):
        raise typer.Exit(1)


@app.command()
def pause(name: _Name, url: _Url = _URL) -> None:
    """Pause a connector: its query stops, and its tasks stay.

    Example: tidelog connector pause orders
    """
    _call(url, "PUT", f"{_path(name)}/pause")


@app.command()
def resume(name: _Name, url: _Url = _URL) -> None:
    """Let a paused or stopped connector run again.

    Example: tidelog connector resume orders
    """
    _call(url, "PUT", f"{_path(name)}/resume")


@app.command()
def stop(name: _Name, url: _Url = _URL) -> None:
    """Stop a connector: it has no tasks, and its offsets can be changed.

    Example: tidelog connector stop orders
    """
    _call(url, "PUT", f"{_path(name)}/stop")


@app.command()
def restart(
    name: _Name,
    task: Annotated[int | None, typer.Option("--task", min=0, metavar="N", help="Restart this task.")] = None,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Restart only if a part has failed.")] = False,
    url: _Url = _URL,
) -> None:
    """Restart a connector and its tasks, which are one query.

    Example: tidelog connector restart orders --only-failed
    """
    if task is not None:
        if only_failed:
            raise UsageError("Pass either --task or --only-failed.")
        _call(url, "POST", f"{_path(name)}/tasks/{task}/restart")
        return
    query = f"includeTasks=true&onlyFailed={str(only_failed).lower()}"
    print_json(_call(url, "POST", f"{_path(name)}/restart?{query}"))


@app.command()
def delete(name: _Name, url: _Url = _URL, yes: Yes = False) -> None:
    """Delete a connector. The offsets stay; a new connector of this name continues from them.

    Example: tidelog connector delete orders --yes
    """
    confirm(f"delete connector {name}", yes)
    _call(url, "DELETE", _path(name))


@app.command()
def tasks(name: _Name, url: _Url = _URL) -> None:
    """Print the configurations of a connector's tasks.

    Example: tidelog connector tasks orders
    """
    print_json(_call(url, "GET", f"{_path(name)}/tasks"))


@app.command()
def topics(
    name: _Name,
    reset: Annotated[bool, typer.Option("--reset", help="Forget the topics instead.")] = False,
    url: _Url = _URL,
) -> None:
    """Print the topics that a connector has used.

    Example: tidelog connector topics orders
    """
    if reset:
        _call(url, "PUT", f"{_path(name)}/topics/reset")
    else:
        print_json(_call(url, "GET", f"{_path(name)}/topics"))


@app.command()
def offsets(
    name: _Name,
    file: Annotated[
        str | None, typer.Option("--alter", metavar="FILE", help="Set the offsets in this JSON file; - is stdin.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Delete all offsets.")] = False,
    url: _Url = _URL,
    yes: Yes = False,
) -> None:
    """Print a connector's offsets, or change those of a stopped connector.

    Example: tidelog connector offsets orders --reset --yes
    """
    if file is not None and reset:
        raise UsageError("Pass either --alter or --reset.")
    path = f"{_path(name)}/offsets"
    if file is not None:
        confirm(f"set the offsets of connector {name}", yes)
        print_json(_call(url, "PATCH", path, _object(file)))
    elif reset:
        confirm(f"delete the offsets of connector {name}", yes)
        print_json(_call(url, "DELETE", path))
    else:
        print_json(_call(url, "GET", path))


@app.command()
def plugins(
    plugin: Annotated[str | None, typer.Argument(metavar="CLASS", help="Show the settings of this plugin.")] = None,
    url: _Url = _URL,
    as_json: _AsJson = False,
) -> None:
    """List the connectors that are installed, or the settings of one.

    Example: tidelog connector plugins FileStreamSink
    """
    path = "" if plugin is None else f"/{quote(plugin, safe='')}/config"
    found = _call(url, "GET", f"/connector-plugins{path}")
    if as_json:
        print_json(found)
    elif plugin is None:
        print_records(found, ("class", "type", "version"))
    else:
        print_records(found, ("name", "type", "required", "default_value", "documentation"))


@app.command("log-level")
def log_level(
    logger: Annotated[str | None, typer.Argument(metavar="LOGGER", help="A logger, such as tidelog_connect.")] = None,
    level: Annotated[str | None, typer.Argument(metavar="LEVEL", help="The new level, such as DEBUG.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Set it on all workers.")] = False,
    url: _Url = _URL,
) -> None:
    """Show the levels of a worker's loggers, or set one.

    Example: tidelog connector log-level tidelog_connect DEBUG --cluster
    """
    path = "/admin/loggers" if logger is None else f"/admin/loggers/{quote(logger, safe='')}"
    if level is None:
        print_json(_call(url, "GET", path))
        return
    answer = _call(url, "PUT", f"{path}?scope={'cluster' if cluster else 'worker'}", {"level": level})
    if answer is not None:
        print_json(answer)


def _row(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    status, info = entry.get("status", {}), entry.get("info", {})
    own = status.get("connector", {})
    states = sorted({task["state"] for task in status.get("tasks", ())})
    return {
        "name": name,
        "type": info.get("type"),
        "state": own.get("state"),
        "tasks": f"{len(status.get('tasks', ()))} {','.join(states)}".strip(),
        "worker": own.get("worker_id"),
        "class": info.get("config", {}).get("connector.class"),
    }


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _settings(file: str) -> dict[str, Any]:
    """Return settings, also those below ``config`` of a document as POST /connectors takes it."""
    found = _object(file)
    inner = found.get("config")
    return inner if isinstance(inner, dict) else found


def _object(file: str) -> dict[str, Any]:
    text = sys.stdin.read() if file == "-" else Path(file).read_text()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} must have a JSON object")
    return found


def _call(url: str, method: str, path: str, body: object = None) -> Any:
    """Return the JSON of an answer, or None for an empty one.

    Raises:
        TidelogError: the worker does not answer, or refuses the call.
    """
    try:
        import httpx2
    except ModuleNotFoundError as error:
        text = f"{error.name} is not installed: pip install 'tidelog[connect]'"
        raise error_for(ErrorCode._STATE, text) from error
    content = None if body is None else json.dumps(body)
    try:
        # The environment's SSL_CERT_FILE names further authorities, which take a while to load; a URL may have a name
        # and a password.
        tls = False if url.lower().startswith("http://") else ssl.create_default_context()
        answer = httpx2.request(
            method,
            url.rstrip("/") + path,
            content=content,
            headers=_JSON,
            timeout=_TIMEOUT_S,
            trust_env=False,
            verify=tls,
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise error_for(ErrorCode._TRANSPORT, f"No Connect worker answers at {url}: {error}") from error
    if answer.is_success:
        return answer.json() if answer.content else None
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.text or f"HTTP {answer.status_code}"
    raise error_for(ErrorCode._FAIL, f"{method} {path}: {message}")
