"""Many submits in a few requests, each with its own answer."""

from collections.abc import Callable, Iterable, Iterator

from rdq_core.domain.lifecycle import not_tried
from rdq_core.engine.ports import Submission
from rdq_core.engine.submit import Draft, Receipt, Submitter
from rdq_core.errors import RdqError, StoreFailed, Unavailable
from rdq_core.handlers.new_task import NewTask, new_task_of


def submit_all(
    items: Iterable[object],
    draft_of: Callable[[NewTask], Draft],
    submitter: Submitter,
    on_progress: Callable[[int], object] | None,
) -> list[Receipt | RdqError]:
    """An answer for each item, in their order: its receipt, or the error that it met.

    Once storage has failed, items that weren't under way are not tried any more, and say so.
    """
    items = iter(items)
    answers: list[Receipt | RdqError] = []
    for run in submitter.submit_many(_drafts(items, draft_of)):
        for answer in run:
            answers.append(_receipt(answer))
            if on_progress is not None:
                on_progress(len(answers))
        if any(isinstance(answer, StoreFailed | Unavailable) for answer in run):
            return [*answers, *(not_tried(None) for _ in items)]
    return answers


def _drafts(
    items: Iterator[object], draft_of: Callable[[NewTask], Draft]
) -> Iterator[Draft | RdqError]:
    for item in items:
        try:
            yield draft_of(new_task_of(item))
        except RdqError as refused:
            yield refused


def _receipt(answer: Submission | RdqError) -> Receipt | RdqError:
    if isinstance(answer, RdqError):
        return answer
    return Receipt(answer.task.id, answer.task.queue, answer.created)
