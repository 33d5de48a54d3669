//! The page in headless Chromium, if that is installed: charts move, and the console stays empty.

#[path = "support/browser.rs"]
mod browser;
mod support;

use browser::Browser;
use serde_json::Value;
use support::{Agent, scratch};

/// Waits for a number of the page's own updates, and then returns what each canvas shows.
const READ_PAGE: &str = r##"(async rounds => {
    const ticks = () => Number(document.body?.dataset.ticks ?? 0), end = ticks() + rounds, late = Date.now() + 45000;
    while (ticks() < end && Date.now() < late) await new Promise(done => setTimeout(done, 100));
    // Axes and labels are grey. What shows values has a colour.
    const drawn = canvas => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0, places = 0;
        for (let at = 0; at < data.length; at += 4) {
            const [red, green, blue, alpha] = data.subarray(at, at + 4);
            if (alpha > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 30) {
                count += 1;
                places = (places * 31 + at) % 2147483647;
            }
        }
        return count === 0 ? "" : `${count} ${places}`;
    };
    return {
        ticks: ticks(),
        trouble: document.getElementById("trouble").textContent,
        title: document.title,
        facts: document.getElementById("facts").textContent,
        theme: document.documentElement.dataset.theme,
        charts: Object.fromEntries([...document.querySelectorAll("#charts canvas")].map(canvas =>
            [canvas.dataset.context, { drawn: drawn(canvas), before: Number(canvas.dataset.before) }])),
        allocators: [...document.querySelectorAll("#allocators h3")].map(head => head.textContent),
        bars: [...document.querySelectorAll("#allocators canvas")].filter(drawn).length,
    };
})"##;

#[test]
fn the_page_draws_charts_that_move_and_every_allocator() {
    let Some(program) = browser::installed() else { return };
    let agent = Agent::start(&["--title", "a title <b>&amp;"]);
    agent.wait_until("charts have points", |agent| agent.figure("ticks") > 2);
    let mut browser = Browser::start(&program, scratch("browser"), &["--window-size=1280,2400"]);
    browser.open(&format!("http://{}/", agent.address));
    // The new document is ready when it has a heading.
    for _ in 0..300 {
        if browser.evaluate("document.getElementById('trouble') !== null") == true {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let first = browser.evaluate(&format!("{READ_PAGE}(2)"));
    let later = browser.evaluate(&format!("{READ_PAGE}(3)"));
    assert_eq!((&first["trouble"], &later["trouble"]), (&"".into(), &"".into()), "{later}");
    assert_eq!(first["title"], "a title <b>&amp;", "text is text");
    assert!(first["facts"].as_str().unwrap().contains("metrics in"), "{first}");

    let charts = later["charts"].as_object().unwrap();
    assert!(
        charts.contains_key("system.cpu") && charts.contains_key("system.memory"),
        "{:?}",
        charts.keys()
    );
    let mut moved = 0;
    for (name, chart) in charts {
        assert_ne!(chart["drawn"], "", "{name} is blank");
        let Some(before) = first["charts"].get(name) else { continue };
        assert!(chart["before"].as_u64() > before["before"].as_u64(), "{name} stands still");
        moved += u32::from(chart["drawn"] != before["drawn"]);
    }
    assert!(moved as usize + 1 >= charts.len(), "{moved} of {} charts moved", charts.len());

    let allocators: Vec<_> =
        later["allocators"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for expected in ["agent-0", "buffers of seconds", "first buffers of all tiers", "configuration"]
    {
        assert!(allocators.contains(&expected), "{expected}: {allocators:?}");
    }
    assert!(later["bars"].as_u64() > Some(3), "{later}");

    // The user's session remembers the chosen colours.
    for expected in ["light", "dark"] {
        browser.evaluate("document.getElementById('theme').onclick()");
        assert_eq!(browser.evaluate("document.documentElement.dataset.theme"), expected);
    }
    browser.evaluate("location.reload()");
    let mut theme = Value::Null;
    for _ in 0..300 {
        theme = browser.evaluate("document.getElementById('theme')?.textContent ?? ''");
        if theme == "colours: dark" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(theme, "colours: dark");
    // This message is about the reading of canvases, which the test does and the page does not.
    browser.complaints.retain(|complaint| !complaint.contains("willReadFrequently"));
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}
