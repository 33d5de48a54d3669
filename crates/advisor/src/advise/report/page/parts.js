// What the page is made of.

const data = JSON.parse(document.getElementById("findings").textContent);

// The same with what stands in backquotes as code.
function prose(text) {
    const parts = sentence(text).split("`");
    if (parts.length % 2 === 0) return parts.join("`");
    return parts.map((part, place) => (place % 2 === 1 ? make("code", {}, part) : part));
}

// An element: its name, its attributes (functions are listeners; null and false are left out), what is in it. Text stays text.
function make(name, attributes = {}, ...children) {
    const space = ["svg", "path", "rect", "line", "text", "g", "circle", "title"].includes(name);
    const element = space ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
        if (value === null || value === undefined || value === false) continue;
        if (typeof value === "function") element.addEventListener(key, value);
        else if (key === "style") Object.entries(value).forEach(([rule, to]) => element.style.setProperty(rule, to));
        else element.setAttribute(key, value === true ? "" : value);
    }
    fill(element, ...children);
    return element;
}

const at = id => document.getElementById(id);

// Puts into an element what there is.
const fill = (element, ...parts) => element.append(...parts.flat().filter(part => part !== null && part !== undefined && part !== false && part !== ""));

// A sentence from the findings, with its capital and its full stop.
const capital = text => text.charAt(0).toUpperCase() + text.slice(1);
const sentence = text => `${capital(words.name(text))}${/[.!?]$/.test(text) ? "" : "."}`;
const code = name => make("code", { class: "name", title: name.length > 60 ? words.short(name, 1000) : null }, words.short(name, 160));

const pill = verdict => make("span", { class: `pill ${colour(verdict)}` }, advice(verdict));

function badge(verdict) {
    const is = standing(verdict);
    if (is === "leave") return "";
    const signs = { confirmed: "✓", withdrawn: "✕", candidate: "?", untested: "·", malloc: "≈" };
    return make("span", { class: `badge ${is}` }, make("span", { "aria-hidden": "true" }, signs[is]), ` ${standings[is]}`);
}

// What is gained, with the cost of the blocks behind it. `most` is what fills the bar.
function gainBar(gain, most, lost) {
    if (!gain) return make("span", { class: "dim" }, "not known");
    const width = share => `${Math.min(100, (100 * Math.max(0, share)) / (most || 1))}%`;
    return make("span", { class: lost ? "gain lost" : "gain", title: `${gain.measured ? "measured" : "estimated"}; these blocks cost ${words.percent(gain.ceiling)}${gain.ceiling_measured ? ", measured" : ""}` },
        make("span", { class: "figure" }, words.percent(gain.share)),
        make("span", { class: "track", "aria-hidden": "true" },
            make("span", { class: "ceiling", style: { width: width(gain.ceiling) } }),
            make("span", { class: "share", style: { width: width(gain.share) } })));
}

// A few choices of which one holds.
function choice(label, options, chosen, change) {
    const buttons = options.map(([value, text]) => make("button", {
        type: "button", "data-value": value, "aria-pressed": String(value === chosen),
        click: () => {
            buttons.forEach(button => button.setAttribute("aria-pressed", String(button.dataset.value === value)));
            change(value);
        },
    }, text));
    return make("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

// Code with a button that copies it.
function copyable(text) {
    const done = word => {
        button.textContent = word;
        setTimeout(() => (button.textContent = "Copy"), 1600);
    };
    const button = make("button", {
        type: "button", class: "copy",
        click: async () => {
            try {
                await navigator.clipboard.writeText(text);
                done("Copied");
            } catch {
                // Not every browser lets a page from the disk at the clipboard.
                getSelection().selectAllChildren(block);
                done(document.execCommand("copy") ? "Copied" : "Selected");
            }
        },
    }, "Copy");
    const block = make("code", {}, text);
    return make("div", { class: "copyable" }, make("pre", { tabindex: "0" }, block), button);
}

function notice(kind, ...children) {
    return make("p", { class: `notice ${kind}` }, children);
}

// Terms and what they come to; those that come to nothing are left out.
function facts(pairs, kind = "facts") {
    const told = pairs.filter(pair => pair && ![null, undefined, false, ""].includes(pair[1]));
    return make("dl", { class: kind }, told.map(([term, value, hint]) =>
        make("div", { title: hint ?? null }, make("dt", {}, term), make("dd", {}, value))));
}

const frame = index => {
    const [name, file, line, module, inlined, wrapper] = data.frames[index];
    return {
        name: data.names[name], file: file === null ? null : data.names[file], line, module: data.names[module],
        inlined: inlined === 1, wrapper: wrapper === 1,
    };
};

// A stack, the innermost frame first.
function stack(indexes) {
    const items = indexes.map(index => {
        const { name, file, line, module, inlined, wrapper } = frame(index);
        const place = file ? `${file}${line ? `:${line}` : ""}` : module;
        const long = name.length > 240;
        const shown = long
            ? make("details", { class: "long" }, make("summary", {}, make("code", { class: "name" }, words.short(name, 200))),
                make("code", { class: "name" }, words.name(name)))
            : make("code", { class: "name" }, words.name(name));
        return make("li", { class: wrapper ? "wrapper" : null }, shown, " ",
            make("span", { class: "place", title: module }, words.short(place, 200)),
            inlined && make("span", { class: "tag", title: "Its code lies within the next function's" }, "inlined"),
            wrapper && make("span", { class: "tag", title: "It only passes its callers' requests on" }, "wrapper"));
    });
    return items.length > 0 ? make("ol", { class: "stack" }, items) : make("p", { class: "dim" }, "Its stack is not known.");
}

// The n-th site as an object, made when it is wanted.
const site = (() => {
    const made = new Map(), { fields, rows } = data.sites;
    return id => {
        if (!made.has(id)) made.set(id, Object.fromEntries(fields.map((field, number) => [field, rows[id][number]])));
        return made.get(id);
    };
})();
const siteColumn = name => {
    const number = data.sites.fields.indexOf(name);
    return id => data.sites.rows[id][number];
};

// The note beside the pointer.
const tip = {
    show(x, y, ...children) {
        const box = at("tip");
        box.replaceChildren();
        fill(box, children);
        box.hidden = false;
        const { width, height } = box.getBoundingClientRect();
        box.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
        box.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 10) : y + 18}px`;
    },
    hide: () => (at("tip").hidden = true),
};

// How long the blocks of a site or a group live, on a scale of powers of ten.
function lifetimes({ lifetime_ns: life, lifetime_allocations: steps, count, never_freed: never, freed_at_exit: late }) {
    if (!life) return null;
    const freed = Math.max(1, count - never - late);
    const [from, to] = [2, 11], place = ns => (100 * (Math.min(to, Math.max(from, Math.log10(Math.max(1, ns)))) - from)) / (to - from);
    const marks = [[1e3, "1 µs"], [1e6, "1 ms"], [1e9, "1 s"]];
    return make("figure", { class: "lifetimes" },
        make("figcaption", {}, freed === 1 ? "The one block that was freed before the end lived " : `Of the ${words.count(freed)} blocks that were freed before the end, half lived at most `,
            make("b", {}, words.time(life.p50)),
            freed === 1 ? "" : `, nine in ten ${words.time(life.p90)}, the longest ${words.time(life.most)}`,
            !steps ? "." : freed === 1 ? `, or ${words.several(steps.most, "allocation")} of the program.`
                : `; in allocations of the program ${words.count(steps.p50)}, ${words.count(steps.p90)} and ${words.count(steps.most)}.`),
        make("div", { class: "scale", "aria-hidden": "true" },
            marks.map(([ns, text]) => make("span", { class: "mark", style: { left: `${place(ns)}%` } }, text)),
            make("span", { class: "whole", style: { left: `${place(life.p10)}%`, width: `${place(life.most) - place(life.p10)}%` } }),
            make("span", { class: "most", style: { left: `${place(life.p10)}%`, width: `${place(life.p90) - place(life.p10)}%` } }),
            make("span", { class: "median", style: { left: `${place(life.p50)}%` } })));
}

// All that is known of a site or a group.
function behaviour(of) {
    const share = part => (of.count > 0 ? part / of.count : 0);
    return facts([
        ["Allocations", words.count(of.count)],
        ["by realloc", of.reallocated > 0 && words.percent(share(of.reallocated))],
        ["Bytes", words.bytes(of.bytes)],
        ["Sizes", of.dominant_share >= 0.999 ? `all ${words.bytes(of.dominant_size)}`
            : `${words.sizes({ ...of, dominant_share: 0 })}; ${words.percent(of.dominant_share)} have ${words.bytes(of.dominant_size)}`],
        ["Peak of live memory", `${words.bytes(of.peak_live_bytes)} in ${words.several(of.peak_live_objects, "block")}`],
        ["Never freed", of.never_freed > 0 && words.several(of.never_freed, "block")],
        ["Freed at exit", of.freed_at_exit > 0 && words.several(of.freed_at_exit, "block"), "in the last run of frees, which says nothing about lifetimes"],
        ["Threads", words.count(of.threads)],
        ["Freed by its own thread", words.percent(of.same_thread_share)],
        ["Youngest freed first", words.percent(of.last_in_first_out_share)],
        ["Frees in runs", words.percent(of.burst_share), "in runs of at least 16 without an allocation in between"],
        ["All freed", words.several(of.returns_to_zero, "time")],
        ["Blocks until all are freed", of.returns_to_zero > 0 && words.number(of.phase_objects), "blocks that accumulate until all of them are freed, on average"],
        ["Drag of an arena", `${words.number(of.drag)} on average, ${words.number(of.peak_drag)} at its peak`, "bytes that it would hold, divided by live bytes; 1.0 wastes nothing"],
        ["Made from … to", `${words.time(of.first_ns)} … ${words.time(of.last_ns)}`],
    ]);
}
