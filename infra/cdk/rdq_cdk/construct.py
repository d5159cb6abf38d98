"""`Rdq`, the construct: everything that the SAM template has, with queues and grants as calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_sns as sns
from aws_cdk import cloudformation_include as include
from constructs import Construct

from rdq_cdk.template import translated, written

_HANDLERS: Final = "Handlers"
_TABLES: Final = ("tasks", "dlq", "control", "audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may differ between stages. `package` is what `make package` has built for this
    architecture.

    `sweeper_concurrency` reserves so much for the sweeper; None reserves none. `alarm_email` gets
    the alarms.
    """

    package: str | Path
    architecture: str = "arm64"
    deletion_protection: bool = True
    body_bucket: bool = True
    schedule_enabled: bool = True
    sweeper_concurrency: int | None = None
    log_retention_days: int = 30
    alarm_email: str = ""
    dead_letter_threshold: int = 1
    pending_age_threshold: int = 900
    intake_queue_arn: str = ""
    intake_routes: str = "{}"

    def as_parameters(self) -> dict[str, Any]:
        """The template's parameters, except for where the code is."""
        return {
            "Architecture": self.architecture,
            "DeletionProtection": str(self.deletion_protection).lower(),
            "CreateBodyBucket": str(self.body_bucket).lower(),
            "ScheduleState": "ENABLED" if self.schedule_enabled else "DISABLED",
            "SweeperConcurrency": -1
            if self.sweeper_concurrency is None
            else self.sweeper_concurrency,
            "LogRetentionDays": self.log_retention_days,
            "AlarmEmail": self.alarm_email,
            "DeadLetterThreshold": self.dead_letter_threshold,
            "PendingAgeThreshold": self.pending_age_threshold,
            "IntakeQueueArn": self.intake_queue_arn,
            "IntakeRoutes": self.intake_routes,
            "HandlerFunctionArns": [],
            "QueueConfiguration": "",
        }


class Rdq(Construct):
    """One stage of rdq. There can be one in a stack, whose name begins the names of its tables and
    functions.
    """

    def __init__(self, scope: Construct, construct_id: str, options: Options) -> None:
        super().__init__(scope, construct_id)
        code = assets.Asset(self, "Code", path=str(options.package))
        template = translated()
        parameters = {
            **options.as_parameters(),
            "CodeBucket": code.s3_bucket_name,
            "CodeKey": code.s3_object_key,
        }
        self.template = include.CfnInclude(
            self, "Template", template_file=written(template), parameters=parameters
        )
        self._has_bucket = options.body_bucket
        self._handlers_at = _place_of_handlers(template)
        self._queues: dict[str, Any] = {}
        self._handler_arns: list[str] = []

    # -- queues ------------------------------------------------------------------------------------

    def add_queue(
        self,
        name: str,
        config: Mapping[str, Any] | None = None,
        *,
        handlers: Mapping[str, lambda_.IFunction] | None = None,
    ) -> None:
        """Declare a queue with this configuration, and let sweepers invoke its handlers, by their
        refs.

        What a handler needs beside its function is given in `config`, under `handlers` and the same
        ref. A queue that is taken out again is deleted when it is empty; one that holds tasks stays
        as it is.
        """
        declared = dict(config or {})
        refs = {ref: dict(value) for ref, value in declared.pop("handlers", {}).items()}
        for ref, function in (handlers or {}).items():
            refs.setdefault(ref, {})["function"] = function.function_name
            self._let_invoke(function)
        self._queues[name] = {**declared, **({"handlers": refs} if refs else {})}
        self._declare()

    def _declare(self) -> None:
        resource = self.template.get_resource("Queues")
        resource.cfn_options.condition = None
        resource.add_property_deletion_override("Text")
        resource.add_property_override("Config", {"config_version": 1, "queues": self._queues})

    def _let_invoke(self, function: lambda_.IFunction) -> None:
        if function.function_arn not in self._handler_arns:
            self._handler_arns.append(function.function_arn)
        policy = self.template.get_resource("SweeperPolicy")
        policy.add_property_override(
            f"PolicyDocument.Statement.{self._handlers_at}", self._handlers_statement()
        )

    def _handlers_statement(self) -> dict[str, Any]:
        return {
            "Sid": _HANDLERS,
            "Effect": "Allow",
            "Action": "lambda:InvokeFunction",
            "Resource": self._handler_arns,
        }

    # -- grants ------------------------------------------------------------------------------------

    def grant_submit(self, role: iam.IRole) -> None:
        """Let a role submit tasks, follow and cancel them."""
        self._attach("SubmitterPolicy", role)

    def grant_sweep(self, role: iam.IRole) -> None:
        """Let a role run tasks, as workers and functions that adopt handed-over tasks do."""
        self._attach("SweeperPolicy", role)

    def grant_operate(self, role: iam.IRole) -> None:
        """Let a role inspect and repair queues."""
        self._attach("OperatorPolicy", role)

    def grant_read(self, role: iam.IRole) -> None:
        """Let a role read everything, and write nothing."""
        self._attach("ReaderPolicy", role)

    def _attach(self, policy: str, role: iam.IRole) -> None:
        name, arn = f"{policy}For{role.node.addr}", self.template.get_resource(policy).ref
        if self.node.try_find_child(name) is None:
            role.add_managed_policy(iam.ManagedPolicy.from_managed_policy_arn(self, name, arn))

    # -- outputs ----------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a program needs to find tables and bucket, for its Lambda function or
        container.
        """
        names = {f"RDQ_{name.upper()}_TABLE": f"{name.capitalize()}Table" for name in _TABLES}
        if self._has_bucket:
            names["RDQ_BODY_BUCKET"] = "BodyBucket"
        return {
            variable: self.template.get_resource(resource).ref
            for variable, resource in names.items()
        }

    @cached_property
    def alarm_topic(self) -> sns.ITopic:
        """The topic of the alarms."""
        return sns.Topic.from_topic_arn(
            self, "AlarmTopic", self.template.get_resource("AlarmTopic").ref
        )

    @cached_property
    def ops_function(self) -> lambda_.IFunction:
        """The function that answers operator requests."""
        arn = self.template.get_resource("OpsFunction").get_att("Arn").to_string()
        return lambda_.Function.from_function_arn(self, "OpsFunction", arn)


def _place_of_handlers(template: Mapping[str, Any]) -> int:
    """The place in the sweeper's policy that names the functions it may invoke."""
    statements = template["Resources"]["SweeperPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    return next(
        place for place, each in enumerate(statements) if "HasHandlers" in each.get("Fn::If", ())
    )
