"""Every store keeps the whole contract. What it says is in the modules beside this one, a family of promises each."""

from tests.contract.claiming import CandidateContract, ClaimContract, LeaseContract
from tests.contract.dead_letters import CountContract, EditContract, PageContract, PurgeContract, RedriveContract
from tests.contract.fencing import CancelContract, FenceContract
from tests.contract.forgetting import ForgetContract
from tests.contract.handing_over import HandOverContract
from tests.contract.keys import KeyContract
from tests.contract.many import ManyContract
from tests.contract.settling import OutcomeContract, RetentionContract
from tests.contract.submitting import ReuseContract, SubmitContract


class TestSubmit(SubmitContract):
    pass


class TestMany(ManyContract):
    pass


class TestForget(ForgetContract):
    pass


class TestReuse(ReuseContract):
    pass


class TestCandidates(CandidateContract):
    pass


class TestClaim(ClaimContract):
    pass


class TestLease(LeaseContract):
    pass


class TestOutcome(OutcomeContract):
    pass


class TestRetention(RetentionContract):
    pass


class TestFence(FenceContract):
    pass


class TestCancel(CancelContract):
    pass


class TestRedrive(RedriveContract):
    pass


class TestEdit(EditContract):
    pass


class TestPurge(PurgeContract):
    pass


class TestCount(CountContract):
    pass


class TestPage(PageContract):
    pass


class TestHandOver(HandOverContract):
    pass


class TestKey(KeyContract):
    pass
