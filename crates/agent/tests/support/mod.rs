//! An agent in a child process, and a client that sends exactly the given bytes.
#![allow(dead_code, reason = "each test uses a part")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes, unless it hangs.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// An agent on a free port. It is killed when it is dropped.
pub struct Agent {
    child: Child,
    pub address: SocketAddr,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

/// A reply.
#[derive(Debug, Clone)]
pub struct HttpReply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl HttpReply {
    /// Returns the body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Returns a field of the head.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Checks that this is a refusal with this status, and JSON with a cause and a remedy.
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
    /// Starts an agent with these options.
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

    /// Returns its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Connects to it.
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    /// Sends exactly these bytes, and reads until the agent closes the connection.
    pub fn send_bytes(&self, bytes: &[u8]) -> HttpReply {
        let mut socket = self.connect();
        // The agent may close the connection before it has read everything.
        let _ = socket.write_all(bytes);
        read_reply(socket)
    }

    /// Sends a GET request, on a new connection.
    pub fn get(&self, path: &str) -> HttpReply {
        self.request("GET", path, "")
    }

    /// Sends a request with this method and these fields.
    pub fn request(&self, method: &str, path: &str, fields: &str) -> HttpReply {
        let text =
            format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n");
        self.send_bytes(text.as_bytes())
    }

    /// Returns the JSON of a page, which must exist.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// Returns a number of `/api/v1/info`.
    pub fn figure(&self, name: &str) -> u64 {
        self.json("/api/v1/info")[name].as_u64().unwrap_or_else(|| panic!("no {name}"))
    }

    /// Waits until the condition holds.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < TIMEOUT, "waited in vain until {what}; {}", self.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the agent.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits for its end. Its output is then complete.
    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                if let Some(listener) = self.listener.take() {
                    listener.join().unwrap();
                }
                return status;
            }
            assert!(began.elapsed() < TIMEOUT, "it did not end; {}", self.stderr());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns its standard error so far.
    pub fn stderr(&self) -> String {
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
pub fn read_reply(mut socket: TcpStream) -> HttpReply {
    let mut bytes = Vec::new();
    // A connection that is reset after the reply has delivered the reply.
    let _ = socket.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else { panic!("no reply: {:?}", String::from_utf8_lossy(&bytes)) };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    HttpReply { status, head, body: bytes[end + 4..].to_vec() }
}

/// Returns a path for a file of this test process.
pub fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    directory.join(format!("{}-{name}", std::process::id()))
}
