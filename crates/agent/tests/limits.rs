//! Limits hold, and the agent continues to serve.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::Agent;

/// Returns the number of sockets that this process may open, up to ten thousand.
fn max_sockets() -> usize {
    let files = allotment_agent::server::open_files::raise_limit();
    let most = usize::try_from(files.saturating_sub(200)).unwrap_or(usize::MAX).min(10_000);
    if most < 10_000 {
        eprintln!("the limit of open files leaves {most} connections, not 10000");
    }
    most
}

fn silent(agent: &Agent, count: usize, start: &[u8]) -> Vec<TcpStream> {
    (0..count)
        .map(|number| {
            let mut socket = TcpStream::connect(agent.address)
                .unwrap_or_else(|error| panic!("connection {number}: {error}"));
            // Half of the connections send nothing, the others a part of a request. A connection
            // that was closed for another one may fail to write.
            if number % 2 == 0 {
                let _ = socket.write_all(start);
            }
            socket
        })
        .collect()
}

#[test]
fn ten_thousand_half_open_connections_do_not_stop_it() {
    let most = max_sockets();
    // One agent may have all of these connections, the other a tenth of them.
    for (limit, evicts) in [(12_000, false), (1000, true)] {
        let agent = Agent::start(&[
            "--synthetic",
            "100",
            "--max-connections",
            &limit.to_string(),
            "--header-seconds",
            "600",
        ]);
        let sockets = silent(&agent, most, b"GET /api/v1/info HTTP/1.1\r\nhost: a\r\nx-slow: ");
        agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
        for _ in 0..20 {
            assert_eq!(agent.get("/api/v1/query?context=synthetic.context_0").status, 200);
        }
        let info = agent.json("/api/v1/info");
        assert!(info["connections"].as_u64().unwrap() <= limit, "{info}");
        assert!(info["connections_accepted"].as_u64().unwrap() >= most as u64, "{info}");
        assert_eq!(info["connections_evicted"].as_u64().unwrap() > 0, evicts, "{info}");
        assert_eq!(info["ticks_missed"], 0, "{info}");
        drop(sockets);
        agent.wait_until("they are gone", |agent| agent.figure("connections") <= 1);
    }
}

#[test]
fn a_header_that_does_not_end_in_time_ends_the_connection() {
    let agent = Agent::start(&["--header-seconds", "1"]);
    for start in [&b""[..], b"GET /api/v1/info HTTP/1.1\r\nx: "] {
        let mut socket = agent.connect();
        socket.write_all(start).unwrap();
        let mut rest = Vec::new();
        // The connection ends, whether it is closed or reset.
        let _ = socket.read_to_end(&mut rest);
    }
    // A client that sends a byte now and then gets no more time.
    let mut socket = agent.connect();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    let mut ended = false;
    for _ in 0..600 {
        let _ = socket.write_all(b"y");
        match socket.read(&mut [0; 100]) {
            Ok(0) => ended = true,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => ended = true,
            _ => {}
        }
        if ended {
            break;
        }
    }
    assert!(ended);
    // A connection that is silent after a reply ends as well.
    let mut socket = agent.connect();
    socket.write_all(b"GET /api/v1/info HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert_eq!(support::read_reply(socket).status, 200);
}

#[test]
fn a_client_that_does_not_read_its_reply_is_disconnected() {
    let agent = Agent::start(&["--synthetic", "1000", "--charts", "10", "--write-seconds", "1"]);
    agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
    let mut socket = agent.connect();
    // Replies of several megabytes, which exceed the buffers of the sockets.
    let request = "GET /api/v1/query?context=synthetic.context_0&by=dimension&after=-10000&points=10000 HTTP/1.1\r\nhost: a\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    agent.wait_until("the reply is at work", |agent| agent.figure("answered") > 1);
    agent.wait_until("the client is given up", |agent| agent.figure("connections") <= 1);
    drop(socket);
}

#[test]
fn a_request_that_needs_too_much_memory_gets_a_503_and_the_others_their_replies() {
    let agent = Agent::start(&[
        "--synthetic",
        "2000",
        "--charts",
        "20",
        "--memory-limit",
        "48MiB",
        "--request-memory",
        "16MiB",
    ]);
    agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
    let large = "/api/v1/query?context=synthetic.context_0&by=dimension&after=-10000&points=10000";
    let small = "/api/v1/query?context=synthetic.context_0&points=2&after=-2";
    let answer = agent.get(large);
    answer.refuses_with(503);
    assert_eq!(answer.field("retry-after"), Some("1"));
    // Many requests at once, of all sizes.
    std::thread::scope(|scope| {
        for client in 0..8 {
            let agent = &agent;
            scope.spawn(move || {
                for round in 1..=10 {
                    let points = 1 << (round + client % 4);
                    let path = format!(
                        "/api/v1/query?context=synthetic.context_0&by=dimension&after=-10000&points={points}"
                    );
                    let answer = agent.get(&path);
                    match answer.status {
                        200 => assert_eq!(answer.json()["points"], points),
                        _ => drop(answer.refuses_with(503)),
                    }
                    let info = agent.json("/api/v1/info");
                    let used = info["memory_used"].as_u64().unwrap();
                    assert!(used <= info["memory_limit"].as_u64().unwrap(), "{info}");
                }
            });
        }
    });
    assert_eq!(agent.get(small).status, 200);
    assert!(agent.figure("out_of_memory") > 0);
    assert_eq!(agent.figure("panicked"), 0);
}

#[test]
fn a_panic_ends_its_request_alone() {
    let mut agent = Agent::start(&["--test-pages", "--workers", "2"]);
    for _ in 0..10 {
        agent.get("/test/panic").refuses_with(500);
        assert_eq!(agent.get("/api/v1/info").status, 200);
    }
    assert_eq!((agent.figure("panicked"), agent.figure("workers")), (10, 2));
    agent.signal(rustix::process::Signal::TERM);
    assert_eq!(agent.wait().code(), Some(0));
    assert!(agent.stderr().contains("panicked on worker"), "{}", agent.stderr());
}

#[test]
fn a_request_beyond_the_queue_is_refused_with_retry_after() {
    let agent = Agent::start(&["--test-pages", "--workers", "1", "--queue", "2"]);
    let sleeping: Vec<_> = (0..12)
        .map(|_| {
            let mut socket = agent.connect();
            socket
                .write_all(b"GET /test/sleep?700 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                .unwrap();
            socket
        })
        .collect();
    let answers: Vec<_> = sleeping.into_iter().map(support::read_reply).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!((6..=10).contains(&refused.len()), "{}", refused.len());
    for answer in refused {
        answer.refuses_with(503);
        assert_eq!(answer.field("retry-after"), Some("1"));
    }
    agent.wait_until("it is idle again", |agent| agent.get("/api/v1/info").status == 200);
    assert!(agent.figure("busy") >= 6);
}
