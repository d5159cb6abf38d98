"""rdq for CDK apps: `Rdq` is the whole system of one stage as one construct."""

from rdq_cdk.construct import Options as Options
from rdq_cdk.construct import Rdq as Rdq
