// A table that sorts by every column, whose rows open, and which draws only the rows in sight if there are many.

const MANY = 30;
// Rows beyond those in sight, so that scrolling shows none that is missing.
const MARGIN = 12;

class Table {
    // columns: {title, hint, width, numeric, value(row), cell(row)}; the first one names the row, and takes the room that is left.
    // options: rows, detail(row), label, empty, sort: [column, -1 or 1], least (its width, on narrow screens)
    constructor(columns, options) {
        this.columns = columns;
        this.options = options;
        this.all = options.rows;
        this.shown = this.all;
        this.windowed = this.all.length > MANY;
        this.open = new Set();
        this.elements = new Map();
        this.extra = 0;
        [this.column, this.direction] = options.sort ?? [0, 1];
        this.head = make("tr", {}, columns.map((column, number) => this.headCell(column, number)));
        this.body = make("tbody");
        this.table = make("table", { "aria-label": options.label, style: options.least ? { "min-width": options.least } : null, "aria-rowcount": this.windowed ? this.all.length + 1 : null },
            make("colgroup", {}, columns.map(column => make("col", { style: { width: column.width ?? "auto" } }))),
            make("thead", {}, this.head), this.body);
        this.box = make("div", {
            class: this.windowed ? "scroll windowed" : "scroll", tabindex: this.windowed ? "0" : null, role: this.windowed ? "region" : null,
            "aria-label": this.windowed ? options.label : null, scroll: () => this.windowed && this.draw(),
        }, this.table);
        this.empty = make("p", { class: "nothing", hidden: true }, options.empty ?? "Nothing fits these words.");
        this.element = make("div", { class: "table" }, this.box, this.empty);
        if (window.ResizeObserver) new ResizeObserver(() => this.resized()).observe(this.box);
        addEventListener("beforeprint", () => this.print());
        addEventListener("afterprint", () => this.draw());
        this.sort();
    }

    headCell(column, number) {
        const button = make("button", { type: "button", title: column.hint ?? null, click: () => this.sortBy(number) },
            column.title, make("span", { class: "arrow", "aria-hidden": "true" }));
        return make("th", { scope: "col", class: column.numeric ? "numeric" : null }, button);
    }

    sortBy(number) {
        // Figures begin with the largest, words with A.
        const first = this.columns[number].numeric ? -1 : 1;
        this.direction = this.column === number ? -this.direction : first;
        this.column = number;
        this.sort();
        if (this.windowed) this.box.scrollTop = 0;
    }

    sort() {
        const { value } = this.columns[this.column], { direction } = this;
        const keys = new Map(this.all.map((row, place) => [row, [value(row), place]]));
        this.all = [...this.all].sort((one, other) => {
            const [a, placeA] = keys.get(one), [b, placeB] = keys.get(other);
            // What isn't known comes last, whatever the direction.
            if (a === null || b === null) return a === b ? placeA - placeB : a === null ? 1 : -1;
            const order = typeof a === "string" ? collator.compare(a, b) : a - b;
            return order === 0 ? placeA - placeB : direction * order;
        });
        [...this.head.children].forEach((cell, number) => {
            if (number === this.column) cell.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
            else cell.removeAttribute("aria-sort");
        });
        this.choose();
    }

    // Shows the rows that pass.
    filter(passes) {
        this.passes = passes;
        if (this.windowed) this.box.scrollTop = 0;
        this.choose();
        return this.shown.length;
    }

    choose() {
        this.shown = this.passes ? this.all.filter(this.passes) : this.all;
        this.empty.hidden = this.shown.length > 0;
        this.box.hidden = this.shown.length === 0;
        this.draw();
    }

    resized() {
        this.box.style.setProperty("--view", `${this.box.clientWidth}px`);
        if (this.windowed) this.draw();
    }

    // Opens a row and goes there.
    show(row) {
        const place = this.shown.indexOf(row);
        if (place < 0) return false;
        if (this.windowed) this.open.clear();
        this.open.add(row);
        this.elements.delete(row);
        this.reach(place);
        const [line] = this.lines(row, place);
        if (!this.windowed) line.scrollIntoView({ block: "start" });
        else this.box.scrollIntoView({ block: "start" });
        line.querySelector("button")?.focus({ preventScroll: true });
        return true;
    }

    toggle(row) {
        const was = this.open.has(row), place = this.shown.indexOf(row);
        if (this.windowed) {
            // Only one is open at a time, or nobody would know how far to scroll.
            for (const other of this.open) this.elements.delete(other);
            this.open.clear();
        }
        if (was) this.open.delete(row);
        else this.open.add(row);
        this.elements.delete(row);
        this.draw();
        this.lines(row, place)[0].querySelector("button").focus({ preventScroll: true });
    }

    // The line of a row, and what it opened.
    lines(row, place) {
        let made = this.elements.get(row);
        if (!made) {
            const open = this.open.has(row);
            const cells = this.columns.map((column, number) => {
                const content = column.cell(row);
                if (number > 0) return make("td", { class: column.numeric ? "numeric" : null }, content);
                const button = this.options.detail && make("button", {
                    type: "button", class: "opener", "aria-expanded": String(open), click: () => this.toggle(row),
                    keydown: event => this.step(event, row),
                }, make("span", { class: "twist", "aria-hidden": "true" }), content);
                return make("th", { scope: "row" }, button ?? content);
            });
            made = [make("tr", { class: open ? "line open" : "line" }, cells)];
            if (open) {
                made.push(make("tr", { class: "detail" },
                    make("td", { colspan: this.columns.length }, make("div", {}, this.options.detail(row)))));
            }
            this.elements.set(row, made);
        }
        if (this.windowed) made[0].setAttribute("aria-rowindex", place + 2);
        return made;
    }

    // Up and down from row to row.
    step(event, row) {
        const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const next = this.shown.indexOf(row) + by;
        if (!by || next < 0 || next >= this.shown.length) return;
        event.preventDefault();
        this.reach(next);
        this.lines(this.shown[next], next)[0].querySelector("button").focus();
    }

    // Where row n begins.
    top = place => place * this.height + (this.opened >= 0 && place > this.opened ? this.extra : 0);

    reach(place) {
        if (this.windowed) {
            this.draw();
            const top = this.top(place), head = this.head.offsetHeight, view = this.box.clientHeight - head;
            if (top < this.box.scrollTop || top + this.height > this.box.scrollTop + view) {
                this.box.scrollTop = Math.max(0, top - view / 3);
            }
        }
        this.draw();
    }

    draw() {
        if (!this.windowed) {
            this.place(this.shown.flatMap((row, place) => this.lines(row, place)));
            return;
        }
        this.opened = this.open.size > 0 ? this.shown.findIndex(row => this.open.has(row)) : -1;
        this.measure();
        const { scrollTop, clientHeight } = this.box;
        const rowAt = y => {
            const before = (this.opened + 1) * this.height;
            if (this.opened < 0 || y < before) return Math.floor(y / this.height);
            return Math.max(this.opened, Math.floor((y - this.extra) / this.height));
        };
        const from = Math.max(0, rowAt(scrollTop) - MARGIN);
        const to = Math.min(this.shown.length, rowAt(scrollTop + clientHeight) + MARGIN);
        const gap = height => make("tr", { class: "gap", "aria-hidden": "true" },
            make("td", { colspan: this.columns.length, style: { height: `${height}px` } }));
        const rows = this.shown.slice(from, to).flatMap((row, number) => this.lines(row, from + number));
        this.place([gap(this.top(from)), ...rows, gap(this.top(this.shown.length) - this.top(to))]);
        const kept = new Set(this.shown.slice(from, to));
        for (const row of this.elements.keys()) if (!kept.has(row)) this.elements.delete(row);
        // What an open row shows is as high as it comes out.
        const detail = this.body.querySelector(".detail");
        if (detail && Math.abs(detail.offsetHeight - this.extra) > 1 && detail.offsetHeight > 0) {
            this.extra = detail.offsetHeight;
            this.draw();
        }
    }

    measure() {
        const line = this.body.querySelector(".line");
        if (line && line.offsetHeight > 0) this.height = line.getBoundingClientRect().height;
        this.height ??= 40;
    }

    place(rows) {
        const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
        this.body.replaceChildren(...rows);
        if (focused?.isConnected) focused.focus({ preventScroll: true });
    }

    // On paper nothing scrolls: the first rows, and how many more there are.
    print() {
        if (!this.windowed) return;
        const rows = this.shown.slice(0, 100).flatMap((row, place) => this.lines(row, place));
        const more = this.shown.length - 100;
        if (more > 0) rows.push(make("tr", {}, make("td", { colspan: this.columns.length }, `and ${words.count(more)} more`)));
        this.body.replaceChildren(...rows);
    }
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

// A field to type words in; `change` gets them, in lower case.
function wordField(label, change) {
    let waiting;
    const input = make("input", {
        type: "search", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false",
        input: () => {
            clearTimeout(waiting);
            waiting = setTimeout(() => change(input.value.toLowerCase().split(/\s+/).filter(Boolean)), 60);
        },
    });
    return input;
}

function select(label, options, change) {
    const element = make("select", { "aria-label": label, change: () => change(element.value) },
        options.map(([value, text]) => make("option", { value }, text)));
    return element;
}

// For each word whether a name of the program has it, so that long names are searched once, not for every site.
function framesWith(word) {
    const names = data.names.map(name => name.toLowerCase().includes(word));
    return data.frames.map(([name, file, , module]) => names[name] || (file !== null && names[file]) || names[module]);
}
