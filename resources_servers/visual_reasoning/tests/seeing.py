"""A reader of the pictures that uses nothing but their pixels and the question."""

import math
import re
from base64 import b64decode
from collections import Counter
from functools import cache
from io import BytesIO
from itertools import pairwise

import numpy as np
from PIL import Image

from resources_servers.visual_reasoning.charts import GOODS, TOP, Axes
from resources_servers.visual_reasoning.dials import FIRST_ANGLE, SCALES, SPAN, Clock, Gauge
from resources_servers.visual_reasoning.drawing import Canvas, on_circle
from resources_servers.visual_reasoning.mazes import CELL, GOAL, MARGIN, MOVES, SIZE, START
from resources_servers.visual_reasoning.shapes import COLOURS

CORNERS_OF_KIND = {3: "triangle", 4: "square", 5: "star"}
PLURAL = {"circles": "circle", "squares": "square", "triangles": "triangle", "stars": "star", "shapes": None}


def decoded(url):
    """Return the pixels of a data URL as rows of colours."""
    head, _, data = url.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(b64decode(data))).convert("RGB")).astype(int)


def see(question, pictures):
    """Answer a question about pictures, given as arrays of pixels."""
    return next(read for start, read in READERS.items() if question.startswith(start))(question, pictures[0])


# Shapes


def blobs(picture):
    """Return the coordinates of each group of connected pixels that differ from the paper."""
    is_shape = np.abs(picture - picture[0, 0]).sum(axis=2) > 90
    groups, above = [], []
    for y, row in enumerate(np.pad(is_shape, ((0, 0), (1, 1))).astype(int)):
        runs = [(y, start, end) for start, end in np.flatnonzero(np.diff(row)).reshape(-1, 2).tolist()]
        for run in runs:
            touching = [other for other in above if other[1] <= run[2] and run[1] <= other[2]]
            joined = [group for group in groups if any(other in group for other in touching)]
            groups = [group for group in groups if group not in joined]
            groups.append([run, *(each for group in joined for each in group)])
        above = runs
    return [np.array([(y, x) for y, start, end in group for x in range(start, end)]) for group in groups]


def look_of(picture, blob):
    """Return the colour and the kind of a shape."""
    rgb = np.median([picture[y, x] for y, x in blob], axis=0)
    colour = min(COLOURS, key=lambda name: math.dist(COLOURS[name], rgb))
    dy, dx = (blob - blob.mean(axis=0)).T
    sector = ((np.arctan2(dy, dx) + math.pi) / (2 * math.pi) * 48).astype(int) % 48
    radii = np.array([np.hypot(dy, dx)[sector == each].max(initial=0) for each in range(48)])
    # A circle has the same radius all around; that of a polygon swings once for each corner.
    swings = np.abs(np.fft.rfft(radii / radii.mean()))[:6] / 24
    corners = max(CORNERS_OF_KIND, key=lambda number: swings[number])
    return colour, CORNERS_OF_KIND[corners] if swings[corners] > 0.07 else "circle"


def count(question, picture):
    words = question.removeprefix("How many ").removesuffix(" does the picture show?").split()
    wanted = (words[0] if len(words) == 2 else None, PLURAL[words[-1]])
    looks = Counter(look_of(picture, blob) for blob in blobs(picture))
    fits = (number for look, number in looks.items() if all(w in (None, s) for w, s in zip(wanted, look, strict=True)))
    return str(sum(fits))


def point(question, picture):
    colour, kind = re.match(r"Point at the (\w+) (\w+)", question).groups()
    blob = next(blob for blob in blobs(picture) if look_of(picture, blob) == (colour, kind))
    y, x = blob.mean(axis=0).round().astype(int)
    return f"{x}, {y}"


# Dials


def ring(picture, centre, inner, outer):
    """Return the pixels between two circles, and the angle of each, clockwise from the top."""
    height, width = picture.shape[:2]
    y, x = np.mgrid[:height, :width]
    distance = np.hypot(x - centre[0] + 0.5, y - centre[1] + 0.5)
    chosen = (distance > inner) & (distance < outer)
    return picture[chosen], np.arctan2(x - centre[0] + 0.5, centre[1] - y - 0.5)[chosen]


def mean_angle(angles):
    return math.degrees(math.atan2(np.sin(angles).mean(), np.cos(angles).mean())) % 360


def clock(question, picture):
    face = np.median(ring(picture, Clock.CENTRE, 52, 74)[0], axis=0)
    pixels, angles = ring(picture, Clock.CENTRE, 54, 74)
    minute = round(mean_angle(angles[np.abs(pixels - face).sum(axis=1) > 150]) / 6) % 60

    def ink(hour):
        # On both edges of the hour hand, where the thin minute hand does not reach.
        ends = (on_circle((x, y), 3, hour * 30 + minute / 2 + side) for x, y in along(hour) for side in (-90, 90))
        return sum(int(np.abs(picture[int(y), int(x)] - face).sum()) for x, y in ends)

    def along(hour):
        return (on_circle(Clock.CENTRE, radius, hour * 30 + minute / 2) for radius in range(16, 47))

    return f"{max(range(12), key=ink) or 12}:{minute:02}"


def gauge(question, picture):
    pixels, angles = ring(picture, Gauge.CENTRE, 30, 70)
    needle = mean_angle(angles[np.ptp(pixels, axis=1) > 70])
    share = ((needle - FIRST_ANGLE + 60) % 360 - 60) / SPAN
    quarters = range(4 * (FIRST_ANGLE - 5), 4 * (FIRST_ANGLE + SPAN + 5))
    around = [on_circle(Gauge.CENTRE, 97, angle / 4) for angle in quarters]
    is_dark = [picture[int(y), int(x)].sum() < 300 and np.ptp(picture[int(y), int(x)]) < 60 for x, y in around]
    ticks = sum(now and not before for before, now in pairwise(is_dark))
    fitting = [scale for scale in SCALES if f"Which {scale.quantity} " in question and f"in {scale.unit}?" in question]
    # The needle covers at most one tick.
    scale = min(fitting, key=lambda scale: abs((scale.highest - scale.lowest) // scale.step + 1 - ticks))
    return f"{scale.lowest + share * (scale.highest - scale.lowest):.2f}"


# Charts


@cache
def written(text, size, at, width, height):
    """Return how dark each pixel is if a text is written here."""
    canvas = Canvas(width, height)
    canvas.text(at, text, size)
    return 255 - np.asarray(Image.open(BytesIO(canvas.png())).convert("L")).astype(int)


def read(picture, words, *, centre, size, width, height=18):
    """Return the word that looks most like the writing at this place."""
    left, upper = int(centre[0]) - width // 2, int(centre[1]) - height // 2
    shown = 255 - picture[upper : upper + height, left : left + width].min(axis=2)
    at = (centre[0] - left, centre[1] - upper)
    return min(words, key=lambda word: np.abs(written(word, size, at, width, height) - shown).sum())


def bars(picture):
    """Return the label and the value of each bar, from left to right."""
    is_fill = np.ptp(picture, axis=2) > 60
    columns = np.flatnonzero(is_fill[Axes.UPPER : Axes.LOWER].any(axis=0))
    groups = np.split(columns, np.flatnonzero(np.diff(columns) > 5) + 1)
    for at, group in enumerate(groups):
        middle = (group[0] + group[-1] + 1) // 2
        top = np.flatnonzero(is_fill[:, middle])[0]
        value = round((Axes.LOWER - top) / (Axes.LOWER - Axes.UPPER) * TOP / 5) * 5
        centre = (Axes.place_of(at, len(groups)), Axes.LOWER + 14)
        yield read(picture, GOODS, centre=centre, size=13, width=52), value


def chart(question, picture):
    values = dict(bars(picture))
    ranked = sorted(values, key=values.__getitem__)
    if found := re.match(r"What is the value of the bar for (\w+)\?", question):
        return str(values[found[1]])
    if found := re.match(r"By how much do the bars for (\w+) and (\w+) differ", question):
        return str(abs(values[found[1]] - values[found[2]]))
    if found := re.match(r"How many bars are higher than (\d+)", question):
        return str(sum(value > int(found[1]) for value in values.values()))
    place = {"lowest": 0, "second highest": -2, "highest": -1}
    return ranked[place[re.match(r"Which bar is the ([\w ]+)\?", question)[1]]]


# Mazes


def maze(question, picture):
    def at(x, y):
        return picture[int(MARGIN + y * CELL), int(MARGIN + x * CELL)]

    def cell_of(colour):
        cells = ((x, y) for y in range(SIZE) for x in range(SIZE))
        return next((c for c in cells if math.dist(at(c[0] + 0.5 - 8 / CELL, c[1] + 0.5), colour) < 60), None)

    ways = {cell_of(START): ""}
    for x, y in (unvisited := list(ways)):
        for letter, (dx, dy) in MOVES.items():
            beside = (x + dx, y + dy)
            is_open = at(x + 0.5 + dx / 2, y + 0.5 + dy / 2).sum() > 600
            if is_open and beside not in ways:
                ways[beside] = ways[x, y] + letter
                if 0 <= beside[0] < SIZE and 0 <= beside[1] < SIZE:
                    unvisited.append(beside)
    if "from S to G" in question:
        return ways[cell_of(GOAL)]
    return letter_in(picture, next(cell for cell in ways if not (0 <= cell[0] < SIZE and 0 <= cell[1] < SIZE)))


def letter_in(picture, cell):
    """Return the letter next to the gap that leads to this cell."""
    inside = [min(max(each, 0), SIZE - 1) for each in cell]
    x, y = (MARGIN + (each + 0.5 + (near - each) * 0.13) * CELL for each, near in zip(cell, inside, strict=True))
    # Red letters are dark in the other two channels.
    return read(picture[:, :, 1:], "ABCD", centre=(x, y), size=17, width=18)


READERS = {
    "How many bars": chart,
    "How many": count,
    "Point at": point,
    "What time": clock,
    **{f"Which {scale.quantity} does the gauge": gauge for scale in SCALES},
    "What is the value of the bar": chart,
    "By how much do the bars": chart,
    "Which bar": chart,
    "Give the shortest way": maze,
    "Only one of the exits": maze,
}
