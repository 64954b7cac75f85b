"""Reports, as text and as JSON, of a grader's agreement with people and of a judge's own variance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nemo_gym.evaluation.verdicts import WHOLE
from nemo_gym.labelling.agreement import Agreement, Estimate
from nemo_gym.labelling.judge_variance import JudgeVariance, Stability
from nemo_gym.labelling.labels import Report

FEW = 30
"""With fewer labels than this, the intervals are too wide to be useful, so the report asks for more labels."""


def agreement_text(report: Report) -> str:
    lines = [f"{report.labelled} of {report.in_file} rollouts labelled, out of {report.rollouts} in the run", ""]
    for name, found in report.by_name.items():
        lines += agreement_lines(name, found)
    if report.unlabelled_strata:
        missing = ", ".join(f"'{stratum}' ({size})" for stratum, size in report.unlabelled_strata.items())
        lines.append(f"No rollout with these verdicts is labelled, so the estimates leave them out: {missing}.")
    if report.labelled < FEW:
        lines.append(f"Label at least {FEW} rollouts for intervals that help to decide.")
    return "\n".join(lines).rstrip()


def agreement_lines(name: str, found: Agreement) -> Iterator[str]:
    """Yield lines of text with the confusion matrix, the agreement, Cohen's kappa and the share of each label."""
    yield "grader \\ people" if name == WHOLE else f"{name}: grader \\ people"
    verdicts = list(dict.fromkeys([*found.labels, *(verdict for verdict, _ in found.counts)]))
    width = max(map(len, verdicts))
    columns = [max(len(label), 5) for label in found.labels]
    yield "  ".join(
        ["  " + " " * width, *(label.rjust(size) for label, size in zip(found.labels, columns, strict=True))]
    )
    for verdict in verdicts:
        counts = (found.counts.get((verdict, label), 0) for label in found.labels)
        cells = (str(count).rjust(size) for count, size in zip(counts, columns, strict=True))
        yield "  ".join([f"  {verdict.ljust(width)}", *cells])
    yield f"  agreement      {_percent(found.accuracy)}"
    yield f"  Cohen's kappa  {_number(found.kappa)}"
    for label, (graded, people) in found.shares.items():
        yield f"  share of '{label}': grader {100 * graded:.1f} %, people {_percent(people)}"
    yield ""


def variance_text(found: JudgeVariance, people: Mapping[str, Agreement]) -> str:
    means = ", ".join(f"{mean:.3f}" for mean in found.mean_rewards)
    lines = [f"{found.rollouts} rollouts graded {found.repeats} times each; mean rewards: {means}"]
    if found.incomplete:
        lines.append(f"{found.incomplete} further rollouts were not graded each time and are left out")
    lines.append(f"judge's standard deviation: {found.reward_std:.3f} per rollout, {found.run_std:.4f} per run")
    for name, stability in found.by_name.items():
        lines.append(f"{'verdicts' if name == WHOLE else name}: {_stability(stability)}")
    if people:
        lines += ["", f"The most frequent of {found.repeats} verdicts, compared with people:", ""]
    for name, agreement in people.items():
        lines += agreement_lines(name, agreement)
    return "\n".join(lines).rstrip()


def agreement_json(report: Report) -> Mapping[str, object]:
    counts = {"labelled": report.labelled, "in_file": report.in_file, "rollouts": report.rollouts}
    agreements = {name: _agreement_json(each) for name, each in report.by_name.items()}
    return {**counts, "unlabelled": dict(report.unlabelled_strata), "agreement": agreements}


def variance_json(found: JudgeVariance, people: Mapping[str, Agreement]) -> Mapping[str, object]:
    fields = {name: value for name, value in found._asdict().items() if name != "by_name"}
    verdicts = {
        name: {"fleiss_kappa": each.fleiss_kappa, "unstable": each.unstable._asdict()}
        for name, each in found.by_name.items()
    }
    agreements = {name: _agreement_json(each) for name, each in people.items()}
    return {**fields, "run_std": found.run_std, "verdicts": verdicts, "agreement": agreements}


def _agreement_json(found: Agreement) -> Mapping[str, object]:
    return {
        "pairs": found.pairs,
        "confusion": [
            {"verdict": verdict, "label": label, "count": count} for (verdict, label), count in found.counts.items()
        ],
        "accuracy": found.accuracy._asdict(),
        "kappa": found.kappa._asdict(),
        "shares": {
            label: {"grader": graded, "people": people._asdict()} for label, (graded, people) in found.shares.items()
        },
    }


def _stability(each: Stability) -> str:
    kappa = "not defined, all are the same" if each.fleiss_kappa is None else f"{each.fleiss_kappa:.2f}"
    unstable = Estimate(each.unstable.mean, each.unstable.low, each.unstable.high)
    return f"Fleiss' kappa {kappa}; unstable rollouts {_percent(unstable)}"


def _percent(each: Estimate) -> str:
    value = "not defined" if each.value is None else f"{100 * each.value:.1f} %"
    return f"{value} (95 % interval {100 * each.low:.1f}–{100 * each.high:.1f} %)"


def _number(each: Estimate) -> str:
    if each.value is None:
        return "not defined, as all verdicts and labels are the same"
    return f"{each.value:.2f} (95 % interval {each.low:.2f}–{each.high:.2f})"
