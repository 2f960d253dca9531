"""Nothing waits without a bound: each call that may wait has a limit, or a reason in the table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import PACKAGES, ROOT, files, parsed

#: Methods that wait for good where they are given nothing, and for no longer than they are told.
BARE = {"acquire", "communicate", "exception", "get", "join", "result", "shutdown", "wait"}
#: Methods of sockets and pipes, whose limit is set elsewhere, if at all.
READING = {"accept", "recv", "recv_bytes", "recv_into", "readline"}
#: Functions with a `timeout=` that is none if it is left out.
FUNCTIONS = {
    *("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output"),
    *("ray.get", "ray.wait", "urlopen", "urllib.request.urlopen", "HTTPConnection"),
    *("socket.create_connection", "create_connection", "futures.wait", "asyncio.wait"),
    "asyncio.wrap_future",
}

#: Pools that are waited for where a block ends.
POOLS = {"ThreadPoolExecutor", "ProcessPoolExecutor"}
#: Files without any of these words need no look at their syntax trees, which takes long.
WORDS = re.compile(
    rf"\.(?:{'|'.join(sorted(BARE))})\(\s*\)|\b(?:{'|'.join(sorted(READING | POOLS))})\("
    rf"|(?:{'|'.join(map(re.escape, sorted(FUNCTIONS)))})\("
)
Place = tuple[str, str, str]

DONE = "it is done: this is called when it is, or after it was waited for"
COMPUTES = "this process computes or compiles it; that ends, or raises"
LIFE = "the main loop of a thread or process, which ends when it is told to or its peer is gone"
USER = "the caller's own function or program: the caller bounds it, or ends it"
KILLED = "the process was killed with SIGKILL"
TIMED = "its socket has a timeout, which is set in the same function"
LIMITED = "what it waits for has a limit of its own, and fails after that"
LOCK = "a lock that is held for some lines, of which none waits; or one of simulations"
READY = "what accepts does not block: it is asked when something is there"
THREAD = "it looks up what belongs to this thread, and waits for nobody"

REASONS: dict[Place, str] = {
    **dict.fromkeys(
        (
            ("scheduler/clock.py", "SimulatedClock.wait", "acquire"),
            ("scheduler/executor_group.py", "ExecutorGroup.submit", "acquire"),
        ),
        LOCK,
    ),
    ("runtime/bulk/spark.py", "_partition", "get"): THREAD,
    **dict.fromkeys(
        (
            ("oven/explain/report.py", "report", "wait"),
            ("runtime/shortcut.py", "_ran", "wait"),
            ("oven/explain/counterfactuals/raw_row.py", "RawRow.__init__", "wait"),
            ("runtime/cli/doctoring.py", "_compiler", "wait"),
            ("oven/explain/timing.py", "measure", "wait"),
            ("oven/explain/timing.py", "staged", "wait"),
            ("oven/plans/background.py", "Pending.here", "result"),
            ("runtime/bulk/graphs.py", "answers_blocks", "wait"),
            ("oven/plans/code.py", "PlanCode.column_entry", "wait"),
            ("oven/plans/code.py", "PlanCode.steps", "wait"),
            ("oven/plans/plan.py", "Plan.answer", "wait"),
            ("oven/plans/plan.py", "Plan.begin", "wait"),
            ("oven/plans/plan.py", "Plan.entry", "wait"),
            ("oven/plans/plan.py", "PlanVariants.of", "wait"),
            ("runtime/bulk/journal.py", "Journal.__init__", "readline"),
            ("runtime/bulk/mlflow.py", "_load_pyfunc", "wait"),
            ("runtime/cli/comparing.py", "compare_file", "wait"),
            ("runtime/verify.py", "verify_answers", "wait"),
            ("runtime/bulk/mlflow.py", "load_model", "wait"),
            ("runtime/bulk/plans.py", "in_parallel", "with pool"),
            ("runtime/bulk/plans.py", "open_plan", "wait"),
            ("runtime/bulk/shipping.py", "arrived", "wait"),
            ("runtime/cli/models.py", "_linked", "wait"),
            ("runtime/cli/parity.py", "run", "wait"),
            ("runtime/cli/predicting.py", "run", "wait"),
            ("pretzel/model.py", "Model.wait", "wait"),
            ("runtime/service/joined.py", "joined", "wait"),
            ("runtime/service/mirrors.py", "Mirrors._join", "wait"),
            ("runtime/service/sharing.py", "SharedRun._end", "wait"),
            ("runtime/training/executors.py", "WorkerProcesses._done", "recv_bytes"),
        ),
        COMPUTES,
    ),
    **dict.fromkeys(
        (
            ("flour/ops/graph.py", "_dismissed", "exception"),
            ("runtime/cluster/parity/frontend.py", "Hedged.__call__", "exception"),
            ("runtime/cluster/parity/frontend.py", "Hedged.__call__", "result"),
            ("runtime/cluster/parity/replicas.py", "Replicas._replica", "result"),
            ("runtime/cluster/serving/controller.py", "Controller._begun", "exception"),
            ("runtime/cluster/serving/ray_proxy.py", "within", "result"),
            ("runtime/cluster/serving/controller.py", "Controller._opened", "exception"),
            ("runtime/cluster/serving/controller.py", "Controller._resend", "exception"),
            ("runtime/http/answer/batching.py", "Batched._shared_out", "exception"),
            ("runtime/http/answer/batching.py", "Batched._shared_out", "result"),
            ("runtime/http/answer/batching.py", "_passed_on", "result"),
            ("runtime/http/answer/health.py", "openapi", "result"),
            ("runtime/http/answer/inference.py", "answered", "result"),
            ("runtime/http/answer/result_cache.py", "_keep", "exception"),
            ("runtime/http/answer/result_cache.py", "_keep", "result"),
            ("runtime/http/server.py", "Server._come", "exception"),
            ("runtime/service/answerers.py", "KeepingAnswers.answer", "result"),
            ("runtime/service/answerers.py", "Shadowed.answer", "result"),
            ("runtime/service/answerers.py", "after.done", "result"),
            ("runtime/service/answerers.py", "follow", "result"),
            ("runtime/service/answerers.py", "follow.done", "exception"),
            ("runtime/service/answerers.py", "follow.done", "result"),
            ("runtime/service/answerers.py", "together", "result"),
            ("runtime/service/answerers.py", "together.done", "exception"),
            ("runtime/service/answerers.py", "together.done", "result"),
            ("runtime/runtime.py", "Runtime.apredict", "result"),
            ("runtime/training/training.py", "_TrainingRun._end", "result"),
            ("runtime/workers/channel.py", "Channel._forward", "exception"),
            ("runtime/workers/channel.py", "Channel._forward", "result"),
            ("runtime/workers/slot.py", "WorkerSlot._answered", "exception"),
            ("runtime/workers/slot.py", "WorkerSlot._loaded", "exception"),
            ("runtime/workers/slot.py", "WorkerSlot._missed_changes", "exception"),
            ("runtime/workers/slot.py", "WorkerSlot._missed_changes", "result"),
            ("runtime/workers/slot.py", "WorkerSlot._opened", "exception"),
            ("runtime/workers/supervisor.py", "gathered.came", "exception"),
            ("runtime/workers/supervisor.py", "gathered.came", "result"),
            ("scheduler/clock.py", "Signal.__init__", "acquire"),
        ),
        DONE,
    ),
    **dict.fromkeys(
        (
            ("runtime/repository/isolated_import.py", "IsolatedImporter.__del__", "wait"),
            ("runtime/repository/isolated_import.py", "IsolatedImporter._ask", "wait"),
            ("runtime/repository/isolated_import.py", "IsolatedImporter.close", "wait"),
        ),
        KILLED,
    ),
    **dict.fromkeys(
        (
            ("pretzel/serving.py", "Serving.wait", "wait"),
            ("runtime/cli/serving.py", "_attend", "wait"),
            ("runtime/cli/streaming.py", "run", "wait"),
            ("runtime/cluster/serving/controller.py", "Controller._accept", "accept"),
            ("runtime/http/server.py", "Server._serve", "wait"),
            ("runtime/http/service.py", "Service.finish.end", "shutdown"),
            ("runtime/repository/isolated_import.py", "_forward_lines", "readline"),
            ("runtime/repository/isolated_import_process.py", "main", "readline"),
            ("runtime/rollout/webhook.py", "Webhook._run", "get"),
            ("runtime/routing/shadows.py", "Shadows._hand_over", "result"),
            ("runtime/shutdown.py", "Ending.wait", "recv"),
            ("runtime/training/executors.py", "_end_with_parent", "join"),
            ("runtime/workers/channel.py", "Channel._exactly", "recv"),
            ("runtime/workers/channel.py", "Channel._write", "get"),
            ("runtime/workers/process.py", "Worker._follow", "get"),
            ("runtime/workers/process.py", "Worker.run", "wait"),
            ("scheduler/executor_group.py", "Executor.serve", "acquire"),
        ),
        LIFE,
    ),
    **dict.fromkeys(
        (
            ("runtime/cluster/parity/frontend.py", "Hedged.__call__", "asyncio.wait"),
            ("runtime/cluster/serving/blocks.py", "_answered", "with pool"),
            ("runtime/cluster/serving/blocks.py", "predict_members", "with pool"),
            ("runtime/client/client.py", "Client._run", "result"),
            ("runtime/cluster/serving/front.py", "Front.stop", "shutdown"),
            ("flour/core/time_limit.py", "all_of", "asyncio.wait"),
            ("runtime/graph/plan.py", "_awaited", "asyncio.wrap_future"),
            ("runtime/http/answer/inference.py", "_awaited", "asyncio.wrap_future"),
            ("runtime/http/answer/inference.py", "_by_documents", "asyncio.wrap_future"),
            ("runtime/http/answer/inference.py", "in_pieces", "asyncio.wrap_future"),
            ("runtime/http/server.py", "Server.start", "wait"),
            ("runtime/service/batches.py", "answers", "result"),
            ("runtime/service/direct.py", "Direct._answer", "result"),
            ("runtime/service/direct.py", "Direct.predict", "result"),
            ("runtime/runtime.py", "Runtime.apredict", "asyncio.wrap_future"),
            ("runtime/runtime.py", "Runtime._predict", "result"),
            ("runtime/streams/rows.py", "MessageRows._lines", "result"),
            ("runtime/workers/supervisor.py", "Supervisor.compiling", "result"),
            ("runtime/workers/supervisor.py", "Supervisor.lacking", "result"),
        ),
        LIMITED,
    ),
    **dict.fromkeys((("runtime/http/server.py", "Server._take_waiting", "accept"),), READY),
    **dict.fromkeys(
        (
            ("runtime/cluster/serving/haproxy.py", "HAProxy._say", "recv"),
            ("runtime/cluster/serving/link.py", "admitted", "recv"),
            ("runtime/streams/redis.py", "RedisConnection.reply", "recv"),
        ),
        TIMED,
    ),
    **dict.fromkeys(
        (
            ("flour/ops/graph.py", "_run", "join"),
            ("runtime/bulk/files.py", "read_ahead", "result"),
            ("runtime/bulk/files.py", "read_ahead", "with pool"),
            ("runtime/cli/benching.py", "run", "subprocess.run"),
            ("runtime/graph/loop_thread.py", "_serve", "asyncio.wait"),
            ("runtime/graph/plan.py", "GraphPlan.run", "result"),
            ("runtime/repository/object_storage.py", "RemoteFolder._update", "with pool"),
        ),
        USER,
    ),
}


def waits(path: Path) -> Iterator[Place]:
    """Each call that may wait without an end: its file, its function and what is called."""
    if not WORDS.search(path.read_text(encoding="utf-8")):
        return
    tree = parsed(path)
    variables = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        if isinstance(node.value, ast.Call) and _name(node.value.func).endswith("ContextVar")
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    yield from _in(tree, path.relative_to(ROOT).as_posix(), "", variables)


def _in(node: ast.AST, file: str, where: str, variables: set[str]) -> Iterator[Place]:
    for child in ast.iter_child_nodes(node):
        inside = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{where}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call) and (called := _waiting(child, variables)):
            yield file, inside, called
        if isinstance(child, ast.Call) and _name(child.func) == "asyncio.wait_for":
            # What is waited for has a limit.
            rest = ast.Tuple(child.args[1:], ast.Load())
            yield from _in(rest, file, inside, variables)
            continue
        if isinstance(child, ast.With) and any(map(_is_pool, child.items)):
            yield file, inside, "with pool"
        yield from _in(child, file, inside, variables)


def _name(node: ast.expr) -> str:
    """The dotted name of what is called; of what is no name, its last part."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _is_pool(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and _name(call.func).split(".")[-1] in POOLS


def _waiting(call: ast.Call, variables: set[str]) -> str:
    """The name of what is called, if it may wait without an end."""
    name = _name(call.func)
    said = {each.arg for each in call.keywords}
    if name in FUNCTIONS:
        place = 3 if name.endswith("urlopen") else 2
        by_place = name.endswith(("urlopen", "connection")) and len(call.args) >= place
        return "" if "timeout" in said or by_place else name
    if not isinstance(call.func, ast.Attribute):
        return ""
    method = call.func.attr
    if method in READING:
        return method
    owner = _name(call.func.value).split(".")[-1]
    return "" if method not in BARE or call.args or said or owner in variables else method


@pytest.fixture(scope="module")
def places() -> set[Place]:
    return {place for path in files(*PACKAGES) for place in waits(path)}


def test_nothing_waits_without_a_bound(places: set[Place]) -> None:
    unbounded = sorted(places - REASONS.keys())
    assert not unbounded, "each needs a limit, or a reason in the table"


def test_no_reason_is_for_what_is_gone(places: set[Place]) -> None:
    assert not sorted(REASONS.keys() - places)


@pytest.mark.parametrize(
    ("text", "called"),
    [
        *((f"x.{method}()", method) for method in sorted(BARE)),
        *((f"x.{method}(1)", "") for method in sorted(BARE)),
        *((f"x.{method}(timeout=1)", "") for method in sorted(BARE)),
        *((f"x.{method}(1)", method) for method in sorted(READING)),
        ("','.join(names)", ""),
        ("place.get()", ""),
        ("lock.acquire(blocking=False)", ""),
        ("subprocess.run(['x'])", "subprocess.run"),
        ("subprocess.run(['x'], timeout=1)", ""),
        ("urlopen(url)", "urlopen"),
        ("urlopen(url, None, 5)", ""),
        ("ray.get(x)", "ray.get"),
        ("ray.get(x, timeout=3)", ""),
        ("socket.create_connection(at)", "socket.create_connection"),
        ("socket.create_connection(at, 5)", ""),
        ("asyncio.wrap_future(x)", "asyncio.wrap_future"),
        ("asyncio.wait_for(asyncio.wrap_future(x), 5)", ""),
        ("asyncio.wait_for(x, lock.acquire())", "acquire"),
        ("x.shutdown(wait=False)", ""),
    ],
)
def test_the_rule_sees_it(text: str, called: str) -> None:
    found = [each for *_, each in _in(ast.parse(text), "f.py", "", {"place"})]
    assert found == [called] * bool(called)


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_a_pool_is_waited_for_where_its_block_ends(pool: str) -> None:
    tree = ast.parse(f"def f():\n    with futures.{pool}(3) as pool:\n        pass")
    assert list(_in(tree, "f.py", "", set())) == [("f.py", "f", "with pool")]
