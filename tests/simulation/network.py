"""What lies between a process and DynamoDB: requests take their time, and everything goes wrong
that can.

The invariant: the double carries out each request whole and at one moment, as DynamoDB does; only
who hears of it, when, and whether at all, is for the network to decide.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from tests.simulation.plan import Plan
from tests.simulation.process import Process
from tests.simulation.scheduler import FOREVER, SECOND, Scheduler, Strand
from tests.simulation.timeline import Timeline
from tests.support.fake_dynamodb import Database
from tests.support.fake_dynamodb.refusals import cancelled, refusal

READ_TIMEOUT: Final = 5 * SECOND
LATEST: Final = 120 * SECOND
"""How much later than usual a request may arrive."""
_MILLI: Final = 1000
_OUT_OF_REACH: Final = ("unsent", "lost", "lost", "late", "answer_lost")
_URL: Final = "https://dynamodb"


@dataclass(eq=False, slots=True)
class Flight:
    """One request under way."""

    operation: str
    request: Mapping[str, Any]
    sender: Strand
    process: Process
    call: Any
    answer: dict[str, Any] | None = None
    error: Exception | None = None
    is_awaited: bool = True
    dated: int | None = None

    def __str__(self) -> str:
        return f"{self.operation} {_about(self.request)}"


class Network:
    """One run's network, with its faults."""

    def __init__(
        self,
        plan: Plan,
        scheduler: Scheduler,
        database: Database,
        timeline: Timeline,
        arrive: Callable[[Flight], bool],
    ) -> None:
        self.requests = self.troubles = 0
        self.is_calm = False
        self._plan = plan
        self._dice = random.Random(f"{plan.seed}/network")
        self._scheduler = scheduler
        self._database = database
        self._timeline = timeline
        self._arrive = arrive
        self._kinds = [name for name, rate in plan.rates.items() if rate]
        self._weights = [plan.rates[name] for name in self._kinds]
        self._total = sum(self._weights)

    def call(self, process: Process, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request for the thread that runs, and wait for what becomes of it."""
        self._scheduler.check_alive()
        self.requests += 1
        sender = self._scheduler.current
        flight = Flight(operation, request, sender, process, sender.call)
        trouble = self._out_of_reach(process) or self._trouble()
        if trouble is not None:
            self._timeline.note(process.name, f"{trouble}: {flight}")
            getattr(self, f"_{trouble}")(flight)
        else:
            self._send(flight)
        flight.is_awaited = False
        process.answered_at = self._scheduler.now if flight.dated is None else flight.dated
        if flight.error is not None:
            raise flight.error
        assert flight.answer is not None
        return flight.answer

    def _out_of_reach(self, process: Process) -> str | None:
        """What becomes of the requests of a process that can't reach storage: most are lost, some
        are not quite.
        """
        if (
            self.is_calm
            or self._scheduler.now >= process.cut_off_until
            or self.troubles >= self._plan.most_troubles
        ):
            return None
        self.troubles += 1
        return self._dice.choice(_OUT_OF_REACH)

    def _trouble(self) -> str | None:
        if (
            self.is_calm
            or self.troubles >= self._plan.most_troubles
            or self._dice.random() >= self._total
        ):
            return None
        self.troubles += 1
        return self._dice.choices(self._kinds, self._weights)[0]

    # -- as it should be ---------------------------------------------------------------------------

    def _send(self, flight: Flight) -> None:
        self._scheduler.at(self._scheduler.now + self._way(), lambda: self._arrives(flight))
        self._scheduler.wait(FOREVER)

    def _arrives(self, flight: Flight) -> None:
        flight.dated = self._scheduler.now
        try:
            if self._arrive(flight):
                flight.answer = self._database.call(flight.operation, flight.request)
            else:
                flight.error = ReadTimeoutError(endpoint_url=_URL)
        except ClientError as error:
            flight.error = error
        if flight.is_awaited:
            self._scheduler.wake(flight.sender, self._scheduler.now + self._way())

    def _way(self) -> int:
        if self._plan.slow_network and not self.is_calm:
            return int(self._dice.expovariate(1 / 300.0) * _MILLI)
        return self._dice.choice((1, 1, 1, 3, 10)) * _MILLI

    # -- trouble -----------------------------------------------------------------------------------

    def _unsent(self, flight: Flight) -> None:
        self._scheduler.wait(self._scheduler.now + self._way())
        flight.error = EndpointConnectionError(endpoint_url=_URL)

    def _lost(self, flight: Flight) -> None:
        self._hear_nothing(flight)

    def _answer_lost(self, flight: Flight) -> None:
        flight.is_awaited = False
        self._scheduler.at(self._scheduler.now + self._way(), lambda: self._arrives(flight))
        self._hear_nothing(flight)

    def _late(self, flight: Flight) -> None:
        flight.is_awaited = False
        later = int(self._dice.choice((0.5, 8, 30, 120)) * SECOND * self._dice.random())
        self._scheduler.at(self._scheduler.now + min(later, LATEST), lambda: self._arrives(flight))
        self._hear_nothing(flight)

    def _hear_nothing(self, flight: Flight) -> None:
        """The connection breaks soon, or the client's patience ends."""
        soon = self._dice.random() < 0.5
        self._scheduler.wait(self._scheduler.now + (50 * _MILLI if soon else READ_TIMEOUT))
        flight.error = (ConnectionClosedError if soon else ReadTimeoutError)(endpoint_url=_URL)

    def _throttled(self, flight: Flight) -> None:
        self._refused(flight, "ThrottlingException", "ThrottlingError")

    def _conflict(self, flight: Flight) -> None:
        if flight.operation in ("GetItem", "Query", "BatchWriteItem"):
            self._refused(flight, "ProvisionedThroughputExceededException", "")
        elif flight.operation == "TransactWriteItems" and self._dice.random() < 0.3:
            self._refused(flight, "TransactionInProgressException", "")
        else:
            self._refused(flight, "TransactionConflictException", "TransactionConflict")

    def _broken(self, flight: Flight) -> None:
        self._refused(flight, "InternalServerError", "")

    def _broken_unheard(self, flight: Flight) -> None:
        """The service fails after it has carried the request out."""
        self._send(flight)
        flight.answer, flight.error = (
            None,
            refusal("InternalServerError", "broken", flight.operation),
        )

    def _refused(self, flight: Flight, code: str, reason: str) -> None:
        self._scheduler.wait(self._scheduler.now + self._way())
        parts = flight.request.get("TransactItems") if reason else None
        if parts is None:
            flight.error = refusal(code, "injected", flight.operation)
            return
        hit = self._dice.randrange(len(parts))
        flight.error = cancelled(
            [{"Code": reason if place == hit else "None"} for place in range(len(parts))]
        )

    # -- trouble of the process --------------------------------------------------------------------

    def _cut_off(self, flight: Flight) -> None:
        """From this request on, the process can't reach storage for a while."""
        span = self._dice.choice((2.0, 10.0, 40.0)) * self._dice.random()
        flight.process.cut_off_until = self._scheduler.now + round(span * SECOND)
        getattr(self, f"_{self._dice.choice(_OUT_OF_REACH)}")(flight)

    def _crash_before(self, flight: Flight) -> None:
        self._scheduler.kill(flight.process.home)

    def _crash_in_flight(self, flight: Flight) -> None:
        flight.is_awaited = False
        later = int(self._dice.choice((0.01, 1, 30)) * SECOND * self._dice.random())
        self._scheduler.at(self._scheduler.now + later, lambda: self._arrives(flight))
        self._scheduler.kill(flight.process.home)

    def _crash_after(self, flight: Flight) -> None:
        self._send(flight)
        self._scheduler.kill(flight.process.home)

    def _freeze_before(self, flight: Flight) -> None:
        """The process stands still before the request has left it."""
        flight.process.freeze(self._nap())
        self._scheduler.wait(self._scheduler.now)
        self._send(flight)

    def _freeze_after(self, flight: Flight) -> None:
        """The process stands still while its request is carried out."""
        flight.process.freeze(self._nap())
        self._send(flight)

    def _nap(self) -> float:
        return self._dice.choice((1.0, 10.0, 60.0)) * self._dice.random()


def _about(request: Mapping[str, Any]) -> str:
    if "TransactItems" in request:
        return " + ".join(
            _about(part) for item in request["TransactItems"] for part in item.values()
        )
    if "RequestItems" in request:
        ((table, parts),) = request["RequestItems"].items()
        bodies = [body for part in parts for body in part.values()]
        return f"{table} {', '.join(_about({**body, 'TableName': ''}) for body in bodies)}"
    place = request.get("Key") or request.get("Item") or {}
    return f"{request['TableName']} {_key(place)}"


def _key(item: Mapping[str, Any]) -> str:
    names = ("task_id", "kind") if "kind" in item else ("pk", "sk")
    return "/".join(str(item[name]["S"])[-12:] for name in names if name in item)


class Client:
    """What the store of a process takes for its boto3 client."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self.meta = self

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        operation = "".join(word.capitalize() for word in name.split("_"))
        return lambda **request: self._call(operation, request)

    def _call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        sent = self._process.reading()
        answer = None
        try:
            answer = self._network.call(self._process, operation, request)
        except ClientError:
            self._process.learn(sent)
            raise
        self._process.learn(sent)
        return answer
