// How the recorded sequence ran on other allocators.

// A row's name in words: plans are named after their groups.
function rowName(row) {
    if (row.name === "null") return "no allocator (the replay alone)";
    if (row.groups.length > 1) return "all confirmed changes together";
    if (row.groups.length !== 1 || !groups[row.groups[0]]) return row.name;
    const of = `group ${row.groups[0]}`;
    return row.name.endsWith(` for ${of}`) ? `${row.name.slice(0, -` for ${of}`.length).replaceAll("-", " ")} for ${words.short(groups[row.groups[0]].title, 40)}` : row.name;
}

const kindOf = row => (row.name === "null" ? "null" : row.name === "glibc" ? "glibc" : row.groups.length > 0 ? "plan" : "malloc");

// A bar in a cell, with a line from the least to the most where rounds differ.
function bar(value, most, text, kind, spread) {
    if (value === null) return make("span", { class: "dim" }, "–");
    const part = share => `${Math.min(100, (100 * share) / (most || 1))}%`;
    return make("span", { class: "measure" },
        make("span", { class: "bars", "aria-hidden": "true" }, make("span", { class: `bar-of ${kind}`, style: { width: part(value) } }),
            spread && make("span", { class: "spread", style: { left: part(spread[0]), width: part(spread[1] - spread[0]) } })),
        make("span", { class: "figure" }, text));
}

function drawReplay() {
    const { replay } = data;
    if (replay === null) {
        at("replay-body").append(make("p", { class: "nothing" }, "Nothing was replayed: all gains are estimates. ", make("code", {}, "allot advise"), " and ",
            make("code", {}, "allot replay"), " replay it."));
        return;
    }
    at("replay-lead").append(`The recorded ${words.several(replay.steps, "allocation and free", "allocations and frees")} of ${words.several(replay.threads, "thread")}, ${
        words.several(replay.rounds, "round")} each, in processes of their own; the rounds of an allocator lie ±${words.percent(replay.noise)} apart. Bars are medians; the line runs from the least to the most. Memory is the peak without what the replay itself holds.`);
    const { rows } = replay;
    // One round that was disturbed must not make all the bars small.
    const longest = Math.max(...rows.map(row => row.time_ns), 1) * 1.15;
    const largest = Math.max(...rows.map(row => row.peak_resident ?? 0), 1), faults = Math.max(...rows.map(row => row.minor_faults ?? 0), 1);
    const fastest = rows.filter(row => row.name !== "null").reduce((best, row) => (!best || row.time_ns < best.time_ns ? row : best), null);
    const table = new Table([
        {
            title: "Allocator", value: rowName, cell: row => make("span", { class: `who ${kindOf(row)}` }, rowName(row),
                row === fastest && make("span", { class: "tag good" }, "fastest")),
        },
        {
            title: "CPU time", width: "13rem", numeric: true, value: row => row.time_ns,
            cell: row => bar(row.time_ns, longest, words.time(row.time_ns), kindOf(row), [row.least_ns, Math.min(row.most_ns, longest)]),
        },
        { title: "of glibc's", hint: "The median of the rounds' ratios", width: "5.5rem", numeric: true, value: row => row.time_ratio, cell: row => words.ratio(row.time_ratio) },
        rows.some(row => row.gain !== null && row.gain !== undefined) && {
            title: "Gain", hint: "Share of the program's CPU time, compared with glibc", width: "5.5rem", numeric: true, value: row => row.gain ?? null,
            cell: row => (row.gain === null || row.gain === undefined || row.name === "glibc" ? "–" : row.gain < 0 ? `−${words.percent(-row.gain)}` : words.percent(row.gain)),
        },
        {
            title: "Peak memory", width: "11rem", numeric: true, value: row => row.peak_resident,
            cell: row => bar(row.peak_resident, largest, words.bytes(row.peak_resident), kindOf(row)),
        },
        { title: "of glibc's", width: "5.5rem", numeric: true, value: row => row.memory_ratio, cell: row => words.ratio(row.memory_ratio) },
        {
            title: "Page faults", width: "9.5rem", numeric: true, value: row => row.minor_faults,
            cell: row => bar(row.minor_faults, faults, words.count(row.minor_faults), kindOf(row)),
        },
    ].filter(Boolean), { rows, label: "Allocators", least: "62rem", sort: [1, 1], detail: row => replayDetail(row) });
    pageParts.replay = { table };
    fill(at("replay-body"),
        replay.interrupted && notice("warning", make("b", {}, "The replay was interrupted: "), "it has fewer rounds than planned."),
        replay.faithful === false && notice("bad", make("b", {}, "The replay does not do what was recorded. "), "Don't rely on its figures."),
        table.element,
        make("p", { class: "key" }, [["plan", "the advice"], ["malloc", "other mallocs"], ["glibc", "glibc"], ["null", "no allocator"]]
            .filter(([kind]) => rows.some(row => kindOf(row) === kind)).map(([kind, text]) => make("span", {}, make("i", { class: `bar-of ${kind}` }), text))),
        replay.failed.length > 0 && make("div", {}, make("h3", {}, "Could not be replayed"),
            make("ul", {}, replay.failed.map(failed => make("li", {}, make("b", {}, failed.name), `: ${words.name(failed.reason)}`)))),
        replay.faithful === true && make("p", { class: "dim" }, "Check passed: live bytes equalled the recording's after every step, and no two blocks overlapped."),
    );
}

function replayDetail(row) {
    return [
        facts([
            ["CPU time, median", words.time(row.time_ns)], ["least", words.time(row.least_ns)], ["most", words.time(row.most_ns)],
            ["from the first step to the last", words.time(row.wall_ns)],
            ["Peak memory", words.bytes(row.peak_resident)], ["Page faults", words.count(row.minor_faults)],
        ]),
        row.groups.length > 0 && make("p", {}, "It follows the advice for ", row.groups.filter(id => groups[id]).flatMap((id, place) => [place > 0 ? ", " : "",
            make("a", { href: `#verdict-${id}`, click: openVerdict(groups[id]) }, words.short(groups[id].title, 60))]), "; all other blocks are glibc's."),
        row.name === "null" && make("p", {}, "Every row contains this cost of the replay itself; the rest is the allocator's."),
    ];
}
