"""The CDK construct creates what the SAM template creates, plus an app's queues and grants."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from rdq_core.stores.dynamodb.schema import Tables
from tests.infra import test_tables
from tests.infra.access import Use, policy_grants
from tests.infra.synthesis import run_app
from tests.infra.templates import Template, of_type, run_infra, sam, translated
from tests.support.ministack import ROOT

APP: Final = ROOT / "infra" / "cdk"
OF_THE_APP: Final = "Charge", "Checkout"
VARIED: Final = {"Queues", "SweeperPolicy"}
"""What queues change: the resource that declares them, and whom sweepers may invoke."""


@pytest.fixture
def cdk(synthesised: Path) -> Template:
    template: Template = json.loads((synthesised / "payments.template.json").read_text())
    return template


def with_values(value: Any, values: dict[str, Any]) -> Any:
    """The same with its parameters' values in their place."""
    match value:
        case {"Ref": str(name)} if name in values:
            return values[name]
        case dict():
            return {name: with_values(inner, values) for name, inner in value.items()}
        case list():
            return [with_values(inner, values) for inner in value]
    return value


def wanted() -> Template:
    """The translated SAM template with its parameters' defaults; the code's place is CDK's own."""
    template = translated()
    defaults = {
        name: each["Default"] for name, each in template["Parameters"].items() if "Default" in each
    }
    whole: Template = with_values(template, defaults)
    return whole


def as_text(value: Any) -> Any:
    """The same with truth values and numbers as text: CloudFormation takes either, and CDK makes
    one of the other.
    """
    match value:
        case dict():
            return {name: as_text(inner) for name, inner in value.items()}
        case list():
            return [as_text(inner) for inner in value]
    return str(value).lower() if isinstance(value, bool | int) else value


def own(template: Template) -> dict[str, Any]:
    return {
        name: resource
        for name, resource in template["Resources"].items()
        if not name.startswith(OF_THE_APP) and resource["Type"] != "AWS::CDK::Metadata"
    }


def comparable(resource: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: value for name, value in resource.get("Properties", {}).items() if name != "Code"
    }
    kept = {
        name: resource.get(name)
        for name in ("Type", "Condition", "DeletionPolicy", "UpdateReplacePolicy")
    }
    return {**kept, "Properties": as_text(properties)}


def test_both_have_the_same_resources(cdk: Template) -> None:
    assert set(own(cdk)) == set(translated()["Resources"])


def test_each_resource_is_the_same_in_both(cdk: Template) -> None:
    from_sam, from_cdk = wanted()["Resources"], own(cdk)
    for name in set(from_sam) - VARIED:
        assert comparable(from_cdk[name]) == comparable(from_sam[name]), name


def test_conditions_decide_alike(cdk: Template) -> None:
    # Lists of no functions and of an empty name both join to nothing.
    both = [
        {name: each for name, each in t["Conditions"].items() if name != "HasHandlers"}
        for t in (cdk, wanted())
    ]
    assert as_text(both[0]) == as_text(both[1])


CHECKS: Final[tuple[Callable[..., None], ...]] = (
    test_tables.test_keys_and_indexes_are_those_of_the_store,
    test_tables.test_streams_are_those_of_the_store,
    test_tables.test_rows_expire_by_the_attribute_of_the_store,
    test_tables.test_tables_can_be_restored_and_are_encrypted,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("table", test_tables.FIELDS)
def test_its_tables_are_those_of_the_store(
    cdk: Template, table: str, check: Callable[..., None]
) -> None:
    check(cdk, table)


def test_a_queue_is_declared_with_the_stack(cdk: Template) -> None:
    queues = cdk["Resources"]["Queues"]
    (queue,) = queues["Properties"]["Config"]["queues"].items()
    assert "Condition" not in queues
    assert queue[0] == "payments.charge"
    assert queue[1]["handlers"]["charge-payment"]["function"] == {"Ref": charge(cdk)}


def test_sweepers_may_invoke_the_queues_handlers_and_no_others(cdk: Template) -> None:
    grants = [
        each
        for each in policy_grants(cdk, "SweeperPolicy")
        if each.action == "lambda:InvokeFunction"
    ]
    assert [grant.resource for grant in grants] == [charge(cdk)]
    assert not any(grant.allows(Use("lambda:InvokeFunction", "another")) for grant in grants)


def test_the_rest_of_the_sweepers_policy_is_the_same(cdk: Template) -> None:
    def others(template: Template) -> list[str]:
        return [
            str(each)
            for each in policy_grants(template, "SweeperPolicy")
            if each.action.startswith("dynamodb")
        ]

    assert others(cdk) == others(sam())


def test_a_grant_attaches_the_policy(cdk: Template) -> None:
    (role,) = (
        each for name, each in of_type(cdk, "AWS::IAM::Role").items() if name.startswith("Checkout")
    )
    assert role["ManagedPolicyArns"] == [{"Ref": "SubmitterPolicy"}]


def test_nothing_is_found_but_what_has_a_reason(synthesised: Path) -> None:
    reports = json.loads((synthesised / "validation-report.json").read_text())["pluginReports"]
    errors = [
        (found["ruleName"], found["severity"])
        for report in reports
        for found in report["violations"]
        if found["severity"] != "warning"
    ]
    assert errors == []


ASKED_TWICE: Final = """
import json

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from rdq_cdk import Options, Rdq

stack = cdk.Stack(cdk.App(analytics_reporting=False), "acme")
role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
rdq = Rdq(stack, "Rdq", Options(package=__file__, body_bucket=HAS_BUCKET))
for _ in range(2):
    rdq.grant_submit(role)
    rdq.alarm_topic.topic_arn, rdq.ops_function.function_arn
arns = role.node.default_child.managed_policy_arns
print(json.dumps([stack.resolve(rdq.environment), stack.resolve(arns)]))
"""


@pytest.mark.parametrize("has_bucket", [True, False])
def test_a_program_gets_the_names_that_it_needs_however_often_it_asks(
    tmp_path: Path, has_bucket: bool
) -> None:
    script = tmp_path / "app.py"
    script.write_text(ASKED_TWICE.replace("HAS_BUCKET", str(has_bucket)))
    environment, policies = json.loads(run_app(script, PYTHONPATH=str(APP)))
    bucket = {"RDQ_BODY_BUCKET": {"Ref": "BodyBucket"}} if has_bucket else {}
    tables = {
        name: f"{name.split('_')[1].capitalize()}Table"
        for name in Tables("t-1", "d-1", "c-1", "a-1").as_env()
    }
    assert environment == {name: {"Ref": table} for name, table in tables.items()} | bucket
    assert policies == [{"Ref": "SubmitterPolicy"}]


def charge(template: Template) -> str:
    (name,) = (
        name for name in of_type(template, "AWS::Lambda::Function") if name.startswith("Charge")
    )
    return name


def test_its_distribution_brings_the_template(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=APP, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("rdq_cdk-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    told = run_infra(
        "python", str(tmp_path / "installed" / "rdq_cdk" / "template.py"), cwd=tmp_path
    )
    assert json.loads(told)["source"] == sam()
