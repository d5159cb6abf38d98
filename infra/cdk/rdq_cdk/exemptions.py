"""Exemptions of rdq's resources from cdk-nag's AWS Solutions rules, each with its reason."""

from typing import Final

import aws_cdk as cdk

from rdq_cdk.construct import Rdq

_STREAMS: Final = "Lambda lists the account's streams, which has no resource-level permission"
_RUNTIME: Final = "the package has compiled code for this version of Python"

REASONS: Final[dict[str, dict[str, str]]] = {
    "BodyBucket": {
        "AwsSolutions-S1": "only rdq's roles read it, and CloudTrail records data events better"
    },
    "KickRole": {"AwsSolutions-IAM5[Resource::*]": _STREAMS},
    "CleanUpRole": {"AwsSolutions-IAM5[Resource::*]": _STREAMS},
    "UndeliveredQueue": {
        "AwsSolutions-SQS3": "it is itself the destination of what could not be delivered"
    },
    **{
        f"{function}Function": {"AwsSolutions-L1": _RUNTIME}
        for function in ("Sweeper", "Kick", "CleanUp", "Ops", "Intake")
    },
}
"""By resource and rule."""


def acknowledge(rdq: Rdq) -> None:
    """Acknowledge these findings in an app that runs cdk-nag itself."""
    for resource, rules in REASONS.items():
        found = rdq.template.get_resource(resource)
        cdk.Validations.of(found).acknowledge(
            *(cdk.Acknowledgment(id=rule, reason=reason) for rule, reason in rules.items())
        )
