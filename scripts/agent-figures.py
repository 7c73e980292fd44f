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

    def memory(self, field):
        for line in pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise ValueError(field)

    def end(self):
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


def shown(what, times, more=""):
    times = sorted(times)
    at = lambda part: times[min(len(times) - 1, int(len(times) * part))] * 1000
    print(f"{what}: median {at(0.5):.1f} ms, 99 of 100 within {at(0.99):.1f} ms, {len(times)} times{more}", flush=True)


def pulled(program, store, work, image):
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
            agent = Agent(program, store, work, page, metrics)
            times.append(agent.ready)
            agent.end()
        name = "start to ready, nothing in the page cache" if cold else "start to ready, again"
        print(f"{name}: median {statistics.median(times) * 1000:.0f} ms of {rounds}, longest {max(times) * 1000:.0f} ms", flush=True)

    agent = Agent(program, store, work, page, metrics)
    time.sleep(5)
    before = agent.cpu()
    time.sleep(idle)
    used = (agent.cpu() - before) * 60 / idle
    figures = ", ".join(f"{name} {agent.memory(field):.1f} MB" for name, field in (("RSS", "Rss"), ("without files", "Anonymous")))
    print(f"idle for {idle} s: CPU {used:.2f} s a minute, {figures}", flush=True)
    for load in ("while nothing happens", "while an image is pulled again and again"):
        loop = None if load == "while nothing happens" else pulled(program, store, work, image)
        for path, port in (("/", page), ("/metrics", metrics)):
            times, size = answers(port, path, 10)
            shown(f"GET {path} {load}", times, f", {size / 1000:.0f} kB")
        if loop is not None:
            if loop.poll() is not None:
                raise SystemExit(pathlib.Path(f"{work}/pulls.log").read_text())
            os.killpg(loop.pid, signal.SIGTERM)
            loop.wait(60)
    print(f"after that: RSS {agent.memory('Rss'):.1f} MB, without files {agent.memory('Anonymous'):.1f} MB", flush=True)
    agent.end()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["images", directory, number]:
            images(directory, int(number))
        case ["measure", program, store, work, image, rounds, idle]:
            measure(program, store, work, image, int(rounds), int(idle))
        case _:
            raise SystemExit(__doc__)
