"""`pretzel serve`: serves a folder of models over HTTP, and follows its changes."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flour.core.errors import ParameterError, nearest
from flour.core.pages import page
from objectstore import system
from runtime.cli import common, compiling
from runtime.cli.errors import ArgumentError, CommandError, Exit
from runtime.cli.output import CommandOutput
from runtime.repository import import_process
from runtime.shutdown import Ending

if TYPE_CHECKING:
    from runtime.http import ServerSettings
    from runtime.repository import FolderEvent, Repository
    from runtime.repository.registry import Registry
    from runtime.service.version import Compiling
    from runtime.workers import WorkerEvent, WorkerOptions

    #: The address, the number of endpoints, and a look at what is still compiled.
    Loaded = tuple[str, int, Callable[[], Compiling | None]]

DESCRIPTION = """\
Serve every model of a folder over HTTP, by the Open Inference Protocol and as plain JSON. The
folder may have our own layout, MLServer's (model-settings.json) or Triton's (config.pbtxt with the
FIL or the onnxruntime backend). What changes in the folder is verified, loaded and switched to,
under traffic; what is damaged is reported, and what was there before goes on answering."""
EXAMPLES = """\
  pretzel serve models
  pretzel serve models --host 0.0.0.0 --port 8080 --strict
  pretzel serve models --workers 4 --tokens clients.txt
  pretzel serve models --tls-cert server.pem --tls-key server.key
  pretzel serve models --memory 2G --store parameters --set max_body=8388608

  curl -s localhost:8000/v2/repository/index -d '{}'
"""


#: Settings that have an argument of their own.
_OWN = ("tokens", "tls_cert", "tls_key", "tls_client_ca", "log_format", "log_level")
LOG_LEVELS = ("debug", "info", "warning", "error")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="a folder of models")
    common.trust(parser)
    common.trust_code(parser)
    common.allow_python(parser)
    where = parser.add_argument_group("listening")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    where.add_argument("--port", type=int, default=8000, help="0 means any free port (8000)")
    where.add_argument("--unix", metavar="PATH", help="listen at a socket in the file system")
    where.add_argument(
        "--workers", type=common.positive, default=1, help="processes that answer requests (1)"
    )
    where.add_argument(
        "--tokens", metavar="FILE", help="a file with a line `name token` for each client"
    )
    common.tls(where.add_argument)
    where.add_argument("--log-format", choices=("json", "text"), help="form of the log")
    where.add_argument("--log-level", choices=LOG_LEVELS, help="the least level that is logged")
    where.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=f"any other setting of the server: {page('reference/settings')}",
    )
    folder = parser.add_argument_group("the folder")
    folder.add_argument(
        "--poll",
        metavar="SECONDS",
        type=common.amount,
        default=2.0,
        help="look for changes; 0: never (2)",
    )
    folder.add_argument("--strict", action="store_true", help="end if a model cannot be loaded")
    folder.add_argument(
        "--keep-removed", action="store_true", help="keep serving models whose files are removed"
    )
    folder.add_argument("--staging", metavar="DIR", help="directory for imported plans")
    memory = parser.add_argument_group("memory and processors")
    memory.add_argument("--memory", metavar="SIZE", type=common.size, help="for plans, such as 2G")
    memory.add_argument("--store", metavar="DIR", help="share parameters with other processes")
    memory.add_argument(
        "--executors", type=common.positive, help="threads of each worker (its share of the cores)"
    )
    memory.add_argument("--exact", action="store_true", help="keep every bit of imported models")


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Serve until a signal comes."""
    heard = out.as_json or options.log_format == "json"
    import_process.start_early(heard=heard)  # it starts while this one imports
    try:
        return _serve(options, out)
    finally:
        import_process.drop()


def _serve(options: argparse.Namespace, out: CommandOutput) -> int:
    from runtime.http.server import listen
    from runtime.http.watch.logs import EVENTS, of_process
    from runtime.http.watch.telemetry import check
    from runtime.http.wire.unix_socket import close

    settings = server_settings(options)
    of_process(settings)
    out.log = None if out.as_json and not settings.log_format else EVENTS
    out.structured |= settings.log_format == "json"
    close(listen(settings))  # what keeps a server from starting is said before models load
    check(settings)
    if options.workers > 1:
        _several(settings, options, out)
    else:
        _alone(settings, options, out)
    return Exit.OK


def _alone(settings: ServerSettings, options: argparse.Namespace, out: CommandOutput) -> None:
    """Serve from this process."""
    from objectstore import FileStore
    from runtime import Runtime
    from runtime.http import Server
    from runtime.http.wire.loop_fairness import keep_what_is_here, lock_shared
    from runtime.service.endpoint import SETTLE_SECONDS
    from runtime.service.version import Compiling

    store = FileStore(options.store) if options.store else None
    with (
        Runtime(
            *(store, options.executors, options.memory),
            trust_code=options.trust_code,
            allow_python=options.allow_python,
        ) as runtime,
        _repository(runtime, options, teller(out), out) as repository,
    ):
        repository.expect()
        server = Server(runtime, settings, repository=repository)
        reload = server.reload if settings.tls_cert else int  # nothing is to be read again

        def loaded() -> Loaded:
            keep_what_is_here()
            runtime.endpoints.settle(SETTLE_SECONDS)
            versions = runtime.endpoints.versions
            return server.url, len(runtime.endpoints), lambda: Compiling.of(versions().values())

        with until_signal(reload) as ended, lock_shared(), server:
            _attend(ended, repository, loaded, options, out)


def _several(settings: ServerSettings, options: argparse.Namespace, out: CommandOutput) -> None:
    """Serve from worker processes, which this one supervises."""
    from runtime.errors import NotInStep
    from runtime.repository import FolderEvent
    from runtime.workers import Fleet, Supervisor
    from runtime.workers.fleet import TRY_SECONDS

    fleet, tell = Fleet(), teller(out)
    supervisor: Supervisor | None = None

    def told(event: FolderEvent) -> None:
        tell(event)
        if supervisor is not None:
            supervisor.notice()

    with _repository(fleet, options, told, out) as repository:
        repository.expect()
        common = _common(settings, repository, options)
        supervisor = Supervisor(
            options.workers, fleet, repository, common, on_event=worker_teller(out)
        )
        reload = supervisor.reload if settings.tls_cert else int  # as above

        def loaded() -> Loaded:
            assert supervisor is not None
            with suppress(NotInStep):  # one that is away for so long says so by its health
                fleet.settle(TRY_SECONDS)
            for address, reason in (lacking := supervisor.lacking()).items():
                name, _, version = address.partition("@")
                tell(FolderEvent("refused", name, version, "", reason))
            _check_strict(len(lacking), repository, options)
            return supervisor.url, fleet.count, supervisor.compiling

        with until_signal(reload) as ended:
            supervisor.given_up = ended.is_set
            with supervisor:
                _attend(ended, repository, loaded, options, out)


def _attend(
    ended: Ending,
    repository: Repository,
    loaded: Callable[[], Loaded],
    options: argparse.Namespace,
    out: CommandOutput,
) -> None:
    """Load the folder on a thread, while the server answers, until a signal or an error of that."""
    failures: list[BaseException] = []

    def load() -> None:
        try:
            events = repository.load_all()
            import_process.drop()
            _check_strict(sum(event.kind == "refused" for event in events), repository, options)
            if not ended.is_set():
                url, count, look = loaded()
                if options.poll > 0:
                    repository.watch(options.poll)
                _listening(url, count, options.workers, out)
                compiling.follow(look, out)
        except BaseException as problem:  # noqa: BLE001 (it is raised where this one waits)
            failures.append(problem)
            ended.set()

    threading.Thread(target=load, name="pretzel-loads", daemon=True).start()
    ended.wait()
    for problem in failures:
        raise problem
    out.note("finishing the requests in progress")


def _common(
    settings: ServerSettings, repository: Repository, options: argparse.Namespace
) -> WorkerOptions:
    """The options of all workers: they divide the processors and share the store."""
    from runtime.workers import WorkerOptions
    from scheduler import cores

    staging = repository.staging
    folder = os.fsencode(Path(options.folder).absolute())
    if settings.host.startswith("unix:"):  # others are told apart by their ports
        folder += os.fsencode(settings.host)
    folder_digest = hashlib.blake2b(folder, digest_size=6)
    return WorkerOptions(
        settings,
        executors=options.executors or max(1, cores() // options.workers),
        memory_budget=options.memory,
        store=str(Path(options.store).absolute() if options.store else staging / ".store"),
        owner=f"{folder_digest.hexdigest()}-{settings.port}",
        trust_code=options.trust_code,
        allow_python=tuple(options.allow_python),
        private=None if options.staging else str(staging),
    )


def _repository(
    registry: Registry,
    options: argparse.Namespace,
    told: Callable[[FolderEvent], None],
    out: CommandOutput,
) -> Repository:
    from runtime.repository import Repository

    heard = out.structured
    return Repository(
        options.folder,
        registry,
        trust_pickle=options.trust_pickle,
        trust_code=options.trust_code,
        allow_python=options.allow_python,
        unload_removed=not options.keep_removed,
        exact=options.exact,
        apart=True,
        staging=options.staging,
        on_event=told,
        on_line=(lambda line: out.event({"kind": "said", "line": line}, line)) if heard else None,
    )


def _check_strict(refused: int, repository: Repository, options: argparse.Namespace) -> None:
    if refused and options.strict:
        raise CommandError(
            f"{refused} of {len(repository.index())} models cannot be loaded",
            where=options.folder,
            hint="without --strict, the others are served",
        )


def _listening(url: str, count: int, workers: int, out: CommandOutput) -> None:
    by = f" by {workers} workers" if workers > 1 else ""
    out.result(
        {"event": "listening", "url": url, "models": count, "workers": workers},
        f"{count} {'model' if count == 1 else 'models'} at {url}{by}",
    )
    sys.stdout.flush()


@contextmanager
def until_signal(reload: Callable[[], object] | None = None) -> Iterator[Ending]:
    """Set by a signal to end; a second signal ends the process at once.

    SIGHUP calls `reload`, on a thread; without one, it ends the process, too.
    """
    ended = Ending()
    numbers = (int(signal.SIGINT), int(signal.SIGTERM))

    def ask(number: int, _frame: object) -> None:
        ended.set()
        signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in numbers}
    if number := system.RELOAD:  # which would end the process at once
        before[number] = signal.signal(number, partial(_reload, reload) if reload else ask)
    woken = ended.wake()
    try:
        yield ended
    finally:
        signal.set_wakeup_fd(woken)
        ended.close()
        for number, former in before.items():
            signal.signal(number, former)


def _reload(reload: Callable[[], object], _number: int, _frame: object) -> None:
    threading.Thread(target=reload, name="pretzel-reload", daemon=True).start()


def teller(out: CommandOutput) -> Callable[[FolderEvent], None]:
    """Prints events of models on standard error, one per line, as text or JSON."""

    def tell(event: FolderEvent) -> None:
        address = "@".join(part for part in (event.name, event.version) if part)
        took = f" in {event.seconds:.2f} s" if event.seconds else ""
        why = f": {event.reason}" if event.reason else ""
        out.event(asdict(event), f"{event.kind} {address or event.where}{took}{why}")

    return tell


def worker_teller(out: CommandOutput) -> Callable[[WorkerEvent], None]:
    """Prints events of worker processes, as `teller` does for models."""

    def tell(event: WorkerEvent) -> None:
        why = f": {event.reason}" if event.reason else ""
        text = f"worker {event.worker} (process {event.process}) {event.kind}{why}"
        out.event(asdict(event), "" if event.kind == "started" else text)

    return tell


def server_settings(options: argparse.Namespace) -> ServerSettings:
    """The settings of the server from the arguments."""
    from runtime.http import ServerSettings

    unix = getattr(options, "unix", None)
    host = options.host if unix is None else f"unix:{Path(unix).absolute()}"
    given: dict[str, Any] = {"host": host, "port": options.port, "drain_delay": 1.0}
    files = {name: getattr(options, name, None) for name in _OWN}
    given |= {name: path for name, path in files.items() if path is not None}
    for text in options.set:
        name, sign, value = text.partition("=")
        fields = ServerSettings.__dataclass_fields__
        if not sign or name not in fields:
            raise ArgumentError(
                f"there is no setting {name!r}" if sign else "a setting is NAME=VALUE",
                where=f"--set {text}",
                hint=(nearest(name, fields) if sign else None)
                or "settings are " + ", ".join(fields),
            )
        given[name] = _typed(value, getattr(ServerSettings(), name))
    try:
        return ServerSettings(**given)
    except ParameterError as problem:
        name = str(problem.where).rpartition(".")[2]
        where = next((f"--set {each}" for each in options.set if each.startswith(f"{name}=")), "")
        where = where or f"--{name.replace('_', '-')} {given[name]}"
        found, hint = problem.found, problem.hint
        raise ArgumentError(problem.what, where=where, found=found, hint=hint) from None


def _typed(value: str, usual: object) -> object:
    """A setting's value, in the type of its default; where it has none there, as it was given."""
    with suppress(ValueError, LookupError, argparse.ArgumentTypeError):
        match usual:
            case bool():
                return {"true": True, "false": False}[value.lower()]
            case int() if value.lstrip("-").isdigit():
                return int(value)
            case int() if not value[-1:].isdigit():  # such as 1.5G
                return common.size(value)
            case float():
                return float(value)
    return value
