"""The words that names and texts of the product may and may not have.

A name of a module or a public class is made of words from `docs/glossary.md` and of the ordinary
words below. A new concept gets a line in the glossary; a plain English or programming word is added
here.
"""

import re
from typing import Final

ORDINARY: Final = frozenset(
    """
    abort accept access advance after and app apply argument ask atomic attr auditor aws
    background backlog bar bench bound broken builder built bulk busy capacity change charge check
    child claim cleanup cli client clock close cloudformation code collect command common
    condition config conflict connection content contract control core corrupt count custom
    database day decode default define delete deletion deliver delivery demo detail diff
    difference dispatch document domain done double drain dynamo dynamodb edit editor embedded
    encode end endpoint engine entry environment error event example execution expression fact
    factory fail fake fault field file filter find float follow forbidden format found frozen
    function garbage gc get give grant hand held hold host hub id ids in index init input insert
    inside intake interleave invalid invoke item json keep keeper key kind lambda letter lettering
    lifecycle limit limiter line list live load loader local log lose main many match meaning
    memory mention merge meter metric misfit mismatch misuse moment moto move mutation name new no
    not number object of offer on one open operating operation operator ops option order out
    output outside over own owner package page parser part patience phase pick pipe place plain
    plan plugin point policy pool port preview print private problem process progress query quiet
    raise range read reader reason receive receiver refusal refuse register reject release remote
    removal remove renew repair report request resolve resource response resume return reuse rig
    route row rule run rung runtime said say schema screen script search secret see seen select
    selection send sender serve server set shape short show sign signature sink size skip sleep
    sleeper source span spec split stack stage stale start state stats step stock storage store
    story stream strict structure style submission sum sync syntax system table take taken tally
    telemetry teller test text time trace tracing transact transaction transactional treat trial
    try turn type unavailable undelivered unit unknown unquoted unreached up update url use value
    verb verdict version view wait why wire with work world write written
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
    "Outcome": "the builder's section of a queue file, and how an attempt ended",
    "Retry": "the builder's section of a queue file, and a typed task's policy",
    "Index": "the meter's and the fake database's model of one DynamoDB index",
}
"""Class names that two modules may define, and why."""

_EACH_LAYER: Final = (
    "audit", "claiming", "dead_letters", "dlq", "forgetting", "jobs", "many", "queue_edits",
    "queues", "rate", "references", "reservations", "settling", "submit", "submitting", "task",
    "tasks", "worker",
)  # fmt: skip
SEVERAL_MODULES: Final[dict[str, str]] = {
    **dict.fromkeys(_EACH_LAYER, "a command, a request, a port, a store, a contract for this noun"),
    "clock": "the storage clock, and the test kit's clocks",
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
