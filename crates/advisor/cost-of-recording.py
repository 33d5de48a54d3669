#!/usr/bin/env python3
"""What recording costs: CPU time of real programs bare, under `allot record`, and under heaptrack, in turn.

The program's own CPU time (user and system) is taken from the kernel, as ratios to the bare run of the same round. "all" is
that with what packs the events beside it ("none": it failed, or isn't there). Programs that aren't installed are left out, and said so.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def own_time(command, environment=None, may_fail=False, **redirections):
    """Runs a command; seconds of CPU time, user and system, of it and of the children it waited for. None if it failed and may."""
    process = subprocess.Popen(command, env=environment, **redirections)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        if may_fail:
            return None
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def sqlite3(folder):
    script = ["create table t(id integer primary key, name text, value real);", "begin;"]
    chosen = random.Random(1)
    for i in range(60_000):
        script.append(f"insert into t values({i}, 'name {chosen.randrange(1000)}', {chosen.random()});")
    script.append("commit;")
    for i in range(3_000):
        script.append(f"select count(*), sum(value) from t where id between {i} and {i + 40};")
    for i in range(20):
        script.append(f"select name, avg(value) from t where value > 0.{i:02} group by name order by 2 desc limit 5;")
    (folder / "script.sql").write_text("\n".join(script))
    return ["sqlite3", ":memory:", f".read {folder / 'script.sql'}"], {}


def jq(folder):
    rows = [
        {"id": i, "name": f"n{i % 97}", "tags": ["a", "b", str(i)], "where": {"x": i * 0.5, "y": [1, 2.5, None]}}
        for i in range(150_000)
    ]
    (folder / "rows.json").write_text(json.dumps(rows))
    return ["jq", "map(select(.id % 3 == 0) | .where.x) | add", str(folder / "rows.json")], {}


def python3(folder):
    (folder / "work.py").write_text(
        "import json\n"
        "rows = [{'id': i, 'words': [str(j) for j in range(i % 12)], 'pair': (i, i / 3)} for i in range(120_000)]\n"
        "text = json.dumps(rows)\n"
        "again = json.loads(text)\n"
        "again.sort(key=lambda row: (len(row['words']), -row['id']))\n"
        "table = {}\n"
        "for row in again:\n"
        "    table.setdefault(len(row['words']), []).append(' '.join(row['words']))\n"
        "print(sum(len(' '.join(lines)) for lines in table.values()))\n"
    )
    return [sys.executable, str(folder / "work.py")], {"PYTHONMALLOC": "malloc"}


def cc1plus(folder):
    (folder / "unit.cc").write_text(
        "#include <algorithm>\n#include <functional>\n#include <iostream>\n#include <map>\n#include <memory>\n"
        "#include <regex>\n#include <string>\n#include <unordered_map>\n#include <vector>\n"
        "std::map<std::string, std::vector<std::function<int(int)>>> table;\n"
        "int main(int count, char** words) {\n"
        "  std::regex digits(\"[0-9]+\");\n"
        "  for (int i = 0; i < count; i++) {\n"
        "    table[words[i]].push_back([i](int x) { return x + i; });\n"
        "    if (std::regex_match(words[i], digits)) std::cout << words[i] << '\\n';\n"
        "  }\n"
        "  return int(table.size());\n"
        "}\n"
    )
    subprocess.run(["g++", "-E", "-o", folder / "unit.ii", folder / "unit.cc"], check=True)
    compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], check=True, capture_output=True, text=True)
    return [compiler.stdout.strip(), "-quiet", "-O1", "-fpreprocessed", str(folder / "unit.ii"), "-o", "/dev/null"], {}


PROGRAMS = {"sqlite3": (sqlite3, "sqlite3"), "jq": (jq, "jq"), "python3": (python3, "python3"), "cc1plus": (cc1plus, "g++")}


def heaptrack_library():
    for folder in ("/usr/lib/heaptrack", "/usr/lib/x86_64-linux-gnu/heaptrack", "/usr/local/lib/heaptrack"):
        library = Path(folder) / "libheaptrack_preload.so"
        if library.exists():
            return library
    return None


def measure(name, command, more, folder, options):
    """The rounds of one program: lists of seconds and of bytes an event."""
    environment = {**os.environ, **more}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    found = {"bare": [], "recorded": [], "recorded_all": [], "heaptrack": [], "heaptrack_all": []}
    library = heaptrack_library()
    for _ in range(options.rounds):
        found["bare"].append(own_time(command, environment, **quiet))
        recording = folder / f"{name}.allot"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(folder / "summary", "wb") as summary:
            subprocess.run(
                [options.allot, "record", "--json", "-o", recording, "--", *command],
                env=environment, stdout=summary, stderr=subprocess.DEVNULL, check=True,
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        summary = json.loads((folder / "summary").read_text().splitlines()[-1])
        usage = summary["usage"]
        found["recorded"].append((usage["user_ns"] + usage["system_ns"]) / 1e9)
        found["recorded_all"].append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
        found["events"] = summary["events"]
        found["bytes_per_event"] = summary["bytes_per_event"]
        if library:
            raw = {**environment, "LD_PRELOAD": str(library), "DUMP_HEAPTRACK_OUTPUT": str(folder / "heaptrack.raw")}
            found["heaptrack"].append(own_time(command, raw, **quiet))
            (folder / "heaptrack.raw").unlink()
            output = folder / "heaptrack.packed"
            # Its interpreter gives up on some programs.
            found["heaptrack_all"].append(own_time(["heaptrack", "-o", output, *command], environment, True, **quiet))
            for packed in folder.glob("heaptrack.packed*"):
                packed.unlink()
    return found


def ratios(found, what):
    return [one / bare for one, bare in zip(found[what], found["bare"]) if one is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allot", default="target/release/allot", help="the binary (cargo build --release -p allotment-cli)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="some of: " + ", ".join(PROGRAMS))
    parser.add_argument("--keep", metavar="FOLDER", help="leave the recordings and inputs here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds has to be at least 1")
    chosen = options.programs.split(",")
    for name in chosen:
        if name not in PROGRAMS:
            parser.error(f"{name} isn't one of {', '.join(PROGRAMS)}")
    options.allot = os.path.abspath(options.allot)
    if not os.access(options.allot, os.X_OK):
        parser.error(f"there is no {options.allot}: cargo build --release -p allotment-cli")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(exist_ok=True)
        rows = []
        for name in chosen:
            make, package = PROGRAMS[name]
            if not shutil.which(package):
                print(f"SKIPPED: {package} is not installed", file=sys.stderr)
                continue
            print(f"{name} ...", file=sys.stderr)
            command, more = make(folder)
            found = measure(name, command, more, folder, options)
            row = {"program": name, "bare_s": statistics.median(found["bare"]), "events": found["events"],
                   "bytes_per_event": found["bytes_per_event"]}
            for what in ("recorded", "heaptrack", "recorded_all", "heaptrack_all"):
                each = ratios(found, what)
                row[what] = [statistics.median(each), min(each), max(each)] if each else None
            rows.append(row)
        if options.json:
            print(json.dumps(rows))
            return
        words = lambda each: f"{each[0]:.2f} ({each[1]:.2f} to {each[2]:.2f})" if each else "none"
        print("| program | CPU bare | events | recorded | heaptrack | recorded, all | heaptrack, all | bytes an event |")
        print("|:---|---:|---:|---:|---:|---:|---:|---:|")
        for row in rows:
            print(f"| {row['program']} | {row['bare_s']:.2f} s | {row['events']:,} | {words(row['recorded'])} | "
                  f"{words(row['heaptrack'])} | {words(row['recorded_all'])} | {words(row['heaptrack_all'])} | "
                  f"{row['bytes_per_event']:.2f} |")


if __name__ == "__main__":
    main()
