//! The agent serves its pages, with the right content.

mod support;

use std::io::Write;

use support::Agent;

#[test]
fn every_page_is_there() {
    let agent = Agent::start(&["--synthetic", "200", "--charts", "4"]);
    agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 1);
    for path in [
        "/",
        "/metrics",
        "/api/v1/info",
        "/api/v1/contexts",
        "/api/v1/allocators",
        "/api/v1/session",
    ] {
        let answer = agent.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()), "{path}");
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{path}");
        let head = agent.request("HEAD", path, "");
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
    let page = agent.get("/");
    assert!(page.field("content-security-policy").unwrap().contains("default-src 'none'"));
    assert!(page.field("content-type").unwrap().starts_with("text/html"));
}

#[test]
fn a_query_answers_with_what_was_collected() {
    // A simulated day at the highest speed, whose values are known.
    let agent = Agent::start(&[
        "--synthetic",
        "20",
        "--charts",
        "2",
        "--start-at",
        "2026-01-31T00:00:00Z",
        "--speed",
        "3000",
    ]);
    agent.wait_until("two hours were collected", |agent| {
        agent.figure("newest_second") > 1_769_817_600 + 7300
    });
    let path = "/api/v1/query?context=synthetic.context_0&after=1769820000&before=1769820010&points=10&by=dimension";
    let reply = agent.json(path);
    let series = reply["series"].as_array().unwrap();
    assert_eq!(series.len(), 20);
    for (metric, one) in (0..).zip(series) {
        let expected: Vec<f64> = (1_769_820_000..1_769_820_010)
            .map(|second| f64::from(allotment_agent::collect::synthetic::value(metric, second)))
            .collect();
        let values = one["values"].as_array().unwrap();
        // At this speed seconds may be missed. They are gaps.
        let known = values.iter().zip(expected).filter(|(value, _)| !value.is_null());
        for (value, expected) in known {
            assert_eq!(value.as_f64().unwrap(), expected, "{one}");
        }
    }
    let hours = agent.json(
        "/api/v1/query?context=synthetic.context_0&after=1769817600&before=1769824800&points=2",
    );
    assert_eq!(hours["resolution"], 3600);
    assert!(hours["series"][0]["average"].as_f64().unwrap() > 0.0);
}

#[test]
fn this_machine_is_collected_and_its_charts_appear_in_the_cached_list() {
    let agent = Agent::start(&[]);
    agent.wait_until("contexts were listed", |agent| {
        let list = agent.json("/api/v1/contexts");
        list["contexts"].as_array().unwrap().iter().any(|one| one["name"] == "system.cpu")
    });
    agent.wait_until("the cpu has points", |agent| {
        let reply = agent.get("/api/v1/query?context=system.cpu&after=-2&points=1");
        reply.status == 200 && reply.json()["series"][0]["min"].is_number()
    });
    let generation = agent.figure("structure_generation");
    // Charts that exist now are on the list now. A list that is rendered again later is due to
    // later charts.
    agent.json("/api/v1/contexts");
    let listed = agent.figure("contexts_listed");
    for _ in 0..20 {
        agent.json("/api/v1/contexts");
    }
    let more = agent.figure("contexts_listed") - listed;
    assert!(more <= agent.figure("structure_generation") - generation, "the list is cached");
}

#[test]
fn a_returning_user_finds_his_session() {
    let agent = Agent::start(&["--max-sessions", "5"]);
    let first = agent.get("/");
    let cookie = first.field("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    let dark = agent.request("POST", "/api/v1/session?theme=dark", &cookie).json();
    assert_eq!((&dark["theme"], &dark["visits"]), (&"dark".into(), &2.into()));
    let again = agent.request("GET", "/api/v1/session", &cookie).json();
    assert_eq!((&again["theme"], &again["visits"]), (&"dark".into(), &3.into()));
    // Another user has another session, and a user can't choose the key.
    assert_eq!(agent.json("/api/v1/session")["visits"], 1);
    let invented = agent.request(
        "GET",
        "/api/v1/session",
        "cookie: allotment_session=00000000000000000000000000000001\r\n",
    );
    assert_eq!(invented.json()["visits"], 1);
    assert!(!invented.field("set-cookie").unwrap().contains("=00000000000000000000000000000001"));
    for _ in 0..10 {
        agent.get("/");
    }
    assert_eq!(agent.figure("sessions"), 5);
    agent.request("POST", "/api/v1/session?theme=pink", &cookie).refuses_with(400);
    agent.request("GET", "/api/v1/session?theme=dark", &cookie).refuses_with(400);
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let agent = Agent::start(&["--synthetic", "1000", "--memory-limit", "64MiB"]);
    agent.wait_until("a tick was collected", |agent| agent.figure("ticks") > 0);
    let text = String::from_utf8(agent.get("/metrics").body).unwrap();
    let mut seen = std::collections::HashSet::new();
    let mut typed = std::collections::HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(typed.insert(rest.split(' ').next().unwrap()), "{line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(series), "twice: {series}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(typed.contains(series.split('{').next().unwrap()), "{line}");
    }
    for name in [
        "allotment_held_bytes{name=\"first buffers of all tiers\",kind=\"slab\"}",
        "allotment_live_bytes{name=\"agent-0\",kind=\"arena\"}",
        "allotment_source_calls{name=\"agent-0\",kind=\"pool\"}",
        "allotment_held_bytes{name=\"configuration\",kind=\"sealed\"}",
        "agent_ticks_total",
        "agent_memory_limit_bytes",
    ] {
        assert!(seen.contains(name), "{name} is missing in {text}");
    }
}

#[test]
fn malloc_serves_the_same_program() {
    let agent = Agent::start(&["--allocator", "malloc", "--synthetic", "1000", "--charts", "10"]);
    agent.wait_until("three ticks were collected", |agent| agent.figure("ticks") > 2);
    let reply = agent.json("/api/v1/query?context=synthetic.context_0&after=-2&points=2");
    assert_eq!(reply["dimensions"], 1000);
    assert_eq!(agent.json("/api/v1/info")["allocator"], "malloc");
    let allocators = agent.json("/api/v1/allocators");
    let pools =
        allocators["allocators"].as_array().unwrap().iter().filter(|one| one["kind"] == "pool");
    for pool in pools {
        assert_eq!(pool["live_objects"], 0, "no pool serves: {pool}");
    }
}

#[test]
fn connections_are_kept_and_requests_on_one_come_in_order() {
    use std::io::{Read, Write};
    let agent = Agent::start(&[]);
    let mut socket = agent.connect();
    // Pipelined requests, of which the last closes the connection.
    let one = "GET /nothing/A HTTP/1.1\r\nhost: a\r\n\r\n";
    let all = one.to_owned()
        + &one.replace('A', "B")
        + &one.replace('A', "C").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    socket.write_all(all.as_bytes()).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let places: Vec<_> =
        ["/nothing/A", "/nothing/B", "/nothing/C"].map(|name| text.find(name).unwrap()).to_vec();
    assert!(places.is_sorted() && text.matches("HTTP/1.1 404").count() == 3, "{text}");
}

#[test]
fn requests_of_clients_that_have_gone_are_not_worked_out() {
    use std::io::Write;
    let agent = Agent::start(&["--workers", "1", "--test-pages"]);
    let ask = |milliseconds: u32| {
        let mut socket = agent.connect();
        let text = format!("GET /test/sleep?{milliseconds} HTTP/1.1\r\nhost: a\r\n\r\n");
        socket.write_all(text.as_bytes()).unwrap();
        socket
    };
    let _first = ask(1_000);
    // The work of these requests would take longer than the test waits.
    let gone: Vec<_> = (0..20).map(|_| ask(20_000)).collect();
    // Some of the requests should reach the queue.
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(gone);
    assert!(agent.figure("abandoned") > 0);
}

#[test]
fn two_agents_are_compared_and_end_with_the_comparison() {
    if std::env::var_os("ALLOTMENT_LONG_TESTS").is_none() {
        // Not by `eprintln!`, which the harness shows for failing tests alone.
        let text = "SKIPPED: the comparison of two agents: ALLOTMENT_LONG_TESTS is not set";
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    let options =
        "compare --metrics 1000 --charts 10 --connections 4 --rounds 1 --seconds 1 --json";
    let compared = std::process::Command::new(env!("CARGO_BIN_EXE_allotment-agent"))
        .args(options.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(compared.status.success(), "{said}{}", String::from_utf8_lossy(&compared.stderr));
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["allocator"], &lines[1]["allocator"]),
        (&"allotment".into(), &"malloc".into())
    );
    assert!(lines[0]["requests_per_second"][0].as_f64().unwrap() > 0.0);
    assert_eq!(lines[2]["ratio"].as_array().unwrap().len(), 3);
}
