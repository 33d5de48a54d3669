// Formats figures as the command line does.

const grouped = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

const words = {
    count: number => (number === null || number === undefined ? "–" : grouped.format(number)),

    // 1 block, 2 blocks.
    several: (number, one, many) => `${words.count(number)} ${number === 1 ? one : (many ?? `${one}s`)}`,

    percent(share) {
        if (share === null || share === undefined) return "–";
        const percent = share * 100;
        if (percent > 0 && percent < 0.1) return "<\u202f0.1\u202f%";
        if (percent < 9.95 && percent % 1 !== 0) return `${percent.toFixed(1)}\u202f%`;
        return `${grouped.format(percent)}\u202f%`;
    },

    number(number) {
        if (number === null || number === undefined) return "–";
        return number < 9.95 ? number.toFixed(1) : words.count(Math.round(number));
    },

    // 0.94, 1.3, 12
    ratio(number) {
        if (number === null || number === undefined) return "–";
        return number < 10 ? number.toFixed(2) : words.count(Math.round(number));
    },

    bytes(bytes) {
        if (bytes === null || bytes === undefined) return "–";
        if (bytes < 10000) return `${grouped.format(bytes)}\u202fB`;
        const units = ["KiB", "MiB", "GiB", "TiB"];
        let value = bytes / 1024, unit = 0;
        while (value >= 1000 && unit + 1 < units.length) {
            value /= 1024;
            unit += 1;
        }
        return `${value < 99.95 ? value.toFixed(1) : grouped.format(value)}\u202f${units[unit]}`;
    },

    time(ns) {
        if (ns === null || ns === undefined) return "–";
        if (ns < 1e3) return `${grouped.format(ns)}\u202fns`;
        const scaled = (value, unit) => `${value < 9.95 ? value.toFixed(1) : grouped.format(value)}\u202f${unit}`;
        if (ns < 999.5e3) return scaled(ns / 1e3, "µs");
        if (ns < 999.5e6) return scaled(ns / 1e6, "ms");
        if (ns < 60e9) return `${(ns / 1e9).toFixed(ns < 9.95e9 ? 2 : 1)}\u202fs`;
        if (ns < 3600e9) return `${Math.floor(ns / 60e9)}\u202fmin ${Math.round(ns / 1e9) % 60}\u202fs`;
        return `${Math.floor(ns / 3600e9)}\u202fh ${Math.round(ns / 60e9) % 60}\u202fmin`;
    },

    sizes(behaviour) {
        if (behaviour.dominant_share >= 0.9) return words.bytes(behaviour.dominant_size);
        return `${words.bytes(behaviour.least_size)} … ${words.bytes(behaviour.most_size)}`;
    },

    // Names come from the program. Characters that are invisible or change the text's direction are shown as numbers.
    name: name => name.replace(
        /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
        sign => `\u27e8U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`,
    ),

    // A name that is too long keeps its beginning and its end.
    short(name, most) {
        const shown = words.name(name.length > 4 * most ? `${name.slice(0, 2 * most)}…${name.slice(-most)}` : name);
        if (shown.length <= most) return shown;
        const end = Math.floor(most / 3);
        return `${shown.slice(0, most - end - 1)}…${shown.slice(-end)}`;
    },
};

const allocators = {
    arena: "arena", reap: "reap", free_list: "free list", pool: "pool", slab: "slab", sealed: "sealed", none: "none of ours",
};
const categories = {
    transient: "transient", shared: "shared", read_only_shared: "read-only shared", leave_it: "leave it",
    better_malloc: "a better malloc",
};

// The advice in a few words.
function advice(verdict) {
    if (verdict.category === "leave_it") return "leave it";
    if (verdict.category === "better_malloc") return "a better malloc";
    const word = verdict.allocator === "arena" && verdict.without_reset ? "arena, no reset" : allocators[verdict.allocator];
    return verdict.candidate ? `${word}?` : word;
}

// The class of its colour.
function colour(verdict) {
    if (verdict.category === "leave_it" || verdict.category === "better_malloc") return verdict.category;
    return verdict.allocator;
}

const standings = {
    confirmed: "confirmed", candidate: "needs proof", malloc: "malloc as good", withdrawn: "not confirmed", untested: "not replayed",
    leave: "",
};

// How a verdict stands after the replay.
function standing(verdict) {
    if (verdict.replayed && !verdict.replayed.confirmed) return "withdrawn";
    if (verdict.category === "leave_it") return "leave";
    if (!verdict.replayed) return "untested";
    if (verdict.category === "better_malloc") return "malloc";
    return verdict.candidate ? "candidate" : "confirmed";
}

// Whether its gain counts: the replay has not refuted it.
const holds = verdict => standing(verdict) !== "withdrawn";
