"""Products in bfloat16: what is computed in it, what is not, and how the probe finds out what rounding hides."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement
from htsrl.algorithms.gradient import GradientShards
from htsrl.config.check import check
from htsrl.dataflow.parameters import FlatLayout
from htsrl.fingerprint import Fingerprint
from htsrl.numerics import take_fingerprint
from htsrl.placements.acting import batch_sizes
from htsrl.placements.survey import draw_blueprint
from htsrl.policies.half_precision import HALF, HeldCopies, compute_in_float32, half_encoders
from htsrl.policies.half_probe import with_cancelling_sums
from htsrl.policies.images import ImpalaCnn, NatureCnn
from htsrl.policies.layers import ScalingConv2d
from htsrl.policies.policy import Policy, build_policy
from htsrl.policies.reference_probe import example_inputs, find_batch_sizes

NUM_ROWS = 16
IMAGES = spaces.Box(0, 255, (4, 42, 40), np.uint8)
IMAGE_AND_VECTOR = spaces.Dict(camera=IMAGES, speed=spaces.Box(-1.0, 1.0, (3,), np.float32))
HALF_NATURE = Network(encoder="nature_cnn", precision="bfloat16")
HALF_IMPALA = Network(encoder="impala", precision="bfloat16")
BOTH = pytest.mark.parametrize("network", [HALF_NATURE, HALF_IMPALA], ids=["nature_cnn", "impala"])
TOLERANCE = {"nature_cnn": 0.03, "impala": 0.1}
"""How far a whole gradient may be from that in float32, as a part of its length: numbers have eight bits, and IMPALA's
maxima, which decide where gradients go, are among numbers that are close together."""
LEAST_COSINE = 0.9
"""Of the gradient of one parameter."""

pytestmark = pytest.mark.usefixtures("one_thread")


def policy_of(network: Network, space: spaces.Space[Any] = IMAGES) -> Policy:
    return build_policy(space, spaces.Discrete(3), network, seed=0)


def in_float32(policy: Policy) -> Policy:
    other = deepcopy(policy)
    compute_in_float32(other)
    return other


def seen_by(policy: Policy, num_rows: int = NUM_ROWS) -> dict[str, Tensor]:
    return example_inputs(policy.interface, num_rows)


def loss_of(policy: Policy, observations: Mapping[str, Tensor]) -> Tensor:
    distribution, values = policy(observations)
    actions = torch.arange(len(values)) % 3
    assert distribution.log_prob(actions).dtype is values.dtype is torch.float32
    loss: Tensor = (values - 1).square().mean() - distribution.log_prob(actions).mean()
    return loss


def gradients_of(policy: Policy, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
    policy.zero_grad()
    loss = loss_of(policy, observations)
    assert loss.dtype is torch.float32
    torch.autograd.backward(loss)
    return {name: parameter.grad for name, parameter in policy.named_parameters() if parameter.grad is not None}


@BOTH
@pytest.mark.parametrize("space", [IMAGES, IMAGE_AND_VECTOR], ids=["image", "image and vector"])
def test_gradients_are_float32_and_near_those_of_products_in_float32(
    network: Network, space: spaces.Space[Any]
) -> None:
    policy = policy_of(network, space)
    observations = seen_by(policy)
    ours, theirs = gradients_of(policy, observations), gradients_of(in_float32(policy), observations)
    assert ours.keys() == theirs.keys() == dict(policy.named_parameters()).keys()
    assert {gradient.dtype for gradient in ours.values()} == {torch.float32}
    for name in ours:
        assert torch.cosine_similarity(ours[name].flatten(), theirs[name].flatten(), dim=0) > LEAST_COSINE, name
    one, other = (torch.cat([x.flatten() for x in of.values()]) for of in (ours, theirs))
    assert torch.linalg.vector_norm(one - other) < TOLERANCE[network.encoder] * torch.linalg.vector_norm(other)
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours)


@BOTH
def test_all_products_of_an_encoder_are_in_bfloat16_and_all_behind_it_are_not(network: Network) -> None:
    policy, multiplied = policy_of(network), []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (nn.functional.linear, torch.conv2d):
                multiplied.append((args[0].dtype, args[1].dtype))
            return func(*args, **(kwargs or {}))

    with torch.inference_mode(), Watch():
        policy.respond(seen_by(policy))
    encoder = policy.encoder
    num_products = sum(isinstance(module, nn.Conv2d | nn.Linear) for module in encoder.modules())
    assert multiplied == [(HALF, HALF)] * num_products + [(torch.float32, torch.float32)] * 2  # the heads


def test_a_gradient_is_the_one_that_torch_has_of_the_same_products() -> None:
    """Torch's own derivatives of the casts and of the layers, in the same order."""
    policy = policy_of(HALF_NATURE)
    (cnn,) = (module for module in policy.modules() if isinstance(module, NatureCnn))
    (observation,) = seen_by(policy).values()

    def layer_by_layer() -> Tensor:
        x = cnn.images(observation, is_half=True)
        for layer in cnn.products:
            weight, bias = layer.weight, layer.bias
            assert bias is not None
            if isinstance(layer, nn.Linear):
                x = torch.relu(nn.functional.linear(x.flatten(1), weight.to(HALF), bias.to(HALF)))
            else:
                scaled = layer.scaled_weight() if isinstance(layer, ScalingConv2d) else weight
                x = torch.relu(nn.functional.conv2d(x, scaled.to(HALF), bias.to(HALF), layer.stride))
        features: Tensor = x.float()
        return features

    assert torch.equal(cnn(observation), layer_by_layer())
    ours, theirs = (
        torch.autograd.grad(features.square().sum(), [layer.weight for layer in cnn.products])
        for features in (cnn(observation), layer_by_layer())
    )
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_activations_are_kept_at_half_the_size_and_learned_from_without_another_look() -> None:
    policy = policy_of(HALF_NATURE)
    observations = seen_by(policy)
    with torch.inference_mode():
        kept = policy.decide(observations, torch.zeros(NUM_ROWS, 3), keep_activations=True).activations
    assert {x.dtype for x in kept.values()} == {torch.int16}
    assert policy.activation_dtype == "int16"
    stored = {name: torch.from_numpy(x.numpy().copy()) for name, x in kept.items()}
    computed, recalled = gradients_of(policy, observations), None
    computed = {name: gradient.clone() for name, gradient in computed.items()}
    recalled = gradients_of(policy, observations | stored)
    assert all(torch.equal(computed[name], recalled[name]) for name in computed)


@BOTH
def test_held_copies_are_multiplied_by_until_they_are_let_go(network: Network) -> None:
    policy = policy_of(network)
    observations, held = seen_by(policy), HeldCopies(half_encoders(policy))
    with torch.inference_mode():
        before = policy.outputs(observations)
        for encoder in half_encoders(policy):
            for parameter in encoder.parameters():
                parameter.data.mul_(1.5)
        with held.used():
            assert torch.equal(policy.outputs(observations), before)
        assert not torch.equal(policy.outputs(observations), before)


def test_the_shards_of_a_gradient_copy_the_weights_once_and_anew_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, copied = policy_of(HALF_NATURE), []
    policy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as a version lies in memory
    observations = seen_by(policy)

    class Objective:
        num_parts, epoch = 1, 0

        def learned_rows(self, chosen: slice) -> slice:
            return chosen

        def __call__(self, policy: Policy, chosen: slice) -> tuple[Tensor, ...]:
            return (loss_of(policy, {name: x[chosen] for name, x in observations.items()}),)

    copies = NatureCnn.copies

    def noted(self: NatureCnn) -> Any:
        copied.append(self)
        return copies(self)

    monkeypatch.setattr(NatureCnn, "copies", noted)
    size = FlatLayout.of(policy).size
    shards = GradientShards(torch.zeros(4, size), torch.zeros(4, 8), policy)
    objective: Any = Objective()
    for _ in range(2):
        shards.take(range(4), objective, policy, slice(0, NUM_ROWS), NUM_ROWS)
    assert len(copied) == 2


# The probe.


class FirstRowsOtherwise:
    """As a kernel that sums up a row by itself in another order: seen in float32, rounded away in bfloat16."""

    def __init__(self, product: Any) -> None:
        self._product = product

    def __call__(self, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
        made: Tensor = self._product(x, weight, *rest)
        if len(x) > 3 or x.dtype is not HALF or x.dim() != 2:
            return made
        order = torch.arange(x.shape[1] - 1, -1, -1)
        otherwise = self._product(x.float()[:, order], weight.float()[:, order], rest[0].float())
        made_otherwise: Tensor = otherwise.to(HALF)
        return made_otherwise


def test_an_order_of_summation_that_rounding_hides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(HALF_NATURE)
    examples = seen_by(policy, 128)
    otherwise = FirstRowsOtherwise(nn.functional.linear)
    monkeypatch.setattr("htsrl.policies.half_probe.linear", otherwise)
    with torch.inference_mode():
        outputs, asked = with_cancelling_sums(policy, lambda seen: torch.zeros(len(seen["obs"]), 1), examples)
        assert find_batch_sizes(lambda seen: torch.zeros(len(seen["obs"]), 1), examples, 16) == tuple(range(1, 17))
        sizes = find_batch_sizes(outputs, asked, 16)
    assert sizes is not None
    assert min(sizes) >= 4


@BOTH
def test_sums_that_cancel_leave_other_bits_in_every_row(network: Network) -> None:
    """So two orders of summation cannot agree by luck: no output of any layer is zero, and no two rows are alike."""
    policy = policy_of(network)
    examples = seen_by(policy, 32)
    with torch.inference_mode():
        outputs, asked = with_cancelling_sums(policy, lambda seen: torch.zeros(len(seen["obs"]), 1), examples)
        found = outputs(asked)[:, 1:]
    (encoder,) = half_encoders(policy)
    assert found.shape[1] == len(encoder.products)
    assert all(len(column.unique()) == len(found) for column in found.T)


def test_a_policy_in_float32_is_probed_as_ever() -> None:
    policy = policy_of(Network())
    examples = seen_by(policy)
    assert with_cancelling_sums(policy, policy.outputs, examples)[1] is examples


@BOTH
def test_rows_keep_their_bits_in_every_size_that_the_probe_allows(network: Network) -> None:
    """Frames that the probe has not seen: nothing, everything, stripes, noise."""
    policy = policy_of(network)
    sizes = batch_sizes(policy, 8)
    noise = torch.randint(0, 256, (sizes[-1], *IMAGES.shape), dtype=torch.uint8)
    noise[0], noise[1], noise[2, :, ::2] = 0, 255, 255
    with torch.inference_mode():
        whole = policy.outputs({"obs": noise})
        for size in sizes:
            assert torch.equal(policy.outputs({"obs": noise[:size]}), whole[:size])
            assert torch.equal(policy.outputs({"obs": noise[-size:]}), whole[-size:])


# What is chosen, said and refused.


def refused(experiment: Experiment, placement: Placement | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        draw_blueprint(check(Config(experiment, placement or Placement("inline"))))
    return str(error.value)


def test_what_would_have_nothing_in_bfloat16_is_refused() -> None:
    half = Network(precision="bfloat16")
    assert "is for images" in refused(Experiment("CartPole-v1", network=half))
    assert "is for images" in refused(Experiment("htsrl/PixelCatch-v0", network=replace(half, encoder="mlp")))
    own = replace(half, policy=NatureCnnOfOnesOwn)
    assert "takes the place of" in refused(Experiment("htsrl/PixelCatch-v0", network=own))
    on_a_gpu = Placement("inline", device="cuda")
    assert "is for the CPU" in refused(Experiment("htsrl/PixelCatch-v0", network=half), on_a_gpu)


class NatureCnnOfOnesOwn(nn.Module):
    """Never built."""


def blueprint_of(precision: Literal["float32", "bfloat16", "auto"], env: str, algorithm: Any = None) -> Any:
    experiment = Experiment(env, algorithm=algorithm or A2C(), network=Network(precision=precision), num_envs=4)
    return draw_blueprint(check(Config(experiment, Placement("inline"))))


@pytest.mark.parametrize(("has", "chosen"), [("avx512_bf16", "bfloat16"), ("amx_bf16", "bfloat16"), ("", "float32")])
def test_auto_is_bfloat16_for_images_where_the_cpu_can_and_the_experiment_says_so(
    has: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {has: True})
    assert blueprint_of("auto", "htsrl/PixelCatch-v0").experiment.network.precision == chosen
    assert blueprint_of("auto", "CartPole-v1", PPO()).experiment.network.precision == "float32"


def test_storages_hold_activations_at_half_the_size() -> None:
    dtypes = {
        precision: {field.dtype for field in blueprint_of(precision, "htsrl/PixelCatch-v0").trajectory.fields if
                    field.name.startswith("activations")}
        for precision in ("float32", "bfloat16")
    }  # fmt: skip
    assert dtypes == {"float32": {"float32"}, "bfloat16": {"int16"}}


def test_a_fingerprint_says_by_which_instructions_and_names_them_where_they_differ() -> None:
    ours = take_fingerprint("cpu", in_half=True)
    assert ours.bfloat16 is not None
    assert take_fingerprint("cpu").bfloat16 is None
    theirs = replace(ours, bfloat16="amx_bf16, 1234")
    assert ours.differences(theirs) == [f"bfloat16: {ours.bfloat16} / amx_bf16, 1234"]
    assert ours.differences(replace(ours, bfloat16=None)) == [f"bfloat16: {ours.bfloat16} / not used"]


def test_folders_from_before_have_a_fingerprint_without_it() -> None:
    document = {name: x for name, x in vars(take_fingerprint("cpu")).items() if name != "bfloat16"}
    assert Fingerprint.from_document(document).differences(take_fingerprint("cpu")) == []


def test_impala_and_nature_agree_about_what_they_are_made_of() -> None:
    for network, kind in ((HALF_NATURE, NatureCnn), (HALF_IMPALA, ImpalaCnn)):
        (encoder,) = half_encoders(policy_of(network))
        assert isinstance(encoder, kind)
    assert half_encoders(policy_of(Network())) == ()
    assert len(half_encoders(policy_of(replace(HALF_NATURE, separate_value=True)))) == 2
