// What is advised for each group of sites, and the sites themselves.

const pageParts = {};
const shareOf = (part, whole) => (whole > 0 ? part / whole : 0);

function replayedBox(verdict) {
    if (!verdict.replayed) {
        return verdict.category === "leave_it" ? null : notice("plain", make("b", {}, "Not replayed. "), "The gain is an estimate.");
    }
    const { confirmed, reason } = verdict.replayed;
    return notice(confirmed ? "good" : "bad", make("b", {}, confirmed ? "✓ " : "✕ "), sentence(reason));
}

function changeBox({ change, replayed }) {
    if (!change.rust && !change.c) return null;
    const place = make("div");
    const show = language => place.replaceChildren(copyable(change[language]));
    const languages = [["rust", "Rust"], ["c", "C"]].filter(([language]) => change[language]);
    const box = make("div", { class: "change" }, make("h4", {}, replayed && !replayed.confirmed ? "The change that was tried" : "The change"),
        languages.length > 1 && choice("Language", languages, languages[0][0], show), place);
    show(languages[0][0]);
    return box;
}

function siteLink(id) {
    const { title } = site(id);
    return make("a", {
        href: "#sites",
        click: event => {
            event.preventDefault();
            pageParts.sites.show(id);
        },
    }, code(title));
}

// Where an arena or a reap is created and reset.
function placeOf({ place, verdict }) {
    if (!place || !["arena", "reap"].includes(verdict.allocator)) return null;
    const at = place.file ? ` (${words.short(place.file, 100)}${place.line ? `:${place.line}` : ""})` : "";
    return make("p", {}, verdict.without_reset ? "Create it in " : "Create and reset it in ", code(place.function), `${at}.`);
}

function verdictDetail(group) {
    const { verdict } = group;
    const sites = group.sites.slice(0, 8);
    return [
        make("div", { class: "two" },
            make("div", {},
                make("p", { class: "reason" }, sentence(verdict.reason)),
                verdict.gain && holds(verdict) && verdict.category !== "leave_it" && make("p", {}, "Gain ", make("b", {}, words.percent(verdict.gain.share)),
                    ` of the program's CPU time, ${verdict.gain.measured ? "measured by replay" : "estimated"}; these blocks cost ${words.percent(verdict.gain.ceiling)}${
                        verdict.gain.ceiling_measured ? ", measured" : ""}.`),
                placeOf(group),
                replayedBox(verdict),
                verdict.refused.map(refused => make("p", { class: "refused" }, make("b", {}, `Not ${refused.allocator === "arena" ? "an" : "a"} ${allocators[refused.allocator]}: `),
                    words.name(refused.reason), ".")),
                lifetimes(group)),
            changeBox(verdict)),
        behaviour(group),
        make("h4", {}, words.several(group.sites.length, "site")),
        make("ol", { class: "site-list" }, sites.map(id => make("li", {}, siteLink(id),
            make("span", { class: "dim" }, ` ${words.several(site(id).count, "allocation")}, ${words.percent(shareOf(site(id).count, group.count))} of the group`)))),
        group.sites.length > sites.length && make("p", {}, make("button", { type: "button", click: () => pageParts.sites.ofGroup(group) },
            `All ${words.count(group.sites.length)} in the table of sites`)),
    ];
}

function siteDetail(id) {
    const is = site(id), group = groups[is.group];
    return [
        make("div", { class: "two" },
            make("div", {}, make("h4", {}, is.stacks > 1 ? `What ${words.count(is.stacks)} stacks have in common` : "The stack"), stack(is.frames)),
            make("div", {}, group && make("p", {}, pill(group.verdict), " in the group ",
                make("a", { href: `#verdict-${group.id}`, click: openVerdict(group) }, words.short(group.title, 80))), lifetimes(is))),
        behaviour(is),
    ];
}

function drawVerdicts() {
    if (groups.length === 0) {
        at("verdicts-body").append(make("p", { class: "nothing" }, "There is no group of allocations to judge."));
        pageParts.verdicts = { show() {} };
        return;
    }
    const most = Math.max(...groups.map(({ verdict }) => Math.max(verdict.gain?.ceiling ?? 0, verdict.gain?.share ?? 0)));
    const table = new Table([
        { title: "Where", value: group => group.title, cell: group => code(group.title) },
        { title: "Advice", width: "9.2rem", value: group => advice(group.verdict), cell: group => pill(group.verdict) },
        {
            title: "Gain", hint: "Share of the program's CPU time; the pale part is what these blocks cost in all", width: "9.5rem", numeric: true,
            value: group => group.verdict.gain?.share ?? null,
            cell: group => (standing(group.verdict) === "leave" ? make("span", { class: "dim" }, words.percent(group.verdict.gain?.share)) : gainBar(group.verdict.gain, most, !holds(group.verdict))),
        },
        { title: "Replay", width: "8.6rem", value: group => standings[standing(group.verdict)] || null, cell: group => badge(group.verdict) },
        { title: "Allocations", width: "8rem", numeric: true, value: group => group.count, cell: group => words.count(group.count) },
        { title: "Bytes", width: "6rem", numeric: true, value: group => group.bytes, cell: group => words.bytes(group.bytes) },
        { title: "Live, at most", width: "6.6rem", numeric: true, value: group => group.peak_live_bytes, cell: group => words.bytes(group.peak_live_bytes) },
        {
            title: "Own thread", hint: "Share of the frees by the allocating thread", width: "5.6rem", numeric: true,
            value: group => group.same_thread_share, cell: group => words.percent(group.same_thread_share),
        },
        {
            title: "Drag", hint: "Bytes that an arena would hold, divided by live bytes; 1.0 wastes nothing", width: "5rem", numeric: true,
            value: group => group.drag, cell: group => words.number(group.drag),
        },
    ], { rows: groups, label: "Verdicts", detail: verdictDetail, sort: [2, -1] });
    const asked = { words: [], category: "", standing: "" };
    const told = make("span", { class: "dim", role: "status" });
    const text = new Map(groups.map(group => [group, [group.title, advice(group.verdict), categories[group.verdict.category], allocators[group.verdict.allocator],
        standings[standing(group.verdict)], group.verdict.reason, group.verdict.replayed?.reason ?? ""].join("\n").toLowerCase()]));
    const filter = () => {
        const found = asked.words.map(framesWith);
        const passes = group => (asked.category === "" || group.verdict.category === asked.category)
            && (asked.standing === "" || standing(group.verdict) === asked.standing)
            && asked.words.every((word, number) => text.get(group).includes(word)
                || group.sites.some(id => framesOf(id).some(index => found[number][index])));
        const shown = table.filter(passes);
        told.textContent = shown === groups.length ? "" : `${words.count(shown)} of ${words.several(groups.length, "verdict")}`;
    };
    const number = (key, of) => groups.filter(group => of(group) === key).length;
    const options = (names, of) => Object.entries(names).filter(([key]) => number(key, of) > 0)
        .map(([key, name]) => [key, `${name || "nothing to replay"} (${number(key, of)})`]);
    at("verdicts-lead").append("One row for each group of places that one change would serve. Open a row for the reason, the allocators that don't fit, and the lines to change.");
    at("verdicts-body").append(make("div", { class: "tools" },
        wordField("Words: a function, an allocator", list => {
            asked.words = list;
            filter();
        }),
        select("Category", [["", "every category"], ...options(categories, group => group.verdict.category)], value => {
            asked.category = value;
            filter();
        }),
        select("Replay", [["", "replayed or not"], ...options(standings, group => standing(group.verdict))], value => {
            asked.standing = value;
            filter();
        }), told), table.element);
    pageParts.verdicts = {
        table,
        show(group) {
            if (table.show(group)) return;
            // The filter hides it.
            at("verdicts-body").querySelectorAll("input, select").forEach(field => (field.value = ""));
            Object.assign(asked, { words: [], category: "", standing: "" });
            filter();
            table.show(group);
        },
    };
}

const framesOf = siteColumn("frames");

function drawSites() {
    const ids = data.sites.rows.map((_, id) => id);
    if (ids.length === 0) {
        at("sites-body").append(make("p", { class: "nothing" }, "No place in the program has a recorded allocation."));
        pageParts.sites = { show() {}, ofGroup() {} };
        return;
    }
    const column = Object.fromEntries(["title", "group", "count", "bytes", "peak_live_bytes", "same_thread_share", "lifetime_ns", "never_freed",
        "dominant_size", "dominant_share", "least_size", "most_size"].map(name => [name, siteColumn(name)]));
    const verdictOf = id => groups[column.group(id)]?.verdict;
    const size = id => words.sizes({ dominant_share: column.dominant_share(id), dominant_size: column.dominant_size(id), least_size: column.least_size(id), most_size: column.most_size(id) });
    const table = new Table([
        { title: "Where", value: id => column.title(id), cell: id => code(column.title(id)) },
        { title: "Advice", width: "9.2rem", value: id => (verdictOf(id) ? advice(verdictOf(id)) : null), cell: id => (verdictOf(id) ? pill(verdictOf(id)) : "") },
        { title: "Allocations", width: "8rem", numeric: true, value: column.count, cell: id => words.count(column.count(id)) },
        { title: "Bytes", width: "6rem", numeric: true, value: column.bytes, cell: id => words.bytes(column.bytes(id)) },
        { title: "Size", hint: "The size of nine in ten blocks, or the smallest and the largest", width: "10rem", numeric: true, value: column.dominant_size, cell: size },
        { title: "Live, at most", width: "6.6rem", numeric: true, value: column.peak_live_bytes, cell: id => words.bytes(column.peak_live_bytes(id)) },
        {
            title: "Lifetime", hint: "Half of the blocks live shorter; empty if none was freed before the end", width: "5.8rem", numeric: true,
            value: id => column.lifetime_ns(id)?.p50 ?? null, cell: id => words.time(column.lifetime_ns(id)?.p50),
        },
        {
            title: "Own thread", hint: "Share of the frees by the allocating thread", width: "5.6rem", numeric: true,
            value: column.same_thread_share, cell: id => words.percent(column.same_thread_share(id)),
        },
        { title: "Never freed", width: "5.8rem", numeric: true, value: column.never_freed, cell: id => words.count(column.never_freed(id)) },
    ], { rows: ids, label: "Sites", detail: siteDetail, sort: [2, -1] });
    const asked = { words: [], advice: "", group: null };
    const told = make("span", { class: "dim", role: "status" });
    const only = make("span");
    const filter = () => {
        const found = asked.words.map(framesWith);
        const passes = id => (asked.advice === "" || (verdictOf(id) && advice(verdictOf(id)) === asked.advice))
            && (asked.group === null || column.group(id) === asked.group.id)
            && asked.words.every((word, number) => column.title(id).toLowerCase().includes(word) || framesOf(id).some(index => found[number][index]));
        const shown = table.filter(passes);
        told.textContent = shown === ids.length ? "" : `${words.count(shown)} of ${words.several(ids.length, "site")}`;
        only.replaceChildren(...(asked.group === null ? [] : [make("button", { type: "button", class: "chip", "aria-label": "All groups", click: () => reset() },
            `group: ${words.short(asked.group.title, 40)} ✕`)]));
    };
    const field = wordField("Words: a function, a file, a module", list => {
        asked.words = list;
        filter();
    });
    const kinds = [...new Set(groups.map(group => advice(group.verdict)))].sort();
    const choose = select("Advice", [["", "every advice"], ...kinds.map(kind => [kind, kind])], value => {
        asked.advice = value;
        filter();
    });
    const reset = () => {
        field.value = choose.value = "";
        Object.assign(asked, { words: [], advice: "", group: null });
        filter();
    };
    at("sites-lead").append(`${words.several(ids.length, "place")} in the code that ${ids.length === 1 ? "allocates" : "allocate"}; wrappers such as xmalloc are skipped. Open a row for its stack.`);
    at("sites-body").append(make("div", { class: "tools" }, field, choose, only, told), table.element);
    pageParts.sites = {
        table,
        show(id) {
            if (!table.show(id)) {
                reset();
                table.show(id);
            }
        },
        ofGroup(group) {
            reset();
            asked.group = group;
            filter();
            at("sites").scrollIntoView();
        },
    };
}
