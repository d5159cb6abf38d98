"""What rdq's functions do, and who invokes which function, with that noted too. See the other
flows.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from unittest.mock import patch

from rdq_core.domain.task import Status
from rdq_core.handlers.aws_lambda import LambdaInvoker
from rdq_core.runtime import hosting, remote
from rdq_core.runtime.hosting import FunctionHost
from rdq_core.runtime.kicking import SWEEPER, KickFunction
from rdq_core.runtime.sweeping import (
    HELP_ABOVE,
    HELP_SHARE,
    LambdaInvocation,
    SweeperFunction,
    SweepOrder,
)
from rdq_core.runtime.telemetry import MetricsSink
from tests.infra.access import Use
from tests.infra.flows import Company
from tests.support.functions import ScriptedLambda

CALLS: Final = "calls"
NAMES: Final = {
    "acme-sweeper": "function:sweeper",
    "acme-ops": "function:ops",
    "charge-fn": "HandlerFunctionArns",
}
"""The functions as templates call them."""


class Functions(ScriptedLambda):
    """Lambda, with who invokes what noted."""

    def __init__(self, company: Company) -> None:
        super().__init__()
        self._company = company
        self.always("acme-ops", b'{"items": []}')

    def invoke(self, **request: Any) -> dict[str, Any]:
        self._company.watch.note(Use("lambda:InvokeFunction", NAMES[request["FunctionName"]]))
        return super().invoke(**request)


def host(company: Company, functions: Functions, environ: Mapping[str, str]) -> FunctionHost:
    """A function's process."""
    company.parts.queues.put_declared(
        CALLS, {"handlers": {"charge": {"function": "charge-fn"}}}, {}, expected_revision=0
    )
    invoker = LambdaInvoker(lambda _seconds: functions, on_error=company.parts.on_error)
    parts = replace(company.parts, invoker=lambda: invoker)
    return FunctionHost(
        parts=parts, metrics=MetricsSink("acme"), start=hosting._starter(), environ=environ
    )


def swept(company: Company, role: str, *, tasks: int, environ: Mapping[str, str]) -> Functions:
    """Some tasks, and an invocation of the sweeper in this role."""
    functions = Functions(company)
    sweeper = SweeperFunction(host(company, functions, environ))
    ids = [company.rdq.submit(CALLS, "charge", {}).id for _ in range(tasks)]
    invocation = LambdaInvocation(
        function="acme-sweeper", worker="lambda:acme-sweeper/1", remaining=timedelta(minutes=15)
    )
    with company.watch.of(role), patch.object(hosting, "lambda_client", lambda _seconds: functions):
        sweeper.sweep(SweepOrder(), invocation)
    assert {company.rdq.get(each).status for each in ids} == {Status.SUCCEEDED}
    return functions


def a_sweeper_calls_the_handlers_of_queues(company: Company) -> None:
    functions = swept(company, "sweeper", tasks=1, environ={})
    assert functions.called == ["charge-fn"]


def a_sweeper_brings_help(company: Company) -> None:
    functions = swept(
        company, "sweeper function", tasks=20, environ={HELP_ABOVE: "5", HELP_SHARE: "5"}
    )
    assert "acme-sweeper" in functions.called


def new_work_starts_a_sweep(company: Company) -> None:
    functions = Functions(company)
    kick = KickFunction(host(company, functions, {SWEEPER: "acme-sweeper"}))
    company.rdq.submit(CALLS, "charge", b"{}")
    rows = company.client.scan(TableName=company.tables.tasks)["Items"]
    records = [{"eventName": "INSERT", "dynamodb": {"NewImage": row}} for row in rows]
    with (
        company.watch.of("kick"),
        patch.object(hosting, "lambda_client", lambda _seconds: functions),
    ):
        kick.kick({"Records": records})
    assert functions.called == ["acme-sweeper"]
    with company.watch.of("sweeper"):
        company.parts.reservations.release(CALLS)


def an_operator_asks_the_ops_function(company: Company) -> None:
    functions = Functions(company)
    with (
        company.watch.of("operator"),
        patch.object(remote, "lambda_client", lambda _seconds: functions),
    ):
        remote.ask_function("acme-ops", {"op": "status"})
    assert functions.called == ["acme-ops"]


OF_FUNCTIONS: Final[tuple[Callable[[Company], None], ...]] = (
    a_sweeper_calls_the_handlers_of_queues,
    a_sweeper_brings_help,
    new_work_starts_a_sweep,
    an_operator_asks_the_ops_function,
)
