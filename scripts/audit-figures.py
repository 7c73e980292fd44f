#!/usr/bin/env python3
"""Figures of a node from the audit log of an API server, for bench-cluster.sh.

audit-figures.py requests LOG USER FROM TO    requests a minute by verb and resource, between two times in seconds
audit-figures.py starts LOG USER PREFIX       from the creation of pods, and from their binding, to the node's first status with Running
"""

import collections
import datetime
import json
import statistics
import sys


def seconds(event, field):
    return datetime.datetime.fromisoformat(event[field].replace("Z", "+00:00")).timestamp()


def read(log):
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                pass  # the last line, which is being written


def resource(event):
    of = event.get("objectRef", {})
    names = [of.get("resource"), of.get("subresource")]
    return "/".join(name for name in names if name) or event["requestURI"].split("?")[0]


def requests(log, user, begin, end):
    counts = collections.Counter()
    for event in read(log):
        # A watch counts when it begins, everything else when it is answered.
        stage = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
        if event["user"]["username"] == user and event["stage"] == stage and begin <= seconds(event, "stageTimestamp") < end:
            counts[event["verb"], resource(event)] += 1
    minutes = (end - begin) / 60
    print(f"{'requests a minute':<40}{'':>10}")
    for (verb, name), count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{verb + ' ' + name:<40}{count / minutes:>10.2f}")
    total = sum(counts.values()) / minutes
    print(f"{'all':<40}{total:>10.2f}   1,000 nodes: {total * 1000 / 60:.0f} a second")


def starts(log, user, prefix):
    created, bound, running = {}, {}, {}
    for event in read(log):
        of = event.get("objectRef", {})
        name = of.get("name") or ""
        if event["stage"] != "ResponseComplete" or of.get("resource") != "pods" or not name.startswith(prefix):
            continue
        part = of.get("subresource")
        if event["verb"] == "create" and part is None:
            created.setdefault(name, seconds(event, "requestReceivedTimestamp"))
        elif event["verb"] == "create" and part == "binding":
            bound.setdefault(name, seconds(event, "stageTimestamp"))
        elif event["user"]["username"] == user and part == "status":
            if event.get("requestObject", {}).get("status", {}).get("phase") == "Running":
                running.setdefault(name, seconds(event, "stageTimestamp"))
    names = [name for name in created if name in bound and name in running]
    if len(names) < len(created):
        sys.exit(f"of {len(created)} pods {len(names)} came to Running")
    for what, begun in ("creation", created), ("binding", bound):
        times = sorted(running[name] - begun[name] for name in names)
        print(f"from {what} to Running: median {statistics.median(times):.3f} s, {times[0]:.3f} to {times[-1]:.3f} s, of {len(times)} pods")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["requests", log, user, begin, end]:
            requests(log, user, float(begin), float(end))
        case ["starts", log, user, prefix]:
            starts(log, user, prefix)
        case _:
            sys.exit(__doc__)
