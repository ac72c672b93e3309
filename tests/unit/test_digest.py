"""The digest changes with every bit, and two runs that differ are told where they parted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from htsrl.digest import SHORT, DigestChain, Link, VersionState, first_difference, hash_batch, read_links
from htsrl.errors import RunFolderError
from htsrl.runs.comparison import compare

NUM_STEPS, NUM_ENVS, NUM_UPDATES = 5, 4, 3
SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "obs": ((2, 3), "uint8"),
    "actions": ((), "int64"),
    "rewards": ((), "float32"),
    "terminated": ((), "bool"),
}
OPTIMIZER = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
Fields = dict[str, NDArray[Any]]


def make_batch(update: int) -> Fields:
    generator = np.random.default_rng(update)
    return {
        name: generator.integers(0, 2, (NUM_STEPS, NUM_ENVS, *shape)).astype(dtype)
        for name, (shape, dtype) in SHAPES.items()
    }


def make_links(
    change: Callable[[int, Fields, NDArray[Any]], None] | None = None,
    initial: float = 0.0,
    optimizer: NDArray[np.float32] | None = None,
) -> list[Link]:
    """A small run, with a change to the batch or the parameters of an update, or another optimizer in all of it."""
    chain, links = DigestChain.begin([np.full(3, initial)]), []
    for update in range(NUM_UPDATES):
        fields, parameters = make_batch(update), np.full(3, update + 1.0)
        if change is not None:
            change(update, fields, parameters)
        learner = {"optimizer": [OPTIMIZER if optimizer is None else optimizer, np.full(1, update)], "episodes": []}
        links.append(chain.extend(update, VersionState([parameters], learner), hash_batch(fields, NUM_ENVS)))
    return links


def write(folder: Path, links: list[Link]) -> Path:
    (folder / "digest.jsonl").write_text("".join(link.to_json() + "\n" for link in links))
    return folder


cells = st.tuples(
    st.integers(0, NUM_UPDATES - 1),
    st.sampled_from(sorted(SHAPES)),
    st.integers(0, NUM_STEPS - 1),
    st.integers(0, NUM_ENVS - 1),
)


@given(cells)
def test_a_changed_number_is_found_by_barrier_environment_and_tensor(cell: tuple[int, str, int, int]) -> None:
    odd_update, tensor, row, env = cell

    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        if update == odd_update:
            values = fields[tensor][row, env].reshape(-1)
            values[-1:] = ~values[-1:] if values.dtype == bool else values[-1:] + 1
            fields[tensor][row, env] = values.reshape(fields[tensor][row, env].shape)

    difference = first_difference(make_links(), make_links(change))
    assert difference == f"barrier {odd_update}: environment {env}, tensor {tensor}"


def test_all_that_differs_at_the_first_barrier_is_listed() -> None:
    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        fields["obs"][0, 3] += 1
        fields["rewards"][1, 1] += 1

    assert first_difference(make_links(), make_links(change)) == (
        "barrier 0: environment 1, tensor obs (in all: tensors obs, rewards; environments 1, 3)"
    )


def test_a_changed_parameter_is_told_from_a_changed_batch() -> None:
    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        parameters[0] += update == 1

    expected = "barrier 1: the batches are equal, the parameters after the update are not"
    assert first_difference(make_links(), make_links(change)) == expected


@given(st.integers(0, OPTIMIZER.nbytes * 8 - 1))
def test_every_bit_of_the_optimizers_state_is_part_of_the_link(bit: int) -> None:
    flipped = OPTIMIZER.copy()
    flipped.view(np.uint8).reshape(-1)[bit // 8] ^= 1 << bit % 8
    assert first_difference(make_links(), make_links(optimizer=flipped)) == (
        "barrier 0: batches and parameters are equal, the learner's state after the update is not (optimizer)"
    )


# Runs whose links are from before the learner's state was part of the chain.


def older(links: list[Link]) -> list[Link]:
    return [replace(link, learner={}, chain=f"{link.update:032x}") for link in links]


def test_an_older_digest_is_read_and_compared_by_batches_and_parameters(tmp_path: Path) -> None:
    lines = [json.loads(link.to_json()) for link in older(make_links())]
    for line in lines:
        del line["learner"]
    (tmp_path / "digest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert first_difference(read_links(tmp_path), make_links()) is None

    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        parameters[0] += update == 1

    expected = "barrier 1: the batches are equal, the parameters after the update are not"
    assert first_difference(read_links(tmp_path), make_links(change)) == expected


def test_a_run_resumed_since_is_compared_from_there_on_with_the_optimizers_state_too() -> None:
    links, other = make_links(), make_links(optimizer=OPTIMIZER + 1)
    continued = [*older(links)[:1], *(replace(link, chain="0" * 32) for link in links[1:])]
    assert first_difference(continued, links) is None
    difference = first_difference(continued, other)
    assert difference is not None
    assert difference.startswith("barrier 1: ")
    assert "optimizer" in difference


def test_other_initial_parameters_are_named() -> None:
    difference = first_difference(make_links(), make_links(initial=1.0))
    assert difference == "barrier 0: the initial parameters, or what they were taken from (init_from), differ"


def test_equal_runs_have_no_difference_and_a_last_link_that_says_so() -> None:
    assert first_difference(make_links(), make_links()) is None
    assert make_links()[-1].chain == make_links()[-1].chain


def test_the_last_link_remembers_the_first_batch() -> None:
    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        fields["rewards"][0, 0] += update == 0

    assert make_links(change)[-1].chain != make_links()[-1].chain


def test_swapping_two_environments_changes_the_digest() -> None:
    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        fields["obs"][:, [0, 1]] = fields["obs"][:, [1, 0]]

    assert make_links(change)[-1].chain != make_links()[-1].chain


def test_swapping_two_steps_changes_the_digest() -> None:
    def change(update: int, fields: Fields, parameters: NDArray[Any]) -> None:
        fields["obs"][[0, 1]] = fields["obs"][[1, 0]]

    assert make_links(change)[-1].chain != make_links()[-1].chain


def test_the_hash_does_not_depend_on_how_an_array_lies_in_memory() -> None:
    fields = make_batch(0)
    scattered = {name: np.asfortranarray(array) for name, array in fields.items()}
    assert hash_batch(scattered, NUM_ENVS) == hash_batch(fields, NUM_ENVS)


def test_minus_zero_is_not_zero() -> None:
    fields = make_batch(0)
    fields["rewards"][:] = 0.0
    negative = {**fields, "rewards": -fields["rewards"]}
    assert hash_batch(negative, NUM_ENVS) != hash_batch(fields, NUM_ENVS)


def test_runs_of_different_length_part_where_one_ends() -> None:
    links = make_links()
    assert first_difference(links, links[:2]) == "barrier 2: one run ends here, the other has 3 barriers"


def test_runs_with_different_numbers_of_environments_are_told_so() -> None:
    links = make_links()
    fewer = [replace(link, chain="0" * 32, envs=link.envs[: 2 * SHORT]) for link in links]
    assert first_difference(links, fewer) == "barrier 0: the runs have 4 and 2 environments"


def test_links_survive_the_file(tmp_path: Path) -> None:
    assert read_links(write(tmp_path, make_links())) == make_links()


@given(st.integers(1, 200))
def test_a_cut_last_line_is_ignored(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = write(tmp_path_factory.mktemp("cut"), make_links())
    file = folder / "digest.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    assert read_links(folder) == make_links()[:-1]


def test_a_folder_without_a_digest_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no digest\.jsonl"):
        read_links(tmp_path)


# What tampering or a bad disk can do to the second line.


def tampered(folder: Path, **change: Any) -> Path:
    lines = [link.to_json() for link in make_links()]
    lines[1] = json.dumps(json.loads(lines[1]) | {"chain": "0" * 32} | change)
    (folder / "digest.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_changed_chain_alone_is_a_damaged_file_and_not_another_start(tmp_path: Path) -> None:
    difference = first_difference(make_links(), read_links(tampered(tmp_path)))
    assert difference is not None
    assert difference.startswith("barrier 1: ")
    assert "initial parameters" not in difference, "barrier 0 is equal, and they made it"


def test_a_tensor_that_differs_in_no_environment_is_reported_all_the_same(tmp_path: Path) -> None:
    tensors = dict(make_links()[1].tensors) | {"actions": "0" * SHORT}
    difference = first_difference(make_links(), read_links(tampered(tmp_path, tensors=tensors)))
    assert difference is not None
    assert difference.startswith("barrier 1: ")
    assert "actions" in difference


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": None},
        {"tensors": {"obs": 1}},
        {"learner": None},
        {"learner": {"optimizer": 1}},
        {"envs": 7},
        {"chain": None},
        {"parameters": 1.5},
        {"update": "one"},
        {"update": 2},
        {"surprise": 1},
    ],
)
def test_a_line_that_no_run_writes_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(RunFolderError, match=r"digest\.jsonl is damaged in line 2"):
        read_links(tampered(tmp_path, **change))


@pytest.mark.parametrize("line", [b"{}", b"[]", b"", b"\xff\xfe", b"not json", b"7", b"null"])
def test_a_line_that_is_no_link_is_named(tmp_path: Path, line: bytes) -> None:
    whole = [link.to_json().encode() for link in make_links()]
    (tmp_path / "digest.jsonl").write_bytes(b"\n".join([whole[0], line, whole[2]]) + b"\n")
    with pytest.raises(RunFolderError, match=r"digest\.jsonl is damaged in line 2"):
        read_links(tmp_path)


def test_a_missing_line_is_not_taken_for_a_difference_between_the_runs(tmp_path: Path) -> None:
    first, _, third = make_links()
    with pytest.raises(RunFolderError, match=r"damaged in line 2.*update 2.*update 1"):
        read_links(write(tmp_path, [first, third]))


def test_a_configuration_nested_too_deeply_is_a_note_of_the_comparison(tmp_path: Path) -> None:
    for name, digit in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "digest.jsonl").write_text(Link(0, digit, digit, {"obs": digit}, digit).to_json() + "\n")
        (tmp_path / name / "config.json").write_text("[" * 100_000)
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert not comparison.are_identical
    assert f"note: {tmp_path / 'a' / 'config.json'} cannot be read: it is nested too deeply" in comparison.lines
