"""A job's record is never changed, only followed by another."""

from dataclasses import replace

from rdq_core.testing.contract.jobs import a_job


def test_a_changed_record_is_the_next_version() -> None:
    assert a_job().changed(done=1) == replace(a_job(), done=1, revision=2)
