// What the program itself took with each installed malloc, and with each change tried.

const measured = data.measured ?? null;

// An interval that contains 1 shows no difference.
const showsNone = ratio => ratio.low !== null && ratio.low <= 1 && ratio.high >= 1;

// The row that takes the least CPU time, if that is less than the program's own beyond chance.
const quickest = (measured?.rows ?? []).slice(1).filter(({ cpu, groups }) => groups.length === 0 && cpu && cpu.high !== null && cpu.high < 1)
    .reduce((best, row) => (!best || row.cpu.median < best.cpu.median ? row : best), null);

// 7.9 % (7.0 % to 8.8 %)
function savedBy({ median, low, high }) {
    const saved = ratio => words.percent(Math.max(0, 1 - ratio));
    return low === null ? saved(median) : `${saved(median)} (${saved(high)} to ${saved(low)})`;
}

function compared(ratio) {
    if (!ratio) return "–";
    if (showsNone(ratio)) return "no difference";
    return ratio.low === null ? `${words.ratio(ratio.median)} (too few runs)` : `${words.ratio(ratio.median)} (${words.ratio(ratio.low)} to ${words.ratio(ratio.high)})`;
}

function drawMeasured() {
    if (measured === null) {
        at("measured-body").append(make("p", { class: "nothing" }, "The program was not run again. ", make("code", {}, "allot advise --repeat 11 -- PROGRAM"),
            " runs it without the recorder, as it is, with each malloc that is installed, and with each change tried."));
        return;
    }
    const { rows } = measured, ran = rows.filter(row => row.cpu_ns !== null);
    at("measured-lead").append(`The program itself, without the recorder: ${words.several(measured.runs, "run")} as it is, with each malloc and with each change tried, interleaved. Figures are medians. A ratio is the median of the rounds' ratios to the program as it is, with its 95\u202f% interval.${rows.some(row => row.parts) ? " A change is tried by giving its blocks memory like that of the advised allocator; what it adds for the calls and for walks that an arena makes unnecessary is calculated." : ""}`);
    const longest = Math.max(...ran.map(row => row.cpu_ns), 1), largest = Math.max(...ran.map(row => row.peak_bytes ?? 0), 1);
    const kind = row => (row === rows[0] ? "glibc" : row.groups.length > 0 ? "plan" : "malloc");
    const table = new Table([
        {
            title: "With", value: row => row.name, cell: row => make("span", { class: `who ${kind(row)}` }, words.name(row.name),
                row === quickest && make("span", { class: "tag good" }, "fastest")),
        },
        { title: "CPU time", width: "13rem", numeric: true, value: row => row.cpu_ns, cell: row => bar(row.cpu_ns, longest, words.time(row.cpu_ns), kind(row)) },
        { title: "CPU ratio", width: "12rem", numeric: true, value: row => row.cpu?.median ?? null, cell: row => compared(row.cpu) },
        { title: "Wall ratio", hint: "The time from start to end", width: "12rem", numeric: true, value: row => row.wall?.median ?? null, cell: row => compared(row.wall) },
        {
            title: "Peak memory", hint: "The largest resident size of the program's first process", width: "11rem", numeric: true, value: row => row.peak_bytes,
            cell: row => bar(row.peak_bytes, largest, words.bytes(row.peak_bytes), kind(row)),
        },
        { title: "Memory ratio", width: "6rem", numeric: true, value: row => row.peak?.median ?? null, cell: row => words.ratio(row.peak?.median) },
    ], { rows: ran, label: "Mallocs", least: "62rem", sort: [1, 1] });
    pageParts.measured = { table };
    const failed = rows.slice(1).filter(row => row.failure);
    fill(at("measured-body"),
        ran.length > 0 && table.element,
        quickest && quickest.library && make("div", {}, make("p", {}, `To use ${words.name(quickest.name)}:`),
            copyable(`LD_PRELOAD=${words.name(quickest.library)} ${command}`)),
        failed.length > 0 && make("div", {}, make("h3", {}, "Could not be measured"),
            make("ul", {}, failed.map(row => make("li", {}, make("b", {}, words.name(row.name)), `: ${words.name(row.failure)}`)))),
        measured.notes.map(note => make("p", { class: "dim" }, words.name(note))),
    );
}
