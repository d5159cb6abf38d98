"""The ops function: operator requests directly and through a function URL, each with its answer or
its problem.
"""

import base64
import hashlib
import json
import logging
from typing import Any

import pytest

from rdq_core.errors import StoreFailed
from rdq_core.ops.requests import OPERATIONS
from rdq_core.runtime import operating
from rdq_core.runtime.operating import OpsFunction
from rdq_core.testing.contract.factories import an_error
from rdq_core.testing.functions import LambdaContext
from tests.engine.world import QUEUE
from tests.ops.dlq import Dlq
from tests.support.events import event

ARN = "arn:aws:iam::123456789012:user/ann"
NOBODY = "01J00000000000000000000000"
URL = "rdq-ops:url"


class Ops(Dlq):
    """A DLQ behind the ops function."""

    def __init__(self) -> None:
        super().__init__()
        self.function = OpsFunction(self.parts)

    def ask(self, op: str, **fields: Any) -> Any:
        return self.function.answer({"op": op, **fields})

    def problem(self, op: str, **fields: Any) -> Any:
        answer = self.ask(op, **fields)
        assert set(answer) == {"problem"}
        return answer["problem"]

    def post(self, document: object, **changes: Any) -> tuple[int, str, Any]:
        return self.call(over_http(json.dumps(document), **changes))

    def call(self, event: object, function: str = URL) -> tuple[int, str, Any]:
        """An event as Lambda delivers it to this function, or alias of it."""
        response = self.function.answer(event, LambdaContext(function))
        return (
            response["statusCode"],
            response["headers"]["content-type"],
            json.loads(response["body"]),
        )


def over_http(
    body: str | None, *, arn: str | None = ARN, method: str = "POST", **changes: Any
) -> dict[str, Any]:
    iam = {"authorizer": {"iam": {"userArn": arn, "accountId": "123456789012"}}} if arn else {}
    return {
        "version": "2.0",
        "requestContext": {"http": {"method": method}, **iam},
        "body": body,
        **changes,
    }


@pytest.fixture
def ops() -> Ops:
    return Ops()


# -- directly --------------------------------------------------------------------------------------


def test_each_operation_of_the_design_is_there() -> None:
    assert set(OPERATIONS) >= {
        "status",
        *(f"dlq.{verb}" for verb in ("list", "groups", "redrive", "purge")),
        *(f"task.{verb}" for verb in ("get", "list", "cancel", "forget")),
        *(f"job.{verb}" for verb in ("list", "get", "cancel", "resume")),
        *(
            f"queue.{verb}"
            for verb in (
                "get",
                "list",
                "apply",
                "set",
                "diff",
                "check",
                "pause",
                "resume",
                "delete",
                "stats",
                "ladder",
            )
        ),
        "audit.list",
    }


def test_a_night_through_the_function(ops: Ops) -> None:
    ids = ops.fill(3)
    assert [(each["queue"], each["dead"]) for each in ops.ask("status")["items"]] == [(QUEUE, 3)]
    (group,) = ops.ask("dlq.groups")["items"]
    assert (group["count"], group["new"]) == (3, True)
    assert ops.ask("dlq.show", id=ids[0])["attempts"][0]["outcome"] == "RETRYABLE_FAILURE"
    ops.clock.advance("10s")
    would = ops.ask("dlq.redrive", queue=QUEUE, group=group["fingerprint"], dry_run=True)
    assert (would["selected"], would["dry_run"], would["preview"]["write_units"]) == (3, True, 33)

    begun = ops.ask(
        "dlq.redrive", queue=QUEUE, group=group["fingerprint"], reason="mended", principal="ann"
    )
    job = ops.ask("job.advance", job_id=begun["job_id"], seconds=5)

    assert (job["state"], job["done"]) == ("done", 3)
    assert [each["id"] for each in ops.ask("task.list", queue=QUEUE)["items"]] == ids
    records = ops.ask("audit.list", queue=QUEUE)["items"]
    assert {(each["principal"], each["verified"], each["reason"]) for each in records} == {
        ("ann", False, "mended")
    }


def test_a_payload_is_edited_for_one_task(ops: Ops) -> None:
    (task_id,) = ops.fill()
    better = base64.b64encode(b"better").decode()
    done = ops.ask(
        "dlq.redrive", queue=QUEUE, ids=[task_id], payload_base64=better, set_handler="refund"
    )
    assert done == {
        "selected": 1,
        "done": 1,
        "skipped": 0,
        "failed": 0,
        "dry_run": False,
        "job_id": None,
    }
    task = ops.ask("task.get", id=task_id, show_payload=True)
    assert (base64.b64decode(task["payload"]), task["handler_ref"]) == (b"better", "refund")
    assert "payload" not in ops.ask("task.get", id=task_id)


def test_tasks_are_cancelled_by_filter_and_that_is_on_record(ops: Ops) -> None:
    wanted = [ops.world.submit(ref="a") for _ in range(3)]
    other = ops.world.submit(ref="b")
    would = ops.ask("task.cancel", queue=QUEUE, handler="a", dry_run=True)
    assert (would["selected"], would["done"], would["next_cursor"]) == (3, 0, None)
    done = ops.ask("task.cancel", queue=QUEUE, handler="a", reason="a mistake")
    assert (done["selected"], done["done"], done["next_cursor"]) == (3, 3, None)
    assert ops.waiting([*wanted, other]) == [other]
    assert [(each.operation, each.reason) for each in ops.records()] == [
        ("task.cancel", "a mistake")
    ] * 2
    assert ops.records()[0].detail == {"status": None, "handler": "a", "ids": wanted}
    assert ops.ask("task.cancel", queue=QUEUE, all=True)["done"] == 1


def test_named_tasks_are_cancelled_and_that_is_on_record_in_the_queue_of_each(ops: Ops) -> None:
    ops.world.configure("email")
    first, second = ops.world.submit(), ops.world.submit()
    mail = ops.world.submit(queue="email")
    (dead,) = ops.fill(id="7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    wanted = [first, NOBODY, mail, dead, second]

    assert ops.ask("task.cancel", ids=wanted, dry_run=True)["skipped"] == 2
    assert ops.records() == []
    done = ops.ask("task.cancel", ids=wanted, reason="a mistake", principal="ann")

    assert (done["selected"], done["done"], done["skipped"]) == (5, 3, 2)
    intent, end = ops.records()
    assert (intent.operation, intent.principal, intent.reason) == (
        "task.cancel",
        "ann",
        "a mistake",
    )
    assert intent.detail == {"ids": [first, second]}
    assert end.detail == {"selected": 2, "done": 2, "skipped": 0, "failed": 0}
    (of_mails, _) = reversed(ops.ask("audit.list", queue="email")["items"])
    assert of_mails["detail"] == {"ids": [mail]}


def test_a_cancel_that_cannot_be_put_on_record_is_not_begun(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise StoreFailed("no answer", may_have_happened=False)

    task_id = ops.world.submit()
    monkeypatch.setattr(ops.parts.audit, "append", refuses)
    assert ops.problem("task.cancel", ids=[task_id])["code"] == "task_store_failed"
    assert ops.waiting([task_id]) == [task_id]


def test_tasks_of_a_target_or_requester_are_forgotten_in_every_queue_and_status(ops: Ops) -> None:
    ops.world.configure("email")
    of_ann = [ops.world.submit(requested_by="ann", queue=queue) for queue in (QUEUE, "email")]
    (dead,) = ops.fill(requested_by="ann")
    about_17 = ops.world.submit(target="order:17")
    other = ops.world.submit(requested_by="bob", target="order:18")

    done = ops.ask("task.forget", requested_by="ann", reason="request 4711", principal="clerk")
    assert done == {
        "selected": 3,
        "done": 3,
        "skipped": 0,
        "failed": 0,
        "dry_run": False,
        "job_id": None,
    }
    assert ops.ask("task.forget", target="order:17")["done"] == 1
    assert [ops.store.get(each) for each in (*of_ann, dead, about_17)] == [None] * 4
    assert ops.waiting([other]) == [other]
    assert ops.ask("task.forget", requested_by="ann")["done"] == 0


def test_a_forget_is_on_record_before_it_begins_and_without_the_name(ops: Ops) -> None:
    ops.world.submit(requested_by="ann")
    ops.ask("task.forget", requested_by="ann", reason="request 4711", principal="clerk")

    end, intent = ops.ask("audit.list")["items"]
    assert (intent["operation"], intent["queue"], intent["reason"], intent["principal"]) == (
        "task.forget",
        "*",
        "request 4711",
        "clerk",
    )
    assert intent["detail"] == {"requested_by_sha256": hashlib.sha256(b"ann").hexdigest()}
    assert (end["operation_id"], end["phase"], end["detail"]["done"]) == (intent["id"], "done", 1)
    assert "ann" not in json.dumps([intent, end])


def test_a_forget_that_cannot_be_put_on_record_is_not_begun(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise StoreFailed("no answer", may_have_happened=False)

    task_id = ops.world.submit(target="order:17")
    monkeypatch.setattr(ops.parts.audit, "append", refuses)
    assert ops.problem("task.forget", target="order:17")["code"] == "task_store_failed"
    assert ops.waiting([task_id]) == [task_id]


def test_a_field_that_is_unknown_or_missing_is_refused_by_its_name(ops: Ops) -> None:
    unknown = ops.problem("dlq.list", queue=QUEUE, colour=1)
    missing = ops.problem("dlq.list", type="*Timeout*")
    assert unknown["detail"] == "colour: is not a field of this request"
    assert missing["detail"] == "queue: is missing"


def test_a_queue_is_configured_paused_and_resumed(ops: Ops) -> None:
    config = {"config_version": 1, "queues": {"email": {"retry": {"max_attempts": 3}}}}
    assert ops.ask("queue.check", config=config)["items"] == [{"queue": "email", "result": "valid"}]
    assert ops.ask("queue.apply", config=config)["items"][0]["result"] == "created"
    assert ops.ask("queue.set", queue="email", set=["retry.max_attempts=9"], reason="a rush")[
        "changed"
    ]
    assert ops.ask("queue.get", queue="email")["effective"]["retry"]["max_attempts"] == 9
    assert ops.ask("queue.pause", queue="email", reason="the bank is down")["paused"]
    (state,) = ops.ask("status", queue="email")["items"]
    assert (state["paused"], state["pause_reason"], state["override"]) == (
        True,
        "the bank is down",
        "in_force",
    )
    assert not ops.ask("queue.resume", queue="email")["paused"]


def test_work_that_no_host_serves_is_reported(ops: Ops) -> None:
    ops.world.submit()
    assert [each["unserved"] for each in ops.ask("status")["items"]] == [False]
    ops.clock.advance("6m")
    assert [each["unserved"] for each in ops.ask("status")["items"]] == [True]
    ops.ask("queue.pause", queue=QUEUE)
    assert [each["unserved"] for each in ops.ask("status")["items"]] == [False]


@pytest.mark.parametrize(
    ("limit", "given", "rate"), [(None, None, "50/s"), ("7/m", None, "7/m"), ("7/m", "5/h", "5/h")]
)
def test_the_pace_is_the_queue_s_own_limit_unless_another_is_given(
    ops: Ops, limit: str | None, given: str | None, rate: str
) -> None:
    if limit is not None:
        ops.world.configure(index_shards=1, dispatch={"rate_limit": limit})
    fields = {} if given is None else {"rate": given}
    job_id = ops.ask("dlq.redrive", queue=QUEUE, all=True, **fields)["job_id"]
    assert ops.ask("job.get", job_id=job_id)["order"]["rate"] == rate


def test_a_caller_that_gives_the_expected_number_needs_no_second_count(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.parts.store, "dead", None)
    job_id = ops.ask("dlq.purge", queue=QUEUE, all=True, expected=17)["job_id"]
    assert ops.ask("job.get", job_id=job_id)["expected"] == 17


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({"op": "dlq.lst"}, 400, "task_input_invalid"),
        ({}, 400, "task_input_invalid"),
        ({"op": ["dlq.list"]}, 400, "task_input_invalid"),
        ({"op": "dlq.list"}, 400, "task_input_invalid"),
        ({"op": "dlq.list", "queue": QUEUE, "colour": 1}, 400, "task_input_invalid"),
        ({"op": "dlq.list", "queue": 5}, 400, "task_input_invalid"),
        ({"op": "dlq.list", "queue": QUEUE, "page_size": 501}, 400, "task_input_invalid"),
        ({"op": "dlq.list", "queue": QUEUE, "since": "3h"}, 400, "task_input_invalid"),
        (
            {"op": "dlq.redrive", "queue": QUEUE, "all": True, "expected": -1},
            400,
            "task_input_invalid",
        ),
        (
            {"op": "job.advance", "job_id": NOBODY, "seconds": float("nan")},
            400,
            "task_input_invalid",
        ),
        ({"op": "task.get", "queue": QUEUE, "key": "\ud800"}, 400, "task_input_invalid"),
        ({"op": "dlq.list", "queue": "nope"}, 404, "queue_not_found"),
        ({"op": "dlq.list", "queue": QUEUE, "cursor": "AAAA"}, 409, "stale_cursor"),
        ({"op": "dlq.show", "id": NOBODY}, 404, "task_not_found"),
        ({"op": "dlq.redrive", "queue": QUEUE}, 400, "task_input_invalid"),
        (
            {"op": "dlq.redrive", "queue": QUEUE, "all": True, "ids": [NOBODY]},
            400,
            "task_input_invalid",
        ),
        (
            {"op": "dlq.redrive", "queue": QUEUE, "all": True, "min_success": 0.5},
            400,
            "task_input_invalid",
        ),
        (
            {"op": "dlq.redrive", "queue": QUEUE, "all": True, "rate": "fast"},
            400,
            "task_input_invalid",
        ),
        (
            {"op": "dlq.redrive", "queue": QUEUE, "ids": [NOBODY], "rate": "5/s"},
            400,
            "task_input_invalid",
        ),
        (
            {"op": "dlq.redrive", "queue": QUEUE, "ids": [NOBODY], "payload_base64": "?"},
            400,
            "task_input_invalid",
        ),
        ({"op": "dlq.redrive", "queue": QUEUE, "group": "v1:none"}, 404, "task_not_found"),
        ({"op": "dlq.purge", "queue": QUEUE, "all": "yes"}, 400, "task_input_invalid"),
        ({"op": "job.get", "job_id": NOBODY}, 404, "task_not_found"),
        ({"op": "task.get"}, 400, "task_input_invalid"),
        ({"op": "task.cancel", "queue": QUEUE}, 400, "task_input_invalid"),
        ({"op": "task.cancel"}, 400, "task_input_invalid"),
        ({"op": "task.forget"}, 400, "task_input_invalid"),
        ({"op": "task.forget", "target": ""}, 400, "task_input_invalid"),
        ({"op": "task.forget", "target": "a", "requested_by": "b"}, 400, "task_input_invalid"),
        ({"op": "task.cancel", "ids": [NOBODY] * 501}, 400, "task_input_invalid"),
        (
            {"op": "queue.apply", "config": {"config_version": 1, "queues": {"Ä": {}}}},
            400,
            "config_invalid",
        ),
        ({"op": "queue.apply"}, 400, "task_input_invalid"),
        ({"op": "status", "principal": 5}, 400, "task_input_invalid"),
    ],
)
def test_what_is_wrong_has_a_stable_code_directly_and_over_http(
    ops: Ops, request_: dict[str, Any], status: int, code: str
) -> None:
    problem = ops.function.answer(request_)["problem"]
    assert (problem["status"], problem["code"], problem["type"]) == (
        status,
        code,
        f"urn:rdq:problem:{code}",
    )
    if "principal" not in request_:
        assert ops.post(request_) == (status, "application/problem+json", problem)


def test_a_refusal_names_the_field_and_not_the_value(ops: Ops) -> None:
    problem = ops.problem("dlq.list", queue=QUEUE, page_size="a secret")
    assert problem["detail"].startswith("page_size: ")
    assert "a secret" not in json.dumps(problem)


def test_a_misspelt_operation_is_recognised(ops: Ops) -> None:
    assert ops.problem("dlq.redrve")["hint"] == "did you mean dlq.redrive?"


@pytest.mark.parametrize("event", [None, 5, "status", [{"op": "status"}]])
def test_an_event_that_is_no_request_is_a_problem(ops: Ops, event: object) -> None:
    assert ops.function.answer(event)["problem"]["status"] == 400


def test_a_bug_is_answered_without_its_details(
    ops: Ops, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(ops.parts.store, "counts", broken)
    with caplog.at_level(logging.ERROR):
        problem = ops.problem("status")
    assert (problem["status"], problem["code"]) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text
    assert "a secret" not in caplog.text + json.dumps(problem)


def test_a_storage_failure_is_answered_as_such(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise StoreFailed("no answer", may_have_happened=False)

    monkeypatch.setattr(ops.parts.store, "counts", silent)
    assert (ops.problem("status")["status"], ops.problem("status")["code"]) == (
        503,
        "task_store_failed",
    )


# -- over HTTP -------------------------------------------------------------------------------------


def test_over_http_the_principal_is_the_one_that_iam_has_verified(ops: Ops) -> None:
    (task_id,) = ops.fill()
    status, kind, done = ops.post({"op": "dlq.redrive", "queue": QUEUE, "ids": [task_id]})
    assert (status, kind, done["done"]) == (200, "application/json", 1)
    assert {(record.principal, record.verified) for record in ops.records()} == {(ARN, True)}


@pytest.mark.parametrize(
    "function", ["rdq-ops", "url", "rdq-ops:live", "rdq-ops:curl", "rdq-ops:url:url"]
)
def test_the_caller_in_a_url_event_sent_to_the_function_itself_is_not_verified(
    ops: Ops, function: str
) -> None:
    (task_id,) = ops.fill()
    forged = over_http(json.dumps({"op": "dlq.redrive", "queue": QUEUE, "ids": [task_id]}))
    assert ops.call(forged, function)[2]["done"] == 1
    assert {(record.principal, record.verified) for record in ops.records()} == {(ARN, False)}


def test_without_a_context_nothing_is_vouched_for(ops: Ops) -> None:
    ops.function.answer(over_http(json.dumps({"op": "queue.pause", "queue": QUEUE})))
    assert {(record.principal, record.verified) for record in ops.records()} == {(ARN, False)}


def test_over_http_a_caller_can_not_name_itself(ops: Ops) -> None:
    assert ops.post({"op": "status", "principal": "the boss"})[0] == 400


def test_without_iam_auth_every_call_is_forbidden(ops: Ops) -> None:
    for arn in (None, ""):
        status, _, problem = ops.post({"op": "status"}, arn=arn)
        assert (status, problem["code"]) == (403, "forbidden")


def test_a_body_may_be_base64(ops: Ops) -> None:
    body = base64.b64encode(b'{"op": "status"}').decode()
    assert ops.call(over_http(body, isBase64Encoded=True))[0] == 200


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        (None, {}),
        ("{", {}),
        ("[]", {}),
        ("?", {"isBase64Encoded": True}),
        ('{"op": "status"}', {"method": "GET"}),
    ],
)
def test_a_request_that_makes_no_sense_is_a_problem(
    ops: Ops, body: str | None, changes: dict[str, Any]
) -> None:
    assert ops.call(over_http(body, **changes))[0] == 400


WRONG: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "truth": True,
    "text": "x",
    "a list": [{}],
    "an object": {"a": 1},
}
READ: dict[tuple[str, ...], set[str]] = {
    ("requestContext",): {"nothing", "an object"},
    ("requestContext", "http"): {"nothing", "an object"},
    ("requestContext", "http", "method"): {"nothing", "text"},
    ("requestContext", "authorizer"): {"nothing", "an object"},
    ("requestContext", "authorizer", "iam"): {"nothing", "an object"},
    ("requestContext", "authorizer", "iam", "userArn"): {"nothing", "text"},
    ("body",): {"nothing", "text"},
    ("isBase64Encoded",): {"nothing", "truth"},
}
"""Every part of a call that is looked at, and what it may be."""
NOT_READ = (
    "version",
    "routeKey",
    "rawPath",
    "rawQueryString",
    "headers",
    "queryStringParameters",
    "cookies",
)


def changed(path: tuple[str, ...], value: object) -> Any:
    given = event("function_url")
    place = given
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return given


@pytest.mark.parametrize("path", READ, ids=".".join)
@pytest.mark.parametrize("kind", WRONG)
def test_a_part_of_the_wrong_type_is_a_problem_that_names_it(
    ops: Ops, path: tuple[str, ...], kind: str
) -> None:
    status, _, answer = ops.call(changed(path, WRONG[kind]))
    names_it = answer.get("detail", "").startswith(f"{'.'.join(path)}: must be ")
    assert names_it is (kind not in READ[path])
    if names_it:
        assert (status, answer["code"]) == (400, "task_input_invalid")
    else:
        assert status in (200, 400, 403)


@pytest.mark.parametrize("name", NOT_READ)
@pytest.mark.parametrize("kind", WRONG)
def test_what_is_not_read_may_be_anything(ops: Ops, name: str, kind: str) -> None:
    assert ops.call(changed((name,), WRONG[kind]))[0] == 200


# -- within Lambda's limits ------------------------------------------------------------------------


def test_a_page_that_is_too_large_is_halved_and_goes_on(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ops.fill(20)
    monkeypatch.setattr(operating, "MOST_BYTES", 4_000)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = ops.ask("dlq.list", queue=QUEUE, page_size=20, **cursor)
        assert len(json.dumps(page)) <= 4_000
        seen += [each["id"] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ids


def test_a_history_that_is_too_large_loses_its_stacks_and_says_so(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task_id,) = ops.fill(error=an_error(stack="a frame\n" * 500))
    whole = ops.ask("task.get", id=task_id)
    assert "truncated" not in whole
    monkeypatch.setattr(operating, "MOST_BYTES", 2_000)
    cut = ops.ask("task.get", id=task_id)
    assert cut["truncated"]
    assert cut["attempts"][0]["error"] == {**whole["attempts"][0]["error"], "stack": None}
    monkeypatch.setattr(operating, "MOST_BYTES", 200)
    assert ops.problem("task.get", id=task_id)["status"] == 400
