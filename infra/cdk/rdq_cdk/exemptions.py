"""Findings of cdk-nag's AWS Solutions rules that stand in rdq's own resources, each with its
reason.
"""

from typing import Final

import aws_cdk as cdk

from rdq_cdk.construct import Rdq

_STREAMS: Final = "Lambda lists the account's streams, and IAM knows no resource for that"
_RUNTIME: Final = "the package holds compiled code, made for this version of Python"

REASONS: Final[dict[str, dict[str, str]]] = {
    "BodyBucket": {
        "AwsSolutions-S1": "only rdq's roles read it, which CloudTrail's data events tell better than a second bucket"
    },
    "KickRole": {"AwsSolutions-IAM5[Resource::*]": _STREAMS},
    "CleanUpRole": {"AwsSolutions-IAM5[Resource::*]": _STREAMS},
    "UndeliveredQueue": {"AwsSolutions-SQS3": "it is where that goes which could not be delivered"},
    **{
        f"{function}Function": {"AwsSolutions-L1": _RUNTIME}
        for function in ("Sweeper", "Kick", "CleanUp", "Ops", "Intake")
    },
}
"""By resource and rule."""


def acknowledge(rdq: Rdq) -> None:
    """Let an app that checks itself pass over these."""
    for resource, rules in REASONS.items():
        found = rdq.template.get_resource(resource)
        cdk.Validations.of(found).acknowledge(
            *(cdk.Acknowledgment(id=rule, reason=reason) for rule, reason in rules.items())
        )
