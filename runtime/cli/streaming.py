"""`pretzel stream`: answers messages as they arrive."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.cli import common
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput

if TYPE_CHECKING:
    from runtime import Runtime

DESCRIPTION = """\
Answer messages as they arrive: JSON rows from Redis, Kafka, files that grow or standard input. Each
message is answered at least once and acknowledged when its answer is written; exactly once where
both places are one Redis. Processes of a group share the messages of Redis and Kafka; files are
read by one of them."""
EXAMPLES = """\
  pretzel stream models/fraud --from redis://localhost/payments --to redis://localhost/scores
  pretzel stream models/fraud --from kafka://localhost/payments --to kafka://localhost/scores \\
      --dead kafka://localhost/refused --group fraud
  pretzel stream models/fraud --from inbox --to scores.jsonl --keep id
  tail -f rows.jsonl | pretzel stream models/fraud --from - --to -
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    common.trust_code(parser)
    place = "redis://HOST/STREAM, kafka://HOST/TOPIC, a path, or -"
    parser.add_argument("--from", dest="source", metavar="URL", required=True, help=place)
    parser.add_argument("--to", metavar="URL", required=True, help="the place for answers")
    parser.add_argument("--dead", metavar="URL", help="the place for messages that are refused")
    parser.add_argument("--group", default="pretzel", help="consumers that share the messages")
    parser.add_argument(
        "--consumer", metavar="NAME", default="", help="this process's name in it (the machine's)"
    )
    parser.add_argument(
        "--start", metavar="PLACE", default="", help="of a new group: first, last or a position"
    )
    parser.add_argument(
        "--rows", type=common.positive, default=512, help="messages of a batch, at most (512)"
    )
    parser.add_argument(
        "--wait-ms", type=common.amount, default=5.0, help="how long a batch may wait for more (5)"
    )
    parser.add_argument(
        "--keep", metavar="COLUMN", action="append", default=[], help="copy it into the answers"
    )


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Answer until the source ends or a signal comes."""
    from runtime import Runtime
    from runtime.cli.serving import until_signal
    from runtime.streams import Stream, open_sink, open_source

    group = {"group": options.group, "consumer": options.consumer, "start": options.start}
    limits = {"rows": options.rows, "wait": options.wait_ms / 1000}
    trust = {"trust_code": options.trust_code, "allow_python": options.allow_python}
    with Runtime(**trust) as runtime, ExitStack() as stack:
        name = _endpoint(runtime, options, out, stack)
        runtime.wait()
        dead = open_sink(options.dead) if options.dead else None
        source, sink = open_source(options.source, **group), open_sink(options.to)
        with Stream(runtime, name, source, sink, dead=dead, keep=options.keep, **limits) as stream:
            with until_signal() as ended:  # they come to this thread
                stream.start(ended.set)
                ended.wait()
                stream.stop()
            out.note(str(stream.counts))
            if stream.problem is not None:
                raise stream.problem
    return Exit.OK


def _endpoint(
    runtime: Runtime, options: argparse.Namespace, out: CommandOutput, stack: ExitStack
) -> str:
    """Register the model of a file; or those of its folder, whose changes are followed."""
    from runtime.cli.models import find, open_asked
    from runtime.cli.serving import teller
    from runtime.repository import Repository

    folder, model = find(options.model)
    if model.layout == "file":
        runtime.register(model.name, open_asked(options).plan)
        return model.name
    trust = {name: getattr(options, name) for name in ("trust_pickle", "trust_code")}
    repository = Repository(
        folder.root, runtime, on_event=teller(out), allow_python=options.allow_python, **trust
    )
    stack.enter_context(repository).load_all()
    repository.watch()
    return Path(options.model).name
