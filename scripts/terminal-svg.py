#!/usr/bin/env python3
"""Draws what commands show on a terminal as SVG: terminal-svg.py FILE COMMAND...

Each command runs under /bin/sh on a pseudo terminal of 162 columns; its bytes go through a small screen (text, colours, carriage return,
erasing and moving the cursor), so that progress bars end as they do on a terminal. A command that fails ends the recording.
Called by terminal-svg.sh."""

import codecs
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from xml.sax.saxutils import escape

COLUMNS, ROWS = 162, 50
CHARACTER, LINE, MARGIN, BAR = 8.0, 18, 16, 32
COLOURS = ["#484f58", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#c9d1d9"]
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>]")


class Screen:
    """Lines of cells; a cell is a character with its style."""

    def __init__(self):
        self.lines, self.row, self.column, self.style = [[]], 0, 0, ""

    def write(self, text):
        at = 0
        while at < len(text):
            match = SEQUENCE.match(text, at)
            if match:
                if match[2]:
                    self.control(match[1], match[2])
                at = match.end()
                continue
            self.put(text[at])
            at += 1

    def put(self, character):
        if character == "\n":
            self.down(1)
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character == "\t":
            self.column = min(COLUMNS - 1, (self.column // 8 + 1) * 8)
        elif character >= " ":
            if self.column == COLUMNS:
                self.column = 0
                self.down(1)
            line = self.lines[self.row]
            line.extend([(" ", "")] * (self.column + 1 - len(line)))
            line[self.column] = (character, self.style)
            self.column += 1

    def down(self, rows):
        self.row += rows
        self.lines.extend([] for _ in range(self.row + 1 - len(self.lines)))

    def control(self, parameters, final):
        numbers = [int(n) for n in re.findall(r"\d+", parameters)]
        count = numbers[0] if numbers and numbers[0] else 1
        line = self.lines[self.row]
        if final == "A":
            self.row = max(0, self.row - count)
        elif final == "B":
            self.down(count)
        elif final == "C":
            self.column = min(COLUMNS - 1, self.column + count)
        elif final == "D":
            self.column = max(0, self.column - count)
        elif final == "G":
            self.column = min(COLUMNS, count) - 1
        elif final == "K":
            kind = numbers[0] if numbers else 0
            if kind == 0:
                del line[self.column :]
            elif kind == 1:
                line[: self.column + 1] = [(" ", "")] * min(len(line), self.column + 1)
            else:
                line.clear()
        elif final == "J":
            del self.lines[self.row + 1 :]
            del line[self.column :]
        elif final == "m":
            self.colour(numbers or [0])

    def colour(self, numbers):
        for number in numbers:
            if number == 0:
                self.style = ""
            elif number == 1:
                self.style += "font-weight:bold;"
            elif number == 2:
                self.style += "opacity:.7;"
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self.style += f"fill:{COLOURS[number % 10]};"


def record(screen, command):
    """Runs a command on a pseudo terminal and puts all it writes on the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execv("/bin/sh", ["sh", "-c", command])
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # all of the other side are gone
            break
        if not piece:
            break
        screen.write(decoder.decode(piece))
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        sys.exit(f"terminal-svg: exit code {status} of: {command}\n" + "\n".join(text_of(l) for l in screen.lines))
    if screen.column:
        screen.write("\r\n")


def text_of(line):
    return "".join(character for character, _ in line).rstrip()


def runs(line):
    """Pieces of a line with one style: column, style, text."""
    pieces = []
    for column, (character, style) in enumerate(line):
        if pieces and pieces[-1][1] == style:
            pieces[-1][2].append(character)
        else:
            pieces.append((column, style, [character]))
    return [(column, style, "".join(text)) for column, style, text in pieces if "".join(text).strip()]


def svg(lines):
    width, height = int(COLUMNS * CHARACTER) + 2 * MARGIN, len(lines) * LINE + BAR + MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        "<title>imagelet on a terminal</title>",
        "<style>text{font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#c9d1d9;white-space:pre}"
        ".p{fill:#7ee787}.c{fill:#fff;font-weight:bold}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
    ]
    out += [f'<circle cx="{MARGIN + 4 + 18 * n}" cy="16" r="5.5" fill="{c}"/>' for n, c in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))]
    for row, line in enumerate(lines):
        y = BAR + LINE * row + 13
        for column, style, text in runs(line):
            text = text.rstrip()
            x, length = MARGIN + column * CHARACTER, len(text) * CHARACTER
            how = f' class="{style}"' if style in ("p", "c") else f' style="{style}"' if style else ""
            out.append(f'<text x="{x:g}" y="{y}" textLength="{length:g}" xml:space="preserve"{how}>{escape(text)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    file, commands = sys.argv[1], sys.argv[2:]
    screen = Screen()
    for number, command in enumerate(commands):
        if number:
            screen.write("\r\n")
        screen.style = "p"
        screen.write("$ ")
        screen.style = "c"
        screen.write(command)
        screen.style = ""
        screen.write("\r\n")
        record(screen, command)
    lines = screen.lines
    while lines and not text_of(lines[-1]):
        lines.pop()
    with open(file, "w", encoding="utf-8") as out:
        out.write(svg(lines))
    print("\n".join(text_of(line) for line in lines))
    print(f"terminal-svg: {len(lines)} lines, {os.path.getsize(file)} bytes in {file}")


main()
