"""A large sweep killed at random moments and resumed gives the table of an undisturbed one.

    python benchmarks/kill_sweep.py --count 2000 --kills 10 --jobs 2 --makespans-only

Runs the command line in processes of their own; kills with SIGKILL, now the parent alone, now its
workers too. Prints the rate, how far each run came, and ends with 1 if a byte differs.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NEWLINE = b"\n"
POLL_S = 0.01
DELAY_S = 0.6  # at most, between the scenario that a kill waits for and the kill


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--machine", default="mi300x_8")
    parser.add_argument("--num-chunks", help="such as 2,4; those of compare unless given")
    parser.add_argument("--makespans-only", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return compare_runs(Path(name), given)


def compare_runs(folder: Path, given: argparse.Namespace) -> int:
    scenarios = folder / "scenarios.json"
    ficco("scenarios", "make", "random", "--count", str(given.count), "--seed", str(given.seed),
          "--out", str(scenarios))  # fmt: skip
    options = ["--machine", given.machine, "--jobs", str(given.jobs)]
    options += ["--makespans-only"] if given.makespans_only else []
    options += ["--num-chunks", given.num_chunks] if given.num_chunks else []

    def start(table: Path) -> subprocess.Popen[bytes]:
        summary = ["--json", str(table.with_suffix(".json"))]
        line = command("sweep", str(scenarios), "--out", str(table), "--resume", *options, *summary)
        return subprocess.Popen(line, start_new_session=True)  # noqa: S603 - our own

    calm, killed = folder / "calm.csv", folder / "killed.csv"
    begun_s = time.monotonic()
    finish(start(calm))
    calm_s = time.monotonic() - begun_s
    summary = json.loads(calm.with_suffix(".json").read_text())
    say(
        f"undisturbed: {summary['num_scenarios']} scenarios, {summary['num_rows']} rows, "
        f"{summary['num_failed']} failed, {calm_s:.0f} s, "
        f"{summary['scenarios_per_s']:.2f} scenarios/s with {given.jobs} jobs"
    )
    rng = random.Random(given.seed)  # noqa: S311 - no secret
    part = killed.with_name(f"{killed.name}.part")
    # a share of the bytes, then any moment: in the middle of a scenario, of a write, of a start
    shares = sorted(rng.random() * 0.95 for _ in range(given.kills))
    all_bytes = calm.stat().st_size
    begun_s = time.monotonic()
    for number, share in enumerate(shares, start=1):
        run = start(killed)
        while run.poll() is None and bytes_of(part) < share * all_bytes:
            time.sleep(POLL_S)
        time.sleep(rng.random() * DELAY_S)
        whole = rng.random() < 0.5
        (os.killpg if whole else os.kill)(run.pid, signal.SIGKILL)
        run.wait()
        data = part.read_bytes() if part.exists() else b""
        torn = len(data) - (data.rfind(NEWLINE) + 1)
        say(
            f"kill {number} ({'all processes' if whole else 'parent alone'}): "
            f"{max(0, data.count(NEWLINE) - 1)} scenarios done, {torn} bytes of one cut off"
        )
    finish(start(killed))
    summary = json.loads(killed.with_suffix(".json").read_text())
    say(
        f"killed and resumed: {summary['num_resumed']} done before the last run, "
        f"{time.monotonic() - begun_s:.0f} s in all"
    )
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (calm, killed)]
    say(f"SHA-256 {digests[0][:16]} and {digests[1][:16]}")
    same = digests[0] == digests[1]
    say("the tables are the same, byte for byte" if same else "THE TABLES DIFFER")
    return 0 if same else 1


def bytes_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ficco_sim.cli", *arguments]


def ficco(*arguments: str) -> None:
    subprocess.run(command(*arguments), check=True)  # noqa: S603 - our own


def finish(run: "subprocess.Popen[bytes]") -> None:
    if run.wait() != 0:
        sys.exit(f"a sweep ended with {run.returncode}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
