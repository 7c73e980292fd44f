#!/usr/bin/env python3
"""Figures of an agent that serves, for bench-agent.sh.

agent-figures.py images DIRECTORY N                                      an OCI layout of N small images
agent-figures.py measure PROGRAM STORE WORK IMAGE ROUNDS IDLE_SECONDS    starts, idle costs, and answers under a pull
"""

import hashlib
import http.client
import io
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import time


def images(directory, number):
    root = pathlib.Path(directory)
    blobs = root / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content, media_type):
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(content)}

    def layer(files):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return blob(out.getvalue(), "layer.v1.tar")

    base = layer({f"base/{n}": bytes([n]) * 4096 for n in range(20)})
    manifests = []
    for n in range(number):
        layers = [base, layer({f"own/{part}": f"{n} {part}".encode() * 100 for part in range(5)})]
        config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": [str(n)]}}
        config["rootfs"] = {"type": "layers", "diff_ids": [each["digest"] for each in layers]}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": layers}
        manifest["config"] = blob(json.dumps(config).encode(), "config.v1+json")
        named = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        named["annotations"] = {"org.opencontainers.image.ref.name": f"example.org/many/{n}:1"}
        manifests.append(named)
    (root / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))


class Agent:
    """A serving agent; `ready` is the time in seconds from its start to READY=1."""

    def __init__(self, program, store, work, page, metrics):
        path = f"{work}/notify"
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(path)
        notify.settimeout(60)
        command = [program, "--root", store, "serve", "--listen", f"unix://{work}/cri.sock"]
        command += ["--status-address", f"127.0.0.1:{page}", "--metrics-address", f"127.0.0.1:{metrics}"]
        begin = time.monotonic()
        with open(f"{work}/agent.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NOTIFY_SOCKET": path})
        while b"READY=1" not in notify.recv(4096):
            pass
        self.ready = time.monotonic() - begin
        notify.close()
        os.unlink(path)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memories(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()[1:]
        kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines}
        return f"RSS {kilobytes['Rss:'] / 1024:.1f} MB, without files {kilobytes['Anonymous:'] / 1024:.1f} MB"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def answers(port, path, seconds):
    """Times of requests on one connection, one every 20 ms, and the length of the last answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, size, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        connection.request("GET", path)
        answer = connection.getresponse()
        size = len(answer.read())
        times.append(time.monotonic() - begin)
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        time.sleep(0.02)
    return times, size


def requests(load, page, metrics):
    for path, port in (("/", page), ("/metrics", metrics)):
        times, size = answers(port, path, 10)
        times.sort()
        median, most = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        print(f"GET {path} {load}: median {median:.1f} ms, 99 of 100 within {most:.1f} ms, {len(times)} times, {size / 1000:.0f} kB", flush=True)


def start_pulls(program, store, work, image):
    """Pulls and removes an image by the agent, again and again, until the process is ended."""
    pull = f'"{program}" --root "{store}" --progress none'
    script = f"while :; do {pull} pull {image} || exit 1; {pull} rmi {image} || exit 1; done"
    with open(f"{work}/pulls.log", "wb") as log:
        return subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def measure(program, store, work, image, rounds, idle):
    page, metrics = free_ports(2)
    for cold in (True, False):
        times = []
        for _ in range(rounds):
            if cold:
                subprocess.run(["sync"], check=True)
                pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
            with Agent(program, store, work, page, metrics) as agent:
                times.append(agent.ready)
        name = "start to ready, nothing in the page cache" if cold else "start to ready, again"
        print(f"{name}: median {statistics.median(times) * 1000:.0f} ms of {rounds}, longest {max(times) * 1000:.0f} ms", flush=True)

    with Agent(program, store, work, page, metrics) as agent:
        time.sleep(5)
        before = agent.cpu()
        time.sleep(idle)
        used = (agent.cpu() - before) * 60 / idle
        print(f"idle for {idle} s: CPU {used:.2f} s a minute, {agent.memories()}", flush=True)
        requests("while nothing happens", page, metrics)
        pulls = start_pulls(program, store, work, image)
        try:
            requests("while an image is pulled again and again", page, metrics)
            if pulls.poll() is not None:
                raise SystemExit(pathlib.Path(f"{work}/pulls.log").read_text())
        finally:
            if pulls.poll() is None:
                os.killpg(pulls.pid, signal.SIGTERM)
                pulls.wait(60)
        print(f"after that: {agent.memories()}", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["images", directory, number]:
            images(directory, int(number))
        case ["measure", program, store, work, image, rounds, idle]:
            measure(program, store, work, image, int(rounds), int(idle))
        case _:
            raise SystemExit(__doc__)
