"""Tasks with custom calendars: weeks, months, years and clock hours of unusual lengths."""

from __future__ import annotations

import random
from datetime import date, timedelta

from resources_servers.counterintuitive.drafts import Draft, Scenario, ending, listed, place, user
from resources_servers.counterintuitive.grading import MONTHS

PLACES = (
    "On the island where {name} lives",
    "In the calendar of the {city} monastery",
    "On board the research station Meridian",
    "In the play that {name} wrote",
    "In the valley above {city}",
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MORE_DAYS = ("Tideday", "Lampday", "Restday")
USUAL_YEAR = 2023
"""An arbitrary year that is not a leap year."""
MONTH_LENGTHS = (20, 25, 28, 32, 36, 40)
HOURS = (40, 50, 72, 80, 100)


def week(rng: random.Random, is_twisted: bool) -> Draft:
    days = WEEKDAYS
    if is_twisted:
        days = rng.choice((WEEKDAYS[:5], WEEKDAYS[:6], (*WEEKDAYS, *MORE_DAYS[:1]), (*WEEKDAYS, *MORE_DAYS)))
    today = rng.choice(days[:7])
    distance = rng.randint(8, 90)
    is_later = rng.random() < 0.7
    step = distance if is_later else -distance
    question = f"Which day is it in {distance} days?" if is_later else f"Which day was it {distance} days ago?"
    text = (
        f"{place(rng, PLACES)}, a week has these {len(days)} days, in this order: {listed(list(days))}. "
        f"No day is left out. Today is {today}.\n\n{question}{ending(rng, 'the name of the day')}"
    )
    expected, habitual = (each[(each.index(today) + step) % len(each)] for each in (days, WEEKDAYS))
    return Draft([user(text)], expected, habitual)


def months(rng: random.Random, is_twisted: bool) -> Draft:
    length = rng.choice(MONTH_LENGTHS) if is_twisted else None
    month, day = rng.randrange(12), rng.randint(1, 20)
    later = rng.randint(10, 75)
    lengths = (
        f"all twelve months, from January to December, have {length} days"
        if length
        else "the months have the lengths that you know, and this is not a leap year"
    )
    usual = date(USUAL_YEAR, month + 1, day) + timedelta(days=later)
    habitual = f"{usual.day} {MONTHS[usual.month - 1]}"
    expected = habitual
    if length:
        passed, rest = divmod(day - 1 + later, length)
        expected = f"{rest + 1} {MONTHS[(month + passed) % 12]}"
    text = (
        f"{place(rng, PLACES)}, {lengths}. Today is {day} {MONTHS[month]}.\n\n"
        f"Which date is it in {later} days?{ending(rng, 'day and month, such as 5 May')}"
    )
    return Draft([user(text)], expected, habitual, "date")


def leap_years(rng: random.Random, is_twisted: bool) -> Draft:
    every, but, unless = 4, 100, 400
    if is_twisted:
        every = rng.choice((3, 5, 6, 7, 8))
        but = every * rng.choice((5, 10, 12))
        unless = but * rng.choice((2, 3, 4))
    start = rng.randint(1200, 2000)
    end = start + rng.randint(30, 400)
    by_rule, by_habit = (
        sum(year % a == 0 and (year % b != 0 or year % c == 0) for year in range(start, end + 1))
        for a, b, c in ((every, but, unless), (4, 100, 400))
    )
    question, base = f"How many leap years are there from {start} to {end}, both included?", 0
    if rng.random() < 0.4:
        question = f"How many days do the years from {start} to {end}, both included, have together?"
        base = 365 * (end - start + 1)
    text = (
        f"{place(rng, PLACES)}, a year has 365 days, and a leap year 366. A year is a leap year if its number is "
        f"divisible by {every}, but not if it is divisible by {but}, unless it is divisible by {unless}.\n\n"
        f"{question}{ending(rng, 'the number')}"
    )
    return Draft([user(text)], str(base + by_rule), str(base + by_habit), "number")


def clock(rng: random.Random, is_twisted: bool) -> Draft:
    length = rng.choice(HOURS) if is_twisted else 60
    hour, minute, takes = rng.randint(1, 14), rng.randrange(min(length, 60)), rng.randint(35, 240)
    vehicle = rng.choice(("ferry", "night bus", "cable car", "mail coach", "slow train"))
    text = (
        f"{place(rng, PLACES)}, an hour has {length} minutes. The {vehicle} leaves at {hour}:{minute:02} and takes "
        f"{takes} minutes.\n\n"
        f"When does it arrive?{ending(rng, 'the time as hour:minute with two digits for the minute, such as 8:05')}"
    )
    expected, habitual = (f"{hour + (minute + takes) // each}:{(minute + takes) % each:02}" for each in (length, 60))
    return Draft([user(text)], expected, habitual, "time")


SCENARIOS: tuple[Scenario, ...] = (week, months, leap_years, clock)
