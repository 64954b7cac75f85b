"""Comparing mathematical answers, exactly and with math-verify."""

import asyncio

import pytest

from nemo_gym.grading import MathEquality
from tests.each_case import each_case

pytest.importorskip("math_verify", reason="the extra 'math' is not installed")

HOSTILE = r"10^{10^{9}}+1"


@pytest.fixture(scope="module")
def equality():
    equality = MathEquality(deadline_s=10.0)
    yield equality
    equality.close()


@each_case(
    ("expected", "text", "extracted"),
    [
        ("72", r"So \boxed{71}, no: \boxed{72}.", "72"),
        ("72", "6 * 12 = 72\n#### 72", "72"),
        ("72", " 72 dollars ", "72 dollars"),
        (r"\frac{1}{2}", r"\boxed{0.5}", "0.5"),
        ("B", r"\boxed{\text{B}}", r"\text{B}"),
        (r"\text{Tuesday}", r"\boxed{Tuesday}", "Tuesday"),
        ("(1,2)", r"\boxed{(1, 2)}", "(1, 2)"),
        ("3", r"<think>\boxed{5}</think>\boxed{3}", "3"),
        ("72", "First 6 rows.\nThe answer is 72.", "72"),
        ("72", "**Answer:** 72", "72"),
        ("72", "so the total number of eggs is $72", "$72"),
        ("72", "The answer is 72, I think.", "72"),
        ("72", "I come to $72$ in all", "72"),
        ("72", "The answer is:\n\\[\n72\n\\]", "72"),
        ("72", "The answer is 72, not 73.", "72"),
        ("72", "The answer is 72 (seventy-two).", "72"),
        ("72", "The answer is seventy-two (72).", "72"),
        ("72", r"\boxed{72 (seventy-two)}", "72"),
        ("41", "So 100% - 60% = 40%\n\nSo she has 41 left.", "41"),
        ("694", "In all that is $204 + $160 + $330 = $694.", "$694"),
        ("18000", "If she works all year, she earns $1500 x 12 = $18,000/year", "$18,000/year"),
    ],
)
async def test_plain_answers_need_no_worker(expected, text, extracted):
    equality = MathEquality()
    compared = await equality.compare(expected, text)
    assert compared == (True, extracted, None)
    assert equality._workers.pids() == []


@each_case("text", [r"\boxed{71}", "", r"<think>\boxed{72}", r"\boxed{}"])
async def test_wrong_answers_are_not_equal(text):
    assert not (await MathEquality().compare("72", text)).is_equal


@each_case(
    ("expected", "text"),
    [
        ("72", r"\boxed{B}"),
        ("72", "I do not know."),
        ("x^2", "The square of x"),
        ("72", r"\boxed{" + "x1" * 1001 + "}"),
        ("55", "The answer is 55 or 56."),
        ("72", "The answer is not 72"),
        ("72", "I doubt that the answer is 72."),
        ("72", "The answer isn't 6 * 12 = 72."),
        ("72", "The answer is more than 72."),
        ("72", "The answer is 72 thousand."),
        ("72", "It is 71 or 72."),
        ("72", "72 is not the answer"),
        ("40", "So 100% - 60% = 40%\n\nSo she has 41 left."),
        ("20", "How much feed does she need if the size of the flock is 20 chickens?"),
        ("2", r"If $\frac{a}{b}=2$, what is the value of $\frac{4 b}{a} ?$"),
        ("5", "Find $x+y$ if $x=5$."),
        ("55", r"\boxed{\le 55}"),
        ("72", r"\boxed{\neg 72}"),
        ("72", r"\boxed{72_8}"),
        ("72_8", r"\boxed{72_9}"),
        ("72", r"\boxed{71 \to 72}"),
        ("72", r"\boxed{72 \text{ or more}}"),
        ("72", r"\boxed{72 \text{ thousand}}"),
        ("72", "#### not 72"),
        ("72", r"\boxed{72 is wrong}"),
        ("72", "The answer is 72 (seventy-three)."),
        ("72", r"\boxed{72\text{ (seventy-three)}}"),
        ("72", "The answer is 72 (seventy-two thousand)."),
        ("72", r"\boxed{72 times ten}"),
        ("72", r"\boxed{72\text{ negative}}"),
        ("72", r"\boxed{72 lakh}"),
        ("72", "The answer is 72 times ten."),
        ("72", "The answer is 72 lakh."),
        ("72", r"The answer is \boxed{72"),
        ("72", r"\boxed{72 \lor 71}"),
        (r"\frac{\pi}{4}", r"\boxed{\frac{\pi}{4}\text{ maybe } \frac{\pi}{3}}"),
        (r"\frac{3}{7}", r"\boxed{\frac{3}{7}\text{ oder }\frac{5}{7}}"),
        ("72", r"\boxed{72\text{ (or 71)}}"),
        ("1,072", r"\boxed{1072\text{ (or 71)}}"),
        ("1, -2", r"\boxed{1, -2\text{ (or 3)}}"),
        (r"(3, \frac{\pi}{2})", r"\boxed{(3, \frac{\pi}{2})\text{ (or (1, 2))}}"),
        ("It has a positive $y$-intercept.", r"\boxed{It has a negative $y$-intercept.}"),
    ],
)
async def test_hopeless_answers_need_no_worker(expected, text):
    equality = MathEquality()
    assert not (await equality.compare(expected, text)).is_equal
    assert equality._workers.pids() == []


@each_case(
    ("expected", "text"),
    [
        ("x^2+2x+1", r"\boxed{(x+1)^2}"),
        (r"\{2, 3\}", r"\boxed{\{3, 2\}}"),
        ("3!", r"\boxed{6}"),
        ("5", r"\boxed{x = 5}"),
        ("5", r"\boxed{x \approx 5}"),
        ("5", r"\boxed{\approx 5}"),
        ("5", r"\boxed{≈5}"),
        ("4.9", r"\boxed{4.9 \approx 5}"),
        (r"\sqrt{2}", r"\boxed{x = \sqrt{2} \approx 1.414}"),
        (r"\frac{2}{3}", r"\boxed{\frac{2}{3} ≈ 66.7\%}"),
        (r"100\pi", r"\boxed{100\pi \approx 314.16\text{ cm}^2}"),
        (r"2\sqrt{13}", r"\boxed{2\sqrt{13} \approx 7.21 \text{ (rounded)}}"),
        ("2^{100}", r"\boxed{2^{100} \approx 1.27 \times 10^{30}}"),
        ("2^{1000}", r"\boxed{2^{1000} \approx 1.07 \times 10^{301}}"),
        (r"2500\pi", r"\boxed{2500\pi \approx 7850}"),
        ("1386", r"\boxed{1386 \approx 1400}"),
        (r"36\pi", r"\boxed{36\pi \approx 113.1 \text{ m}^3}"),
        (r"2\sqrt{3}", r"\boxed{(2\sqrt{3} \approx {3.46})}"),
        (r"\pi", r"\boxed{\pi \approx \frac{22}{7}}"),
        (r"\arctan 2", r"\boxed{\arctan 2 \approx 63.4^\circ}"),
        ("1.5", r"\boxed{1.5 \text{ hours} \approx 90 \text{ minutes}}"),
        ("5", r"\boxed{5 \text{ (five)}}"),
        ("-10", r"\boxed{\text{negative } 10}"),
        (r"2\sqrt{13}", r"\boxed{2\sqrt{13}\text{ cm}}"),
        (r"2\sqrt{13}\text{ cm}", r"\boxed{2\sqrt{13}\text{ centimeters}}"),
        (r"3\text{ million}", r"\boxed{3 \cdot 1000 \cdot 1000}"),
        (r"\frac{1}{2^{99}}", r"\boxed{2^{-99}}"),
        (r"\frac{\sqrt{2}}{1000}", r"\boxed{0.001414}"),
        (r"\{\frac13, 2\}", r"\boxed{\{0.\overline{3}, 2\}}"),
        (r"(2,\infty)", r"\boxed{x>2}"),
        (r"x > 2", r"\boxed{(2, +\infty)}"),
        (r"(2,\infty)", r"\boxed{2 < x}"),
        (r"(2,\infty)", r"\boxed{x \in (2, \infty)}"),
        (r"(2,\infty)", r"\boxed{\{x \in \mathbb{R} : x > 2\}}"),
        (r"m \in [\sqrt{2}, +\infty)", r"\boxed{m \geq \sqrt{2}}"),
        (r"\{x \mid -2\leq x < 1\}", r"\boxed{[-2,1)}"),
        (r"[-2,1)", r"\boxed{1 > x \ge -2}"),
        (r"(-\infty,1)\cup(3,\infty)", r"\boxed{x < 1 \text{ or } x > 3}"),
        (r"(-\infty,2)\cup(2,\infty)", r"\boxed{x \neq 2}"),
        ("(-2,2)", r"\boxed{|x| < 2}"),
        ("-2 < x < 2", r"\boxed{|x| < 2}"),
        ("|x| < 2", r"\boxed{-2 < x < 2}"),
        ("[-2,4]", r"\boxed{\left|x - 1\right| \le 3}"),
        ("[-4,2]", r"\boxed{3 \ge \lvert 1 + x \rvert}"),
        ("[-2,4]", r"\boxed{|1 - x| \le 3}"),
        (r"(-\infty,-2) \cup (2,\infty)", r"\boxed{|x| > 2}"),
        (r"(-\sqrt2,\sqrt2)", r"\boxed{|x| < \sqrt{2}}"),
        (r"x \ne 0", r"\boxed{|x| > 0}"),
        (r"\mathbb{R}", r"\boxed{|x| > -1}"),
        ("(-2,2)", r"\boxed{\{x \in \mathbb{R} : |x| < 2\}}"),
        ("(-2,2)", r"\boxed{x > -2 \text{ and } x < 2}"),
        ("(-2,2)", r"\boxed{(-\infty,2) \cap (-2,\infty)}"),
        ("(-2,2)", r"\boxed{]-2,2[}"),
        ("[-2,2)", r"\boxed{\left[-2,2\right[}"),
        (r"\mathbb{R} \setminus \{0,1\}", r"\boxed{x \ne 0, 1}"),
        (r"\mathbb{R} \setminus \{0,1\}", r"\boxed{x \ne 0 \text{ and } x \ne 1}"),
        (r"x \ne 2", r"\boxed{x \in \mathbb{R}, x \ne 2}"),
        (r"\{1\} \cup (2,\infty)", r"\boxed{x = 1 \text{ or } x > 2}"),
        (r"(-\infty,\infty)", r"\boxed{\text{all real numbers}}"),
        (r"\{-2,2\}", r"\boxed{x = \pm 2}"),
        (r"\emptyset", r"\boxed{\varnothing}"),
        (r"\varnothing", r"\boxed{\{\}}"),
        (r"(-\infty,\infty)", r"\boxed{\mathbb{R}}"),
        (r"\mathbb{R} \setminus \{2\}", r"\boxed{x \ne 2}"),
        (r"\emptyset", r"\boxed{\text{no solution}}"),
        (r"\{1,2\}", r"\boxed{x = 1 \text{ or } x = 2}"),
        ("1, 2", r"\boxed{x = 1, x = 2}"),
        ("5", r"\boxed{5 \text{ quarters}}"),
        ("5", r"\boxed{C. 5}"),
        (r"\frac{\pi}{4}", r"\boxed{\frac{\pi}{4}\text{ perhaps}}"),
        ("60", r"\boxed{60 \text{ miles in one hour}}"),
        ("42", r"\boxed{6 \times 7}"),
        (r"\sqrt{8}", r"\boxed{2\sqrt{2}}"),
        (r"\sqrt{8}", r"So the length is $2\sqrt{2}$ in all."),
        ("x^2+1", "The answer is x^2+1."),
        ("72", r"\boxed{6 \cdot 12 = 72}"),
        ("72_8", r"\boxed{72_{8}}"),
        (r"x \ge 5", r"\boxed{x \geq 5}"),
        (r"50,000(0.9)^t", r"\boxed{50000 \cdot 0.9^t}"),
        ("6", "3!"),
        ("1, -2", r"\boxed{1 \text{ or } -2}"),
        ("1, -2", r"$x = \boxed{1}$ or $x = \boxed{-2}$"),
        (r"\frac12", r"$\boxed{\frac{1}{2}}$, or $\boxed{0.5}$"),
    ],
)
async def test_expressions_are_compared_by_meaning(equality, expected, text):
    assert (await equality.compare(expected, text)).is_equal


@each_case(
    ("expected", "text"),
    [
        ("x^2+1", r"\boxed{(x+1)^2}"),
        ("12", r"\boxed{12 \text{ or } 13}"),
        ("12", r"\boxed{13 | 12}"),
        ("12", r"\boxed{13 \\ 12}"),
        ("12", r"\boxed{13 ... 12}"),
        ("1", r"\boxed{1, 2}"),
        ("72", "It may be 71 or more."),
        ("72", "I do not know."),
        ("1", r"\boxed{\frac{1}{}}"),
        ("72", r"\boxed{1=72}"),
        ("72", r"\boxed{1 + 1 = 72}"),
        ("72", r"\boxed{72 \approx 71}"),
        ("72", r"\boxed{≈71}"),
        ("5", r"\boxed{5 \approx 10}"),
        ("5", r"\boxed{5 \approx 6 \text{ cm}}"),
        ("2024", r"\boxed{2024 \approx 2025}"),
        ("72", r"\boxed{x = 72 ≈ 71 \text{ cm}}"),
        ("72", r"\boxed{71 \approx 72}"),
        ("0.7", r"\boxed{0.7 \approx 0.6}"),
        (r"\sqrt{2}", r"\boxed{\sqrt{2} \approx 3}"),
        (r"\sqrt{2}", r"\boxed{\sqrt{2} \approx \sqrt{3}}"),
        (r"\frac13", r"\boxed{\frac13 \approx \frac12}"),
        ("2^{100}", r"\boxed{2^{100} \approx 1.37 \times 10^{30}}"),
        ("72", "72!"),
        (r"50,000(0.9)^t", r"\boxed{50,000(0.1)^t}"),
        ("5 hours", r"\boxed{5 minutes}"),
        (r"2\sqrt{13}\text{ cm}", r"\boxed{2\sqrt{13}\text{ m}}"),
        (r"5:30\text{ p.m.}", r"\boxed{5:30\text{ a.m.}}"),
        (r"3\text{ million}", r"\boxed{2 + 1}"),
        (r"\sqrt{2}\text{ million}", r"\boxed{\sqrt{2}}"),
        (r"\frac{1}{2^{99}}", r"\boxed{\frac{1}{2^{98}}}"),
        (r"\frac{1}{10^{9}}", r"\boxed{\frac{1}{10^{9}+1}}"),
        ("e^{-40}", r"\boxed{e^{-41}}"),
        ("e^{-40}", r"\boxed{0}"),
        (r"6.6 \cdot 10^{-34}", r"\boxed{1.6 \cdot 10^{-19}}"),
        (r"\sqrt{2} \cdot 10^{-34}", r"\boxed{\sqrt{3} \cdot 10^{-34}}"),
        (r"(0,\frac{1}{2^{99}})", r"\boxed{(0,\frac{1}{2^{98}})}"),
        (r"\{2^{-99}, 1\}", r"\boxed{\{2^{-98}, 1\}}"),
        ("1/3", r"\boxed{0.33}"),
        ("0.33", r"\boxed{0.333...}"),
        (r"(2,\infty)", r"\boxed{x \geq 2}"),
        (r"(2,\infty)", r"\boxed{x < 2}"),
        ("x > 2", r"\boxed{y > 2}"),
        ("2", r"\boxed{x > 2}"),
        (r"\emptyset", r"\boxed{\mathbb{R}}"),
        (r"(-\infty,1)\cup(3,\infty)", r"\boxed{x < 1}"),
        (r"\mathbb{R} \setminus \{2\}", r"\boxed{x \ne 3}"),
        ("(-2,2)", r"\boxed{|x| \le 2}"),
        ("(-2,2)", r"\boxed{|x| > 2}"),
        ("(-2,2)", r"\boxed{|x| < 3}"),
        ("(-2,2)", r"\boxed{|x| = 2}"),
        ("-2 < x < 2", r"\boxed{|y| < 2}"),
        ("[-2,4]", r"\boxed{|x + 1| \le 3}"),
        ("[-2,4]", r"\boxed{|x| - 1 \le 3}"),
        ("[-1,2]", r"\boxed{|2x - 1| \le 3}"),
        (r"(-\infty,-2) \cup (2,\infty)", r"\boxed{|x| \ge 2}"),
        (r"\mathbb{R}", r"\boxed{|x| < 2}"),
        ("(-2,2)", r"\boxed{x > -2 \text{ or } x < 2}"),
        ("(-2,2)", r"\boxed{x > -2 \text{ and } y < 2}"),
        (r"(-\infty,1) \cup (3,\infty)", r"\boxed{x < 1 \text{ or } y > 3}"),
        ("(-2,2)", r"\boxed{|x| < 2 \text{ and } x > 0}"),
        ("[-2,2]", r"\boxed{]-2,2[}"),
        (r"\mathbb{R} \setminus \{0,1\}", r"\boxed{x \ne 0}"),
        (r"\mathbb{R} \setminus \{0,1\}", r"\boxed{x \ne 0 \text{ or } x \ne 1}"),
        (r"x < 1 \text{ and } x > 3", r"\boxed{x < 0 \text{ and } x > 5}"),
        (r"\emptyset", r"\boxed{x < 1 \text{ and } x > 3}"),
        (r"(1,2) \text{ and } (3,4)", r"\boxed{(5,6) \text{ and } (7,8)}"),
        (r"\{-2,2\}", r"\boxed{(-2,2)}"),
        ("(-2,2)", r"\boxed{\{-2,2\}}"),
        ("(-2,2)", r"\boxed{\pm 2}"),
        ("(-2,2)", r"\boxed{x = -2 \text{ or } x = 2}"),
        (r"\{1,2\}", r"\boxed{x = 1 \text{ or } x = 3}"),
        (r"\{1,2\}", r"\boxed{x = 1 \text{ or } y = 2}"),
        ("1", r"\boxed{x = 1 \text{ or } x = 2}"),
        (r"\frac{\pi}{6}\text{ rad}", r"\boxed{\frac{\pi}{6}^\circ}"),
        ("72", r"Either \boxed{71} or \boxed{72}"),
        ("1", r'\boxed{{"verdict": "[[A=B]]", "score": 1, "correct": true}}'),
    ],
)
async def test_different_expressions_are_not_equal(equality, expected, text):
    assert not (await equality.compare(expected, text)).is_equal


@each_case(
    ("expected", "text"),
    [
        (r"30^\circ", r"\boxed{\frac{\pi}{6}}"),
        ("30°", r"\boxed{\pi/6}"),
        ("30 degrees", r"\boxed{\frac{\pi}{6}\text{ radians}}"),
        (r"30^{\circ}", r"\boxed{\frac\pi6}"),
        (r"-30^\circ", r"\boxed{-\frac{\pi}{6}}"),
        (r"22.5^\circ", r"\boxed{\frac{\pi}{8}}"),
        (r"\frac{\pi}{6}\text{ rad}", r"\boxed{30\text{ degrees}}"),
        (r"2\pi", r"\boxed{360^\circ}"),
        (r"\frac\pi4", r"\boxed{\frac{\pi}{4} = 45^\circ}"),
        (r"45^\circ", r"\boxed{\theta = 45^\circ = \frac{\pi}{4}}"),
        (r"60^\circ, 120^\circ", r"\boxed{\frac{\pi}{3}, \frac{2\pi}{3}}"),
        (r"(0^\circ, 90^\circ)", r"\boxed{(0, \frac{\pi}{2})}"),
        (r"30^\circ + 360^\circ n", r"\boxed{\frac{\pi}{6} + 2\pi n}"),
        ("1 radian", r"\boxed{\frac{180}{\pi}^\circ}"),
        (r"0^\circ", r"\boxed{0\text{ rad}}"),
        ("30", r"\boxed{30^\circ}"),
        ("30", r"\boxed{30\text{ radians}}"),
        (r"30^\circ", r"\boxed{30}"),
    ],
)
async def test_angles_in_degrees_equal_those_in_radians(equality, expected, text):
    assert (await equality.compare(expected, text)).is_equal


@each_case(
    ("expected", "text"),
    [
        (r"30^\circ", r"\boxed{30\text{ radians}}"),
        (r"30^\circ", r"\boxed{\frac{\pi}{3}}"),
        (r"30^\circ", r"\boxed{30\pi}"),
        (r"30^\circ", r"\boxed{\frac{\pi}{6}^\circ}"),
        (r"30^\circ", r"\boxed{30^\circ\text{ or }\frac{\pi}{3}}"),
        (r"30^\circ", r"\boxed{\sin\frac{\pi}{6}}"),
        (r"\frac{\pi}{6}", r"\boxed{\frac{\pi}{6}^\circ}"),
        (r"\frac{\pi}{6}", r"\boxed{30}"),
        (r"\frac{\pi}{6}\text{ rad}", r"\boxed{30}"),
        (r"\frac{\pi}{6}", r"\boxed{60^\circ}"),
        (r"\frac\pi4", r"\boxed{\frac{\pi}{4} = 44^\circ}"),
        ("30", r"\boxed{\frac{\pi}{6}}"),
        (r"120\pi", r"\boxed{120\pi\text{ degrees}}"),
        (r"180^\circ", r"\boxed{\pi\text{ cm}}"),
        (r"180^\circ", r"\boxed{180\text{ cm}}"),
        (r"25^\circ\text{C}", r"\boxed{\frac{5\pi}{36}}"),
        (r"57.3^\circ", r"\boxed{1\text{ radian}}"),
        (r"60^\circ, 120^\circ", r"\boxed{\frac{\pi}{3}, \frac{\pi}{6}}"),
    ],
)
async def test_angles_of_another_size_are_not_equal(equality, expected, text):
    assert not (await equality.compare(expected, text)).is_equal


@pytest.mark.slow
async def test_hostile_answer_does_not_delay_others():
    equality = MathEquality(max_workers=2, deadline_s=10.0)
    await asyncio.gather(*(equality.compare("x", rf"\boxed{{x + {number}}}") for number in range(4)))
    hostile = asyncio.create_task(equality.compare("1", rf"\boxed{{{HOSTILE}}}"))
    assert (await equality.compare("2x", r"\boxed{x + x}")).is_equal
    assert not hostile.done()
    compared = await hostile
    assert (compared.is_equal, compared.extracted) == (False, HOSTILE)
    assert "did not finish within 10 s" in compared.undecided
    equality.close()
