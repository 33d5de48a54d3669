//! Leads the report in a browser.

#[path = "../../../agent/tests/support/browser.rs"]
mod chromium;

use chromium::Browser;
pub use chromium::installed;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a lead can use. Settling is two frames: one in which scrolling and sizes are told, one that
/// shows what came of it.
const HELP: &str = r#"
const settle = () => new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20))), 90));
const one = selector => document.querySelector(selector), all = selector => [...document.querySelectorAll(selector)];
const text = selector => one(selector)?.textContent ?? null;
const type = async (selector, words) => {
    const field = one(selector);
    field.value = words;
    field.dispatchEvent(new Event(field.tagName === "SELECT" ? "change" : "input"));
    await settle();
};
const click = async (selector, index = 0) => {
    all(selector)[index].click();
    await settle();
};
const press = async (selector, key) => {
    one(selector).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await settle();
};
const told = {};
for (const late = Date.now() + 60000; !document.body?.dataset.ready && Date.now() < late;) await new Promise(done => setTimeout(done, 50));
await settle();
"#;

/// Opens a page from the disk, leads it by a script that fills in `told`, and gives that back.
pub fn led(program: &Path, page: &Path, lead: &str) -> Value {
    static BROWSERS: AtomicU32 = AtomicU32::new(0);
    let number = BROWSERS.fetch_add(1, Ordering::Relaxed);
    let directory = page.with_extension(format!("browser-{number}"));
    let options = ["--window-size=1280,1600", "--force-prefers-reduced-motion"];
    let mut browser = Browser::start(program, directory, &options);
    browser.open(&format!("file://{}", page.display()));
    let ready = "told.ready = document.body.dataset.ready ?? null; told.broken = window.broken ?? null; return told;";
    let told = browser.evaluate(&format!("(async () => {{ {HELP}\n{lead}\n{ready} }})()"));
    assert!(browser.complaints.is_empty(), "{:?}\n{told:#}", browser.complaints);
    assert_eq!((&told["ready"], &told["broken"]), (&"yes".into(), &Value::Null), "{told:#}");
    told
}
