"""A small classifier of scikit-learn's digits, trained by several replicas that meet by a sync rule.

Everything but the runtime is what a run has: the rules of htsrl/learners, and the arithmetic of their meetings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.learners.average import mean_in_order, pushed_in_order
from htsrl.learners.rule import Meeting, ReplicaReport, SyncRule

Array = NDArray[Any]
NUM_PIXELS, NUM_CLASSES = 64, 10
NUM_TEST = 450


class Digits(NamedTuple):
    """Images of eight by eight pixels from 0 to 1, and what they show."""

    images: Array
    labels: Array


def load_digits(seed: int) -> tuple[Digits, Digits]:
    """To train on and to test on, shuffled by the seed."""
    try:
        from sklearn.datasets import load_digits as load
    except ModuleNotFoundError as error:
        raise ConfigError("the digits come with scikit-learn: pip install 'htsrl[digits]'") from error
    images, labels = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    return Digits(images[NUM_TEST:], labels[NUM_TEST:]), Digits(images[:NUM_TEST], labels[:NUM_TEST])


@dataclass(frozen=True)
class Perceptron:
    """One hidden layer of rectified units; the parameters of each replica are a row of numbers."""

    hidden: int = 32

    @property
    def size(self) -> int:
        return (NUM_PIXELS + 1) * self.hidden + (self.hidden + 1) * NUM_CLASSES

    def initial(self, seed: int) -> Array:
        """Of one replica."""
        flat: Array = np.zeros((1, self.size), np.float32)
        first, _, second, _ = self._parts(flat)
        draw = np.random.default_rng([seed, 1])
        first[...] = draw.normal(0, math.sqrt(2 / NUM_PIXELS), first.shape)
        second[...] = draw.normal(0, math.sqrt(1 / self.hidden), second.shape)
        initial: Array = flat[0]
        return initial

    def gradients(self, parameters: Array, batch: Digits) -> Array:
        """Of the mean cross-entropy, a row for each replica; so has the batch."""
        replicas, images = np.arange(len(parameters))[:, None], np.arange(batch.labels.shape[1])
        hidden, logits = self._forward(parameters, batch.images)
        errors = np.exp(logits - logits.max(axis=2, keepdims=True))
        errors /= errors.sum(axis=2, keepdims=True)
        errors[replicas, images, batch.labels] -= 1
        errors /= len(images)
        of_first, of_first_bias, of_second, of_second_bias = self._parts(gradients := np.empty_like(parameters))
        of_second[...], of_second_bias[...] = hidden.mT @ errors, errors.sum(axis=1, keepdims=True)
        behind = (errors @ self._parts(parameters)[2].mT) * (hidden > 0)
        of_first[...], of_first_bias[...] = batch.images.mT @ behind, behind.sum(axis=1, keepdims=True)
        return gradients

    def accuracy(self, flat: Array, digits: Digits) -> float:
        """Of one replica."""
        _, logits = self._forward(flat[None], digits.images[None])
        return float((logits[0].argmax(axis=1) == digits.labels).mean())

    def _forward(self, parameters: Array, images: Array) -> tuple[Array, Array]:
        first, first_bias, second, second_bias = self._parts(parameters)
        hidden = np.maximum(images @ first + first_bias, 0)
        return hidden, hidden @ second + second_bias

    def _parts(self, parameters: Array) -> tuple[Array, Array, Array, Array]:
        """Views: weights and biases of both layers, of all replicas."""
        ends = np.cumsum([NUM_PIXELS * self.hidden, self.hidden, self.hidden * NUM_CLASSES]).tolist()
        first, first_bias, second, second_bias = np.split(parameters, ends, axis=1)
        shapes = (NUM_PIXELS, self.hidden), (1, self.hidden), (self.hidden, NUM_CLASSES), (1, NUM_CLASSES)
        parts = zip((first, first_bias, second, second_bias), shapes, strict=True)
        of_first, of_first_bias, of_second, of_second_bias = (part.reshape(-1, *shape) for part, shape in parts)
        return of_first, of_first_bias, of_second, of_second_bias


@dataclass(frozen=True)
class Training:
    """Momentum SGD with a cosine learning rate, on an equal share of the images for each replica."""

    learners: int = 4
    num_updates: int = 600
    batch: int = 16
    learning_rate: float = 0.2
    momentum: float = 0.9
    hidden: int = 32


class Trained(NamedTuple):
    """What came of it."""

    accuracy: float
    rounds: int
    bytes: int


def train_classifier(training: Training, rule: SyncRule, seed: int) -> Trained:
    """By one update after another of all replicas, which is what their meetings in logical time come to."""
    model, (train, test) = Perceptron(training.hidden), load_digits(seed)
    parameters = np.stack([model.initial(seed)] * training.learners)
    velocity, batches = np.zeros_like(parameters), _batches(training, train, seed)
    state, rounds, sent = np.zeros(rule.state_size), 0, 0
    for update in range(training.num_updates):
        eta = training.learning_rate * (1 + math.cos(math.pi * update / training.num_updates)) / 2
        starts, gradients = parameters.copy(), model.gradients(parameters, next(batches))
        velocity *= np.float32(training.momentum * rule.momentum_factor(update))
        velocity += gradients
        parameters -= np.float32(eta * rule.learning_rate_factor(update)) * velocity
        reports = [ReplicaReport(eta, float(np.linalg.norm(gradient))) for gradient in gradients]
        meeting, state = rule.decide(update, state, reports)
        merge(meeting, starts, parameters)
        rounds += meeting is not Meeting.NONE
        sent += (8 * len(ReplicaReport._fields) if rule.reads_gradients else 0) * training.learners
        sent += 0 if meeting is Meeting.NONE else 2 * parameters.nbytes
    return Trained(model.accuracy(parameters[0], test), rounds, sent)


def _batches(training: Training, train: Digits, seed: int) -> Iterator[Digits]:
    """Of every update: replica r draws its images from every R-th, beginning with number r."""
    draws = [np.random.default_rng([seed, 2, replica]) for replica in range(training.learners)]
    share = len(train.labels) // training.learners
    while True:
        rows = np.stack(
            [r + training.learners * draw.integers(0, share, training.batch) for r, draw in enumerate(draws)]
        )
        yield Digits(train.images[rows], train.labels[rows])


def merge(meeting: Meeting, starts: Array, parameters: Array) -> None:
    """What replicas continue from, in place of their drafts."""
    drafts = list(parameters.copy())
    if meeting is Meeting.AVERAGE:
        mean_in_order(drafts, parameters[0])
        parameters[1:] = parameters[0]
    elif meeting is not Meeting.NONE:
        pushed_in_order(list(starts), drafts, list(parameters))
        if meeting is Meeting.COLLECT:
            parameters[:-1] = parameters[-1]
