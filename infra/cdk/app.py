"""An example: rdq beside an application, with one queue whose handler is a Lambda
function.

make package
cd infra/cdk && cdk deploy --app "python app.py"
"""

import os
from pathlib import Path
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from cdk_nag import AwsSolutionsChecks

from rdq_cdk import Options, Rdq
from rdq_cdk.exemptions import acknowledge

PACKAGE: Final = Path(__file__).parents[2] / "dist" / "rdq-functions-arm64.zip"
CHARGE: Final = "def handler(order, context):\n    return {'charged': order['amount']}\n"


class Payments(cdk.Stack):
    """The stack `payments`: rdq, a function that charges cards, and the role of the service that
    submits.
    """

    def __init__(self, app: cdk.App, name: str, package: str) -> None:
        super().__init__(app, name)
        self.rdq = Rdq(self, "Rdq", Options(package=package))
        self.charge = lambda_.Function(
            self,
            "Charge",
            runtime=lambda_.Runtime.PYTHON_3_14,
            handler="index.handler",
            code=lambda_.Code.from_inline(CHARGE),
            timeout=cdk.Duration.seconds(30),
            retry_attempts=0,
        )
        self.rdq.add_queue(
            "payments.charge",
            {"retry": {"max_attempts": 8}, "execution": {"handler_timeout": "30s"}},
            handlers={"charge-payment": self.charge},
        )
        checkout = iam.Role(
            self, "Checkout", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        )
        self.rdq.grant_submit(checkout)


def main() -> None:
    """Synthesise the stack, with the rules of AWS Solutions checked."""
    app = cdk.App(analytics_reporting=False)
    stack = Payments(app, "payments", os.environ.get("RDQ_PACKAGE", str(PACKAGE)))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    acknowledge(stack.rdq)
    policy = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    logs = f"AwsSolutions-IAM4[Policy::{policy}]"
    reason = "an example's function may write to any log group"
    cdk.Validations.of(stack.charge).acknowledge(cdk.Acknowledgment(id=logs, reason=reason))
    app.synth()


if __name__ == "__main__":
    main()
