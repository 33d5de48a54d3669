// System calls, locks and notes.

function drawKernel() {
    const { system } = data;
    const mean = (name, bytes, calls) => (calls > 0 && bytes !== null ? `${name}, of ${words.bytes(Math.round(bytes / calls))} each` : name);
    const body = at("kernel-body");
    const counted = system.calls.length > 0;
    const known = facts([
        ["System calls", system.total_calls === null || system.total_calls === undefined ? null : words.count(system.total_calls)],
        [mean("Reads", system.read_bytes, system.read_calls), system.read_calls === null ? null : words.count(system.read_calls)],
        [mean("Writes", system.written_bytes, system.write_calls), system.write_calls === null ? null : words.count(system.write_calls)],
        ["Page faults", words.count(system.page_faults ?? system.minor_faults), system.page_faults === null || system.page_faults === undefined ? "with the recorder's" : "the program's own"],
        ["page faults from disk", system.major_faults ? words.count(system.major_faults) : null],
        [`Waits on futexes${system.futex_wait_ns ? `, ${words.time(system.futex_wait_ns)} in all` : ""}`,
            system.futex_waits === null || system.futex_waits === undefined ? null : words.count(system.futex_waits)],
        ["Waits", system.voluntary_switches === null ? null : words.several(system.voluntary_switches, "time"), "voluntary context switches: a thread waited for something"],
        ["Preempted", system.involuntary_switches === null ? null : words.several(system.involuntary_switches, "time"), "involuntary context switches"],
        ["CPU time in the kernel", system.kernel_share === null || system.kernel_share === undefined ? null : words.percent(system.kernel_share), "the recorder's share included"],
    ], "figures");
    at("kernel-lead").append(program.processes > 1 ? "The kernel's own accounting, for all processes of the recording together." : "The kernel's own accounting of the run.");
    fill(body, system.advice.length > 0
        ? make("ol", { class: "cards" }, system.advice.map(advice => make("li", { class: "card" },
            make("h3", {}, advice.title ? capital(advice.title) : words.several(advice.calls, "call")),
            make("span", { class: "gain" }, make("span", { class: "figure" }, advice.gain === null ? words.time(advice.saved_ns) : words.percent(advice.gain)),
                make("span", { class: "dim" }, advice.gain === null ? " to be saved" : " of the CPU time to be saved")),
            make("p", {}, prose(advice.advice)))))
        : make("p", { class: "nothing" }, counted || system.read_calls !== null ? "No system call is worth avoiding." : "The kernel counted nothing that could be judged."),
    known.children.length > 0 && known);
    if (system.not_counted) body.append(notice("plain", prose(system.not_counted)));
    if (!counted) {
        if (!system.not_counted) body.append(make("p", { class: "dim" }, "Calls were not counted by kind: the kernel permits that only to root, as a rule. Record as root to have them counted."));
        return;
    }
    const all = system.calls.reduce((sum, { calls }) => sum + calls, 0), has = field => system.calls.some(call => call[field] !== null && call[field] !== undefined);
    const most = Math.max(...system.calls.map(({ calls }) => calls));
    const table = new Table([
        { title: "Call", width: "11rem", value: call => call.name, cell: call => code(call.name) },
        { title: "Calls", width: "14rem", numeric: true, value: call => call.calls, cell: call => bar(call.calls, most, words.count(call.calls), "malloc") },
        { title: "Share", width: "5.5rem", numeric: true, value: call => call.calls, cell: call => words.percent(shareOf(call.calls, system.total_calls ?? all)) },
        has("failed") && { title: "Failed", width: "6rem", numeric: true, value: call => call.failed, cell: call => (call.failed ? words.count(call.failed) : "–") },
        has("bytes") && {
            title: "Mean size", hint: "Bytes that a call moved", width: "7rem", numeric: true,
            value: call => (call.bytes === null ? null : shareOf(call.bytes, call.calls)), cell: call => (call.bytes === null ? "–" : words.bytes(Math.round(shareOf(call.bytes, call.calls)))),
        },
        has("small") && {
            title: "Small", hint: "Calls that moved fewer than 512 bytes", width: "7rem", numeric: true,
            value: call => call.small, cell: call => (call.small ? words.percent(shareOf(call.small, call.calls)) : "–"),
        },
        has("ns") && { title: "Time", hint: "From the call to its return, waiting included", width: "6.5rem", numeric: true, value: call => call.ns, cell: call => words.time(call.ns) },
        has("cost_ns") && {
            title: "CPU at least", hint: "What these calls cost at least, measured on the machine of the recording", width: "7.5rem", numeric: true, value: call => call.cost_ns, cell: call => words.time(call.cost_ns),
        },
    ].filter(Boolean), { rows: system.calls, label: "System calls", least: "62rem", sort: [1, -1] });
    pageParts.kernel = { table };
    body.append(table.element);
}

function drawLocks() {
    const { locks } = data;
    if (locks.length === 0) {
        at("locks-body").append(make("p", { class: "nothing" }, program.threads === 1 ? "The program has one thread, so it waited for no lock." : "No thread waited for a lock."));
        return;
    }
    const waits = locks.reduce((sum, lock) => sum + lock.waits, 0), time = locks.reduce((sum, lock) => sum + lock.waited_ns, 0);
    at("locks-lead").append(`Threads waited ${words.several(waits, "time")} for a mutex or a rwlock, ${words.time(time)} in all. Locks that were free are not counted: they cost a few nanoseconds.`);
    const where = lock => (lock.frames.length > 0 ? frame(lock.frames.find(index => !frame(index).wrapper) ?? lock.frames[0]).name : "unknown");
    const most = Math.max(...locks.map(lock => lock.waited_ns));
    const kinds = { mutex: "mutex", read: "rwlock, to read", write: "rwlock, to write" };
    const table = new Table([
        { title: "Where", value: where, cell: lock => code(where(lock)) },
        { title: "Lock", width: "9.5rem", value: lock => lock.kind, cell: lock => kinds[lock.kind] ?? lock.kind },
        { title: "Waited", width: "13rem", numeric: true, value: lock => lock.waited_ns, cell: lock => bar(lock.waited_ns, most, words.time(lock.waited_ns), "malloc") },
        {
            title: "of the threads' time", hint: "Of the time of all threads, each from its first event to its last", width: "9.5rem", numeric: true,
            value: lock => lock.share ?? null, cell: lock => words.percent(lock.share),
        },
        { title: "Times", width: "7rem", numeric: true, value: lock => lock.waits, cell: lock => words.count(lock.waits) },
        { title: "Longest", width: "6.5rem", numeric: true, value: lock => lock.longest_ns, cell: lock => words.time(lock.longest_ns) },
        { title: "Locks", hint: "Different locks", width: "5rem", numeric: true, value: lock => lock.locks, cell: lock => words.count(lock.locks) },
    ], {
        rows: locks, label: "Locks", least: "62rem", sort: [2, -1],
        detail: lock => [lock.advice && make("p", { class: "reason" }, prose(lock.advice)), make("h4", {}, "The stack"), stack(lock.frames)],
    });
    pageParts.locks = { table };
    at("locks-body").append(table.element);
}

function drawNotes() {
    const body = at("notes-body");
    if (data.notes.length > 0) {
        body.append(make("ul", { class: "notes" }, data.notes.map(note =>
            make("li", { class: note.warning ? "doubt" : null }, note.warning && make("b", {}, "In doubt: "), prose(note.text)))));
    } else body.append(make("p", { class: "nothing" }, "No notes."));
    const { overlaps } = data;
    if (overlaps) {
        body.append(overlaps.found === 0 ? make("p", {}, `${words.count(overlaps.checked)} blocks were checked, and none overlaps a live one.`)
            : notice("bad", `${words.count(overlaps.found)} of ${words.count(overlaps.checked)} blocks overlap a live one, so the recording is not sound: record again.`,
                make("ul", {}, overlaps.examples.map(example => make("li", {}, words.name(example))))));
    }
    body.append(facts([
        ["Executable", words.short(program.executable, 200)],
        ["Process", program.processes > 1 ? `${program.process} of ${program.processes}` : null],
        ["Events", words.count(program.events)],
        ["by realloc", words.percent(program.realloc_share)],
        ["Bytes an event, in the recording", words.ratio(program.trace_bytes_per_event)],
        ["Frees of unknown blocks", program.unknown_frees > 0 ? words.count(program.unknown_frees) : null, "of blocks whose allocation was not recorded"],
        ["CPU time, with the recorder", program.cpu_ns === null ? null : words.time(program.cpu_ns)],
        ["Recording cut off", program.truncated ? "yes" : null],
    ]));
}
