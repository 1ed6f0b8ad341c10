"""Positions and targets of tokens, by eye."""

import torch

from xformer_kit.tensors.tokens import Tokens

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def positions(past=None, **fields):
    return Tokens(**fields).with_positions(past).position.tolist()


def test_positions_count_tokens():
    assert positions(ids=IDS) == [[0, 1, 2, 3, 4]]


def test_positions_count_real_tokens_so_that_left_padding_shifts_nothing():
    real = torch.tensor([[False, False, True, True, True], [True, True, True, False, False]])
    assert positions(ids=IDS.expand(2, -1), real=real) == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2]]


def test_positions_restart_with_a_document():
    assert positions(ids=IDS, document=torch.tensor([[0, 0, 1, 1, 4]])) == [[0, 1, 0, 1, 0]]


def test_a_document_of_padded_tokens_starts_at_zero():
    real = torch.tensor([[False, True, True, True, True]])
    assert positions(ids=IDS, real=real, document=torch.tensor([[0, 0, 0, 1, 1]])) == [
        [0, 0, 1, 0, 1]
    ]


def test_positions_and_documents_continue_after_a_past_at_any_split():
    real, document = (
        torch.tensor([[False, True, True, True, True]]),
        torch.tensor([[0, 0, 3, 3, 3]]),
    )
    whole = Tokens(ids=IDS, real=real, document=document).with_positions()
    for split in range(1, 5):
        past = Tokens(
            ids=IDS[:, :split], real=real[:, :split], document=document[:, :split]
        ).with_positions()
        rest = Tokens(
            ids=IDS[:, split:], real=real[:, split:], document=document[:, split:]
        ).with_positions(past)
        both = past.concat(rest)
        assert both.position.tolist() == whole.position.tolist()
        assert both.slot.tolist() == whole.slot.tolist()
        if split >= 3:  # all that follows is real and of the last document: it need not be said
            bare = Tokens(ids=IDS[:, split:]).with_positions(past)
            assert past.concat(bare).position.tolist() == whole.position.tolist()
            assert past.concat(bare).document.tolist() == document.tolist()


def test_positions_continue_after_given_ones_of_the_last_real_token_in_its_document():
    given = torch.tensor([[4, 7, 9]]).expand(3, -1)
    real = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
    document = torch.tensor([[0, 1, 1]])
    ids, new = IDS[:, :3].expand(3, -1), IDS[:, :2].expand(3, -1)
    past = Tokens(ids=ids, position=given).with_positions()
    assert positions(past, ids=new) == [[10, 11]] * 3
    past = Tokens(ids=ids, position=given, real=real).with_positions()
    assert positions(past, ids=new) == [[10, 11], [8, 9], [0, 1]]
    assert positions(past, ids=new, real=torch.tensor([[False, True]])) == [
        [9, 10],
        [7, 8],
        [0, 0],
    ]
    past = Tokens(ids=ids, position=given, document=document).with_positions()
    assert positions(past, ids=new) == [[10, 11]] * 3
    assert positions(past, ids=new, document=torch.tensor([[1, 0]])) == [[10, 0]] * 3


def test_the_target_of_a_token_is_the_next_of_its_document():
    tokens = Tokens(
        ids=IDS, real=torch.tensor([[True] * 4 + [False]]), document=torch.tensor([[0, 0, 1, 1, 1]])
    )
    seen, target = tokens.shifted()
    assert seen.ids.tolist() == [[5, 6, 7, 8]]
    assert target.tolist() == [[6, -1, 8, -1]]
