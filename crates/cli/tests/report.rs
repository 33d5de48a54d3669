//! The report: what is in the page, and what it does in a browser, with findings made up to break
//! it.

#[path = "report/browser.rs"]
mod browser;
#[path = "report/findings.rs"]
mod findings;

use findings::{SITES, bytes_of, count_of, deep, empty, hostile, large};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

fn allot(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_allot")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The page of findings.
fn page(name: &str, findings: &str) -> PathBuf {
    let (json, page) =
        (folder().join(format!("{name}.json")), folder().join(format!("{name}.html")));
    std::fs::write(&json, findings).unwrap();
    let output = allot(&["report", text(&json), text(&page)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    page
}

/// The page of the large findings.
fn large_page() -> &'static Path {
    static PAGE: OnceLock<PathBuf> = OnceLock::new();
    PAGE.get_or_init(|| page("large", &large().to_string()))
}

/// The data that a page carries.
fn carried(html: &str) -> Value {
    let from = html.find("id=\"findings\">").unwrap() + "id=\"findings\">".len();
    let length = html[from..].find("</script>").unwrap();
    serde_json::from_str(&html[from..from + length]).unwrap()
}

fn error(arguments: &[&str]) -> String {
    let output = allot(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn a_page_loads_nothing_from_anywhere() {
    let html = std::fs::read_to_string(page("nothing-loaded", &empty().to_string())).unwrap();
    for loader in
        ["src=", "url(", "@import", "fetch(", "XMLHttpRequest", "href=\"http", "<link", "import("]
    {
        assert!(!html.contains(loader), "{loader}");
    }
    // The one address is the name of a vocabulary.
    let addresses: Vec<_> = html.match_indices("http").map(|(at, _)| &html[at..at + 26]).collect();
    assert_eq!(
        addresses,
        ["http-equiv=\"Content-Securit", "http://www.w3.org/2000/svg"].map(|text| &text[..26])
    );
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn names_do_not_end_the_script_that_they_are_in() {
    let html = std::fs::read_to_string(large_page()).unwrap();
    assert_eq!(html.matches("</script").count(), 2);
    assert_eq!(html.matches("<script").count(), 2);
    let data = carried(&html);
    let names: Vec<&str> =
        data["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in hostile() {
        assert!(names.contains(&&*name), "{name}");
    }
    assert_eq!(data["program"]["command"][1], hostile()[0]);
    // The title is HTML.
    let title = html.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    assert!(title.contains("&lt;/script&gt;") && !title.contains('<'), "{title}");
}

#[test]
fn ten_thousand_sites_with_long_names_make_a_small_page() {
    let html = std::fs::read_to_string(large_page()).unwrap();
    let json = std::fs::metadata(large_page().with_extension("json")).unwrap().len();
    // Two thousand stacks have a name of 5,000 characters; it is there once, beside where it is a
    // title.
    assert!(json > 18 << 20, "{json}");
    assert!(html.len() < 6 << 20, "{}", html.len());
    let data = carried(&html);
    assert_eq!(data["sites"]["rows"].as_array().unwrap().len() as u64, SITES);
}

#[test]
fn a_flame_graph_may_be_as_deep_as_a_stack() {
    let html = std::fs::read_to_string(page("deep", &deep(1500))).unwrap();
    let data = carried(&html);
    assert_eq!(data["flame"]["depth"].as_array().unwrap().last().unwrap(), 1500);
}

#[test]
fn what_cannot_be_read_or_written_is_told_in_one_line() {
    let page = folder().join("never.html");
    let missing = error(&["report", "no-such-file.json", text(&page)]);
    assert!(missing.contains("can't read 'no-such-file.json'"), "{missing}");

    let bad = folder().join("bad.json");
    for (json, why) in [
        ("{}", "no findings of `allot analyse --json`"),
        ("not JSON", "no findings"),
        (r#"{"version": 1} and more"#, "no findings"),
        (&"[".repeat(100_000), "100000 deep"),
        (&empty().to_string().replacen("\"version\":1", "\"version\":99", 1), "version 99"),
    ] {
        std::fs::write(&bad, json).unwrap();
        let error = error(&["report", text(&bad), text(&page)]);
        assert!(error.contains("can't read") && error.contains(why), "{error}");
    }
    assert!(!page.exists());

    std::fs::write(&bad, empty().to_string()).unwrap();
    let nowhere = folder().join("no/such/folder/page.html");
    let error = error(&["report", text(&bad), text(&nowhere)]);
    assert!(error.contains("can't write") && error.contains("page.html"), "{error}");
}

#[test]
fn what_analyse_prints_is_read_from_standard_input() {
    let (recording, page) = (folder().join("real.allot"), folder().join("real.html"));
    let recorded = allot(&["record", "-o", text(&recording), "--", "ls", "/"]);
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let analysed = allot(&["analyse", "--json", text(&recording)]);
    assert!(analysed.status.success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_allot"))
        .args(["report", "-", text(&page)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&analysed.stdout).unwrap();
    assert!(child.wait().unwrap().success());
    let told: Value = serde_json::from_slice(&analysed.stdout).unwrap();
    let data = carried(&std::fs::read_to_string(&page).unwrap());
    assert_eq!(data["program"]["allocations"], told["program"]["allocations"]);
    assert_eq!(
        data["sites"]["rows"].as_array().unwrap().len(),
        told["sites"].as_array().unwrap().len()
    );
    assert!(!told["sites"].as_array().unwrap().is_empty());

    let Some(browser) = browser::installed() else { return };
    let told = browser::led(
        &browser,
        &page,
        "told.cells = all('.cell').length; told.rows = all('#sites .line').length;",
    );
    assert!(told["cells"].as_u64() > Some(0) && told["rows"].as_u64() > Some(0), "{told}");
}

#[test]
fn a_program_that_did_nothing_has_a_page_too() {
    let page = page("empty", &empty().to_string());
    let Some(browser) = browser::installed() else { return };
    let told = browser::led(
        &browser,
        &page,
        r##"told.headline = text(".headline");
        told.nothing = all(".nothing").filter(each => each.offsetHeight > 0).map(each => each.textContent);
        told.tables = all("table").length;"##,
    );
    assert_eq!(told["headline"], "No allocation of this program could be seen.");
    let nothing = told["nothing"].to_string();
    for words in [
        "Nothing was ever live",
        "No allocation was recorded.",
        "no group",
        "No place",
        "Nothing was replayed",
        "No thread waited for a lock",
    ] {
        assert!(nothing.contains(words), "{words}: {nothing}");
    }
    assert_eq!(told["tables"], 0, "{told}");
}

/// The site that is the greatest by a figure.
fn greatest(of: fn(u64) -> u64) -> String {
    title((0..SITES).max_by_key(|&i| of(i)).unwrap())
}

fn title(i: u64) -> String {
    hostile().get(i as usize).cloned().unwrap_or_else(|| format!("site_{i}"))
}

#[test]
fn a_table_of_ten_thousand_sites_sorts_filters_scrolls_and_opens() {
    let Some(browser) = browser::installed() else { return };
    let told = browser::led(
        &browser,
        large_page(),
        r##"
        const titles = () => all("#sites .line .opener").map(each => each.textContent);
        const box = one("#sites .scroll"), head = name => all("#sites thead button").findIndex(each => each.textContent.startsWith(name));
        const scrolled = async to => {
            box.scrollTop = to;
            await settle();
        };
        told.rows = one("#sites table").getAttribute("aria-rowcount");
        told.first = titles()[0];
        told.drawn = [titles().length];
        await click("#sites thead button", head("Bytes"));
        told.byBytes = titles()[0];
        told.sorted = all("#sites th[aria-sort]").map(each => `${each.textContent} ${each.getAttribute("aria-sort")}`);
        await click("#sites thead button", head("Bytes"));
        told.byFewestBytes = titles()[0];
        await click("#sites thead button", head("Where"));
        await type("#sites input", "site_");
        told.byName = titles().slice(0, 2);
        await scrolled(box.scrollHeight);
        told.last = titles().at(-1);
        told.drawn.push(titles().length);
        // The last row lies at the lower edge, not beyond it.
        const lower = all("#sites .line").at(-1).getBoundingClientRect().bottom - box.getBoundingClientRect().bottom;
        told.atEdge = Math.abs(lower) < 3;
        await scrolled(box.scrollHeight / 2);
        told.drawn.push(titles().length);
        const middle = all("#sites .line").find(each => each.getBoundingClientRect().top > box.getBoundingClientRect().top + 60);
        told.middle = Number(middle.getAttribute("aria-rowindex"));
        await type("#sites input", "site_7777");
        told.found = [titles(), text("#sites [role=status]")];
        await type("#sites input", "file_77.cpp MAIN");
        told.byFile = text("#sites [role=status]");
        await type("#sites input", "no such thing");
        told.none = [titles().length, one("#sites .table .nothing").hidden, text("#sites [role=status]")];
        await type("#sites input", "");
        await type("#sites select", "pool");
        told.pools = text("#sites [role=status]");
        await type("#sites select", "");
        await type("#sites input", "img onerror");
        await click("#sites .opener");
        told.frames = all("#sites .detail .stack .name").map(each => each.textContent);
        told.opened = one("#sites .opener").getAttribute("aria-expanded");
        told.longest = all("#sites .detail .stack details summary").length;
        told.images = all("img").length;
        await press("#sites .opener", "ArrowDown");
        await type("#sites input", "");
        await scrolled(0);
        await click("#sites .opener", 2);
        await press("#sites .opener[aria-expanded=true]", "ArrowDown");
        const [focused, open] = [document.activeElement.closest("tr"), one("#sites .detail")];
        told.below = focused === open.nextElementSibling;
        dispatchEvent(new Event("beforeprint"));
        told.printed = [titles().length, all("#sites tbody tr").at(-1).textContent];
        "##,
    );
    let is = |key: &str, value: Value| assert_eq!(told[key], value, "{key}: {told:#}");
    is("rows", (SITES + 1).to_string().into());
    is("first", greatest(count_of).into());
    is("byBytes", shown(&greatest(bytes_of)).into());
    is("sorted", serde_json::json!(["Bytes descending"]));
    is("byFewestBytes", title(SITES - 1).into());
    is("byName", serde_json::json!(["site_10", "site_11"]));
    is("last", title(SITES - 1).into());
    is("atEdge", true.into());
    for drawn in told["drawn"].as_array().unwrap() {
        assert!((10..120).contains(&drawn.as_u64().unwrap()), "{told:#}");
    }
    assert!((4800..5200).contains(&told["middle"].as_u64().unwrap()), "{told:#}");
    is("found", serde_json::json!([["site_7777"], "1 of 10,000 sites"]));
    is("byFile", "100 of 10,000 sites".into());
    is("none", serde_json::json!([0, false, "0 of 10,000 sites"]));
    is("pools", "2,500 of 10,000 sites".into());
    is("opened", "true".into());
    // Names are text, whatever is in them; the long one folds.
    assert_eq!(told["frames"][1], hostile()[1], "{told:#}");
    is("longest", 1.into());
    is("images", 0.into());
    is("below", true.into());
    is("printed", serde_json::json!([100, "and 9,900 more"]));
}

/// A name as it is shown: signs that turn text around or can't be seen are told by number.
fn shown(name: &str) -> String {
    let number = |sign: char| format!("\u{27e8}U+{:04X}\u{27e9}", u32::from(sign));
    let odd = |sign: char| {
        sign.is_control()
            || ('\u{2028}'..='\u{202e}').contains(&sign)
            || ('\u{2060}'..='\u{206f}').contains(&sign)
    };
    name.chars().map(|sign| if odd(sign) { number(sign) } else { sign.to_string() }).collect()
}

#[test]
fn verdicts_sort_filter_and_open_to_the_lines_to_change() {
    let Some(browser) = browser::installed() else { return };
    let told = browser::led(
        &browser,
        large_page(),
        r##"
        const titles = () => all("#verdicts .line .opener").map(each => each.textContent);
        const status = () => text("#verdicts .tools [role=status]");
        told.headline = text(".headline");
        told.cards = all("#summary .card h3").map(each => each.textContent);
        told.first = titles()[0];
        await click("#verdicts thead button", 2);
        told.least = titles()[0];
        await type("#verdicts select[aria-label=Replay]", "withdrawn");
        told.withdrawn = status();
        told.badges = [...new Set(all("#verdicts .line .badge").map(each => each.textContent))];
        await type("#verdicts select[aria-label=Replay]", "confirmed");
        await type("#verdicts input", "site_777 main");
        told.found = titles();
        await type("#verdicts input", "");
        await click("#verdicts .opener");
        told.rust = text("#verdicts .copyable code");
        await click("#verdicts .change [data-value=c]");
        told.c = text("#verdicts .copyable code");
        told.detail = text("#verdicts .detail");
        await click("#verdicts .site-list a");
        told.site = [one("#sites .opener[aria-expanded=true]").textContent, text("#sites .detail .two a")];
        await click("#verdicts .detail p button");
        told.ofGroup = text("#sites .tools [role=status]");
        // A link from the summary opens a row, though a filter hides it.
        await type("#verdicts input", "nothing at all");
        told.hidden = titles().length;
        await click("#summary .card h3 a");
        told.linked = all("#verdicts .opener[aria-expanded=true]").map(each => each.textContent);
        const words = name => all(`#${name} .line > :first-child`).map(each => each.textContent.trim());
        told.replay = words("replay");
        told.failed = text("#replay ul");
        await click("#replay thead button", 1);
        told.slowest = words("replay")[0];
        told.calls = words("kernel");
        told.saved = text("#kernel .card");
        await click("#locks .opener");
        told.lock = text("#locks .detail");
        told.notes = all("#notes li").map(each => each.textContent);
        "##,
    );
    let is = |key: &str, value: Value| assert_eq!(told[key], value, "{key}: {told:#}");
    is("headline", "Make 10 changes (replay-confirmed).".into());
    is("first", shown(&hostile()[0]).into());
    is("least", "group 39".into());
    is("withdrawn", "10 of 40 verdicts".into());
    is("badges", serde_json::json!(["✕ not confirmed"]));
    // Those of the sites 777 and 7770 to 7779, the least gain first.
    is("found", serde_json::json!(["group 16", "group 12"]));
    is("rust", "let arena_36 = \"</script>\";".into());
    is("c", "allot_arena *arena_36;".into());
    let detail = told["detail"].as_str().unwrap();
    for words in [
        "Reason 36",
        "Confirmed: 0.50 × glibc's time",
        "Not an arena: it would hold <b>too</b> much",
        "250 sites",
    ] {
        assert!(detail.contains(words), "{words}: {detail}");
    }
    is("site", serde_json::json!(["site_36", "group 36"]));
    is("ofGroup", "250 of 10,000 sites".into());
    is("hidden", 0.into());
    is("linked", serde_json::json!([shown(&hostile()[0])]));
    assert_eq!(told["cards"][0], shown(&hostile()[0]));
    // The fastest first.
    assert_eq!(told["replay"].as_array().unwrap().len(), 5, "{told:#}");
    assert_eq!(told["replay"][1], "all confirmed changes togetherfastest");
    is("slowest", "glibc".into());
    assert!(
        told["failed"].as_str().unwrap().contains(&format!("snmalloc: {}", hostile()[0])),
        "{told:#}"
    );
    is("calls", serde_json::json!(["read", "mmap"]));
    assert!(told["saved"].as_str().unwrap().contains("Buffer the reads"), "{told:#}");
    let lock = told["lock"].as_str().unwrap();
    assert!(lock.contains("Shard it </script>") && lock.contains(&hostile()[1]), "{lock}");
    assert_eq!(told["notes"][0], format!("In doubt: {}.", hostile()[0]));
}

/// The large findings with mallocs that were measured: `quick` takes 0.8 of the CPU time.
fn measured_findings() -> String {
    let ratio = |median: f64, low: f64, high: f64| serde_json::json!({ "median": median, "low": low, "high": high });
    let row = |name: &str, cpu_ns: u64, cpu: Value| {
        serde_json::json!({
            "name": name, "library": format!("/lib/lib{name}.so"), "cpu_ns": cpu_ns, "wall_ns": cpu_ns, "peak_bytes": 1 << 20,
            "cpu": cpu, "wall": ratio(0.9, 0.8, 1.1), "peak": ratio(1.5, 1.4, 1.6), "failure": null,
        })
    };
    let mut findings = large();
    let failed = serde_json::json!({
        "name": "</script>", "library": "/lib/x.so", "cpu_ns": null, "wall_ns": null, "peak_bytes": null,
        "cpu": null, "wall": null, "peak": null, "failure": "the program ended with exit code 3 instead of 0",
    });
    findings["measured"] = serde_json::json!({
        "runs": 11, "notes": ["A note <b>on</b> it."], "rows": [
            row("as it is", 1_000_000_000, Value::Null), row("quick", 800_000_000, ratio(0.8, 0.78, 0.82)),
            row("level", 999_000_000, ratio(0.999, 0.98, 1.01)), failed,
        ],
    });
    findings.to_string()
}

#[test]
fn mallocs_that_were_measured_have_a_table_and_decide_the_headline() {
    let Some(browser) = browser::installed() else { return };
    let told = browser::led(
        &browser,
        &page("measured", &measured_findings()),
        r##"
        told.headline = text(".headline");
        told.cards = all("#summary .card h3").map(each => each.textContent);
        told.rows = all("#measured .line").map(line => [...line.children].map(cell => cell.textContent.trim()));
        told.use = text("#measured .copyable code");
        told.failed = text("#measured ul");
        told.body = text("#measured-body");
        "##,
    );
    let headline = told["headline"].as_str().unwrap();
    assert!(
        headline.starts_with("Change the malloc, not the program: quick saves 20"),
        "{headline}"
    );
    assert!(headline.contains("(18\u{202f}% to 22\u{202f}%)"), "{headline}");
    assert!(told["cards"].as_array().unwrap().contains(&"quick".into()), "{told:#}");
    assert_eq!(told["rows"].as_array().unwrap().len(), 3, "{told:#}");
    assert_eq!(told["rows"][0][0], "quickfastest", "{told:#}");
    assert_eq!(told["rows"][0][2], "0.80 (0.78 to 0.82)", "{told:#}");
    assert_eq!(told["rows"][1][2], "no difference", "{told:#}");
    assert!(
        told["use"].as_str().unwrap().starts_with("LD_PRELOAD=/lib/libquick.so program"),
        "{told:#}"
    );
    assert!(told["failed"].as_str().unwrap().contains("</script>: the program ended"), "{told:#}");
    assert!(told["body"].as_str().unwrap().contains("A note <b>on</b> it."), "{told:#}");
}

#[test]
fn curves_and_the_flame_graph_answer_pointer_and_keys() {
    let Some(browser) = browser::installed() else { return };
    let told = browser::led(
        &browser,
        large_page(),
        r##"
        const cells = () => all(".cell").map(each => each.textContent).filter(Boolean);
        const width = name => Math.round(all(".cell").find(each => each.textContent === name).offsetWidth / one(".flame").clientWidth * 100);
        told.cells = cells().slice(0, 3);
        told.wide = width("wide");
        await click("#flame [data-value=count]");
        told.byCount = width("wide");
        await click("#flame [data-value=bytes]");
        await type("#flame input", "needle");
        told.search = [text("#flame .tools [role=status]"), all(".cell.found").map(each => each.textContent)];
        await type("#flame input", "");
        all(".cell").find(each => each.textContent === "wide").click();
        await settle();
        told.zoomed = [cells(), text(".crumbs"), text(".said b")];
        await press(".flame", "Escape");
        told.back = all(".cell").length > 10;
        one(".flame").focus();
        await press(".flame", "ArrowDown");
        await press(".flame", "ArrowRight");
        told.moved = text(".said b");
        await press(".flame", "Enter");
        told.entered = cells()[0];
        told.hostile = cells().some(each => each.startsWith("<" + "/script>"));
        await click("#flame summary");
        told.functions = all("#flame .line").length;
        await press(".picture svg", "End");
        told.tip = [text("#tip"), one("#tip").hidden];
        const box = one(".picture svg").getBoundingClientRect();
        one(".picture svg").dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 68, clientY: box.top + 50 }));
        await settle();
        told.start = text("#tip");
        await press("body", "Escape");
        told.gone = one("#tip").hidden;
        told.alternative = one(".picture svg").getAttribute("aria-label");
        await click("#time [data-value=objects]");
        told.blocks = one(".picture svg").getAttribute("aria-label");
        await click("#theme");
        const light = getComputedStyle(document.body).backgroundColor;
        await click("#theme");
        told.themes = [document.documentElement.dataset.theme, light !== getComputedStyle(document.body).backgroundColor];
        // Whatever has a place for focus has a name.
        told.nameless = all("button, a, input, select").filter(each => !(each.textContent.trim() || each.getAttribute("aria-label"))).length;
        told.wider = document.documentElement.scrollWidth > innerWidth;
        "##,
    );
    let is = |key: &str, value: Value| assert_eq!(told[key], value, "{key}: {told:#}");
    is("cells", serde_json::json!(["program", "wide", "needle"]));
    is("wide", 75.into());
    is("byCount", 20.into());
    is("search", serde_json::json!(["1 place, 20\u{202f}% of the bytes", ["needle"]]));
    is("zoomed", serde_json::json!([["wide", "needle"], "program › wide", "wide"]));
    is("back", true.into());
    is("moved", "narrow".into());
    is("entered", "narrow".into());
    is("hostile", true.into());
    assert!(told["functions"].as_u64() > Some(10), "{told:#}");
    assert!(told["tip"][0].as_str().unwrap().contains("live in 9,990 blocks"), "{told:#}");
    assert_eq!(told["tip"][1], false);
    is("start", "after 0\u{202f}ns0\u{202f}B live in 0 blocks".into());
    is("gone", true.into());
    assert!(told["alternative"].as_str().unwrap().contains("at most 1.0\u{202f}MiB"), "{told:#}");
    assert!(told["blocks"].as_str().unwrap().contains("at most 9,990 blocks"), "{told:#}");
    is("themes", serde_json::json!(["dark", true]));
    is("nameless", 0.into());
    is("wider", false.into());
}
