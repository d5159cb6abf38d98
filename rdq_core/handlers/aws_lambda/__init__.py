"""Handlers that are Lambda functions: their events, their answers, and the invoker.

handler_events       the events, as sweeper and function write and read them
answers              what an answer means under the queue's rules
reports              a FunctionError, in any language's form, as the attempt's error
invocation_errors    what botocore's errors mean for a task
invoker              calls the functions
"""

from rdq_core.handlers.aws_lambda.invoker import LambdaInvoker as LambdaInvoker
