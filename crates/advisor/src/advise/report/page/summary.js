// The first screen: the program, the answer, the advice.

const { program, groups } = data;
const command = program.command.map(word => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");

// Groups by what is to be done with them, the largest gain first.
const ranked = is => groups.filter(({ verdict }) => is.includes(standing(verdict)))
    .sort((a, b) => (b.verdict.gain?.share ?? 0) - (a.verdict.gain?.share ?? 0));
const confirmed = ranked(["confirmed"]), untested = ranked(["untested"]), toProve = ranked(["candidate"]);
const served = ranked(["malloc"]), withdrawn = ranked(["withdrawn"]);
const betterMalloc = data.replay?.better_malloc ?? null, fasterMalloc = data.replay?.faster_malloc ?? null;

// What the confirmed verdicts save: together in one run, or the one by itself.
function gained() {
    if (confirmed.length === 1) return confirmed[0].verdict.gain?.share ?? null;
    return data.replay?.together?.gain ?? null;
}

const withArticle = noun => `${/^[aeiou]/.test(noun) ? "an" : "a"} ${noun}`;

// Where other mallocs were measured on the program itself, that counts and not their replay.
const replayCounts = (measured?.rows ?? []).length < 2;

function headline() {
    const [call] = data.system.advice, lock = data.locks.find(each => each.advice);
    // What isn't about memory counts where nothing else does.
    const memory = confirmed.length + served.length + untested.length + toProve.length > 0;
    if (!memory && call) return `${capital(call.title || "avoid system calls")}${call.gain === null ? "" : `: about ${words.percent(call.gain)} of its CPU time`}. Leave its memory as it is.`;
    if (!memory && lock) return "Threads wait for each other. Leave its memory as it is.";
    if (program.allocations === 0) return "No allocation of this program could be seen.";
    if (confirmed.length > 0) {
        const one = confirmed.length === 1, gain = gained();
        if (quickest && (gain === null || gain < 1 - quickest.cpu.median + 0.01))
            return `Change the malloc, not the program: ${quickest.name} saves ${savedBy(quickest.cpu)} of CPU time (measured), and no change of the code is confirmed that saves more.`;
        const use = `Use ${withArticle(allocators[confirmed[0].verdict.allocator])} for ${words.short(confirmed[0].title, 60)}`;
        const what = one ? use : `Make ${words.count(confirmed.length)} changes`;
        if (data.replay_is_too_high) return `${what}: faster in the replay, but how much it saves is unknown (see the notes).`;
        return `${what}${gain === null ? "" : `: ${one ? "saves" : "together they save"} about ${words.percent(gain)} of CPU time`} (${confirmed.every(({ verdict }) => verdict.gain?.tried) ? "measured in the program itself" : "replay-confirmed"}).`;
    }
    if (quickest) return `Use ${quickest.name} instead of glibc's malloc: saves ${savedBy(quickest.cpu)} of CPU time (measured). No change of the code is confirmed.`;
    if (served.length > 0 && replayCounts) {
        const saves = betterMalloc && betterMalloc.gain !== null ? `: ${betterMalloc.name} saves about ${words.percent(betterMalloc.gain)} of CPU time, as much as changing the code would (replay-confirmed)` : "";
        return `Change the malloc, not the program${saves}.`;
    }
    if (betterMalloc && replayCounts) {
        const saves = betterMalloc.gain === null ? "" : `: saves about ${words.percent(betterMalloc.gain)} of CPU time (replay-confirmed)`;
        return `Use ${betterMalloc.name} instead of glibc's malloc${saves}. ${withdrawn.length > 0 ? "No change of the code is confirmed." : "No change of the code would save more."}`;
    }
    if (untested.length > 0) {
        const gain = untested[0].verdict.gain;
        return `Not tested: ${untested.length === 1 ? "one change" : `${words.count(untested.length)} changes`} may be worth it${
            gain ? `, up to ${words.percent(Math.min(gain.ceiling, Math.max(...untested.map(({ verdict }) => verdict.gain?.share ?? 0))))} of its CPU time` : ""}.`;
    }
    if (program.own_heap) return `No allocator would help: ${program.own_heap.reason}. ${program.own_heap.remedy}`;
    if (toProve.length > 0) {
        const one = toProve.length === 1;
        return `Leave it as it is. ${one ? "One group of blocks" : words.several(toProve.length, "group of blocks", "groups of blocks")} could be sealed (read-only memory) if nothing writes to ${one ? "it" : "them"}.`;
    }
    return withdrawn.length > 0 ? "Leave it as it is: what looked promising was replayed, and none of it was confirmed." : "Leave it as it is.";
}

// What all allocating takes: by the replay where it had plans, as in the summary on the terminal.
function allocating() {
    const replayed = data.replay && data.replay.rows.some(row => row.groups.length > 0) ? data.replay.ceiling : null;
    return replayed === null ? program.allocator_share : Math.min(replayed, 1);
}

function subline() {
    const share = allocating();
    if (program.allocations === 0) return null;
    const beyond = share === program.allocator_share ? "" : "; better locality, and walks that only free, may add to a saving";
    const most = share === null ? "" : `Allocating and freeing takes ${share < 0.001 ? "" : "about "}${words.percent(share)} of its CPU time${beyond}. `;
    if (!data.replay) return `${most}All gains are estimates: nothing was replayed.`;
    const mallocs = data.replay.rows.filter(row => row.groups.length === 0 && row.name !== "null").length;
    const tested = data.replay.rows.some(row => row.groups.length > 0) ? "The advice was tested by replaying the recording" : "The recording was replayed";
    return `${most}${tested}, ${words.several(data.replay.rounds, "time")}, on ${words.several(mallocs, "malloc")}.`;
}

function openVerdict(group) {
    return event => {
        event.preventDefault();
        try {
            // So that the address leads here.
            history.replaceState(null, "", `#verdict-${group.id}`);
        } catch {
            // Not every browser lets a page from the disk do so.
        }
        pageParts.verdicts.show(group);
    };
}

function card(group, most) {
    const { verdict } = group;
    return make("li", { class: "card" },
        make("div", { class: "card-head" }, pill(verdict), badge(verdict)),
        make("h3", {}, make("a", { href: `#verdict-${group.id}`, click: openVerdict(group) }, words.short(group.title, 90))),
        gainBar(verdict.gain, most, !holds(verdict)),
        make("p", {}, sentence(verdict.reason)));
}

// How to try it without changing the code.
function tryIt({ library }) {
    return library ? make("p", {}, "Try it: ", code(`LD_PRELOAD=${library.file} ${words.short(command, 60)}`), library.packages ? ` (${library.packages}).` : ".") : null;
}

// The best of the mallocs that the program ran with.
function measuredCard() {
    return make("li", { class: "card" },
        make("div", { class: "card-head" }, make("span", { class: "pill better_malloc" }, "a better malloc"), make("span", { class: "badge confirmed" }, "✓ measured")),
        make("h3", {}, make("a", { href: "#measured" }, words.name(quickest.name))),
        make("span", { class: "gain" }, make("span", { class: "figure" }, savedBy(quickest.cpu))),
        make("p", {}, `Measured on the program itself, ${words.several(measured.runs, "run")} with each malloc${
            quickest.peak ? `; it takes ${words.ratio(quickest.peak.median)} × the memory` : ""}.`),
        quickest.library && make("p", {}, "Use it: ", code(`LD_PRELOAD=${quickest.library} ${words.short(command, 60)}`)));
}

// One that saves more, but isn't the one to use.
function fasterCard() {
    if (!fasterMalloc || !replayCounts) return null;
    return make("li", { class: "card" },
        make("div", { class: "card-head" }, make("span", { class: "pill better_malloc" }, "a faster malloc")),
        make("h3", {}, make("a", { href: "#replay" }, fasterMalloc.name)),
        fasterMalloc.gain !== null && make("span", { class: "gain" }, make("span", { class: "figure" }, words.percent(fasterMalloc.gain))),
        make("p", {}, sentence(`${fasterMalloc.reason}, but ${fasterMalloc.drawback ?? "it has a drawback"}`)));
}

function mallocCard() {
    if (quickest) return measuredCard();
    if (!betterMalloc || !replayCounts) return null;
    return make("li", { class: "card" },
        make("div", { class: "card-head" }, make("span", { class: "pill better_malloc" }, "a better malloc"),
            betterMalloc.gives_as_much && make("span", { class: "badge confirmed" }, "saves as much as the changes")),
        make("h3", {}, make("a", { href: "#replay" }, betterMalloc.name)),
        betterMalloc.gain !== null && make("span", { class: "gain" }, make("span", { class: "figure" }, words.percent(betterMalloc.gain))),
        make("p", {}, betterMalloc.reason ? sentence(betterMalloc.reason)
            : `${words.ratio(betterMalloc.time_ratio)} × glibc's time, without changing the code.`),
        tryIt(betterMalloc));
}

// Other chapters' advice, in the same form.
function otherCard(name, title, gain, text, href) {
    return make("li", { class: "card" },
        make("div", { class: "card-head" }, make("span", { class: "pill kernel" }, name)),
        make("h3", {}, make("a", { href }, title)), gain, make("p", {}, text));
}

function drawSummary() {
    const exit = program.exit === null ? null : program.exit === "0" ? "ended well" : `ended with ${program.exit.startsWith("signal") ? "" : "exit code "}${program.exit}`;
    const cpu = program.bare_cpu_ns ?? program.cpu_ns;
    const heads = [...confirmed, ...untested, ...toProve, ...served];
    const most = Math.max(...heads.map(({ verdict }) => Math.max(verdict.gain?.ceiling ?? 0, verdict.gain?.share ?? 0)), 0);
    const cards = heads.slice(0, 6).map(group => card(group, most));
    fill({ append: (...more) => cards.push(...more) }, mallocCard(), fasterCard());
    for (const advice of data.system.advice.slice(0, 3)) {
        cards.push(otherCard("system calls", advice.title ? capital(advice.title) : `${words.count(advice.calls)} calls`,
            make("span", { class: "gain" }, make("span", { class: "figure" }, advice.gain === null ? words.time(advice.saved_ns) : words.percent(advice.gain))),
            prose(advice.advice), "#kernel"));
    }
    for (const lock of data.locks.filter(lock => lock.advice).slice(0, 2)) {
        const where = lock.frames.length > 0 ? frame(lock.frames[0]).name : lock.kind;
        cards.push(otherCard("lock", `Waits in ${words.short(where, 60)}`,
            make("span", { class: "gain" }, make("span", { class: "figure" }, words.time(lock.waited_ns))), prose(lock.advice), "#locks"));
    }
    const warnings = data.notes.filter(note => note.warning);
    fill(at("summary"),
        make("p", { class: "kicker" }, "allot advise", exit && make("span", { class: exit === "ended well" ? "dim" : "bad" }, ` · the program ${exit}`)),
        make("h1", { id: "command" }, make("code", { class: command.length > 60 ? "long" : null }, words.short(command, 220))),
        make("p", { class: "headline" }, headline()),
        make("p", { class: "lead" }, subline()),
        data.replay?.together?.reason && confirmed.length > 1 && make("p", { class: "lead" }, sentence(data.replay.together.reason)),
        program.own_heap && confirmed.length + served.length > 0
            && notice("warning", make("b", {}, "Not recorded: "), prose(`${program.own_heap.reason}. ${program.own_heap.remedy}`)),
        warnings.slice(0, 4).map(note => notice("warning", make("b", {}, "In doubt: "), prose(note.text))),
        facts([
            ["CPU time", cpu === null ? "not known" : `${program.bare_measured ? "" : "≈\u202f"}${words.time(cpu)}`,
                program.bare_measured ? "measured without the recorder" : "of the recorded run, the recorder's share taken off"],
            ["of it in malloc and free", allocating() === null ? null : words.percent(allocating())],
            ["from start to end", words.time(program.wall_ns)],
            ["Allocations", words.count(program.allocations)],
            ["Bytes asked for", words.bytes(program.bytes)],
            ["Peak of live memory", words.bytes(program.peak_live_bytes)],
            ["Peak of resident memory", program.peak_resident === null ? null : words.bytes(program.peak_resident)],
            ["Threads", words.count(program.threads)],
        ], "figures"),
        cards.length > 0 ? make("ol", { class: "cards" }, cards) : nothingToDo(),
        heads.length > 6 && make("p", {}, make("a", { href: "#verdicts" }, `and ${words.several(heads.length - 6, "more verdict")}`)),
        withdrawn.length > 0 && make("p", { class: "dim" },
            `Not confirmed by the replay: ${withdrawn.slice(0, 5).map(group => `${advice(group.verdict)} for ${words.short(group.title, 50)}`).join("; ")}${
                withdrawn.length > 5 ? `; and ${withdrawn.length - 5} more` : ""}. `,
            make("a", { href: "#verdicts" }, "Why?")),
    );
}

// Why nothing is advised.
function nothingToDo() {
    const [first] = groups, share = program.allocator_share;
    let why = "There is no allocation to advise on.";
    if (share === null && first) why = "Its CPU time isn't known, so no gain can be calculated.";
    else if (first && share < 0.02) why = `Allocating and freeing takes ${words.percent(share)} of its CPU time: too little for any allocator to matter.`;
    else if (first) why = `No change would save 1\u202f% of its CPU time. The largest gain would be in ${words.short(first.title, 80)}: ${words.name(first.verdict.reason)}.`;
    return make("div", { class: "leave" }, make("p", {}, why),
        first && share !== null && make("p", { class: "dim" }, "That is a good result: changing how the program allocates would only cost you time."));
}
