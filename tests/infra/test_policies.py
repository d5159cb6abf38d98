"""Each role may do what it does, and nothing else. What it does is noted while it does it: see the
flows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from moto.backends import get_backend

from rdq_core.runtime.function_url import ALIAS
from tests.infra.access import Grant, Use, own_grants, policy_grants, role_grants
from tests.infra.flows import EVERY, Company
from tests.infra.function_flows import OF_FUNCTIONS
from tests.infra.templates import Template, as_list, of_type, statements
from tests.support.engines import Engine

POLICIES: Final = {
    "submitter": "SubmitterPolicy",
    "sweeper": "SweeperPolicy",
    "operator": "OperatorPolicy",
    "reader": "ReaderPolicy",
}
ROLES: Final = {
    "clean-up": "CleanUpRole",
    "kick": "KickRole",
    "sweeper function": "SweeperRole",
    "ops function": "OpsRole",
    "intake function": "IntakeRole",
    "schedule": "ScheduleRole",
}
EVERYBODY: Final = (*POLICIES, *ROLES)

_BY_LAMBDA: Final = "by Lambda itself, which is not in this process"
_BY_SCHEDULER: Final = "by EventBridge Scheduler, which is not in this process"
_BY_PROGRAMS: Final = "by programs of the operators' own, to the function's URL"
_STREAM: Final = {
    "dynamodb:DescribeStream on tasks/stream": _BY_LAMBDA,
    "dynamodb:GetRecords on tasks/stream": _BY_LAMBDA,
    "dynamodb:GetShardIterator on tasks/stream": _BY_LAMBDA,
    "dynamodb:ListStreams on *": _BY_LAMBDA,
}


def _logs(function: str) -> Mapping[str, str]:
    return {
        f"logs:{action} on {function}Logs": _BY_LAMBDA
        for action in ("CreateLogStream", "PutLogEvents")
    }


UNUSED_HERE: Final[Mapping[str, Mapping[str, str]]] = {
    "submitter": {},
    "sweeper": {},
    "operator": {
        "lambda:InvokeFunctionUrl on function:ops:url": _BY_PROGRAMS,
        "lambda:InvokeFunction on function:ops:url through its URL": _BY_PROGRAMS,
    },
    "reader": {},
    "clean-up": {**_logs("CleanUp"), **_STREAM, "sqs:SendMessage on UndeliveredQueue": _BY_LAMBDA},
    "kick": {**_logs("Kick"), **_STREAM},
    "sweeper function": _logs("Sweeper"),
    "ops function": _logs("Ops"),
    "intake function": {
        **_logs("Intake"),
        "sqs:SendMessage on UndeliveredQueue": _BY_LAMBDA,
        **{
            f"sqs:{action} on IntakeQueueArn": _BY_LAMBDA
            for action in (
                "ReceiveMessage",
                "DeleteMessage",
                "GetQueueAttributes",
                "ChangeMessageVisibility",
            )
        },
    },
    "schedule": {
        "lambda:InvokeFunction on function:sweeper": _BY_SCHEDULER,
        "sqs:SendMessage on UndeliveredQueue": _BY_SCHEDULER,
    },
}
"""What is granted and not asked for in this process, and why."""

_WRITES: Final = ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "PartiQLInsert")
_DLQ_READS: Final = ("GetItem", "Scan")
FORBIDDEN: Final[Mapping[str, tuple[Use, ...]]] = {
    "submitter": (
        *(Use(f"dynamodb:{action}", "dlq") for action in (*_DLQ_READS, "UpdateItem", "DeleteItem")),
        Use("dynamodb:Query", "dlq/index/dead"),
        Use("dynamodb:Query", "tasks/index/due"),
        *(Use(f"dynamodb:{action}", "control", "queues") for action in _WRITES),
        *(Use(f"dynamodb:{action}", "control", "secret#cursor") for action in ("GetItem", "Query")),
        *(Use(f"dynamodb:{action}", "audit") for action in ("Query", *_WRITES)),
    ),
    "sweeper": (
        *(
            Use(f"dynamodb:{action}", "audit")
            for action in ("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem")
        ),
        *(
            Use(f"dynamodb:{action}", "control", "queues")
            for action in ("PutItem", "DeleteItem", "BatchWriteItem")
        ),
        *(
            Use("dynamodb:UpdateItem", "control", "queues", frozenset({"pk", "sk", layer}))
            for layer in ("declared", "file_defaults", "override", "paused_at", "shards_ever")
        ),
        *(
            Use(f"dynamodb:{action}", "control", "secret#cursor")
            for action in ("GetItem", "Query", "PutItem")
        ),
    ),
    "operator": (
        *(
            Use(f"dynamodb:{action}", "audit")
            for action in ("UpdateItem", "DeleteItem", "BatchWriteItem")
        ),
        *(
            Use(f"dynamodb:{action}", "control", "rate#billing")
            for action in ("PutItem", "UpdateItem")
        ),
    ),
    "reader": (
        *(
            Use(f"dynamodb:{action}", table, key)
            for action in _WRITES
            for table, key in (
                ("tasks", None),
                ("dlq", None),
                ("audit", None),
                ("control", "queues"),
            )
        ),
        *(Use(f"s3:{action}", "bodies/keep/1/2") for action in ("PutObject", "DeleteObject")),
        Use("lambda:InvokeFunction", "function:ops"),
    ),
    "clean-up": (
        *(Use(f"dynamodb:{action}", "tasks") for action in ("PutItem", "UpdateItem")),
        *(Use(f"dynamodb:{action}", "control", "queues") for action in _WRITES),
        *(Use(f"dynamodb:{action}", "audit") for action in ("Query", *_WRITES)),
    ),
    "kick": (
        *(
            Use(f"dynamodb:{action}", table)
            for action in ("GetItem", "Query", *_WRITES)
            for table in ("tasks", "dlq")
        ),
        *(Use(f"dynamodb:{action}", "control", "queues") for action in _WRITES),
    ),
}

_LAMBDA: Final = "lambda:InvokeFunction"
FORBIDDEN_TO_FUNCTIONS: Final[Mapping[str, tuple[Use, ...]]] = {
    "sweeper function": (
        *FORBIDDEN["sweeper"],
        Use(_LAMBDA, "function:ops"),
        Use(_LAMBDA, "function:kick"),
    ),
    "ops function": (
        *FORBIDDEN["operator"],
        Use(_LAMBDA, "function:sweeper"),
        Use(_LAMBDA, "HandlerFunctionArns"),
    ),
    "intake function": (
        *FORBIDDEN["submitter"],
        Use(_LAMBDA, "function:sweeper"),
        Use(_LAMBDA, "function:ops"),
    ),
    "schedule": (Use(_LAMBDA, "function:ops"), Use("dynamodb:GetItem", "tasks")),
}

Uses = dict[str, frozenset[Use]]
_noted: Uses = {}


@pytest.fixture
def uses(moto: Engine) -> Uses:
    """What each role asks for, in all flows together. They are played once a process."""
    if not _noted:
        _noted.update(_played(moto))
    return _noted


def _played(engine: Engine) -> Uses:
    found: dict[str, set[Use]] = {}
    for flow in (*EVERY, *OF_FUNCTIONS):
        get_backend("s3").reset()
        company = Company(engine)
        flow(company)
        for role, used in company.watch.used.items():
            found.setdefault(role, set()).update(used)
    return {role: frozenset(used) for role, used in found.items()}


def grants(stack: Template, role: str) -> list[Grant]:
    if role in ROLES:
        return role_grants(stack, ROLES[role])
    return policy_grants(stack, POLICIES[role])


def own(stack: Template, role: str) -> list[Grant]:
    """Without what a managed policy grants, which is somebody else's here."""
    return own_grants(stack, ROLES[role]) if role in ROLES else policy_grants(stack, POLICIES[role])


def test_no_role_or_policy_of_the_template_is_left_out(stack: Template) -> None:
    assert set(of_type(stack, "AWS::IAM::Role")) == set(ROLES.values())
    assert set(of_type(stack, "AWS::IAM::ManagedPolicy")) == set(POLICIES.values())


@pytest.mark.parametrize("role", EVERYBODY)
def test_a_role_may_do_what_it_does(stack: Template, uses: Uses, role: str) -> None:
    allowed = grants(stack, role)
    assert [
        use for use in uses.get(role, ()) if not any(grant.allows(use) for grant in allowed)
    ] == []


@pytest.mark.parametrize("role", EVERYBODY)
def test_a_role_may_do_nothing_that_it_does_not_do(stack: Template, uses: Uses, role: str) -> None:
    unused = {
        str(grant)
        for grant in own(stack, role)
        if not any(grant.allows(use) for use in uses.get(role, ()))
    }
    assert unused == set(UNUSED_HERE[role])


@pytest.mark.parametrize("role", EVERYBODY)
def test_a_role_is_kept_from_what_is_not_its_own(stack: Template, role: str) -> None:
    allowed, forbidden = grants(stack, role), {**FORBIDDEN, **FORBIDDEN_TO_FUNCTIONS}
    assert [use for use in forbidden[role] if any(grant.allows(use) for grant in allowed)] == []


def test_nobody_changes_the_audit(stack: Template) -> None:
    changes = [
        Use(f"dynamodb:{action}", "audit")
        for action in ("UpdateItem", "DeleteItem", "BatchWriteItem")
    ]
    everything = [
        grant for name in of_type(stack, "AWS::IAM::Role") for grant in role_grants(stack, name)
    ]
    everything += [grant for policy in POLICIES.values() for grant in policy_grants(stack, policy)]
    assert [grant for grant in everything for use in changes if grant.allows(use)] == []


def documents(stack: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every policy document of a template, with where it is."""
    for name, resource in stack["Resources"].items():
        properties = resource.get("Properties", {})
        for place in ("PolicyDocument", "AssumeRolePolicyDocument", "KeyPolicy"):
            if place in properties:
                yield f"{name}.{place}", properties[place]
        for policy in properties.get("Policies", ()):
            yield f"{name}.{policy['PolicyName']}", policy["PolicyDocument"]


def test_nobody_is_granted_the_function_s_url_but_through_itself(stack: Template) -> None:
    everything = [
        grant for name in of_type(stack, "AWS::IAM::Role") for grant in role_grants(stack, name)
    ]
    everything += [grant for policy in POLICIES.values() for grant in policy_grants(stack, policy)]
    directly = Use("lambda:InvokeFunction", f"function:ops:{ALIAS}")
    assert [grant for grant in everything if grant.allows(directly)] == []
    through_it = replace(directly, is_through_url=True)
    assert any(grant.allows(through_it) for grant in policy_grants(stack, "OperatorPolicy"))


def test_no_action_is_a_wildcard(stack: Template) -> None:
    allowing = [
        (place, action)
        for place, document in documents(stack)
        for statement in statements(document)
        if statement["Effect"] == "Allow"
        for action in as_list(statement["Action"])
    ]
    assert allowing
    assert [found for found in allowing if "*" in found[1]] == []


def test_everything_is_granted_on_named_resources(stack: Template) -> None:
    everywhere = {
        (place, statement["Sid"])
        for place, document in documents(stack)
        for statement in statements(document)
        if statement["Effect"] == "Allow" and "*" in as_list(statement.get("Resource", []))
    }
    # A key's own policy means the key by it. Streams can only be listed all together.
    assert everywhere == {
        ("AlarmKey.KeyPolicy", "TheAccountDecides"),
        ("AlarmKey.KeyPolicy", "AlarmsPublish"),
        ("KickRole.kick", "ListStreams"),
        ("CleanUpRole.cleanup", "ListStreams"),
    }


def test_each_right_on_the_control_table_names_its_partitions(stack: Template) -> None:
    roles = [
        grant for name in of_type(stack, "AWS::IAM::Role") for grant in role_grants(stack, name)
    ]
    policies = [grant for policy in POLICIES.values() for grant in policy_grants(stack, policy)]
    on_control = [grant for grant in (*roles, *policies) if grant.resource == "control"]
    assert on_control
    assert [grant for grant in on_control if grant.leading_keys is None] == []
