"""Token counts of answers in each API."""

from nemo_gym.records.usage import Usage, response_usage, usage_of
from tests.each_case import each_case

RESPONSES = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 13,
}
CHAT = {
    "prompt_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens": 3,
    "completion_tokens_details": {"reasoning_tokens": 2},
}
OTHER_CHAT = {
    "prompt_tokens": 10.0,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 1,
    "prompt_tokens_details": None,
    "completion_tokens": 3,
    "reasoning_output_tokens": 2,
}
PROGRAM = {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 3, "reasoning_output_tokens": 2}
MESSAGES = {
    "input_tokens": 5,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 1,
    "output_tokens": 3,
    "output_tokens_details": {"thinking_tokens": 2},
}
PROXIED = RESPONSES | {"cache_read_input_tokens": 4}
"""The counts of a proxy that reports the cache under the names of Messages, too."""


@each_case("counts", [RESPONSES, CHAT, OTHER_CHAT, PROGRAM, MESSAGES, PROXIED])
def test_each_api_gives_the_same_counts(counts):
    assert usage_of(counts)._replace(cache_creation_tokens=None) == Usage(10, 3, 2, 13, 4)
    converted = response_usage(counts)
    assert (converted.input_tokens, converted.output_tokens, converted.total_tokens) == (10, 3, 13)
    assert converted.input_tokens_details.cached_tokens == 4
    assert converted.output_tokens_details.reasoning_tokens == 2


@each_case(
    ("counts", "written"),
    [(MESSAGES, 1), (CHAT, 0), ({**CHAT, "prompt_tokens_details": {"cache_write_tokens": 6}}, 6)],
)
def test_written_tokens_of_the_cache_are_converted(counts, written):
    assert response_usage(counts).input_tokens_details.cache_write_tokens == written


@each_case("counts", [None, 5, [], {}, {"input_tokens": True, "output_tokens": -1, "input_tokens_details": 5}])
def test_other_values_are_unknown(counts):
    assert usage_of(counts) == Usage()
    assert response_usage(counts) is None


@each_case("counts", [{"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": 5}])
def test_zeros_and_one_side_are_not_counted(counts):
    assert response_usage(counts) is None
