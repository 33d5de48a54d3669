//! Headless Chromium, where it is installed.
//!
//! The browser is led over its debugging pipe: JSON with a NUL after each message, on its descriptors 3 and 4.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The names that distributions give it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// A browser that hangs is ended, which ends the wait for its word.
const PATIENCE: Duration = Duration::from_secs(300);

pub fn installed() -> Option<PathBuf> {
    let directories = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&directories)
        .flat_map(|directory| NAMES.map(|name| directory.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: the page in a browser: Chromium is not installed");
    }
    found
}

/// What a lead can use. Settling is two frames: one in which scrolling and sizes are told, one that shows what came of it.
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

struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    directory: PathBuf,
    last: u64,
    session: Option<String>,
    /// What the page said on its console, what it threw, and what it was refused.
    complaints: Vec<String>,
}

impl Browser {
    fn start(program: &Path, directory: PathBuf) -> Self {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let pipes = ["to", "from"].map(|name| directory.join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // A shell opens the pipes at the numbers that the browser expects.
        let child = Command::new("sh")
            .args(["-c", "to=$1 from=$2; shift 2; exec \"$@\" 3<\"$to\" 4>\"$from\"", "sh"])
            .args(&pipes)
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--window-size=1280,1600"])
            .arg("--force-prefers-reduced-motion")
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = Pid::from_raw(child.id() as i32);
        std::thread::spawn(move || {
            std::thread::sleep(PATIENCE);
            let _ = kill(process, Signal::SIGKILL);
        });
        let to = File::options().write(true).open(&pipes[0]).unwrap();
        let from = BufReader::new(File::open(&pipes[1]).unwrap());
        Self { child, to, from, directory, last: 0, session: None, complaints: Vec::new() }
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            assert!(self.from.read_until(0, &mut bytes).unwrap() > 0, "the browser ended");
            bytes.pop();
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            if let Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded") =
                message["method"].as_str()
            {
                self.complaints.push(message["params"].to_string());
            }
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn open(&mut self, address: &str) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach);
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, json!({}));
        }
        self.call("Page.navigate", json!({ "url": address }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Opens a page from the disk, leads it by a script that fills in `told`, and gives that back.
pub fn led(program: &Path, page: &Path, lead: &str) -> Value {
    static BROWSERS: AtomicU32 = AtomicU32::new(0);
    let number = BROWSERS.fetch_add(1, Ordering::Relaxed);
    let mut browser = Browser::start(program, page.with_extension(format!("browser-{number}")));
    browser.open(&format!("file://{}", page.display()));
    let ready = "told.ready = document.body.dataset.ready ?? null; told.broken = window.broken ?? null; return told;";
    let parameters = json!({
        "expression": format!("(async () => {{ {HELP}\n{lead}\n{ready} }})()"),
        "returnByValue": true, "awaitPromise": true,
    });
    let result = browser.call("Runtime.evaluate", parameters);
    assert!(result["exceptionDetails"].is_null(), "{result:#}");
    let told = result["result"]["value"].clone();
    assert!(browser.complaints.is_empty(), "{:?}\n{told:#}", browser.complaints);
    assert_eq!((&told["ready"], &told["broken"]), (&"yes".into(), &Value::Null), "{told:#}");
    told
}
