"""What is played in one process: episodes, and some of them again in other circumstances."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

from htsrl.envs.check.calls import Answer, Call, Console
from htsrl.envs.check.job import CheckJob, ReportWriter
from htsrl.envs.check.state import state_findings
from htsrl.envs.check.values import ValueWatch
from htsrl.envs.state import saves_its_state
from htsrl.seeding import reset_seed

PLAYED = "played"
SECOND = "in a second environment"
AFTER_OTHERS = "after other episodes"
AFTER_AN_END = "right after an episode that had ended"
REPLAYED = "replayed"
OTHER_SEED = "with another seed"
NUM_OTHER_SEEDS = 3
OTHER_SEED_STEPS = 200


def play(console: Console, job: CheckJob) -> Iterator[Answer]:
    """Episode after episode with the seeds that environment 0 of a run has, for as many steps as the job says."""
    steps_left, episode = job.steps, 0
    while steps_left > 0:
        for answer in console.play(episode, reset_seed(job.seed, 0, episode), steps_left):
            yield answer
            steps_left -= answer.call.step > 0
        episode += 1


def play_only(job: CheckJob, report_writer: ReportWriter) -> None:
    report_writer.stage("while it was made")
    with closing(job.subject.make()) as env:
        report_writer.stage("while it was played")
        for answer in play(Console(env), job):
            report_writer.call(PLAYED, answer.call)


def examine(job: CheckJob, report_writer: ReportWriter) -> None:
    """Play, looking at every value; then play episodes again and let the others compare."""
    with ExitStack() as stack:
        report_writer.stage("while it was made")
        env = stack.enter_context(closing(job.subject.make()))
        episodes = _play_watched(Console(env), job, report_writer)
        second = stack.enter_context(closing(job.subject.make()))
        _play_again(Console(second), SECOND, episodes[0], job, report_writer)
        _play_again(Console(env), AFTER_OTHERS, episodes[0], job, report_writer)
        if episodes[0][-1].ended:  # else the reset above was in the middle of one, and so would this be
            _play_again(Console(env), AFTER_AN_END, episodes[0], job, report_writer)
        _play_other_seeds(Console(second), job, report_writer)
        if saves_its_state(env):
            report_writer.stage("while its state was saved and restored")
            for finding in state_findings(job.subject, episodes[0], reset_seed(job.seed, 0, 0)):
                report_writer.finding(finding)
        else:
            third = stack.enter_context(closing(job.subject.make()))
            whole = [episode for episode in episodes if episode[-1].ended] or episodes
            _play_again(Console(third), REPLAYED, whole[-1], job, report_writer)
        report_writer.stage("while it was closed")


def _play_watched(console: Console, job: CheckJob, report_writer: ReportWriter) -> list[list[Call]]:
    """The episodes played, each with its reset."""
    report_writer.stage("while it was played")
    watch = ValueWatch(console.env)
    episodes: list[list[Call]] = []
    try:
        for answer in play(console, job):
            if answer.call.step == 0:
                episodes.append([])
            episodes[-1].append(answer.call)
            report_writer.call(PLAYED, answer.call)
            watch.look(answer)
    finally:
        for finding in watch.findings():
            report_writer.finding(finding)
    return episodes


def _play_again(console: Console, section: str, calls: list[Call], job: CheckJob, report_writer: ReportWriter) -> None:
    report_writer.stage(f"while an episode was played again, {section}")
    episode = calls[0].episode
    for answer in console.play(episode, reset_seed(job.seed, 0, episode), len(calls) - 1):
        report_writer.call(section, answer.call)


def _play_other_seeds(console: Console, job: CheckJob, report_writer: ReportWriter) -> None:
    """The actions of the first episode after resets with other seeds, each counted as an episode of its own."""
    report_writer.stage("while it was played with other seeds")
    action_seed = reset_seed(job.seed, 0, 0)
    for number in range(1, NUM_OTHER_SEEDS + 1):
        for answer in console.play(number, reset_seed(job.seed, 0, number), OTHER_SEED_STEPS, action_seed):
            report_writer.call(OTHER_SEED, answer.call)
