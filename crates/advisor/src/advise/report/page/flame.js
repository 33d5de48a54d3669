// Who asks for memory: callers above what they call, as wide as their share.

const ROW = 21;
// What is narrower isn't drawn; neither is what lies below it.
const NARROWEST = 0.8;

class FlameGraph {
    constructor({ depth, name, count, bytes }) {
        this.depth = depth;
        this.name = name.map(number => data.names[number]);
        this.values = { bytes, count };
        this.of = "bytes";
        // Each one's caller, and the first that it doesn't call.
        this.parent = [];
        this.end = [];
        const open = [];
        depth.forEach((deep, index) => {
            while (open.length > deep) this.end[open.pop()] = index;
            this.parent.push(open.at(-1) ?? -1);
            open.push(index);
        });
        while (open.length > 0) this.end[open.pop()] = depth.length;
        this.root = 0;
        this.current = 0;
        this.found = null;
        this.build();
    }

    build() {
        this.crumbs = make("nav", { class: "crumbs", "aria-label": "Callers of what is shown" });
        this.said = make("p", { class: "said", role: "status" });
        this.result = make("span", { class: "dim", role: "status" });
        this.picture = make("div", {
            class: "flame", tabindex: "0", role: "application", "aria-label": "Flame graph: arrows move, Enter zooms in, Escape zooms out",
            click: event => this.zoom(this.under(event)),
            pointermove: event => this.hover(this.under(event)),
            focus: () => this.select(this.current),
            blur: () => this.mark(),
            keydown: event => this.key(event),
        });
        this.element = make("figure", { class: "chart" },
            make("div", { class: "tools" },
                choice("Width", [["bytes", "by bytes"], ["count", "by allocations"]], "bytes", of => {
                    this.of = of;
                    this.drawn = null;
                    this.draw();
                    this.search(this.sought ?? []);
                }),
                wordField("Find a function", asked => this.search(asked)), this.result),
            this.crumbs, this.picture, this.said);
        if (window.ResizeObserver) new ResizeObserver(() => this.draw()).observe(this.picture);
    }

    under = event => (event.target.dataset.index === undefined ? null : Number(event.target.dataset.index));
    share = index => this.values[this.of][index] / (this.values[this.of][0] || 1);

    // What is allocated by a function itself.
    own(index, of = this.of) {
        let own = this.values[of][index];
        for (let child = index + 1; child < this.end[index]; child = this.end[child]) own -= this.values[of][child];
        return Math.max(0, own);
    }

    zoom(index) {
        if (index === null) return;
        this.root = index === this.root && index !== 0 ? this.parent[index] : index;
        this.current = this.root;
        this.drawn = null;
        this.draw();
        this.picture.scrollTop = 0;
        this.hover(this.root);
    }

    draw() {
        const width = this.picture.clientWidth;
        if (!width || this.drawn === width) return;
        this.drawn = width;
        const values = this.values[this.of], whole = values[this.root] || 1, base = this.depth[this.root];
        const from = [], cells = [];
        let rows = 0;
        this.left = new Map();
        for (let index = this.root; index < this.end[this.root];) {
            const parent = index === this.root ? null : this.parent[index];
            const left = parent === null ? 0 : from[parent], wide = (values[index] / whole) * width;
            from[index] = left;
            if (parent !== null) from[parent] += wide;
            if (wide < NARROWEST) {
                index = this.end[index];
                continue;
            }
            const row = this.depth[index] - base;
            rows = Math.max(rows, row + 1);
            this.left.set(index, left);
            cells.push(make("div", {
                class: "cell", "data-index": index,
                // In hundredths, so that paper of another width holds it too.
                style: { left: `${(100 * left) / width}%`, top: `${row * ROW}px`, width: wide > 2 ? `calc(${(100 * wide) / width}% - 1px)` : "1px", "--hue": this.hue(index) },
            }, wide > 34 ? words.short(this.name[index], 200) : ""));
            index += 1;
        }
        this.picture.replaceChildren(make("div", { class: "ground", style: { height: `${rows * ROW}px` } }, cells));
        this.picture.classList.toggle("deep", rows * ROW > 560);
        this.trail();
        this.mark();
    }

    // What belongs together has like colours.
    hue(index) {
        const name = this.name[index], family = name.split(/::|_|\.|\+/)[0];
        let hash = 7;
        for (const letter of family) hash = (hash * 31 + letter.codePointAt(0)) % 9973;
        return index === 0 ? 95 : 38 + (hash % 140);
    }

    trail() {
        const chain = [];
        for (let index = this.root; index >= 0; index = this.parent[index]) chain.unshift(index);
        const last = chain.slice(-4), links = [];
        const link = index => make("button", { type: "button", click: () => this.zoom(index) }, words.short(this.name[index], 40));
        if (chain.length > 4) links.push(link(chain[0]), make("span", {}, ` › … ${chain.length - 5 > 0 ? `${chain.length - 5} more ` : ""}› `));
        last.forEach((index, place) => {
            if (place > 0) links.push(make("span", { "aria-hidden": "true" }, " › "));
            links.push(index === this.root ? make("b", {}, words.short(this.name[index], 60)) : link(index));
        });
        this.crumbs.replaceChildren(...(this.root === 0 ? [make("span", { class: "dim" }, "Click a function to zoom in.")] : links));
    }

    mark() {
        const focused = document.activeElement === this.picture;
        for (const cell of this.picture.querySelectorAll(".cell")) {
            const index = Number(cell.dataset.index);
            cell.classList.toggle("found", this.found !== null && this.found.has(index));
            cell.classList.toggle("current", focused && index === this.current);
        }
        this.picture.classList.toggle("searching", this.found !== null);
    }

    hover(index) {
        if (index === null || this.told === `${index} ${this.of}`) return;
        this.told = `${index} ${this.of}`;
        const { bytes, count } = this.values;
        const own = this.own(index);
        this.said.replaceChildren(make("b", {}, words.short(this.name[index], 400)), make("br"),
            `${words.bytes(bytes[index])} (${words.percent(bytes[index] / (bytes[0] || 1))}) in ${words.several(count[index], "allocation")} (${
                words.percent(count[index] / (count[0] || 1))})${own > 0 ? `; ${words.percent(own / (this.values[this.of][0] || 1))} of the ${
                this.of === "bytes" ? "bytes" : "allocations"} by itself` : ""}`);
    }

    select(index) {
        this.current = index;
        this.hover(index);
        this.mark();
        const cell = this.picture.querySelector(".current");
        if (cell) cell.scrollIntoView({ block: "nearest" });
    }

    key(event) {
        const drawn = index => this.left.has(index);
        const { current } = this;
        const beside = by => {
            const row = [...this.left.keys()].filter(index => this.depth[index] === this.depth[current]);
            return row[row.indexOf(current) + by] ?? current;
        };
        const below = () => {
            for (let child = current + 1; child < this.end[current]; child = this.end[child]) if (drawn(child)) return child;
            return current;
        };
        const moves = {
            ArrowDown: below, ArrowUp: () => (current === this.root ? current : this.parent[current]),
            ArrowLeft: () => beside(-1), ArrowRight: () => beside(1),
        };
        if (moves[event.key]) this.select(moves[event.key]());
        else if (event.key === "Enter" || event.key === " ") this.zoom(current);
        else if ((event.key === "Escape" || event.key === "Backspace") && this.root !== 0) this.zoom(this.parent[this.root]);
        else return;
        event.preventDefault();
    }

    search(asked) {
        this.sought = asked;
        if (asked.length === 0) {
            this.found = null;
            this.result.textContent = "";
        } else {
            this.found = new Set();
            // What a function that was found calls isn't added once more.
            let sum = 0, covered = 0;
            this.name.forEach((name, index) => {
                const lower = name.toLowerCase();
                if (!asked.every(word => lower.includes(word))) return;
                this.found.add(index);
                if (index >= covered) {
                    sum += this.values[this.of][index];
                    covered = this.end[index];
                }
            });
            this.result.textContent = this.found.size === 0 ? "nowhere"
                : `${words.several(this.found.size, "place")}, ${words.percent(sum / (this.values[this.of][0] || 1))} of the ${
                    this.of === "bytes" ? "bytes" : "allocations"}`;
        }
        this.mark();
    }

    // Functions by what they allocate themselves, and with what they call; recursion counts once.
    functions() {
        const all = new Map(), above = new Map(), path = [];
        this.name.forEach((name, index) => {
            while (path.length > this.depth[index]) {
                const left = path.pop();
                above.set(left, above.get(left) - 1);
            }
            const entry = all.get(name) ?? { name, own: { bytes: 0, count: 0 }, all: { bytes: 0, count: 0 } };
            all.set(name, entry);
            for (const of of ["bytes", "count"]) {
                entry.own[of] += this.own(index, of);
                if (!above.get(name)) entry.all[of] += this.values[of][index];
            }
            path.push(name);
            above.set(name, (above.get(name) ?? 0) + 1);
        });
        return [...all.values()];
    }
}

function drawFlame() {
    const { depth, count } = data.flame;
    if (count[0] === 0) {
        at("flame-body").append(make("p", { class: "nothing" }, "No allocation was recorded."));
        return;
    }
    const least = data.flame.least_share;
    at("flame-lead").append("Callers lie above what they call. The width is a function's share of all bytes that were asked for, or of all allocations, with what it calls. ",
        least > 0 ? `Functions with less than ${Number((100 * least).toPrecision(1))}\u202f% of both are part of their callers.` : "");
    const graph = new FlameGraph(data.flame);
    pageParts.flame = graph;
    const list = make("details", { toggle: event => event.target.open && list.children.length === 1 && list.append(table()) },
        make("summary", {}, "The same as a table, by function"));
    const table = () => {
        const part = (side, of) => row => row[side][of] / (graph.values[of][0] || 1);
        const column = (title, hint, value) => ({ title, hint, numeric: true, width: "9rem", value, cell: row => words.percent(value(row)) });
        return new Table([
            { title: "Function", value: row => row.name, cell: row => code(row.name) },
            column("Bytes, by itself", "What it asks for itself", part("own", "bytes")),
            column("with callees", "With what it calls", part("all", "bytes")),
            column("Allocations, by itself", "What it asks for itself", part("own", "count")),
            column("with callees", "With what it calls", part("all", "count")),
        ], { rows: graph.functions(), label: "Functions", least: "48rem", sort: [1, -1] }).element;
    };
    at("flame-body").append(graph.element, depth.length > 1 ? list : "");
    graph.draw();
    graph.hover(0);
}
