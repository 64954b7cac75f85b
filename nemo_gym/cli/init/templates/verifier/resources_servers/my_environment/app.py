"""Grade words that had to be put into alphabetical order: the share of them that is in its place."""

from nemo_gym import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

WORST, BEST = 0.0, 1.0
"""The rewards of a useless and of a perfect answer."""
MARK = "Answer:"


class MyEnvironmentVerifyRequest(BaseVerifyRequest):
    words: list[str]
    """The words, in the order in which the prompt lists them."""


class MyEnvironmentServer(SimpleResourcesServer):
    async def verify(self, body: MyEnvironmentVerifyRequest) -> BaseVerifyResponse:
        """Return a reward between `WORST` and `BEST`, and the share on which it is based."""
        share = share_in_place(body.words, body.response.answer_text)
        return BaseVerifyResponse.grade(body, reward=(1 - share) * WORST + share * BEST, share_in_place=share)


def share_in_place(words: list[str], text: str) -> float:
    """Return the share of the words that the last answer of a text puts into their place."""
    _, mark, answer = text.rpartition(MARK)
    given = [word.strip(" .") for word in answer.strip().split(",")]
    if not mark or sorted(given) != sorted(words):
        return 0.0
    return sum(map(str.__eq__, given, sorted(words))) / len(words)


if __name__ == "__main__":
    MyEnvironmentServer.run_webserver()
