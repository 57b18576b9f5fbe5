"""Masks drawn ahead of their steps are those drawn alone, and are kept only where they may be.

Plain operations stand in for the GPU's kernel: neither a GPU nor Triton is needed.
"""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode.fields import drawn_ahead
from graphode.fields import dropout as dropout_module
from graphode.flows.masks import MaskKey, hashed_positions, keyed_mask, mix
from graphode.flows.stochastic import SolveNoise, noise_of


@pytest.fixture(autouse=True)
def draws(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many masks each launch has drawn."""
    counts: list[int] = []

    def drawn(key: MaskKey, rate: float, positions: Tensor) -> Tensor:
        masks = keyed_mask(key.whole, rate, positions, torch.float32)
        counts.append(masks.numel() // max(1, positions.numel()))
        return masks

    for module in (drawn_ahead, dropout_module):
        monkeypatch.setattr(module, "drawn", drawn)
    monkeypatch.setattr(dropout_module, "may_use_kernels", lambda h: True)
    return counts


def found(dropout: gd.Dropout, seed: int, step: int, shape: tuple[int, ...] = (5, 3)) -> Tensor:
    with gd.stochastic(seed, step):
        return dropout(torch.ones(shape, dtype=torch.float32))


def alone(dropout: gd.Dropout, seed: int, step: int, shape: tuple[int, ...] = (5, 3)) -> Tensor:
    key = MaskKey(mix([seed, step]), dropout.path_word).whole
    positions = hashed_positions(shape[-2:], torch.device("cpu"))
    return keyed_mask(key, dropout.rate, positions, torch.float32).expand(shape)


def kept(dropout: gd.Dropout, steps: int = 3) -> gd.Dropout:
    """It, with masks kept ahead of its next step."""
    for step in range(steps):
        found(dropout, 0, step)
    assert len(dropout._ahead.masks) == drawn_ahead.MOST_MASKS
    return dropout


@pytest.mark.parametrize(
    "steps",
    [
        range(80),
        [0, 0, 1, 1, 2, 2],
        [5, 6, 7, 3, 4, 5, 6, 100, 7],
        range(80, 0, -1),
        range(0, 90, 3),
        range(2**63 - 5, 2**63 + 5),
        range(2**64 - 5, 2**64 + 5),
        range(-5, 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (0, 3)])
def test_every_step_has_the_mask_that_is_drawn_alone(steps, shape):
    dropout = gd.Dropout(0.4)
    for step in steps:
        assert torch.equal(found(dropout, 7, step, shape), alone(dropout, 7, step, shape))


def test_steps_that_follow_each_other_share_launches(draws):
    dropout = gd.Dropout(0.4)
    for step in range(65):
        found(dropout, 7, step)
    assert draws == [1, 32, 32]


@pytest.mark.parametrize("steps", [range(0, 40, 2), range(20, 0, -1), [0, 33, 66]], ids=str)
def test_other_steps_draw_no_more_than_their_own(steps, draws):
    dropout = gd.Dropout(0.4)
    for step in steps:
        found(dropout, 7, step)
    assert draws == [1] * len(steps)


def test_seeds_in_turns_draw_no_more_than_their_own(draws):
    dropout = gd.Dropout(0.4)
    for step in range(4):
        for seed in (1, 2):
            assert torch.equal(found(dropout, seed, step), alone(dropout, seed, step))
    assert draws == [1] * 8


def test_large_masks_are_drawn_few_at_a_time(draws, monkeypatch):
    monkeypatch.setattr(drawn_ahead, "MOST_NUMBERS", 50)
    dropout, large = gd.Dropout(0.4), gd.Dropout(0.4)
    for step in range(5):
        found(dropout, 7, step)
    assert draws == [1, 3, 3]
    draws.clear()
    for step in range(3):
        found(large, 7, step, (9, 9))
    assert draws == [1, 1, 1]


def test_a_change_of_what_masks_depend_on_is_seen():
    dropout = kept(gd.Dropout(0.4))
    dropout.rate = 0.7
    assert torch.equal(found(dropout, 0, 3), alone(dropout, 0, 3))
    kept(dropout).name("elsewhere")
    assert torch.equal(found(dropout, 0, 3), alone(dropout, 0, 3))
    kept(dropout)
    assert torch.equal(found(dropout, 1, 3), alone(dropout, 1, 3))
    kept(dropout)
    assert torch.equal(found(dropout, 0, 3, (3, 5)), alone(dropout, 0, 3, (3, 5)))
    kept(dropout)
    with gd.stochastic(0, 3):
        assert dropout(torch.ones(5, 3, device="meta", dtype=torch.float32)).device.type == "meta"
    assert torch.equal(kept(dropout).eval()(torch.ones(5, 3)), torch.ones(5, 3))


def test_masks_die_with_their_module():
    dropout = kept(gd.Dropout(0.4))
    masks = [weakref.ref(mask) for mask in dropout._ahead.masks]
    del dropout
    gc.collect()
    assert all(mask() is None for mask in masks)


def test_copies_and_files_of_a_module_hold_no_masks():
    fresh = gd.Dropout(0.4)
    dropout = kept(copy.deepcopy(fresh))
    assert len(pickle.dumps(dropout)) == len(pickle.dumps(fresh))
    for other in (copy.deepcopy(dropout), pickle.loads(pickle.dumps(dropout))):
        assert other._ahead.masks == ()
        assert torch.equal(found(other, 0, 3), found(dropout, 0, 3))
    assert not dropout.state_dict()


def test_nothing_is_kept_from_inference_mode():
    dropout = gd.Dropout(0.4)
    with torch.inference_mode():
        kept_none = [found(dropout, 0, step) for step in range(3)]
    assert dropout._ahead.masks == ()
    assert torch.equal(kept_none[2], alone(dropout, 0, 2))
    h = torch.ones(5, 3, dtype=torch.float32, requires_grad=True)
    with gd.stochastic(0, 3):
        (gradient,) = torch.autograd.grad(dropout(h).sum(), h)
    assert torch.equal(gradient, alone(dropout, 0, 3))


def test_a_recorded_program_neither_finds_nor_keeps_masks(monkeypatch, draws):
    dropout, other = kept(gd.Dropout(0.4)), gd.Dropout(0.4)
    monkeypatch.setattr(drawn_ahead, "_stream", lambda h: None)
    monkeypatch.setattr(dropout_module, "can_be_kept", lambda device: False)
    draws.clear()
    for step in range(3, 6):
        assert torch.equal(found(dropout, 0, step), found(other, 0, step))
    assert draws == [1] * 6
    assert other._ahead.masks == ()


def test_a_solve_and_keys_of_the_device_find_none():
    dropout = kept(gd.Dropout(0.4, redraw="per_step"))
    h = torch.ones(2, 5, 3, dtype=torch.float32)
    with gd.stochastic(0, 3), noise_of(SolveNoise()):
        of_solve = dropout(h)
    assert not torch.equal(of_solve[0], alone(dropout, 0, 3)), "a step has a key of its own"
    with gd.stochastic(0, torch.tensor(3)):
        assert torch.equal(dropout(h)[1], alone(dropout, 0, 3))
    with gd.stochastic(torch.tensor([0, 1]), 3):
        assert torch.equal(dropout(h)[1], alone(dropout, 1, 3))
    with gd.stochastic(0, 3, torch.arange(2)):
        assert not torch.equal(*dropout(h))


def test_states_in_a_row_have_gradients_of_two_orders():
    dropout = kept(gd.Dropout(0.4))
    h = torch.randn(5, 3, dtype=torch.float32, requires_grad=True)
    with gd.stochastic(0, 3):
        out = dropout(h)
    mask = alone(dropout, 0, 3)
    (first,) = torch.autograd.grad(out.pow(3).sum(), h, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), h)
    torch.testing.assert_close(first, 3 * h**2 * mask**3)
    torch.testing.assert_close(second, 6 * h * mask**3)


def test_kept_masks_serve_torch_func(draws):
    dropout = kept(gd.Dropout(0.4))
    h = torch.randn(5, 3, dtype=torch.float32)
    draws.clear()
    with gd.stochastic(0, 3):
        gradient = torch.func.grad(lambda h: dropout(h).sum())(h)
        tangent = torch.func.jvp(dropout, (h,), (torch.ones_like(h),))[1]
        mapped = torch.func.vmap(dropout)(torch.ones(2, 5, 3, dtype=torch.float32))
    for mask in (gradient, tangent, *mapped):
        assert torch.equal(mask, alone(dropout, 0, 3))
    assert draws == []
