"""Who asks for what: requests as they are made, and policies as the templates grant them.

Resources have short names: `tasks`, `tasks/index/due`, `bodies/keep/...`, `function:sweeper`.
Unlike ministack, this decides on leading keys and attributes too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from rdq_core.stores.dynamodb.schema import Tables
from tests.infra.templates import Template, as_list, statements

_TABLES: Final = {
    "TasksTable": "tasks",
    "DlqTable": "dlq",
    "ControlTable": "control",
    "AuditTable": "audit",
}
_FUNCTIONS: Final = {"SweeperFunction": "function:sweeper"}
_BUCKET: Final = {"BodyBucket": "bodies"}
_KEYS: Final = ("ForAllValues:StringEquals", "ForAllValues:StringLike", "StringEquals", "Bool")
_PARTS: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
_UNDER_BATCH: Final = {"PutRequest": "Item", "DeleteRequest": "Key"}


@dataclass(frozen=True, slots=True)
class Use:
    """One action on one resource; in the control table of this partition, and of an update these
    attributes.

    `is_through_url` says that a function is called by its URL.
    """

    action: str
    resource: str
    leading_key: str | None = None
    attributes: frozenset[str] = frozenset()
    is_through_url: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """One action on one resource, where the partition and the attributes fit these patterns; None:
    any.

    `only_through_url` keeps a function from being called in any other way.
    """

    action: str
    resource: str
    leading_keys: tuple[str, ...] | None = None
    attributes: tuple[str, ...] | None = None
    only_through_url: bool = False

    def allows(self, use: Use) -> bool:
        """Whether it is this grant that a request may be made by."""
        return (
            self.action == use.action
            and fnmatchcase(use.resource, self.resource)
            and (self.leading_keys is None or _fits(use.leading_key or "", self.leading_keys))
            and (
                self.attributes is None
                or all(_fits(each, self.attributes) for each in use.attributes)
            )
            and (use.is_through_url or not self.only_through_url)
        )

    def __str__(self) -> str:
        only = "" if self.leading_keys is None else f" under {', '.join(self.leading_keys)}"
        way = " through its URL" if self.only_through_url else ""
        return f"{self.action} on {self.resource}{only}{way}"


def _fits(value: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def grants_of(document: Mapping[str, Any]) -> list[Grant]:
    """What a policy document allows, each leading key by itself."""
    return [grant for statement in statements(document) for grant in _grants(statement)]


def _grants(statement: Mapping[str, Any]) -> Iterator[Grant]:
    assert statement["Effect"] == "Allow", statement
    conditions = {
        key: tuple(as_list(value))
        for operator, wanted in statement.get("Condition", {}).items()
        if operator in _KEYS
        for key, value in wanted.items()
    }
    keys = conditions.get("dynamodb:LeadingKeys")
    for action in as_list(statement["Action"]):
        for resource in as_list(statement["Resource"]):
            for key in keys or (None,):
                yield Grant(
                    action,
                    resource_name(resource),
                    None if key is None else (key,),
                    conditions.get("dynamodb:Attributes"),
                    only_through_url=conditions.get("lambda:InvokedViaFunctionUrl") == ("true",),
                )


def resource_name(resource: Any) -> str:
    """The short name of what a template calls a resource."""
    match resource:
        case {"Fn::GetAtt": [name, "Arn"]}:
            return _FUNCTIONS.get(name) or _short(name)
        case {"Fn::GetAtt": [name, "StreamArn"]}:
            return f"{_short(name)}/stream"
        case {"Fn::Sub": str(text)}:
            if (function := re.search(r":function:\$\{AWS::StackName\}-(.*)$", text)) is not None:
                return f"function:{function[1]}"
            return re.sub(r"\$\{(\w+)\.Arn\}", lambda found: _short(found[1]), text)
        case {"Ref": str(name)}:
            return name
    return str(resource)


def _short(name: str) -> str:
    return {**_TABLES, **_BUCKET}.get(name, name)


def policy_grants(template: Template, logical_id: str) -> list[Grant]:
    """What a managed policy allows."""
    return grants_of(template["Resources"][logical_id]["Properties"]["PolicyDocument"])


def own_grants(template: Template, logical_id: str) -> list[Grant]:
    """What a role may by its own policies."""
    role = template["Resources"][logical_id]["Properties"]
    return [
        grant
        for policy in role.get("Policies", ())
        for grant in grants_of(policy["PolicyDocument"])
    ]


def role_grants(template: Template, logical_id: str) -> list[Grant]:
    """What a role may do, by its own policies and the template's managed policies it has."""
    role = template["Resources"][logical_id]["Properties"]
    managed = [policy_grants(template, each["Ref"]) for each in role.get("ManagedPolicyArns", ())]
    return own_grants(template, logical_id) + [grant for grants in managed for grant in grants]


@dataclass
class Watch:
    """Notes what botocore is asked for, by whom, while somebody is named."""

    tables: Tables
    used: dict[str, set[Use]] = field(default_factory=dict)
    who: str | None = None

    def on(self, client: Any) -> None:
        """Watch a client from now on."""
        client.meta.events.register("before-parameter-build", self._note)

    @contextmanager
    def of(self, who: str) -> Iterator[None]:
        """What is asked for meanwhile is asked by this role."""
        before, self.who = self.who, who
        try:
            yield
        finally:
            self.who = before

    def note(self, *uses: Use) -> None:
        """These are asked for by whoever is named, if anybody is."""
        if self.who is not None:
            self.used.setdefault(self.who, set()).update(uses)

    def _note(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        self.note(*self._uses(model, params))

    def _uses(self, model: Any, params: Mapping[str, Any]) -> Iterator[Use]:
        if model.service_model.service_name == "s3":
            yield from _object_uses(model.name, params)
        elif model.service_model.service_name == "dynamodb":
            yield from self._table_uses(model.name, params)

    def _table_uses(self, operation: str, params: Mapping[str, Any]) -> Iterator[Use]:
        match operation:
            case "TransactWriteItems":
                for part in params["TransactItems"]:
                    for kind, request in part.items():
                        yield self._use(_PARTS[kind], request)
            case "BatchWriteItem":
                for table, requests in params["RequestItems"].items():
                    for request in requests:
                        item = next(
                            request[kind][of]
                            for kind, of in _UNDER_BATCH.items()
                            if kind in request
                        )
                        yield self._use(operation, {"TableName": table, "Key": item})
            case "BatchExecuteStatement":
                for statement in params["Statements"]:
                    (table,) = re.findall(r'INSERT INTO "([^"]+)"', statement["Statement"])
                    yield self._use("PartiQLInsert", {"TableName": table})
            case _:
                yield self._use(operation, params)

    def _use(self, action: str, request: Mapping[str, Any]) -> Use:
        resource = self._names[request["TableName"]]
        if "IndexName" in request:
            resource += f"/index/{request['IndexName']}"
        key = request.get("Key") or request.get("Item") or {}
        partition = key.get("pk", {}).get("S") or (
            _queried(request) if resource == "control" else None
        )
        # IAM knows the attributes that the request names, its keys included.
        attributes = (
            {*key, *request.get("ExpressionAttributeNames", {}).values()}
            if action == "UpdateItem"
            else ()
        )
        return Use(f"dynamodb:{action}", resource, partition, frozenset(attributes))

    @property
    def _names(self) -> dict[str, str]:
        return {
            getattr(self.tables, field): field for field in ("tasks", "dlq", "control", "audit")
        }


def _queried(request: Mapping[str, Any]) -> str | None:
    """The partition that a query asks for."""
    values: Sequence[Mapping[str, str]] = list(
        request.get("ExpressionAttributeValues", {}).values()
    )
    found = re.match(r"#pk = (:\w+)", request.get("KeyConditionExpression", ""))
    return (
        None if found is None or not values else request["ExpressionAttributeValues"][found[1]]["S"]
    )


def _object_uses(operation: str, params: Mapping[str, Any]) -> Iterator[Use]:
    match operation:
        case "ListObjectsV2":
            yield Use("s3:ListBucket", "bodies")
        case "CopyObject":
            # botocore has made one text of it by now.
            yield Use("s3:GetObject", f"bodies/{params['CopySource'].partition('/')[2]}")
            yield Use("s3:PutObject", f"bodies/{params['Key']}")
        case "GetObject" | "PutObject" | "DeleteObject":
            yield Use(f"s3:{operation}", f"bodies/{params['Key']}")
        case _:
            raise AssertionError(f"nobody may {operation}")
