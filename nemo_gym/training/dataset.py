"""Training data from scored rollouts: filter, pair and split them, and write them in a trainer's format."""

from __future__ import annotations

import random
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, PositiveInt, field_validator, model_validator

from nemo_gym.data.media_files import MediaFiles
from nemo_gym.errors import DataError
from nemo_gym.jsonl import OutputPath, dump_json, parse_row, read_lines_at, write_rows
from nemo_gym.rollouts.job import RunFiles
from nemo_gym.rollouts.numbering import digest_of
from nemo_gym.schemas.row import Row
from nemo_gym.text import counted
from nemo_gym.training.conditions import Condition
from nemo_gym.training.conversations import Conversation, Unusable, conversation_of
from nemo_gym.training.formats import FORMATS, Format

FormatName = Literal[
    "messages", "prompt_completion", "preference", "unpaired", "nemo_rl_sft", "nemo_rl_preference", "openai",
    "openai_preference", "atif", "sft", "dpo", "kto",
]  # fmt: skip
PAIR_SETTINGS = ("pairs", "min_difference")

PairLimit = int | Literal["best_worst", "all"]
ROUNDING = 1e-9
"""The tolerance for differences of rewards, because 0.3 - 0.1 is less than 0.2 in floating-point arithmetic."""


class DatasetJob(BaseModel):
    """Parameters of `ng dataset export`."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    input_jsonl_fpath: Path
    """The scored rollouts, as a collection writes them. The rollouts in its failures file are counted too."""
    output_jsonl_fpath: OutputPath
    """The file for the training examples, one per line."""
    format: FormatName
    """The output format: TRL's for SFT, DPO or KTO, NeMo RL's, OpenAI's, or Harbor's trajectory format (atif).
    sft, dpo and kto are other names for messages, preference and unpaired."""
    min_reward: FiniteFloat | None = None
    """The minimum reward of a good example. Rollouts below it can only be the rejected side of a pair. In unpaired
    they get label false, and in formats without pairs or labels they are dropped."""
    max_per_task: PositiveInt | None = None
    """The number of rollouts to keep per task, best first. Not for pairs. Default: all."""
    pairs: Literal["best_worst", "all"] | PositiveInt = "best_worst"
    """Which pairs to make from the rollouts of a task: the best and the worst, all pairs, or at most this many."""
    min_difference: FiniteFloat = Field(default=0.0, ge=0)
    """The minimum difference between the rewards of a pair."""
    where: str | None = None
    """A condition on the row's fields, such as 'reward > 0.5 and subset == "easy"'."""
    reasoning: Literal["keep", "drop"] | None = None
    """Whether reasoning stays in the messages, as <think>…</think>. Default: keep, but drop for openai formats."""
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """The share of the tasks whose examples go to <output>_validation.jsonl."""
    seed: int = 0
    """The seed of the validation split."""
    overwrite: bool = False
    """Replace an earlier output."""

    @field_validator("where")
    @classmethod
    def _is_a_condition(cls, given: str | None) -> str | None:
        if given is not None:
            Condition(given)
        return given

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.form.of_pair is None:
            for key in PAIR_SETTINGS:
                if key in self.model_fields_set:
                    raise ValueError(f"{key} applies to formats of pairs only, not to {self.format}; leave it out")
        elif self.max_per_task is not None:
            raise ValueError("max_per_task does not apply to formats of pairs; use pairs=N for N pairs per task")
        if self.form.of_rated is not None and self.min_reward is None:
            raise ValueError(f"min_reward is missing: in {self.format}, it separates good from bad examples; set it")
        return self

    @property
    def form(self) -> Format:
        """The `Format` that the setting `format` names."""
        return FORMATS[self.format]

    @property
    def validation(self) -> Path | None:
        """The file for the validation examples; None if `validation_share` is 0."""
        output = self.output_jsonl_fpath
        return output.with_name(f"{output.stem}_validation.jsonl") if self.validation_share else None


@dataclass
class DatasetReport:
    """The numbers of rollouts that were read, kept and dropped. A failed attempt counts as a rollout."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """The number of rollouts that are not part of an example, by reason."""
    examples: dict[Path, int] = field(default_factory=dict)
    """The number of examples in each file."""

    @property
    def kept(self) -> int:
        """The number of rollouts that are part of at least one example."""
        return self.read - self.dropped.total()


Task = int | str


class _Candidate(NamedTuple):
    """A usable rollout. To save memory, its position in the file is kept instead of its text."""

    offset: int
    line: int
    reward: float
    prompt: int
    """The digest of the prompt and the tools."""
    digest: int
    """The digest of all that the rollout contributes to an example. Duplicates have the same digest."""


class _Plan(NamedTuple):
    """The examples to make from one task's rollouts: each from one rollout, or from a chosen and a rejected one."""

    task: Task
    examples: list[tuple[_Candidate, ...]]


def export_dataset(job: DatasetJob) -> DatasetReport:
    """Write the training examples of a file of rollouts.

    If no example is left, or if an output exists and `overwrite` is not set, write nothing and raise `DataError`.
    """
    _check_outputs(job)
    report = DatasetReport()
    plans = _Planner(job, report).plans()
    if not plans:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report.dropped.most_common())
        raise DataError(
            f"{job.input_jsonl_fpath}: no example is left of {counted(report.read, 'rollout')}"
            f"{': ' if reasons else ''}{reasons}. Collect more rollouts or change the filters."
        )
    validating = _validation_tasks(job, [plan.task for plan in plans])
    sides = {job.output_jsonl_fpath: [plan for plan in plans if plan.task not in validating]}
    if job.validation is not None:
        sides[job.validation] = [plan for plan in plans if plan.task in validating]
    with job.input_jsonl_fpath.open("rb") as file:
        for path, chosen in sides.items():
            report.examples[path] = _write(job, path, _examples(job, file, chosen))
    return report


def _write(job: DatasetJob, path: Path, examples: Iterator[Mapping[str, object]]) -> int:
    """Write the examples and, if the format needs them, image files next to `path`. Return the number of examples."""
    if (with_files := job.form.with_files) is None:
        return write_rows(path, examples)
    files = MediaFiles(path, "images")
    count = write_rows(path, (with_files(example, files) for example in examples))
    files.remove_unused()
    return count


def _check_outputs(job: DatasetJob) -> None:
    run = RunFiles(results=job.input_jsonl_fpath)
    for path in filter(None, (job.output_jsonl_fpath, job.validation)):
        if path.resolve() in {job.input_jsonl_fpath.resolve(), run.failures.resolve(), run.materialized.resolve()}:
            raise DataError(f"{path} is one of the input files. Choose another output.")
        if path.exists() and path.stat().st_size and not job.overwrite:
            raise DataError(f"{path} already exists. Add --overwrite to replace it, or choose another output.")


class _Place(NamedTuple):
    """A row and its position in the file."""

    offset: int
    line: int
    row: Row


def _rows(path: Path) -> Iterator[_Place]:
    for offset, (number, raw) in read_lines_at(path):
        yield _Place(offset, number, _parsed(raw, path, number))


def _parsed(line: bytes, path: Path, number: int) -> Row:
    return Row(parse_row(line.removeprefix(BOM_UTF8), path, number))


class _Planner:
    """The first of two passes over the file. It selects rollouts, and keeps only their positions in memory."""

    def __init__(self, job: DatasetJob, report: DatasetReport) -> None:
        self._job = job
        self._report = report
        self._condition = Condition(job.where) if job.where is not None else None
        self._seen: set[int] = set()

    def plans(self) -> list[_Plan]:
        """Return the plan of each task that has examples, in the order of the file."""
        tasks: dict[Task, list[_Candidate]] = {}
        for place in _rows(self._job.input_jsonl_fpath):
            self._report.read += 1
            try:
                candidate = self._candidate(place)
            except Unusable as error:
                self._report.dropped[str(error)] += 1
            except DataError as error:
                raise DataError(f"{self._job.input_jsonl_fpath}:{place.line}: {error}") from error
            else:
                tasks.setdefault(_task_of(place.row, candidate), []).append(candidate)
        self._check_columns()
        self._count_failures()
        make = self._single if self._job.form.of_pair is None else self._pairs
        return [_Plan(task, examples) for task, each in tasks.items() if (examples := make(each))]

    def _candidate(self, place: _Place) -> _Candidate:
        """Return the candidate for a row. If the rollout is not usable, raise `Unusable` with the reason."""
        job, form, row = self._job, self._job.form, place.row
        if row.failure_class is not None:
            raise Unusable(f"failed ({row.failure_class})")
        if row.is_masked:
            raise Unusable("masked (mask_sample)")
        if "reward" not in row.fields:
            raise DataError("not a rollout: 'reward' is missing. Pass the output of a collection.")
        if (reward := row.reward) is None:
            raise Unusable("without a reward")
        if self._condition is not None and not self._condition.holds(row.fields):
            raise Unusable("where")
        is_good = job.min_reward is None or reward >= job.min_reward
        if form.of_rollout is not None and not is_good:
            raise Unusable("below min_reward")
        conversation = _conversation(job, row)
        prompt = digest_of(dump_json([conversation.prompt, conversation.tools]))
        label = is_good if form.of_rated is not None else None
        example = form.of_rollout(conversation) if form.of_rollout else [prompt, conversation.completion, label]
        digest = digest_of(dump_json(example))
        # For pairs, look for duplicates only within a task, because different tasks may need the same answer in pairs.
        known = digest if form.of_pair is None else digest_of(b"%d %s" % (digest, str(row.task_index).encode()))
        if known in self._seen:
            raise Unusable("duplicate")
        self._seen.add(known)
        return _Candidate(place.offset, place.line, reward, prompt, digest)

    def _single(self, candidates: list[_Candidate]) -> list[tuple[_Candidate, ...]]:
        best_first = sorted(candidates, key=lambda each: (-each.reward, each.offset))
        kept = best_first[: self._job.max_per_task]
        self._drop("more than max_per_task", len(candidates) - len(kept))
        return [(each,) for each in kept]

    def _pairs(self, candidates: list[_Candidate]) -> list[tuple[_Candidate, ...]]:
        prompts: dict[int, list[_Candidate]] = {}
        for each in candidates:
            prompts.setdefault(each.prompt, []).append(each)
        found: list[tuple[_Candidate, ...]] = []
        for group in prompts.values():
            found += self._pairs_of_prompt(group)
        return found

    def _pairs_of_prompt(self, group: list[_Candidate]) -> list[tuple[_Candidate, ...]]:
        job = self._job
        pairing = paired(
            [each.reward for each in group], job.pairs, min_reward=job.min_reward, min_difference=job.min_difference
        )
        for reason in pairing.unused.values():
            self._drop(reason, 1)
        fresh = []
        for pair in pairing.pairs:
            digest = digest_of(b"%d %d" % (group[pair.chosen].digest, group[pair.rejected].digest))
            if digest not in self._seen:
                self._seen.add(digest)
                fresh.append(pair)
        lost = {place for pair in pairing.pairs for place in pair} - {place for pair in fresh for place in pair}
        self._drop("duplicate", len(lost))
        return [(group[pair.chosen], group[pair.rejected]) for pair in fresh]

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._report.dropped[reason] += count

    def _check_columns(self) -> None:
        if self._condition is not None and (unseen := self._condition.unseen):
            path, names = self._job.input_jsonl_fpath, ", ".join(unseen)
            raise DataError(f"{path}: where: no row has the field {names}. Check the spelling.")

    def _count_failures(self) -> None:
        path = RunFiles(results=self._job.input_jsonl_fpath).failures
        for place in _rows(path) if path.exists() else ():
            self._report.read += 1
            self._drop(f"failed ({place.row.failure_class or 'unknown'})", 1)


def _conversation(job: DatasetJob, row: Row) -> Conversation:
    form = job.form
    conversation = conversation_of(
        row,
        keeps_reasoning=form.keeps_reasoning if job.reasoning is None else job.reasoning == "keep",
        arguments_as_text=form.arguments_as_text,
        is_whole=form.is_whole,
    )
    if form.takes_one_answer and len(conversation.completion) > 1:
        raise Unusable(f"more than one message ({job.format})")
    return conversation


def _task_of(row: Row, candidate: _Candidate) -> Task:
    # Rows that other programs wrote have no task index, so rows with the same prompt count as one task.
    return f"prompt {candidate.prompt}" if row.task_index is None else row.task_index


def _validation_tasks(job: DatasetJob, tasks: list[Task]) -> set[Task]:
    """Return the tasks for validation.

    Each task gets a random rank from the seed and its own name. So if tasks are added later, few of the others move
    between training and validation.
    """
    if job.validation is None:
        return set()
    if len(tasks) < 2:
        raise DataError(
            "validation_share: all examples are of one task, which cannot be split. Leave validation_share out."
        )

    count = min(max(round(job.validation_share * len(tasks)), 1), len(tasks) - 1)
    return set(sorted(tasks, key=lambda task: (random.Random(f"{job.seed} {task}").random(), str(task)))[:count])


def _examples(job: DatasetJob, file: BinaryIO, plans: list[_Plan]) -> Iterator[Mapping[str, object]]:
    """Read the file a second time, and yield the examples. At most one task's rollouts are in memory."""
    for plan in plans:
        read: dict[int, tuple[Conversation, float]] = {}
        for example in plan.examples:
            for each in example:
                if each.offset not in read:
                    file.seek(each.offset)
                    row = _parsed(file.readline(), job.input_jsonl_fpath, each.line)
                    read[each.offset] = _conversation(job, row), each.reward
            yield _example(job, *(read[each.offset] for each in example))
            if job.form.of_pair is None:
                # Free the memory, because only pairs use a rollout more than once.
                read.clear()


def _example(job: DatasetJob, *rollouts: tuple[Conversation, float]) -> Mapping[str, object]:
    form = job.form
    (first, reward), *rest = rollouts
    if form.of_pair is not None:
        return form.of_pair(first, rest[0][0])
    if form.of_rated is not None:
        return form.of_rated(first, reward >= (job.min_reward or 0.0))
    assert form.of_rollout is not None
    return form.of_rollout(first)


class Pair(NamedTuple):
    """A pair of rollouts, by their indexes in the sequence of rewards."""

    chosen: int
    rejected: int


class Pairing(NamedTuple):
    """The pairs of a prompt. `unused` maps the index of each rollout outside a pair to the reason."""

    pairs: list[Pair]
    unused: dict[int, str]


def paired(
    rewards: Sequence[float], limit: PairLimit, *, min_reward: float | None = None, min_difference: float = 0.0
) -> Pairing:
    """Pair rollouts of one prompt. Pairs with the largest difference of rewards come first.

    Pairs with equal differences are ordered so that they use each rollout in turn. The chosen rollout has at least
    `min_reward`. The rewards of a pair are never equal, and differ by at least `min_difference`.
    """
    best_first = sorted(range(len(rewards)), key=lambda place: (-rewards[place], place))
    most = len(rewards) if limit == "all" else 1 if limit == "best_worst" else limit

    def is_apart(chosen: int, rejected: int) -> bool:
        difference = rewards[chosen] - rewards[rejected]
        return difference > 0 and difference >= min_difference - ROUNDING

    def is_allowed(chosen: int, rejected: int) -> bool:
        return is_apart(chosen, rejected) and (min_reward is None or rewards[chosen] >= min_reward)

    def order(ranks: tuple[int, int]) -> tuple[float, int, int]:
        best, worst = ranks
        difference = rewards[best_first[best]] - rewards[best_first[~worst]]
        return -difference, (worst - best) % len(rewards), best

    # Compare only the `most` best with the `most` worst rollouts, because the `most` largest differences are there.
    ranks = range(min(most, len(rewards)))
    allowed = [(best, worst) for best in ranks for worst in ranks if is_allowed(best_first[best], best_first[~worst])]
    ordered = sorted(allowed, key=order)[: None if limit == "all" else most]
    pairs = [Pair(best_first[best], best_first[~worst]) for best, worst in ordered]
    used = {place for pair in pairs for place in pair}
    best, worst = best_first[0], best_first[-1]

    def reason(place: int) -> str:
        if len(rewards) == 1:
            return "only rollout of its prompt"
        if rewards[best] == rewards[worst]:
            return "tie"
        if is_allowed(best, place) or is_allowed(place, worst):
            return "more than pairs"
        if is_apart(best, place) or is_apart(place, worst):
            return "chosen side below min_reward"
        return "below min_difference"

    return Pairing(pairs, {place: reason(place) for place in range(len(rewards)) if place not in used})
