"""Each role may do what it does, and nothing else. What it does is noted while it does it: see the flows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from moto.backends import get_backend

from rdq_core.runtime.function_url import ALIAS
from tests.infra.access import Grant, Use, policy_grants, role_grants
from tests.infra.flows import EVERY, Company
from tests.infra.templates import Template, as_list, of_type, statements
from tests.support.engines import Engine

POLICIES: Final = {
    "submitter": "SubmitterPolicy",
    "sweeper": "SweeperPolicy",
    "operator": "OperatorPolicy",
    "reader": "ReaderPolicy",
}
ROLES: Final = {"clean-up": "CleanUpRole", "kick": "KickRole"}
EVERYBODY: Final = (*POLICIES, *ROLES)

_TAKE_OVER = "taking over a page of a bulk operation whose host was killed"
_FUNCTION = "by Lambda itself, or to a function: there is none in this process"
UNUSED_HERE: Final[Mapping[str, Mapping[str, str]]] = {
    "submitter": {},
    "sweeper": {
        "dynamodb:GetItem on dlq": _TAKE_OVER,
        "dynamodb:GetItem on control under jobs#*": _TAKE_OVER,
        "lambda:InvokeFunction on HandlerFunctionArns": _FUNCTION,
    },
    "operator": {
        "lambda:InvokeFunction on function:ops": _FUNCTION,
        "lambda:InvokeFunctionUrl on function:ops:url": _FUNCTION,
        "lambda:InvokeFunction on function:ops:url through its URL": _FUNCTION,
    },
    "reader": {},
    "clean-up": {
        "logs:CreateLogStream on CleanUpLogs": _FUNCTION,
        "logs:PutLogEvents on CleanUpLogs": _FUNCTION,
        "dynamodb:DescribeStream on tasks/stream": _FUNCTION,
        "dynamodb:GetRecords on tasks/stream": _FUNCTION,
        "dynamodb:GetShardIterator on tasks/stream": _FUNCTION,
        "dynamodb:ListStreams on *": _FUNCTION,
        "sqs:SendMessage on UndeliveredQueue": _FUNCTION,
    },
    "kick": {
        "logs:CreateLogStream on KickLogs": _FUNCTION,
        "logs:PutLogEvents on KickLogs": _FUNCTION,
        "dynamodb:DescribeStream on tasks/stream": _FUNCTION,
        "dynamodb:GetRecords on tasks/stream": _FUNCTION,
        "dynamodb:GetShardIterator on tasks/stream": _FUNCTION,
        "dynamodb:ListStreams on *": _FUNCTION,
        "lambda:InvokeFunction on function:sweeper": _FUNCTION,
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
        *(Use(f"dynamodb:{action}", "audit") for action in ("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem")),
        *(Use(f"dynamodb:{action}", "control", "queues") for action in ("PutItem", "DeleteItem", "BatchWriteItem")),
        *(
            Use("dynamodb:UpdateItem", "control", "queues", frozenset({"pk", "sk", layer}))
            for layer in ("declared", "file_defaults", "override", "paused_at", "shards_ever")
        ),
        *(Use(f"dynamodb:{action}", "control", "secret#cursor") for action in ("GetItem", "Query", "PutItem")),
    ),
    "operator": (
        *(Use(f"dynamodb:{action}", "audit") for action in ("UpdateItem", "DeleteItem", "BatchWriteItem")),
        *(Use(f"dynamodb:{action}", "control", "rate#billing") for action in ("PutItem", "UpdateItem")),
    ),
    "reader": (
        *(
            Use(f"dynamodb:{action}", table, key)
            for action in _WRITES
            for table, key in (("tasks", None), ("dlq", None), ("audit", None), ("control", "queues"))
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
        *(Use(f"dynamodb:{action}", table) for action in ("GetItem", "Query", *_WRITES) for table in ("tasks", "dlq")),
        *(Use(f"dynamodb:{action}", "control", "queues") for action in _WRITES),
    ),
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
    for flow in EVERY:
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


@pytest.mark.parametrize("role", EVERYBODY)
def test_a_role_may_do_what_it_does(stack: Template, uses: Uses, role: str) -> None:
    allowed = grants(stack, role)
    assert [use for use in uses[role] if not any(grant.allows(use) for grant in allowed)] == []


@pytest.mark.parametrize("role", EVERYBODY)
def test_a_role_may_do_nothing_that_it_does_not_do(stack: Template, uses: Uses, role: str) -> None:
    unused = {str(grant) for grant in grants(stack, role) if not any(grant.allows(use) for use in uses[role])}
    assert unused == set(UNUSED_HERE[role])


@pytest.mark.parametrize("role", EVERYBODY)
def test_a_role_is_kept_from_what_is_not_its_own(stack: Template, role: str) -> None:
    allowed = grants(stack, role)
    assert [use for use in FORBIDDEN[role] if any(grant.allows(use) for grant in allowed)] == []


def test_nobody_changes_the_audit(stack: Template) -> None:
    changes = [Use(f"dynamodb:{action}", "audit") for action in ("UpdateItem", "DeleteItem", "BatchWriteItem")]
    everything = [grant for name in of_type(stack, "AWS::IAM::Role") for grant in role_grants(stack, name)]
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
    everything = [grant for name in of_type(stack, "AWS::IAM::Role") for grant in role_grants(stack, name)]
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
    roles = [grant for name in of_type(stack, "AWS::IAM::Role") for grant in role_grants(stack, name)]
    policies = [grant for policy in POLICIES.values() for grant in policy_grants(stack, policy)]
    on_control = [grant for grant in (*roles, *policies) if grant.resource == "control"]
    assert on_control
    assert [grant for grant in on_control if grant.leading_keys is None] == []
