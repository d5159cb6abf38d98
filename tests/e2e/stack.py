"""A stack on a ministack of its own that decides requests by IAM: one CloudFormation call, and
roles to act in.
"""

import io
import json
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config

from infra.package import build
from rdq_core import Rdq
from rdq_core.stores.dynamodb.schema import Tables
from tests.engine.world import until
from tests.support.engines import REGION
from tests.support.ministack import Ministack

ACCOUNT: Final = "000000000000"
PATIENCE: Final = 240.0
EVERY: Final = 0.25
_ENDED: Final = ("_COMPLETE", "_FAILED")


def package(folder: Path) -> Path:
    """The functions' zip as `make package` builds it, for the Python and processor that ministack
    runs them on.
    """
    return build("x86_64", folder, python=f"{sys.version_info.major}.{sys.version_info.minor}")


@dataclass(frozen=True, slots=True)
class Account:
    """An AWS account on a server, as its administrator sees it."""

    server: Ministack

    def client(self, service: str, credentials: Mapping[str, str] | None = None) -> Any:
        """A client of the administrator, or of whoever has these credentials."""
        keys = credentials or {"AccessKeyId": "test", "SecretAccessKey": "test"}
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.server.endpoint_url,
            region_name=REGION,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys.get("SessionToken"),
            config=Config(retries={"total_max_attempts": 1}, read_timeout=120),
        )

    def put_package(self, bucket: str, key: str, file: Path) -> None:
        """Upload a package to a bucket, which is made."""
        s3 = self.client("s3")
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())

    def role(self, name: str, *policies: str, service: str | None = None) -> str:
        """A role with these policies, for a service or for people of the account. Its ARN."""
        iam = self.client("iam")
        who = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"} if service is None else {"Service": service}
        trust = {"Effect": "Allow", "Principal": who, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
        for policy in policies:
            iam.attach_role_policy(RoleName=name, PolicyArn=policy)
        return arn

    def assume(self, role: str) -> Mapping[str, str]:
        """Credentials of somebody in this role."""
        answer = self.client("sts").assume_role(RoleArn=role, RoleSessionName="somebody")
        credentials: Mapping[str, str] = answer["Credentials"]
        return credentials

    def function(self, name: str, code: str, **environ: str) -> str:
        """A function of the application's own. Its ARN."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("index.py", code)
        answer = self.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=self.role(f"{name}-role", service="lambda.amazonaws.com"),
            Handler="index.handler",
            Timeout=30,
            Environment={"Variables": environ},
            Code={"ZipFile": buffer.getvalue()},
        )
        arn: str = answer["FunctionArn"]
        return arn

    def deploy(self, name: str, template: str, **parameters: str) -> "Stack":
        """A stack from a template, by one call. What went wrong is told with each resource's
        reason.
        """
        cloudformation = self.client("cloudformation")
        cloudformation.create_stack(
            StackName=name,
            TemplateBody=template,
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
            Parameters=[
                {"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()
            ],
        )

        def found() -> Any:
            return cloudformation.describe_stacks(StackName=name)["Stacks"][0]

        until(lambda: found()["StackStatus"].endswith(_ENDED), patience=PATIENCE, every=EVERY)
        events = cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        problems = [
            (each["LogicalResourceId"], each.get("ResourceStatusReason"))
            for each in events
            if each["ResourceStatus"].endswith("FAILED")
        ]
        assert (found()["StackStatus"], problems) == ("CREATE_COMPLETE", [])
        outputs = {each["OutputKey"]: each["OutputValue"] for each in found().get("Outputs", ())}
        return Stack(self, name, outputs)


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack that was deployed, by what it puts out."""

    account: Account
    name: str
    outputs: Mapping[str, str]

    @property
    def tables(self) -> Tables:
        """The names of its tables."""
        return Tables(
            *(self.outputs[f"{table}TableName"] for table in ("Tasks", "Dlq", "Control", "Audit"))
        )

    def acting_as(self, role: str) -> "Actor":
        """Somebody in a role that has one of the stack's policies: submitter, sweeper, operator or
        reader.
        """
        policy = self.outputs[f"{role.capitalize()}PolicyArn"]
        return Actor(self, self.account.assume(self.account.role(f"{self.name}-{role}", policy)))

    def told(self, function: str) -> str:
        """What a function has logged so far."""
        logs, group = self.account.client("logs"), f"/aws/lambda/{self.name}-{function}"
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        return "\n".join(each["message"] for page in pages for each in page["events"])


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody with a role's credentials."""

    stack: Stack
    credentials: Mapping[str, str]

    def client(self, service: str) -> Any:
        return self.stack.account.client(service, self.credentials)

    @property
    def rdq(self) -> Rdq:
        return Rdq(client=self.client("dynamodb"), tables=self.stack.tables)

    def ask(self, **document: Any) -> dict[str, Any]:
        """What the ops function answers."""
        answer = self.client("lambda").invoke(
            FunctionName=self.stack.outputs["OpsFunctionName"],
            Payload=json.dumps(document).encode(),
        )
        told: dict[str, Any] = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, told
        return told
