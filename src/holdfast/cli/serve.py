"""`holdfast serve`: controller, broker and retention in one process."""

import signal
import sys
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import remember_debug
from holdfast.cli.output import print_facts, print_json, print_line
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.config.server import ServerSettings

_PACKAGES = (
    "duckdb", "jinja2", "python_multipart", "prometheus_client", "sqlglot", "starlette", "uvicorn", "yaml",
)  # fmt: skip


@click.command(short_help="Serve pushed tables to queries.")
@click.option("--config", metavar="FILE", help="The configuration, in YAML; without it, the defaults hold.")
@click.option("--check", is_flag=True, help="Read the configuration, say what it means, and stop.")
@click.option("--hash-secret", is_flag=True, help="Ask for a password or token, print its hash, and stop.")
@click.option(
    "--log", "log_level", type=click.Choice(("debug", "info", "warning", "error")), default="warning",
    show_default=True, help="Which events to write to stderr, as lines of JSON.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON document.")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks.")
def serve(*, config: str | None, check: bool, hash_secret: bool, log_level: str, as_json: bool) -> None:
    """Serve pushed tables: controller, broker, retention and console in one process.

    The console is at the controller's address; lake tables that the
    configuration names under catalog are in it, too. It listens on the loopback
    address unless the configuration says otherwise, and stops cleanly on Ctrl-C
    or SIGTERM.

    \b
    Example: holdfast serve --config serve.yaml
    """
    refuse_without_extra()
    if hash_secret:
        _print_hash(as_json=as_json)
        return
    # Loaded here because other commands must not wait for the server's packages.
    from holdfast.config.server import load_settings
    from holdfast.console.run import console_in_front
    from holdfast.push.metastore.open import display_address
    from holdfast.server.logs import write_events
    from holdfast.server.run import serving
    from holdfast.server.secrets import check_hashes
    from holdfast.server.tls import check_tls

    settings = load_settings(config)
    if check:
        check_hashes(settings.users)
        check_tls(settings.tls)
        print_json(_facts(settings)) if as_json else print_facts(_facts(settings).items())
        return
    write_events(sys.stderr, log_level)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with serving(settings, front=console_in_front) as running:
        where = {
            "controller": running.controller_url, "broker": running.broker_url,
            "store": display_address(settings.store), "deep_store": settings.deep_store,
        }  # fmt: skip
        if as_json:
            print_json(where)
        else:
            print_facts(where.items())
            print_line(f"console: {running.controller_url}/")
            print_line(f"try: curl {running.controller_url}/health")
            print_line(f'     holdfast query "SELECT 1" --broker {running.broker_url}')
            print_line("Ctrl-C stops it")
        sys.stdout.flush()
        running.wait(stopped)
    if not as_json:
        print_line("stopped")


def refuse_without_extra() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidRequest(
            "packages of the service are not installed", missing=", ".join(missing),
            hint="pip install 'holdfast-lake[server]'",
        )  # fmt: skip


def _print_hash(*, as_json: bool) -> None:
    from holdfast.server.secrets import hash_secret

    if sys.stdin.isatty():
        secret = click.prompt("Secret", hide_input=True, confirmation_prompt=True, err=True)
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise InvalidRequest("an empty secret protects nothing")
    made = str(hash_secret(secret))
    if as_json:
        print_json({"hash": made})
    else:
        print_line(made)


def _facts(settings: "ServerSettings") -> dict[str, object]:
    from holdfast.push.metastore.open import display_address

    return {
        "controller": f"{settings.controller.host}:{settings.controller.port}",
        "broker": f"{settings.broker.host}:{settings.broker.port}",
        "cluster": settings.cluster,
        "store": display_address(settings.store),
        "deep_store": settings.deep_store,
        "engine": settings.engine,
        "users": ", ".join(user.name for user in settings.users) or "everybody on this machine",
        "tls": settings.tls.certificate or "no",
        "catalog": ", ".join(settings.catalog.tables) or "no lake tables",
    }
