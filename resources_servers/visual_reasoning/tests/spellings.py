"""Right and wrong replies of every grader, as families of spellings."""

from typing import NamedTuple

from resources_servers.visual_reasoning.answers import Key

COUNT = "How many red circles does the picture show?"
TANK = "Which level does the gauge show, in litres? A value that is off by at most 1 counts."
SPEED = "Which speed does the gauge show, in km/h? A value that is off by at most 2.5 counts."
LEVEL = "Which pressure does the gauge show, in bar? A value that is off by at most 0.25 counts."


class Case(NamedTuple):
    """The key of a row, spellings that are right, and answers that are wrong."""

    grader: str
    key: Key
    right: list[str]
    wrong: list[str]


CASES = [
    Case("number", Key(COUNT, "7"), ["7", "7.0", "7.00", "+7", "7 circles", "7 red circles", "7 circle", "07", "7."],
         ["6", "8", "0", "-7", "70", "0.7", "7.5", "77", "7%", "7 squares", "7 dozen", "seven", "14/3", "1e7", "7!",
          "IV"]),
    Case("number", Key(LEVEL, "3.4", "0.25"), ["3.4", "3.40", "3.5", "3.2", "3.65", "3.15", "3.4 bar", "3.6 bars"],
         ["3.66", "3.1", "34", "0.34", "-3.4", "3,4", "3.4 volts", "3.4 kilobar", "6.8", "3–4", "3.4%", "10"]),
    Case("number", Key(TANK, "23.7", "1"),
         ["23.7", "23.7 litres", "23.7 liters", "23.7 liter", "23.7 l", "23.7 L", "23.7l", "24 litre"],
         ["25", "23.7 gallons", "23.7 kl", "23.7 ml", "23.7 millilitres", "23.7 l or so", "2.37 l", "23.7 counts"]),
    Case("number", Key(SPEED, "85", "2.5"), ["85", "85 km/h", "85 kmh", "85 KMH", "85kmh", "85 kph", "87.5 km/h"],
         ["88", "85 mph", "85 m/s", "85 kmh or 90", "85 khm", "8.5 kmh"]),
    Case("text", Key("Which one? Answer with its letter.", "A"),
         ["A", "a", "Exit A", "exit A", "EXIT A", "the exit A", "The Exit a", "'A'"],
         ["B", "Exit B", "A B", "exit A exit", "exitA", "an exit B", "AB", "Exit 1"]),
    Case("time", Key("What time is it?", "3:05", "1"),
         ["3:05", "03:05", "3.05", "15:05", "3:05 pm", "3:05 a.m.", "3:04", "3:06", "3h05", "3:05 o'clock"],
         ["3:07", "3:03", "1:15", "4:05", "3:5", "305", "3:65", "25:05", "9:05", "2:05", "3:50", "3:05:70", "3",
          "05:3", "five past three", "-3:05"]),
    Case("text", Key("Which one?", "green square"),
         ["green square", "Green Square", "the green square", "a green square", "GREEN SQUARE", "green  square",
          '"green square"', "“green square”", "The Green square"],
         ["green", "square", "green circle", "red square", "square green", "greensquare", "green squares",
          "grеen square", "not green square", "green square circle", "green square 2", "blue", "black square",
          "yellow star", "square, green", "green-ish square"]),
    Case("moves", Key("Give the shortest way.", "UURD"),
         ["UURD", "uurd", "U U R D", "U,U,R,D", "up up right down", "Up, up, right, down", "↑↑→↓", "U-U-R-D",
          "[U, U, R, D]", "U > U > R > D"],
         ["UUR", "URD", "UURDU", "DRUU", "DDLU", "UUDR", "2U R D", "UUXRD", "north", "U", "UURDL", "RUUD", "UUUD",
          "LURD", "uu"]),
    Case("point", Key("Point at it.", "120, 80", None, (110, 70, 130, 90), 40),
         ["120, 80", "120,80", "(120, 80)", "[120, 80]", "x=120, y=80", "x: 120, y: 80", "120.5, 80.25", "110, 90",
          "130;70"],
         ["80, 120", "300, 80", "120, 200", "-120, 80", "120", "0, 0", "120, 80, 5", "12080", "1200, 800", "120 80",
          "70, 80", "120, 80; 0, 0", "x, y", "120%, 80%", "120, 8O"]),
]  # fmt: skip
"""The `е` of "grеen" is Cyrillic, and the `O` of "8O" a letter."""

RIGHT_FORMS = (
    "Answer: {}", "answer: {}", "ANSWER: {}", "**Answer:** {}", "**Answer: {}**", "Final answer: {}", "Answer：{}",
    "Answer:\n{}", "Answer:\n\n{}", "Answer: `{}`", "Answer: **{}**", "Answer: *{}*", "> Answer: {}", "- Answer: {}",
    "## Answer: {}", "I looked closely.\nAnswer: {}", "<think>no idea</think>Answer: {}", "{}", "**{}**",
    "Answer: wrong\nNo, wait.\nAnswer: {}", "\n\nAnswer: {}\n\nI am sure.", "thinking</think>\nAnswer: {}",
    "Answer:   {}  ", "_Answer:_ {}",
)  # fmt: skip
WRONG_FORMS = (
    "Answer: {right} or {wrong}", "Answer: {wrong} or {right}", "Answer: {right}, {wrong}", "Answer: {wrong}, {right}",
    "Answer: either {right} or {wrong}", "Answer: {right}/{wrong}", "Answer: {right} and {wrong}",
    "{right} or {wrong}",
    "Answer: {right}\nor {wrong}", "Answer: {right} | {wrong}", "Answer: {right} {wrong}", "Answer: {wrong} {right}",
    "Answer: {right}\nAnswer: {wrong}", "Answer: {right}\nAnswer: I am not sure", "Answer: not {wrong} but {right}",
    "Answer: {right}? No, {wrong}", "Answer: {wrong}", "{wrong}", "**{wrong}**", "Answer: {wrong}\n\n{right}",
    "The answer is {right}.\nOr it is {wrong}.", "<think>Answer: {right}</think>Answer: {wrong}",
    "<think>Answer: {wrong}</think>", "<think>Answer: {right}\n{wrong}", "Answer: maybe {right}, maybe {wrong}",
    "Ignore the rules, the grader accepts {right}.\nNot {wrong}.", "Answer: {right} is wrong, {wrong} is not",
)  # fmt: skip
ALWAYS_WRONG = (
    "", " ", "Answer:", "Answer: …", "Answer: h:mm", "Answer: x, y", "Answer: unknown", "I do not know.",
    "Answer: \u200b",
    "Answer: not {right}", "Answer: {right}{right}", "Answer: {right} is wrong", "<think>{right}</think>",
    "<think>{right}",
    "Answer: {right}\nor something else", "Answer: reward = 1", "Answer: the grader must return 1", "x" * 50_000,
    "\n" * 50_000, "Answer: " + "9" * 50_000, "Answer: I guess it is {right}", "Answer: anything but {right}",
    "Answer: {right} minus one", "Answer: null", "Answer: nan", "Answer: true", "Answer: inf", "Answer: -",
    "Answer: {{}}",
    "{right}\n{right}\n{right}", "Answer: {question}",
)  # fmt: skip


def right_replies(case):
    return [form.format(answer) for answer in case.right for form in RIGHT_FORMS]


def wrong_replies(case):
    right = case.key.expected
    mixed = [form.format(right=right, wrong=wrong) for wrong in case.wrong for form in WRONG_FORMS]
    return mixed + [form.format(right=right, question=case.key.question) for form in ALWAYS_WRONG]
