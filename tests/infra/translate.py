"""Reads a SAM template as JSON and prints what CloudFormation makes of it. Runs in the third environment."""

import json
import os
import sys

from samtranslator.translator.transform import transform

os.environ.setdefault("AWS_DEFAULT_REGION", "eu-central-1")


class NoPolicies:
    """The template attaches no policy of AWS's own by its name."""

    def load(self) -> dict[str, str]:
        return {}


json.dump(transform(json.load(sys.stdin), {}, NoPolicies()), sys.stdout)
