//! Headless Chromium, if it is installed, for tests that look at a page: the agent's, and the
//! advisor's report.
//!
//! The browser is controlled over its debugging pipe: JSON messages that end with a NUL, on its
//! descriptors 3 and 4.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The names of the program in several distributions.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// A browser that hangs is killed after this time, which ends the wait for its message.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the path of the browser. Without one, returns `None` and prints a message.
pub fn installed() -> Option<PathBuf> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories)
        .flat_map(|directory| NAMES.map(|name| directory.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: no headless Chromium is installed, so the page was not tested");
    }
    found
}

/// A browser with one page. It is killed when it is dropped.
pub struct Browser {
    child: Arc<Mutex<Child>>,
    to: File,
    from: BufReader<File>,
    directory: PathBuf,
    last: u64,
    session: Option<String>,
    /// Messages of the page's console, its exceptions, and loads that were refused.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Starts the browser with these options, and a directory of its own.
    pub fn start(program: &Path, directory: PathBuf, options: &[&str]) -> Self {
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
            .args(["--disable-dev-shm-usage", "--no-first-run"])
            .args(options)
            .arg(format!("--user-data-dir={}", directory.join("profile").display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let child = Arc::new(Mutex::new(child));
        let watched = Arc::clone(&child);
        std::thread::spawn(move || {
            std::thread::sleep(TIMEOUT);
            // The child is killed through its handle, so a process that has got its number is not
            // hit.
            let _ = watched.lock().unwrap().kill();
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

    /// Opens an address, without waiting until it is loaded.
    pub fn open(&mut self, address: &str) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach);
        self.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, json!({}));
        }
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// Returns the value of this expression, or of its promise.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{result:#}");
        result["result"]["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Ok(mut child) = self.child.lock() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
