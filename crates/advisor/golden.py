#!/usr/bin/env python3
"""Compares the saving that the advisor predicts with the saving of the changed program, for six programs with source, in golden/.

Each program is compiled twice from one source: as it is, and with -DADVISED, where the advised change is made by hand and nothing
else. Walks that only free are left out where an arena makes them unnecessary.

replay     the outcome of the replay and of the trials: confirmed; malloc as good; partly, if some of the changes are
           confirmed; or not confirmed
predicted  what `allot advise --against-bare --repeat N` says that the changes save, as a share of CPU time: together, if all
           are confirmed, or else the sum of what each saves
achieved   one minus the CPU time (user and system) of the changed program divided by that of the program as it is: the median
           of the rounds, in which both run, with its 95 % interval
points     predicted minus achieved, in percentage points
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = {source.stem: source for source in sorted((HERE / "golden").glob("*.c*"))}
EXAMPLES = """examples:
  cargo build --release -p allotment-cli
  crates/advisor/golden.py
  crates/advisor/golden.py --prefix /usr/local --rounds 21 compiler document

Needs a C and a C++ compiler. Without --prefix it builds the library with crates/allotment-c/install.sh, which takes a minute.
All programs with 11 rounds take about ten minutes on two cores.
"""


def install(prefix):
    script = ROOT / "crates/allotment-c/install.sh"
    print("installing the library into a temporary directory ...", file=sys.stderr)
    result = subprocess.run([script, "--prefix", prefix], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{script} failed:\n{result.stderr}")


def build(source, folder, prefix):
    """The two programs: as it is, and changed."""
    compiler = ["c++", "-std=c++17"] if source.suffix == ".cc" else ["cc"]
    plain, advised = folder / source.stem, folder / f"{source.stem}-advised"
    command = [*compiler, "-O2", "-g", "-pthread", source]
    subprocess.run([*command, "-o", plain], check=True)
    library = ["-I", prefix / "include", prefix / "lib/liballotment.a", "-lm", "-ldl"]
    subprocess.run([*command, "-DADVISED", "-o", advised, *library], check=True)
    return plain, advised


def run(program):
    """The output, and the seconds of CPU time, user and system."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{program} ended with {process.returncode}")
        output.seek(0)
        return output.read(), usage.ru_utime + usage.ru_stime


def advise(allot, program, rounds, folder):
    """What is advised, in words; what the replay said of it; and the share that it predicts, if it measured one."""
    output = subprocess.run(
        [allot, "advise", "--json", "--no-report", "--against-bare", "--repeat", str(rounds), "--", program],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
    )
    if output.returncode != 0:
        sys.exit(f"allot advise failed: {output.stderr.decode(errors='replace')}")
    findings = json.loads(output.stdout.splitlines()[-1])
    replay = findings.get("replay") or {}
    together, malloc = replay.get("together") or {"groups": []}, replay.get("better_malloc")
    groups = [group for group in findings["groups"] if group["verdict"]["gain"]["measured"] and not group["verdict"]["candidate"]]
    words = ", ".join(f"{group['verdict']['allocator'].replace('_', ' ')} for {group['title']}" for group in groups)
    if groups and len(together["groups"]) == len(groups):
        as_good = malloc and malloc["gives_as_much"]
        return words, "malloc as good" if as_good else "confirmed", together["gain"]
    shares = [group["verdict"]["gain"]["share"] for group in groups]
    return words or "nothing", "partly" if together["groups"] else "not confirmed", sum(shares) if shares else None


def interval(ratios):
    """The 95 % interval of the median, as in crates/bench/src/console/statistics.rs; None with fewer than six rounds."""
    count, rank, exactly = len(ratios), 0, 0.5 ** len(ratios)
    at_most = exactly
    while at_most <= 0.025:
        rank += 1
        exactly *= (count + 1 - rank) / rank
        at_most += exactly
    ratios = sorted(ratios)
    return (ratios[rank - 1], ratios[count - rank]) if rank > 0 else None


def compare(plain, advised, rounds):
    """The CPU seconds of each round, first of the program as it is."""
    times = []
    for round in range(rounds):
        # The one that runs first changes with each round.
        order = (plain, advised) if round % 2 == 0 else (advised, plain)
        results = {program: run(program) for program in order}
        if results[plain][0] != results[advised][0]:
            sys.exit(f"{plain} and {advised} print different results")
        times.append((results[plain][1], results[advised][1]))
    return times


def percent(share):
    return "-" if share is None else f"{100 * share:.1f} %"


def measure(name, options, folder):
    plain, advised = build(PROGRAMS[name], folder, options.prefix)
    words, replay, predicted = advise(options.allot, plain, options.rounds, folder)
    times = compare(plain, advised, options.rounds)
    ratios = [after / before for before, after in times]
    ends, achieved = interval(ratios), 1 - statistics.median(ratios)
    return {
        "program": name, "advice": words, "replay": replay, "predicted": predicted, "achieved": achieved,
        "interval": ends and [1 - ends[1], 1 - ends[0]], "points": None if predicted is None else 100 * (predicted - achieved),
        "plain_s": statistics.median(before for before, _ in times), "advised_s": statistics.median(after for _, after in times),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allot", default=str(ROOT / "target/release/allot"), help="the command line [target/release/allot]")
    parser.add_argument("--prefix", type=Path, help="where install.sh installed the library; by default it is built")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each version; at least 6 for an interval [11]")
    parser.add_argument("--json", action="store_true", help="print one object for each program")
    parser.add_argument("programs", nargs="*", help=f"some of {', '.join(PROGRAMS)} [all]")
    options = parser.parse_args()
    for name in options.programs:
        if name not in PROGRAMS:
            parser.error(f"{name} is not one of {', '.join(PROGRAMS)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.allot = os.path.abspath(options.allot)
    if not os.access(options.allot, os.X_OK):
        parser.error(f"{options.allot} is missing: build it with cargo build --release -p allotment-cli")
    for compiler in ("cc", "c++"):
        if shutil.which(compiler) is None:
            parser.error(f"{compiler} is not installed")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.prefix is None:
            options.prefix = folder / "prefix"
            install(options.prefix)
        elif not (options.prefix / "lib/liballotment.a").exists():
            parser.error(f"{options.prefix}/lib/liballotment.a is missing: crates/allotment-c/install.sh --prefix {options.prefix}")
        for name in options.programs or PROGRAMS:
            print(f"{name} ...", file=sys.stderr)
            rows.append(measure(name, options, folder))
            if options.json:
                print(json.dumps(rows[-1]), flush=True)
    if options.json:
        return
    width = max(len(row["advice"]) for row in rows)
    print(f"{'program':9} {'advice':{width}} {'replay':14} {'predicted':>10} {'achieved':>9}  {'95 % interval':17} {'points':>7}")
    for row in rows:
        ends = "-" if row["interval"] is None else f"{percent(row['interval'][0])} to {percent(row['interval'][1])}"
        points = "-" if row["points"] is None else f"{row['points']:+.1f}"
        print(f"{row['program']:9} {row['advice']:{width}} {row['replay']:14} {percent(row['predicted']):>10} {percent(row['achieved']):>9}  "
              f"{ends:17} {points:>7}")
    near = sum(row["points"] is not None and abs(row["points"]) <= 5 for row in rows)
    print(f"{near} of {len(rows)} within 5 points")


if __name__ == "__main__":
    main()
