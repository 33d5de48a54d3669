//! Invalid requests are refused with a status from 400 to 499, a cause and a remedy, and do no
//! harm.

mod support;

use std::io::Write;
use std::process::Command;
use support::Agent;

#[test]
fn each_bad_query_is_refused_with_a_cause_and_a_remedy() {
    let agent = Agent::start(&["--synthetic", "100"]);
    agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
    let long = format!("context={}", "x".repeat(300));
    for (query, status) in [
        ("", 400),
        ("context=", 400),
        ("context=unknown", 404),
        ("context=%00", 404),
        ("context=%zz", 400),
        ("context=%ff", 400),
        ("contxt=a", 400),
        ("context=synthetic.context_0&context=synthetic.context_0", 400),
        (&long, 400),
        ("context=synthetic.context_0&points=0", 400),
        ("context=synthetic.context_0&points=-5", 400),
        ("context=synthetic.context_0&points=10001&after=-100000", 400),
        ("context=synthetic.context_0&points=99999999999999999999999", 400),
        ("context=synthetic.context_0&points=ten", 400),
        ("context=synthetic.context_0&points=100&after=-10", 400),
        ("context=synthetic.context_0&after=-9223372036854775808", 400),
        ("context=synthetic.context_0&after=9223372036854775807", 400),
        ("context=synthetic.context_0&before=-9223372036854775809", 400),
        ("context=synthetic.context_0&after=1&before=253402300799", 400),
        ("context=synthetic.context_0&after=0", 400),
        ("context=synthetic.context_0&after=now", 400),
        ("context=synthetic.context_0&group=median", 400),
        ("context=synthetic.context_0&by=chart", 400),
        ("&&&&", 400),
        ("=", 400),
    ] {
        agent.get(&format!("/api/v1/query?{query}")).refuses_with(status);
    }
    // The agent still answers valid requests.
    assert_eq!(agent.get("/api/v1/query?context=synthetic.context_0").status, 200);
    // Ranges without points are not errors: the reply has gaps.
    let old = agent.json("/api/v1/query?context=synthetic.context_0&after=1&before=100&points=3");
    assert!(old["series"][0]["values"].as_array().unwrap().iter().all(serde_json::Value::is_null));
    assert_eq!(agent.figure("panicked"), 0);
}

#[test]
fn unknown_paths_other_methods_and_bodies_are_refused() {
    let agent = Agent::start(&[]);
    for path in
        ["/nothing", "/api/v1/", "/api/v1/query/", "//", "/%2e%2e/etc/passwd", "/../etc/passwd"]
    {
        agent.get(path).refuses_with(404);
    }
    // Pages for tests exist only with the option for tests.
    agent.get("/test/panic").refuses_with(404);
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let answer = agent.request(method, "/api/v1/info", "");
        answer.refuses_with(405);
        assert_eq!(answer.field("allow"), Some("GET, HEAD"));
    }
    let answer = agent.request("DELETE", "/api/v1/session", "");
    assert_eq!(answer.field("allow"), Some("GET, HEAD, POST"));
    agent.get("/api/v1/info?x=1").refuses_with(400);
    agent.get("/api/v1/contexts?%").refuses_with(400);
    for body in [
        "content-length: 5\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 99999999999\r\n",
    ] {
        let text =
            format!("POST /api/v1/session?theme=dark HTTP/1.1\r\nhost: a\r\n{body}\r\nhello");
        agent.send_bytes(text.as_bytes()).refuses_with(413);
    }
    assert_eq!(agent.get("/api/v1/info").status, 200);
}

#[test]
fn what_is_no_http_is_refused_in_json_too() {
    let agent = Agent::start(&[]);
    let long_field = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let many_fields = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "z".repeat(100_000));
    for (bytes, statuses) in [
        (&b"GARBAGE\r\n\r\n"[..], &[400][..]),
        (b"GET / HTTP/7.3\r\n\r\n", &[400]),
        (b"GET  / HTTP/1.1\r\n\r\n", &[400]),
        (b"\0\0\0\0\r\n\r\n", &[400]),
        (b"GET / HTTP/1.1\r\nbad field\r\n\r\n", &[400]),
        (b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", &[400]),
        (b"GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", &[400]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", &[400]),
        (long_field.as_bytes(), &[431]),
        (many_fields.as_bytes(), &[431]),
        (long_path.as_bytes(), &[414, 431]),
    ] {
        let answer = agent.send_bytes(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        assert!(statuses.contains(&answer.status), "{shown}: {}", answer.head);
        answer.refuses_with(answer.status);
    }
    // HTTP/2 without negotiation ends the connection, and does no harm.
    let mut socket = agent.connect();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(agent.get("/api/v1/info").status, 200);
}

/// The content of a body is never taken for a request, however its length is given.
#[test]
fn a_request_hidden_in_a_body_is_not_answered() {
    let agent = Agent::start(&["--test-pages"]);
    let hidden = "GET /test/panic HTTP/1.1\r\nhost: a\r\n\r\n";
    let length = hidden.len();
    let chunked = format!("{length:x}\r\n{hidden}\r\n0\r\n\r\n");
    let requests = [
        format!("content-length: {length}\r\n\r\n{hidden}"),
        format!("transfer-encoding: chunked\r\n\r\n{chunked}"),
        format!("content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"),
        format!("transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n{chunked}"),
        format!("content-length: 0\r\ncontent-length: {length}\r\n\r\n{hidden}"),
        format!("content-length: {length}, 0\r\n\r\n{hidden}"),
        format!("content-length: +0\r\n\r\n{hidden}"),
        format!("content-length : 0\r\n\r\n{hidden}"),
        format!("content-length: 0{length}\r\n\r\n{hidden}"),
        format!("content-length: 18446744073709551616\r\n\r\n{hidden}"),
        format!("transfer-encoding: xchunked\r\n\r\n{hidden}"),
        format!("transfer-encoding: chunked, identity\r\n\r\n{hidden}"),
        format!("x: y\r\n content-length: 0\r\n\r\n{hidden}"),
    ];
    for method in ["GET", "POST"] {
        for rest in &requests {
            let whole = format!(
                "{method} /api/v1/session HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{rest}"
            );
            let status = agent.send_bytes(whole.as_bytes()).status;
            assert!((400..500).contains(&status), "{whole}: {status}");
            assert_eq!(agent.figure("panicked"), 0, "{whole}");
            // The same where the connection would have been kept.
            let kept = whole.replace("connection: close\r\n", "")
                + "GET /api/v1/info HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            let status = agent.send_bytes(kept.as_bytes()).status;
            assert!((400..500).contains(&status), "{kept}: {status}");
            assert_eq!(agent.figure("panicked"), 0, "{kept}");
        }
    }
}

/// Runs the program to its end. Returns its status, standard output and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_allotment-agent")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_start_that_fails_says_why_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let broken = support::scratch("broken.toml");
    std::fs::write(&broken, "max-points = 'many'\n").unwrap();
    for (arguments, code, expected) in [
        (&["--listen", &taken][..], 1, "free port"),
        (&["--listen", "203.0.113.1:80"], 1, "203.0.113.1:80"),
        (&["--workers", "0"], 2, "--workers"),
        (&["--config", "/no/such/file.toml"], 2, "/no/such/file.toml"),
        (&["--config", broken.to_str().unwrap()], 2, "max-points"),
        (&["--config", "/dev/zero"], 2, "/dev/zero"),
        (
            &["--log", "/no/such/directory/log", "--listen", "127.0.0.1:0"],
            1,
            "/no/such/directory/log",
        ),
        (&["--synthetic", "10", "--charts", "20", "--listen", "127.0.0.1:0"], 1, "20"),
        (
            &["--synthetic", "10000000", "--memory-limit", "4MiB", "--listen", "127.0.0.1:0"],
            1,
            "memory",
        ),
        (&["load", "http://127.0.0.1:1/"], 1, "127.0.0.1:1"),
        (&["load", "http://127.0.0.1:1/", "--connections", "0"], 2, "--connections"),
        (&["--max-pionts", "3"], 2, "--max-points"),
    ] {
        let (status, _, said) = run(arguments);
        assert_eq!(status, Some(code), "{arguments:?}: {said}");
        let lines: Vec<_> =
            said.lines().filter(|line| line.starts_with("allotment-agent: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(expected), "{arguments:?}: {said}");
    }
    std::fs::remove_file(broken).unwrap();
}

#[test]
fn help_explains_the_program() {
    let (status, help, _) = run(&["--help"]);
    assert_eq!(status, Some(0));
    for word in ["--memory-limit", "--synthetic", "SIGHUP", "Examples:", "load"] {
        assert!(help.contains(word), "{word}");
    }
    let (status, help, _) = run(&["load", "--help"]);
    assert_eq!(status, Some(0));
    assert!(help.contains("--connections"));
    assert!(!help.contains("test-pages"));
}
