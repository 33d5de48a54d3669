//! An agent in a process of its own, and a client that says exactly what it is told.
#![allow(dead_code, reason = "each test uses a part")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing here takes so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An agent on a free port. Killed when it is dropped.
pub struct Agent {
    child: Child,
    pub address: SocketAddr,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// A field of the head.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Checks that this is a refusal as all are: this status, and JSON with a cause and a remedy.
    #[track_caller]
    pub fn refuses_with(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        let json = self.json();
        assert!(json["error"].as_str().is_some_and(|text| text.len() > 5), "{json}");
        assert!(json["remedy"].as_str().is_some_and(|text| text.len() > 5), "{json}");
        json
    }
}

impl Agent {
    /// Starts one with these options.
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_allotment-agent"))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (child.stderr.take().unwrap(), Arc::clone(&said));
        let listener = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.and_then(|address| address.trim_end_matches('/').parse().ok());
        let address = address.unwrap_or_else(|| panic!("{line:?}; {}", said.lock().unwrap()));
        Self { child, address, said, listener: Some(listener) }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A socket to it.
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Sends exactly these bytes, and reads until the agent closes.
    pub fn say(&self, bytes: &[u8]) -> Answer {
        let mut socket = self.connect();
        // It may have heard enough before the end.
        let _ = socket.write_all(bytes);
        read_answer(socket)
    }

    /// Asks for this, in a connection of its own.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// Asks with this method and these fields.
    pub fn ask(&self, method: &str, path: &str, fields: &str) -> Answer {
        let text =
            format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n");
        self.say(text.as_bytes())
    }

    /// The JSON of a page that must be there.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// A number of `/api/v1/info`.
    pub fn figure(&self, name: &str) -> u64 {
        self.json("/api/v1/info")[name].as_u64().unwrap_or_else(|| panic!("no {name}"))
    }

    /// Waits until this is so.
    #[track_caller]
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < PATIENCE, "waited in vain until {what}; {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits for its end. What it said is whole then.
    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                if let Some(listener) = self.listener.take() {
                    listener.join().unwrap();
                }
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it did not end; {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it said on standard error so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a reply to the end of the connection.
pub fn read_answer(mut socket: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A connection that was reset after the reply has given what it had.
    let _ = socket.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else { panic!("no reply: {:?}", String::from_utf8_lossy(&bytes)) };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

/// A file of this test process alone.
pub fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    directory.join(format!("{}-{name}", std::process::id()))
}
