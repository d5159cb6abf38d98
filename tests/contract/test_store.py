"""Every store keeps the whole contract. What it says is in the modules beside this one, a family of promises each."""

from tests.contract.claiming import CandidateContract, ClaimContract, LeaseContract
from tests.contract.submitting import ReuseContract, SubmitContract


class TestSubmit(SubmitContract):
    pass


class TestReuse(ReuseContract):
    pass


class TestCandidates(CandidateContract):
    pass


class TestClaim(ClaimContract):
    pass


class TestLease(LeaseContract):
    pass
