from rdq_core.domain.lease import claim_id_of


def test_a_claim_id_does_not_give_the_token_away() -> None:
    assert claim_id_of("token") == "3c469e9d6c5875d3"
