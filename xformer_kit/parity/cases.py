"""Small models of transformers, one or more of each family."""

from xformer_kit.parity import (
    decoder_cases,
    encoder_cases,
    first_cases,
    llama_like_cases,
    more_decoder_cases,
)
from xformer_kit.parity.case import Case

CASES: dict[str, Case] = {
    **first_cases.CASES,
    **llama_like_cases.CASES,
    **decoder_cases.CASES,
    **more_decoder_cases.CASES,
    **encoder_cases.CASES,
}
