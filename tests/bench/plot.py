# SPDX-License-Identifier: GPL-2.0-only
"""Line plots as PNG with nothing but the standard library, so that they can be made on any machine."""

import math
import struct
import zlib

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT, TOP, BOTTOM = 110, 30, 60, 110
INK, GRID, PAPER = (40, 40, 40), (222, 222, 222), (255, 255, 255)

# Seven rows of five bits for every character that a plot may need.
_FONT = dict(zip(
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.,/-():+% ",
    """0e11131519110e 040c040404040e 0e11010204081f 1f02040201110e 02060a121f0202 1f101e0101110e 0608101e11110e
    1f010204080808 0e11110e11110e 0e11110f01020c 0e11111f111111 1e11111e11111e 0e11101010110e 1c12111111121c
    1f10101e10101f 1f10101e101010 0e11101711110f 1111111f111111 0e04040404040e 0702020202120c 11121418141211
    1010101010101f 111b1515111111 11191513111111 0e11111111110e 1e11111e101010 0e11111115120d 1e11111e141211
    0f10100e01011e 1f040404040404 1111111111110e 11111111110a04 1111111515150a 11110a040a1111 1111110a040404
    1f01020408101f 00000e010f110f 1010161911111e 00000e1010110e 01010d1311110f 00000e111f100e 0609081c080808
    000f11110f010e 10101619111111 04000c0404040e 0200060202120c 10101214181412 0c04040404040e 00001a15151111
    00001619111111 00000e1111110e 00001e111e1010 00000d130f0101 00001619101010 00000e100e011e 08081c08080906
    0000111111130d 00001111110a04 0000111115150a 0000110a040a11 000011110f010e 00001f0204081f 00000000000c0c 000000000c0408
    00010204081000 0000001f000000 02040808080402 08040202020408 000c0c000c0c00 0004041f040400 18190204081303
    00000000000000""".split(), strict=True))


class Canvas:
    def __init__(self):
        self.pixels = bytearray(bytes(PAPER) * (WIDTH * HEIGHT))

    def blend(self, x, y, colour, amount=1.0):
        if 0 <= x < WIDTH and 0 <= y < HEIGHT and amount > 0:
            at = (y * WIDTH + x) * 3
            for i in range(3):
                old = self.pixels[at + i]
                self.pixels[at + i] = round(old + (colour[i] - old) * min(amount, 1))

    def line(self, x0, y0, x1, y1, colour, width=1.0):
        """With smooth edges: a pixel takes as much colour as the line covers of it."""
        length = math.hypot(x1 - x0, y1 - y0) or 1e-9
        reach = width / 2 + 1
        steep = abs(y1 - y0) > abs(x1 - x0)
        a, b = ((y0, y1) if steep else (x0, x1))
        for step in range(math.floor(min(a, b)), math.ceil(max(a, b)) + 1):
            part = min(max((step - a) / (b - a), 0), 1) if b != a else 0
            middle = (x0 + (x1 - x0) * part) if steep else (y0 + (y1 - y0) * part)
            spread = math.ceil(reach * length / max(abs(b - a), 1e-9)) if b != a else math.ceil(reach)
            for side in range(math.floor(middle) - min(spread, 4), math.floor(middle) + min(spread, 4) + 2):
                x, y = (side, step) if steep else (step, side)
                along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length / length
                along = min(max(along, 0), 1)
                far = math.hypot(x - x0 - (x1 - x0) * along, y - y0 - (y1 - y0) * along)
                self.blend(x, y, colour, width / 2 + 0.5 - far)

    def dot(self, x, y, colour, radius=4.5):
        for py in range(int(y - radius) - 1, int(y + radius) + 3):
            for px in range(int(x - radius) - 1, int(x + radius) + 3):
                self.blend(px, py, colour, radius + 0.5 - math.hypot(px - x, py - y))

    def text(self, x, y, text, colour=INK, scale=2, turned=False):
        """The upper left corner, or with `turned` the lower left one of text that reads upwards."""
        for place, character in enumerate(text):
            rows = bytes.fromhex(_FONT.get(character, _FONT[" "]))
            for row, bits in enumerate(rows):
                for column in range(5):
                    if bits >> (4 - column) & 1:
                        for i in range(scale * scale):
                            u, v = (place * 6 + column) * scale + i % scale, row * scale + i // scale
                            self.blend(*((x + v, y - u) if turned else (x + u, y + v)), colour)

    def save(self, path):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        lines = b"".join(b"\0" + bytes(self.pixels[y * WIDTH * 3:(y + 1) * WIDTH * 3]) for y in range(HEIGHT))
        header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b""))


def width_of(text, scale=2):
    return len(text) * 6 * scale


def _ticks(low, high):
    """1, 2, 5, 10 … between two values."""
    power = 10.0 ** math.floor(math.log10(low))
    while power <= high:
        for step in (1, 2, 5):
            if low <= step * power <= high * 1.0001:
                yield step * power
        power *= 10


def plot(path, title, x_title, y_title, series, x_label=str):
    """series: (name, colour, {x: (low, middle, high)}) each; both axes are logarithmic."""
    xs = sorted({x for _, _, points in series for x in points})
    values = [value for _, _, points in series for point in points.values() for value in point if value > 0]
    if not xs or not values:
        return False
    # A little room, and at least a factor of four so that small differences look small.
    low, high = min(values) / 1.15, max(values) * 1.15
    if high / low < 4:
        low, high = math.sqrt(low * high) / 2, math.sqrt(low * high) * 2
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x):
        first, last = math.log(xs[0]), math.log(xs[-1])
        return LEFT + 30 + (right - LEFT - 60) * ((math.log(x) - first) / (last - first) if last > first else 0.5)

    def down(value):
        return bottom - (bottom - TOP) * (math.log(max(value, low)) - math.log(low)) / (math.log(high) - math.log(low))

    canvas = Canvas()
    for value in _ticks(low, high):
        y = round(down(value))
        canvas.line(LEFT, y, right, y, GRID)
        label = f"{value:g}"
        canvas.text(LEFT - 10 - width_of(label), y - 7, label)
    for x in xs:
        canvas.line(round(across(x)), TOP, round(across(x)), bottom, GRID)
        label = x_label(x)
        canvas.text(round(across(x)) - width_of(label) // 2, bottom + 10, label)
    for ends in ((LEFT, TOP, LEFT, bottom), (LEFT, bottom, right, bottom)):
        canvas.line(*ends, INK)
    canvas.text(LEFT, 22, title, scale=3 if width_of(title, 3) < right - LEFT else 2)
    canvas.text((LEFT + right - width_of(x_title)) // 2, bottom + 36, x_title)
    canvas.text(18, (TOP + bottom + width_of(y_title)) // 2, y_title, turned=True)
    at = LEFT + 20
    for name, colour, points in series:
        placed = [(across(x), *(down(value) for value in points[x])) for x in sorted(points)]
        for here, there in zip(placed, placed[1:]):
            canvas.line(here[0], here[2], there[0], there[2], colour, 2.2)
        for x, lowest, middle, highest in placed:
            if lowest - highest > 1:
                canvas.line(round(x), lowest, round(x), highest, colour)
            canvas.dot(x, middle, colour)
        canvas.line(at, HEIGHT - 25, at + 30, HEIGHT - 25, colour, 2.2)
        canvas.dot(at + 15, HEIGHT - 25, colour)
        canvas.text(at + 40, HEIGHT - 32, name)
        at += 70 + width_of(name)
    canvas.save(path)
    return True
