//! Signals under load: no accepted request is lost.

mod support;

use allotment_agent::load::{self, LoadOptions, LoadReport};
use rustix::process::Signal;
use std::io::Read;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Agent, scratch};

/// Loads the agent over this many connections, for at most this time.
fn load(agent: &Agent, paths: &[&str], connections: usize, seconds: u64) -> JoinHandle<LoadReport> {
    let address = agent.address;
    let addresses = paths.iter().map(|path| format!("http://{address}{path}").parse().unwrap());
    let load = LoadOptions {
        addresses: addresses.collect(),
        connections,
        time: Duration::from_secs(seconds),
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(load::run(&load, |_, _| (), std::future::pending())).unwrap()
    })
}

const QUERY: &str = "/api/v1/query?context=synthetic.context_0&points=2&after=-2";

#[test]
fn sigterm_under_load_loses_no_accepted_request_and_ends_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut agent = Agent::start(&["--synthetic", "1000", "--charts", "10"]);
        agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
        let before = agent.figure("answered");
        let load = load(&agent, &[QUERY, "/api/v1/contexts", "/metrics"], 64, 60);
        agent.wait_until("the load is under way", |agent| agent.figure("answered") > before + 500);
        agent.signal(signal);
        assert_eq!(agent.wait().code(), Some(0), "{}", agent.stderr());
        let report = load.join().unwrap();
        assert_eq!((report.lost, report.statuses.keys().collect::<Vec<_>>()), (0, vec![&200]));
        assert!(report.answered > 400, "{report:?}");
    }
}

#[test]
fn a_request_that_is_at_work_or_waits_is_answered_before_the_end() {
    let mut agent = Agent::start(&["--test-pages", "--workers", "1"]);
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let address = agent.address;
            std::thread::spawn(move || {
                use std::io::Write;
                let mut socket = std::net::TcpStream::connect(address).unwrap();
                socket.write_all(b"GET /test/sleep?300 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
                support::read_reply(socket).status
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.stderr());
    for status in waiting {
        assert_eq!(status.join().unwrap(), 200);
    }
    // A client that comes after the end can't connect.
    assert!(std::net::TcpStream::connect(agent.address).is_err());
}

#[test]
fn what_the_system_has_accepted_before_the_signal_is_answered() {
    use std::io::{Read, Write};
    let mut agent = Agent::start(&["--synthetic", "100"]);
    let request = b"GET /api/v1/info HTTP/1.1\r\nhost: a\r\n\r\n";
    // Kept connections without a request.
    let mut sockets: Vec<_> = (0..50).map(|_| agent.connect()).collect();
    for socket in &mut sockets {
        socket.write_all(request).unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"}\n") {
            let mut buffer = [0; 4096];
            let count = socket.read(&mut buffer).unwrap();
            assert!(count > 0);
            text.extend_from_slice(&buffer[..count]);
        }
    }
    // While the agent is stopped, requests arrive on these and on new connections, and then the
    // signal.
    agent.signal(Signal::STOP);
    sockets.extend((0..50).map(|_| agent.connect()));
    for socket in &mut sockets {
        socket.write_all(request).unwrap();
    }
    agent.signal(Signal::TERM);
    agent.signal(Signal::CONT);
    for socket in sockets {
        assert_eq!(support::read_reply(socket).status, 200);
    }
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.stderr());
}

#[test]
fn a_worker_that_is_stuck_is_named_and_the_agent_ends_all_the_same() {
    let mut agent = Agent::start(&["--test-pages", "--workers", "1", "--drain-seconds", "1"]);
    let mut socket = agent.connect();
    std::io::Write::write_all(&mut socket, b"GET /test/sleep?600000 HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code(), Some(1));
    assert!(agent.stderr().contains("agent-0"), "{}", agent.stderr());
}

#[test]
fn sighup_under_load_changes_the_configuration_and_loses_no_request() {
    let file = scratch("hangup.toml");
    let write = |most: u32| {
        std::fs::write(&file, format!("max-points = {most}\ntitle = 'at most {most}'\n"))
    };
    write(100).unwrap();
    let mut agent = Agent::start(&[
        "--synthetic",
        "1000",
        "--charts",
        "10",
        "--config",
        file.to_str().unwrap(),
    ]);
    agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
    let load = load(&agent, &[QUERY, "/api/v1/info"], 64, 60);
    let wide = "/api/v1/query?context=synthetic.context_0&after=-600&points=";
    for most in [50, 200, 10] {
        write(most).unwrap();
        agent.signal(Signal::HUP);
        agent.wait_until("the file is in force", |agent| {
            agent.figure("max_points") == u64::from(most)
        });
        assert_eq!(agent.get(&format!("{wide}{most}")).status, 200);
        agent.get(&format!("{wide}{}", most + 1)).refuses_with(400);
        assert_eq!(agent.json("/api/v1/info")["title"], format!("at most {most}"));
    }
    // An invalid file changes nothing, and the log says what is wrong.
    for broken in ["max-points = 'many'\n", "no-such-option = 1\n", "max-points = \n"] {
        let refused = agent.figure("broken_configurations");
        std::fs::write(&file, broken).unwrap();
        agent.signal(Signal::HUP);
        agent.wait_until("it is refused", |agent| agent.figure("broken_configurations") > refused);
    }
    std::fs::remove_file(&file).unwrap();
    let refused = agent.figure("broken_configurations");
    agent.signal(Signal::HUP);
    agent.wait_until("a missing file is refused", |agent| {
        agent.figure("broken_configurations") > refused
    });
    assert_eq!((agent.figure("max_points"), agent.figure("configuration_generation")), (10, 4));
    // The log names options that need a restart.
    std::fs::write(&file, "max-points = 20\nworkers = 7\n").unwrap();
    agent.signal(Signal::HUP);
    agent.wait_until("the file is in force", |agent| agent.figure("max_points") == 20);
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait().code(), Some(0));
    let report = load.join().unwrap();
    assert_eq!((report.lost, report.statuses.keys().collect::<Vec<_>>()), (0, vec![&200]));
    let said = agent.stderr();
    for expected in ["hangup.toml", "max-points", "no-such-option", "need a restart: workers"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let _ = std::fs::remove_file(&file);
}

#[test]
fn kill_under_load_loses_no_log_line_of_an_answered_request() {
    use std::io::{BufRead, BufReader, Write};
    let log = scratch("killed.log");
    let _ = std::fs::remove_file(&log);
    let agent = Agent::start(&["--log", log.to_str().unwrap(), "--log-requests"]);
    let address = agent.address;
    let clients: Vec<_> = (0..8)
        .map(|client| {
            std::thread::spawn(move || {
                // The requests whose replies have begun to arrive.
                let mut answered = Vec::new();
                let Ok(mut socket) = std::net::TcpStream::connect(address) else { return answered };
                let mut replies = BufReader::new(socket.try_clone().unwrap());
                'requests: for number in 0.. {
                    let name = format!("/request-{client}-{number}-");
                    let request = format!("GET {name} HTTP/1.1\r\nhost: a\r\n\r\n");
                    // Sent in one piece. Otherwise the system delays the second piece.
                    if socket.write_all(request.as_bytes()).is_err() {
                        break;
                    }
                    let mut length = 0;
                    loop {
                        let mut line = String::new();
                        if !matches!(replies.read_line(&mut line), Ok(1..)) {
                            break 'requests;
                        }
                        if line.starts_with("HTTP/1.1 404") {
                            answered.push(name.clone());
                        }
                        if let Some(bytes) = line.strip_prefix("content-length: ") {
                            length = bytes.trim().parse().unwrap();
                        }
                        if line == "\r\n" {
                            break;
                        }
                    }
                    if replies.read_exact(&mut vec![0; length]).is_err() {
                        break;
                    }
                }
                answered
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    agent.signal(Signal::KILL);
    let answered: Vec<String> =
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(answered.len() > 200, "{}", answered.len());
    let logged: std::collections::HashSet<&str> =
        text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    for name in &answered {
        assert!(logged.contains(name.as_str()), "{name} of {} is lost", answered.len());
    }
    // The next agent continues the same file.
    drop(agent);
    let mut next = Agent::start(&["--log", log.to_str().unwrap()]);
    next.signal(Signal::TERM);
    assert_eq!(next.wait().code(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(
        !text.contains('\0') && text.trim_end().ends_with("requests"),
        "{}",
        &text[text.len() - 200..]
    );
    assert!(text.contains(&answered[0]));
    std::fs::remove_file(log).unwrap();
}

#[test]
fn a_signal_that_comes_with_the_line_that_says_it_listens_is_heeded() {
    for _ in 0..10 {
        let mut agent = Agent::start(&[]);
        agent.signal(Signal::HUP);
        agent.signal(Signal::TERM);
        assert_eq!(agent.wait().code(), Some(0), "{}", agent.stderr());
    }
}

#[test]
fn a_comparison_that_is_interrupted_ends_with_its_agents() {
    let mut comparison = std::process::Command::new(env!("CARGO_BIN_EXE_allotment-agent"))
        .args("compare --metrics 100 --charts 10 --connections 1 --rounds 1000".split(' '))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let id = comparison.id();
    let children = || -> Vec<i32> {
        let all = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        all.split_whitespace().map(|child| child.parse().unwrap()).collect()
    };
    let began = Instant::now();
    let agents = loop {
        match children() {
            both if both.len() == 2 => break both,
            _ => assert!(began.elapsed() < support::TIMEOUT, "no agents"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    rustix::process::kill_process(rustix::process::Pid::from_child(&comparison), Signal::INT)
        .unwrap();
    let mut said = String::new();
    comparison.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((comparison.wait().unwrap().code(), &said[..10]), (Some(0), "no round e"));
    for agent in agents {
        let agent = rustix::process::Pid::from_raw(agent).unwrap();
        assert!(rustix::process::test_kill_process(agent).is_err(), "it goes on");
    }
}
