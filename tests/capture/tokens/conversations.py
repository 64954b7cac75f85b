"""Random conversations of black-box agents with a policy, as hypothesis strategies, and what was really sampled."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

# Few distinct tokens, so that prompts begin alike by chance.
TOKENS = st.lists(st.integers(0, 12), min_size=1, max_size=4)
KINDS = ("continue", "continue", "continue", "retry", "fork", "sub-agent", "compact", "retokenise", "lose", "hole")


@dataclass
class Call:
    """One call as the engine saw it."""

    prompt: list[int]
    sampled: list[int]
    log_probs: list[float]

    @property
    def whole(self):
        return self.prompt + self.sampled


@dataclass
class Step:
    """What an agent does next, with random numbers that decide about which call and with which tokens."""

    kind: str
    which: int
    context: list[int]
    sampled: list[int]
    log_prob: float


@dataclass
class World:
    """The calls of a conversation and which of them were recorded."""

    calls: list[Call] = field(default_factory=list)
    has_hole: bool = False


def prompt_of(step, calls):
    """Return the prompt of a step's call."""
    if not calls or step.kind in ("sub-agent", "compact"):
        return [99, *step.context]
    earlier = calls[step.which % len(calls)]
    last = calls[-1]
    return {
        "retry": lambda: earlier.prompt,
        "fork": lambda: earlier.whole + step.context,
        # The text of the answer comes back as other tokens.
        "retokenise": lambda: [*last.prompt, 98, *step.context],
    }.get(step.kind, lambda: last.whole + step.context)()


STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        which=st.integers(0, 20),
        context=TOKENS,
        sampled=TOKENS,
        log_prob=st.floats(-20, 0, allow_nan=False),
    ),
    min_size=1,
    max_size=14,
)
