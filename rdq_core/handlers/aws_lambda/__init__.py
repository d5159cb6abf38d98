"""Handlers that are Lambda functions: what is sent to them, what their answers mean, and who calls
them.

answers    what an answer says by the queue's rules         reports    a FunctionError, of whatever language
envelope   the events, as both sides read and write them    refusals   what botocore's errors mean for a task
"""

from rdq_core.handlers.aws_lambda.invoker import LambdaInvoker as LambdaInvoker
