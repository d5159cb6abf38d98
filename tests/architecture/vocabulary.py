"""The words that names and texts of the product may and may not have.

A name of a module or a public class is made of words from `docs/glossary.md` and of the ordinary
words below. A new concept gets a line in the glossary; a plain English or programming word is added
here.
"""

import re
from typing import Final

ORDINARY: Final = frozenset(
    """
    accept access advance app apply atomic attr auditor aws backlog bar batch bench bound builder
    bulk busy change classified cli cloudformation code collect command comparison config conflict
    connection content contract control core corrupt custom decode default define delete deletion
    deliver demo detail diff difference dispatch document domain drain dynamo dynamodb editor
    embedded encode engine environment event execution expression factory fail fault field file
    filter find float follow forbidden format found frozen garbage gc get grant id ids init input
    insert interleave invalid invoke item json kind lifecycle line list listener live load local
    lose main many memory merge messages metric mismatch mode moto mutation narrator no operating
    operation ops option order output parser part phase pipe plugin pool port position preview
    problem process progress quiet raise reason receive refuse register reject remote removal repair
    report resolve resource resume return reuse rig rule rung runtime schema script seen selection
    send serve short show sink skip sleep source span stack stale step strict submission success
    system table taken telemetry text time tour trace transactional treat unavailable undelivered
    unit unquoted unreached url usage value verb view wire write written
    """.split()  # noqa: SIM905 - a list of words reads better as text
)

PRIVATE: Final = frozenset(
    """
    bury chore chores company deed deeds desk desks feed lane leavings lanes night nobody places
    relay remains somebody tell tells till told tries verdicts vigil whoever
    """.split()  # noqa: SIM905 - the same
)
"""Words that no name of the product has: they were private to rdq, or stand for no thing."""

PRIVATE_PHRASES: Final = ("last_look", "in_force")
"""The same, for names of several words."""

SEVERAL_CLASSES: Final[dict[str, str]] = {
    "Execution": "the builder's section of a queue file, and a started handler",
    "Handler": "the builder's section of a queue file, and a registered handler",
    "Fault": "what went wrong with a request to AWS, and one that the test kit injects",
    "History": "the attempt records in DynamoDB, and the test kit's assertions on attempts",
    "Request": "a request to the ops function, and one to AWS that the test kit may fail",
}
"""Class names that two modules may define, and why."""

_EACH_LAYER: Final = (
    "audit", "claiming", "dead_letters", "forgetting", "job", "jobs", "queues", "references",
    "reservations", "settling", "submit", "submitting", "task", "tasks", "worker",
)  # fmt: skip
SEVERAL_MODULES: Final[dict[str, str]] = {
    **dict.fromkeys(_EACH_LAYER, "a command, a request, a port, a store, a contract for this noun"),
    "context": "what a handler sees of its task, and what a request is answered from",
    "clock": "the storage clock, and the test kit's clocks",
    "faults": "failed requests to AWS, and those that the test kit injects",
    "history": "the chain of attempt records, and the test kit's assertions on it",
    "ids": "ids of tasks, and ids as commands accept them",
    "intake": "the Lambda function, and the code behind it",
    "schema": "the schema of queue files, and that of the tables",
}
"""Module names that two packages may have, and why."""

TRANSLATED: Final[dict[str, str]] = {
    r"\bnobody\b": "name who: no worker, no caller, nothing",
    r"\bsomebody\b": "name who: another worker, another process, the operator",
    r"\bwhoever\b": "name who: the caller, the operator, another host",
    r"\b(?:is|are|was|be|been) told\b": "reported, returned, raised, given, or said in the error",
    r"\b(?:tells?|told) of\b": "emits, logs or reports",
    r"\bso many\b": "the number of",
    r"\bgo(?:es)? by (?:itself|themselves)\b": "expires, or is removed by TTL",
    r"\bhow (?:it|they) fares?\b": "what becomes of it; the state of",
    r"\bis none (?:that|of)\b": "is not in, is not one of",
    r"\bcame and went\b": "was submitted and removed meanwhile",
    r"\btake[ns]? (?:its|his|the) word back\b": "cancels",
    r"\bword that is taken back\b": "a cancelled reservation",
    r"\b(?:has|have) been heard of\b": "was seen",
    r"\bas (?:one|it|you) likes?\b": "any number of, any",
    r"\bof (?:its|their) own accord\b": "automatically",
    r"\bthere is to be had\b": "is available",
    r"\blets? others have\b": "releases",
    r"\b(?:is|are) no affair of\b": "does not concern",
    r"\bfor want of\b": "because there is no",
    r"\bwherein\b": "where, in which",
    r"\bfalls? asleep\b": "ends, or waits",
    r"\bgives? (?:its|his) word\b": "promises, reserves",
}
"""Phrases that read as translated, and what to write instead."""


def words_of(name: str) -> list[str]:
    """A name's words in lower case: `DueReader` and `due_reader` both give due, reader."""
    return [
        word.lower()
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+", name.replace("_", " "))
    ]


_ENDINGS: Final = ("ation", "ing", "er", "ied", "ies", "ed", "es", "s", "e", "y")


def stem(word: str) -> str:
    """A word without its usual endings, so that `claims`, `claimed` and `claiming` are `claim`."""
    ending = next((end for end in _ENDINGS if word.endswith(end) and len(word) > len(end) + 2), "")
    if ending:
        return stem(word.removesuffix(ending))
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word
