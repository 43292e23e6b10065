"""Run the shared conformance suites on a wheel of this tree, and count.

    python tools/suites.py --shared DIR [--only SUITE[-PYTHON]] [--out DIR]

tools/suites.txt says which suites run on which Pythons; a Python that this machine lacks is
skipped, loudly. tools/known-failures.txt lists failures that are known: they are printed and
not counted, and a listed one that passes now is reported. The last line is
`suites: N passed, N failed, N known`.
"""

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
BOUND = 1500  # seconds for one suite; each ends by itself before


class Run(NamedTuple):
    """One suite on one Python."""

    suite: str
    version: str
    modules: str
    tls: str  # PELTON_TLS, or nothing

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.suite, self.version, self.tls)))


class Known(NamedTuple):
    """A line of known-failures.txt."""

    pattern: str
    reason: str

    def matches(self, test: str) -> bool:
        # Brackets of parametrized tests are plain characters here; only `*` is not.
        return fnmatch.fnmatchcase(test, self.pattern.replace("[", "[[]"))


def lines(file: Path) -> list[str]:
    """The lines that say something."""
    text = file.read_text("utf-8").splitlines()
    return [line.strip() for line in text if line.strip() and not line.startswith("#")]


def read_runs(only: list[str]) -> list[Run]:
    runs = []
    for line in lines(TOOLS / "suites.txt"):
        suite, *words = line.split()
        versions = [word for word in words if re.fullmatch(r"3\.\d+", word)]
        tls = "".join(word.removeprefix("tls=") for word in words if word.startswith("tls="))
        rest = [word for word in words if word not in versions and not word.startswith("tls=")]
        runs += [Run(suite, version, " ".join(rest), tls) for version in versions]
    return [run for run in runs if not only or run.suite in only or run.name in only]


def read_known() -> list[Known]:
    known = []
    for line in lines(TOOLS / "known-failures.txt"):
        pattern, _, reason = line.partition("#")
        if not reason.strip():
            sys.exit(f"known-failures.txt: {pattern.strip()} has no reason")
        known.append(Known(pattern.strip(), reason.strip()))
    return known


def find_python(version: str) -> str | None:
    command = [str(TOOLS / "pythons.sh"), version]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def build_wheel(python: str, version: str, out: Path) -> Path:
    wheels = out / f"wheel-{version}"
    command = [sys.executable, "-m", "maturin", "build", "--release", "--locked", "--quiet"]
    subprocess.run([*command, "-i", python, "--out", str(wheels)], cwd=ROOT, check=True)
    return max(wheels.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime)


def run_suite(run: Run, python: str, wheel: Path, shared: Path, out: Path) -> dict[str, str]:
    """Run one suite; the outcome of each of its tests by id."""
    place = out / run.name
    place.mkdir(parents=True, exist_ok=True)
    results = place / f"{run.suite}.json"
    results.unlink(missing_ok=True)
    env = dict(os.environ, LOOP_MODULE="pelton", LOOP_INSTALL=str(wheel), OUT=str(place))
    if run.modules:
        env["CP_ONLY"] = run.modules
    if run.tls:
        env["PELTON_TLS"] = run.tls
    command = [str(shared / "suites" / f"{run.suite}.sh"), python]
    for _ in range(2):  # the first run on a machine may end when it has fetched the sources
        subprocess.run(command, env=env, timeout=BOUND, check=False)
        if results.exists():
            break
    else:
        return {"<suite>": "failed"}
    answer: dict[str, str] = json.loads(results.read_text("utf-8"))["results"]
    return answer


def run_cases(run: Run, python: str, wheel: Path, shared: Path, out: Path) -> dict[str, str]:
    """Run the case scripts; `pass` or the reason by name."""
    venv = out / run.name
    inside = str(venv / "bin" / "python")
    subprocess.run([python, "-m", "venv", "--clear", str(venv)], check=True)
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True)
    command = [inside, str(shared / "cases" / "_run_all.py"), "pelton"]
    env = os.environ | ({"PELTON_TLS": run.tls} if run.tls else {})
    done = subprocess.run(
        command, env=env, stderr=subprocess.PIPE, text=True, timeout=BOUND, check=False
    )
    print(done.stderr, end="", flush=True)
    row = re.compile(r"^(case\S+)\s+pelton\s+[\d.]+s\s+(.*)$", re.MULTILINE)
    found = row.findall(done.stderr)
    results = {case: "passed" if cell == "pass" else "failed" for case, cell in found}
    return results or {"<cases>": "failed"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the shared conformance suites and count.")
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], metavar="SUITE[-PYTHON]")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "suites")
    options = parser.parse_args()
    shared, out = options.shared.resolve(), options.out.resolve()
    if not (shared / "suites").is_dir():
        print(f"SKIPPED: no suites in {options.shared}")
        return 0

    known, wheels = read_known(), dict[str, Path]()
    outcomes: dict[str, str] = {}
    for run in read_runs(options.only):
        python = find_python(run.version)
        if not python:
            print(f"SKIPPED: {run.name}: no Python {run.version} on this machine")
            continue
        started = time.monotonic()
        print(f"-- {run.name}", flush=True)
        try:
            if run.version not in wheels:
                wheels[run.version] = build_wheel(python, run.version, out)
            body = run_cases if run.suite == "cases" else run_suite
            results = body(run, python, wheels[run.version], shared, out)
        except (subprocess.SubprocessError, OSError) as error:
            print(error)
            results = {"<suite>": "failed"}
        outcomes |= {f"{run.name}/{test}": outcome for test, outcome in results.items()}
        print(f"-- {run.name}: {time.monotonic() - started:.0f} s", flush=True)
    return report(outcomes, known)


def report(outcomes: dict[str, str], known: list[Known]) -> int:
    """Print what failed, what was known, and the counts; the exit status."""
    failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
    excused = {test: line for test in failed for line in known if line.matches(test)}
    for test, line in excused.items():
        print(f"KNOWN {test}  # {line.reason}")
    for line in known:
        ran = [test for test in outcomes if line.matches(test)]
        if ran and not set(ran) & set(failed):
            print(f"PASSES NOW, take it from known-failures.txt: {line.pattern}")
    unexpected = [test for test in failed if test not in excused]
    for test in unexpected:
        print(f"FAILED {test}")
    passed = list(outcomes.values()).count("passed")
    print(f"suites: {passed} passed, {len(unexpected)} failed, {len(excused)} known")
    return 1 if unexpected or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
