#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Plots of measurements, by matplotlib, in the Debian root `plots` of scripts/prepare:

    tests/bench/plot.py PLOTS.json                         each plot that scripts/bench describes
                                                           there
    tests/bench/plot.py LINK.json LOCAL.json PICTURE       README's picture, from results.json of
                                                           two runs of scripts/bench --counted,
                                                           one of them with --local
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True

import local  # noqa: E402
import matplotlib  # noqa: E402
import rdma  # noqa: E402
from figures import Samples, length  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

STYLE = {"figure.dpi": 110, "font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4",
         "legend.frameon": False}
INCH = 7.5, 4.6


def colour(rgb):
    return [part / 255 for part in rgb]


def axis_of_sizes(axes, xs, labels):
    axes.set_xscale("log")
    axes.set_xticks(xs, labels)
    axes.minorticks_off()


def one(plot):
    """A plot of scripts/bench: both axes are logarithmic, except one that begins at 0; the vertical
    bars are the lowest and the highest sample."""
    figure, axes = pyplot.subplots(figsize=INCH, layout="constrained")
    for line in plot["lines"]:
        xs, lows, middles, highs = zip(*line["points"])
        spread = [[middle - low for low, middle in zip(lows, middles)], [high - middle for middle, high in zip(middles, highs)]]
        axes.errorbar(xs, middles, spread, color=colour(line["colour"]), label=line["name"], marker="o", markersize=5, capsize=2, elinewidth=1)
    if plot["linear"]:
        axes.set_xticks(*zip(*plot["ticks"]))
        axes.set_ylim(0)
    else:
        axes.set_yscale("log")
        axis_of_sizes(axes, *zip(*plot["ticks"]))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
        axes.grid(which="minor", axis="y")
    axes.set(title=plot["title"], xlabel=plot["x_title"], ylabel=plot["y_title"])
    figure.legend(loc="outside lower center", ncols=len(plot["lines"]))
    figure.savefig(plot["path"])
    pyplot.close(figure)


def throughput(results, systems, kind, axes, title):
    samples = Samples(json.loads(Path(results).read_text())["samples"])
    sizes = sorted({size for part, _, size, _, _ in samples.good if part == "throughput"})
    for system in systems:
        points = [(size, value * 1e-6) for size in sizes if (value := samples.middle("throughput", system, size, 1, "rate"))]
        axes.plot(*zip(*points), color=colour(kind.COLOURS[system]), label=kind.NAMES[system], marker="o", linewidth=2.5 if system == "sdp" else 1.5)
    axis_of_sizes(axes, sizes, [length(size) for size in sizes])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axes.grid(which="minor", axis="y")
    axes.set(title=title, xlabel="message")
    axes.legend()


def of_readme(link, within, path):
    """Throughput on a link, compared with raw verbs and rsockets, and of local connections."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    throughput(link, ("sdp", "raw", "rsockets"), rdma, left, "Over RDMA (rxe)")
    throughput(within, ("sdp", "tcp", "unix"), local, right, "Within one machine")
    left.set_ylabel("MB/s, instruction-counted (2 ns each)")
    figure.savefig(path)


def main():
    arguments = sys.argv[1:]
    with pyplot.rc_context(STYLE):
        if len(arguments) == 1 and arguments[0].endswith(".json"):
            for plot in json.loads(Path(arguments[0]).read_text()):
                one(plot)
        elif len(arguments) == 3:
            of_readme(*arguments)
        else:
            print(__doc__.strip())
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
