// Live memory over time.

// Round steps for an axis from 0 to `most`: of ten, or for bytes of two.
function steps(most, wanted, binary) {
    if (!(most > 0)) return [0];
    const base = binary ? 1024 ** Math.floor(Math.log(most / wanted) / Math.log(1024)) : 1;
    const rough = most / wanted / (binary ? base : 1);
    let step;
    if (binary) step = base * Math.max(2 ** Math.ceil(Math.log2(rough)), base === 1 ? 1 : 0.5);
    else {
        const ten = 10 ** Math.floor(Math.log10(rough));
        step = ten * [1, 2, 5, 10].find(times => times * ten >= rough);
    }
    const list = [];
    for (let value = 0; value <= most * 1.0001; value += step) list.push(value);
    return list;
}

function axisBytes(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (bytes >= 1024 && unit + 1 < units.length) {
        bytes /= 1024;
        unit += 1;
    }
    return `${Number(bytes.toFixed(1))}\u202f${units[unit]}`;
}

// The same unit along the whole axis.
function axisTime(ns, most) {
    const [size, unit] = most < 2e3 ? [1, "ns"] : most < 2e6 ? [1e3, "µs"] : most < 2e9 ? [1e6, "ms"] : most < 300e9 ? [1e9, "s"] : [60e9, "min"];
    return `${Number((ns / size).toPrecision(4))}\u202f${unit}`;
}

function axisCount(count) {
    const [size, unit] = count >= 1e9 ? [1e9, " bn"] : count >= 1e6 ? [1e6, " m"] : count >= 1e4 ? [1e3, " k"] : [1, ""];
    return `${Number((count / size).toPrecision(3))}${unit}`;
}

class Timeline {
    constructor(points) {
        this.points = points;
        this.of = "bytes";
        this.picture = make("div", { class: "picture" });
        this.element = make("figure", { class: "chart" },
            choice("What is shown", [["bytes", "Bytes"], ["objects", "Blocks"]], "bytes", of => {
                this.of = of;
                this.draw();
            }),
            this.picture);
        if (window.ResizeObserver) new ResizeObserver(() => this.draw()).observe(this.picture);
    }

    value = point => (this.of === "bytes" ? point[1] : point[2]);
    most = point => (this.of === "bytes" ? Math.max(point[1], point[3]) : point[2]);

    draw() {
        const width = this.picture.clientWidth || 900, height = width < 560 ? 220 : 280;
        if (this.drawn === `${width} ${this.of}`) return;
        this.drawn = `${width} ${this.of}`;
        const { points } = this, [left, right, top, bottom] = [68, 14, 14, 28];
        // A recording's events end before the process does; what was live then stayed.
        const end = Math.max(program.wall_ns, points.at(-1)[0], 1), most = Math.max(...points.map(this.most), 1);
        const x = ns => left + (ns / end) * (width - left - right);
        const y = value => height - bottom - (value / most) * (height - top - bottom);
        const outline = value => points.map(point => `${x(point[0]).toFixed(1)},${y(value(point)).toFixed(1)}`).join("L");
        const base = y(0);
        const area = value => `M${x(points[0][0])},${base}L${outline(value)}L${x(points.at(-1)[0])},${base}Z`;
        const peak = points.reduce((best, point) => (this.most(point) > this.most(best) ? point : best));
        const unit = this.of === "bytes" ? axisBytes : axisCount;
        this.cursor = make("g", { class: "cursor", visibility: "hidden" },
            make("line", { y1: top, y2: base }), make("circle", { r: 4 }));
        const peakAt = x(peak[0]), after = peakAt < width * 0.7;
        const svg = make("svg", {
            viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: "0", "aria-label": this.words(peak),
            pointermove: event => this.point(this.nearest(event.offsetX, left, right, width, end), x, y, event.clientX, event.clientY),
            pointerleave: () => this.leave(),
            blur: () => this.leave(),
            keydown: event => this.key(event, x, y, svg),
        },
        steps(most, 4, this.of === "bytes").map(value => make("g", { class: "grid" },
            make("line", { x1: left, x2: width - right, y1: y(value), y2: y(value) }),
            make("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, unit(value)))),
        steps(end, width < 560 ? 3 : 7, false).map(ns => make("g", { class: "grid" },
            make("text", { x: x(ns), y: height - 8, "text-anchor": x(ns) > width - 40 ? "end" : "middle" }, axisTime(ns, end)))),
        make("path", { class: "envelope", d: area(this.most) }),
        make("path", { class: "area", d: area(this.value) }),
        make("path", { class: "outline", d: `M${outline(this.value)}` }),
        make("circle", { class: "peak", cx: peakAt, cy: y(this.most(peak)), r: 3.5 }),
        make("text", { class: "peak-word", x: peakAt + (after ? 9 : -9), y: Math.max(12, y(this.most(peak)) + 4), "text-anchor": after ? "start" : "end" },
            `${this.of === "bytes" ? words.bytes(this.most(peak)) : words.several(this.most(peak), "block")} at ${words.time(peak[0])}`),
        this.cursor);
        this.picture.replaceChildren(svg);
    }

    words(peak) {
        const last = this.points.at(-1);
        const what = value => (this.of === "bytes" ? words.bytes(value) : words.several(value, "block"));
        return `Live ${this.of === "bytes" ? "bytes" : "blocks"} over ${words.time(program.wall_ns)}: at most ${what(this.most(peak))} after ${
            words.time(peak[0])}, ${what(this.value(last))} at the end. The arrow keys go along it.`;
    }

    nearest(pixel, left, right, width, end) {
        const ns = ((pixel - left) / (width - left - right)) * end;
        let [from, to] = [0, this.points.length - 1];
        while (from < to) {
            const middle = (from + to) >> 1;
            if (this.points[middle][0] < ns) from = middle + 1;
            else to = middle;
        }
        return from > 0 && ns - this.points[from - 1][0] < this.points[from][0] - ns ? from - 1 : from;
    }

    point(index, x, y, tipX, tipY) {
        this.at = index;
        const point = this.points[index], [line, circle] = this.cursor.children;
        this.cursor.setAttribute("visibility", "visible");
        line.setAttribute("x1", x(point[0]));
        line.setAttribute("x2", x(point[0]));
        circle.setAttribute("cx", x(point[0]));
        circle.setAttribute("cy", y(this.value(point)));
        tip.show(tipX, tipY, make("b", {}, `after ${words.time(point[0])}`), make("br"),
            `${words.bytes(point[1])} live in ${words.several(point[2], "block")}`,
            point[3] > point[1] && make("br"), point[3] > point[1] ? `at most ${words.bytes(point[3])} since the point before` : "");
    }

    leave() {
        this.cursor.setAttribute("visibility", "hidden");
        tip.hide();
    }

    key(event, x, y, svg) {
        const last = this.points.length - 1, stride = Math.max(1, Math.round(last / 100)), now = this.at ?? 0;
        const to = { ArrowRight: now + stride, ArrowLeft: now - stride, Home: 0, End: last }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const index = Math.min(last, Math.max(0, to)), box = svg.getBoundingClientRect();
        this.point(index, x, y, box.left + x(this.points[index][0]), box.top + 40);
    }
}

function drawTimeline() {
    const points = data.timeline;
    if (points.length === 0) {
        at("time-body").append(make("p", { class: "nothing" }, "Nothing was ever live: no allocation was recorded."));
        return;
    }
    const atEnd = program.live_at_end;
    at("time-lead").append(`At most ${words.bytes(program.peak_live_bytes)} were live at once, in ${words.several(program.peak_live_objects, "block")} at most. ${
        atEnd === 0 ? "Everything was freed by the end." : `${words.several(atEnd, "block was", "blocks were")} never freed.`}${
        program.freed_at_exit > 0 ? ` ${words.several(program.freed_at_exit, "block was", "blocks were")} freed in the last run of frees before the end.` : ""}`);
    const timeline = new Timeline(points);
    const every = Math.max(1, Math.ceil(points.length / 24));
    at("time-body").append(timeline.element, make("details", {}, make("summary", {}, "The same as a table"),
        make("div", { class: "scroll" }, make("table", { class: "plain" },
            make("thead", {}, make("tr", {}, ["After", "Live bytes", "Most since the row before", "Live blocks"].map(head => make("th", { scope: "col", class: "numeric" }, head)))),
            make("tbody", {}, points.filter((_, index) => index % every === 0 || index === points.length - 1).map((point, row, rows) => {
                const before = row > 0 ? points.indexOf(rows[row - 1]) + 1 : 0;
                const most = Math.max(...points.slice(before, points.indexOf(point) + 1).map(each => Math.max(each[1], each[3])));
                return make("tr", {}, [words.time(point[0]), words.bytes(point[1]), words.bytes(most), words.count(point[2])]
                    .map(text => make("td", { class: "numeric" }, text)));
            }))))));
    timeline.draw();
}
