#!/usr/bin/env python3
"""What the replay says that another malloc saves, and what it saves: real programs, measured by `allot advise --repeat`.

The replay's figure is a share of the program's CPU time. What a malloc saves is one minus the ratio of the program's CPU time with
that malloc preloaded to that without, with the 95 % interval. Programs and mallocs that aren't installed are left out, with a message.
"""

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def other_programs():
    """The programs of cost-of-recording.py."""
    spec = importlib.util.spec_from_file_location("cost_of_recording", HERE / "cost-of-recording.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PROGRAMS


def perl(folder):
    (folder / "words.pl").write_text(
        "my (%count, @lines); srand(1);\n"
        "for my $i (1 .. 250_000) { my $word = 'w' . int(rand(40_000)); $count{$word}++;\n"
        "  push @lines, { word => $word, parts => [split //, $word] } if $i % 4 == 0; }\n"
        "my $sum = 0; $sum += scalar @{$_->{parts}} for sort { $a->{word} cmp $b->{word} } @lines;\n"
        "print scalar(keys %count), ' ', $sum, \"\\n\";\n"
    )
    return ["perl", str(folder / "words.pl")], {}


def xmllint(folder):
    chosen = random.Random(1)
    with open(folder / "orders.xml", "w") as file:
        file.write("<orders>")
        for i in range(60_000):
            file.write(f'<order id="{i}"><name>n{chosen.randrange(1000)}</name><sum unit="eur">{chosen.random()}</sum></order>')
        file.write("</orders>")
    return ["xmllint", "--xpath", "count(//order[sum > 0.5])", str(folder / "orders.xml")], {}


def git(folder):
    repository = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=HERE, capture_output=True, text=True)
    return ["git", "-C", repository.stdout.strip() or ".", "log", "--stat", "-n", "150"], {}


def php(folder):
    (folder / "rows.php").write_text(
        "<?php $rows = []; mt_srand(1);\n"
        "for ($i = 0; $i < 150000; $i++) $rows[] = ['id' => $i, 'name' => 'n' . mt_rand(0, 999), 'tags' => [(string)$i, 'b']];\n"
        "$text = json_encode($rows); $again = json_decode($text, true);\n"
        "usort($again, fn($a, $b) => strcmp($a['name'], $b['name'])); echo count($again), \"\\n\";\n"
    )
    return ["php", "-d", "memory_limit=-1", str(folder / "rows.php")], {"USE_ZEND_ALLOC": "0"}


def node(folder):
    (folder / "rows.js").write_text(
        "const rows = []; for (let i = 0; i < 300000; i++) rows.push({id: i, name: 'n' + i % 97, tags: ['a', String(i)]});\n"
        "const again = JSON.parse(JSON.stringify(rows)); again.sort((a, b) => a.name < b.name ? -1 : 1);\n"
        "console.log(again.length);\n"
    )
    return ["node", str(folder / "rows.js")], {}


def bc(folder):
    (folder / "digits.bc").write_text("scale=1400\na(1)*4\ne(1)\n")
    return ["bc", "-lq", str(folder / "digits.bc")], {}


PROGRAMS = {
    **other_programs(),
    "perl": (perl, "perl"),
    "xmllint": (xmllint, "xmllint"),
    "git": (git, "git"),
    "php": (php, "php"),
    "node": (node, "node"),
    "bc": (bc, "bc"),
}


def advise(options, command, more, folder):
    output = subprocess.run(
        [options.allot, "advise", "--json", "--no-report", "--repeat", str(options.repeat), "--", *command],
        env={**os.environ, **more}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
    )
    if output.returncode != 0:
        return None, output.stderr.decode(errors="replace").strip().splitlines()[-1:]
    return json.loads(output.stdout.splitlines()[-1]), None


def swaps(findings):
    """For each malloc that was replayed and measured: what was predicted, what was achieved, and the interval."""
    replayed = {row["name"]: row.get("gain") for row in (findings.get("replay") or {}).get("rows", [])}
    measured = (findings.get("measured") or {}).get("rows", [])
    for row in measured[1:]:
        cpu, predicted = row.get("cpu"), replayed.get(row["name"])
        if cpu is None or predicted is None:
            continue
        ends = None if cpu["low"] is None else [1 - cpu["high"], 1 - cpu["low"]]
        yield {"malloc": row["name"], "predicted": predicted, "achieved": 1 - cpu["median"], "interval": ends}


def percent(share):
    return f"{100 * share:.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allot", default=str(HERE.parent.parent / "target/release/allot"), help="the program (built with --features all-peers it replays jemalloc too)")
    parser.add_argument("--repeat", type=int, default=11, help="runs with each malloc [11]")
    parser.add_argument("--json", action="store_true", help="print one object for each malloc of each program")
    parser.add_argument("programs", nargs="*", choices=[[], *PROGRAMS], help="[all]")
    options = parser.parse_args()
    if not Path(options.allot).exists():
        sys.exit(f"{options.allot} is missing: build it with cargo build --release, or name it with --allot")
    rows, near = [], 0
    for name in options.programs or PROGRAMS:
        make, needed = PROGRAMS[name]
        if shutil.which(needed) is None:
            print(f"{name}: left out, {needed} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            command, more = make(Path(folder))
            print(f"{name} ...", file=sys.stderr)
            findings, why = advise(options, command, more, folder)
        if findings is None:
            print(f"{name}: no advice: {' '.join(why)}", file=sys.stderr)
            continue
        found = list(swaps(findings))
        if not found:
            notes = [note["text"] for note in findings.get("notes", [])]
            print(f"{name}: nothing to compare: {' '.join(notes)[:200]}", file=sys.stderr)
        for swap in found:
            swap = {"program": name, "bare_cpu_ns": findings["program"].get("bare_cpu_ns"), **swap}
            swap["points"] = 100 * (swap["predicted"] - swap["achieved"])
            near += abs(swap["points"]) <= 5
            rows.append(swap)
            if options.json:
                print(json.dumps(swap), flush=True)
    if options.json:
        return
    print(f"{'program':10} {'malloc':10} {'predicted':>10} {'achieved':>10}  {'95 % interval':18} {'points off':>10}")
    for swap in rows:
        ends = swap["interval"]
        interval = "-" if ends is None else f"{percent(ends[0])} to {percent(ends[1])}"
        print(f"{swap['program']:10} {swap['malloc']:10} {percent(swap['predicted']):>10} {percent(swap['achieved']):>10}  {interval:18} {swap['points']:>+10.1f}")
    print(f"{near} of {len(rows)} within 5 points")


if __name__ == "__main__":
    main()
