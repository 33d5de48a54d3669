//! The page in headless Chromium, where that is installed: charts move, without a word on the console.
//!
//! The browser is led over its debugging pipe: JSON with a NUL after each message, on its descriptors 3 and 4.

mod support;

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{Agent, scratch};

/// The names that distributions give it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn installed() -> Option<PathBuf> {
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories)
        .flat_map(|directory| NAMES.map(|name| directory.join(name)))
        .find(|path| path.is_file())
}

struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    directory: PathBuf,
    last: u64,
    session: Option<String>,
    /// What the page said on its console, and what it threw.
    complaints: Vec<String>,
}

impl Browser {
    fn start(program: &PathBuf) -> Self {
        let directory = scratch("browser");
        std::fs::create_dir_all(&directory).unwrap();
        let pipes = ["to", "from"].map(|name| directory.join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // A shell opens the pipes at the numbers that the browser expects.
        let child = Command::new("sh")
            .args(["-c", "to=$1 from=$2; shift 2; exec \"$@\" 3<\"$to\" 4>\"$from\"", "sh"])
            .args(&pipes)
            .arg(program)
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--window-size=1280,2400"])
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = rustix::process::Pid::from_child(&child);
        // A browser that hangs is ended, which ends the wait for its word.
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(180));
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
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
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => {
                    self.complaints.push(message["params"].to_string());
                }
                Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                    self.complaints.push(message["params"]["entry"]["text"].to_string());
                }
                Some("Runtime.consoleAPICalled") => {
                    self.complaints.push(message["params"]["args"].to_string());
                }
                _ => {}
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

    /// What this expression, or its promise, comes to.
    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits for so many rounds of the page's own, then tells what each canvas shows.
const LOOK: &str = r##"(async rounds => {
    const ticks = () => Number(document.body?.dataset.ticks ?? 0), end = ticks() + rounds, late = Date.now() + 45000;
    while (ticks() < end && Date.now() < late) await new Promise(done => setTimeout(done, 100));
    // Axes and words are grey; what is drawn of values has a colour.
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
    let Some(program) = installed() else {
        eprintln!("SKIPPED: no headless Chromium is installed, so nobody looked at the page");
        return;
    };
    let agent = Agent::start(&["--title", "a title <b>&amp;"]);
    agent.until("charts have points", |agent| agent.figure("ticks") > 2);
    let mut browser = Browser::start(&program);
    browser.open(&format!("http://{}/", agent.address));
    // The new document is there when it has a heading.
    for _ in 0..300 {
        if browser.evaluate("document.getElementById('trouble') !== null") == true {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let first = browser.evaluate(&format!("{LOOK}(2)"));
    let later = browser.evaluate(&format!("{LOOK}(3)"));
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

    // Colours are the user's, and his session remembers them.
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
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}
