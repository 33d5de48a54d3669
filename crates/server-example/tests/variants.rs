//! Every variant confirms every order as expected.

use server_example::built_programs;
use server_example::driver::child::ServiceProcess;
use server_example::driver::client::Client;
use server_example::driver::run::{self, Load};
use server_example::driver::sample_order::SampleOrder;
use server_example::driver::variant::{Programs, Variant};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than a test takes, unless a service hangs.
const LIMIT: Duration = Duration::from_secs(240);

fn programs() -> Programs {
    built_programs!()
}

/// Runs a test on a thread of its own. If it does not end in time, the process ends, and its
/// services with it.
fn within_the_limit(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _done = done;
        test();
    });
    if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("no end within {} s", LIMIT.as_secs());
        std::process::exit(1);
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn every_variant_confirms_every_order() {
    within_the_limit(|| {
        let load = Load { requests: 200, connections: 4, requests_per_connection: 13 };
        for variant in Variant::built(&programs()) {
            for cache in [0, 50, 1000] {
                let figures = run::run(&programs(), variant, cache, &load).unwrap();
                assert!(figures.cpu_us.is_some_and(|cpu| cpu > 0.0), "{figures:?}");
                assert!(figures.end_rss_bytes > figures.base_rss_bytes, "{figures:?}");
            }
        }
    });
}

#[test]
fn the_last_summaries_are_kept_in_every_variant() {
    within_the_limit(|| {
        for variant in Variant::built(&programs()) {
            let service = ServiceProcess::start(&programs(), variant, 10).unwrap();
            let mut client = Client::connect(service.address()).unwrap();
            let orders: Vec<_> = (100..130).map(SampleOrder::usual).collect();
            client.confirm(&orders).unwrap();
            for order in orders {
                let id = order.id();
                let reply = client.request("GET", &format!("/orders/{id}"), b"").unwrap();
                let summary = String::from_utf8(reply.body).unwrap();
                assert_eq!(reply.status == 200, id >= 120, "{}: {id}", variant.name);
                assert!(
                    reply.status == 404 || summary.starts_with(&format!("{id}: ")),
                    "{summary}"
                );
            }
            assert_eq!(service.end(), "");
        }
    });
}

#[test]
fn a_bad_request_is_refused_and_the_connection_goes_on() {
    within_the_limit(|| {
        for variant in Variant::built(&programs()) {
            let service = ServiceProcess::start(&programs(), variant, 10).unwrap();
            let mut client = Client::connect(service.address()).unwrap();
            for (method, path, body, status) in [
                ("POST", "/orders", "{", 400),
                ("POST", "/orders", "{\"id\": 7}", 400),
                ("GET", "/orders", "", 405),
                ("GET", "/orders/7", "", 404),
                ("GET", "/orders/seven", "", 400),
                ("GET", "/", "", 404),
            ] {
                let reply = client.request(method, path, body.as_bytes()).unwrap();
                assert_eq!(reply.status, status, "{}: {method} {path}", variant.name);
                client.confirm(&[SampleOrder::usual(7)]).unwrap();
                client.confirm(&[SampleOrder::usual(8)]).unwrap();
                // Order 7 is asked for again above, and must not be there.
                (100..110).for_each(|id| client.confirm(&[SampleOrder::small(id)]).unwrap());
            }
            assert_eq!(service.end(), "");
        }
    });
}

#[test]
fn a_request_over_the_limit_is_refused_and_the_next_is_not() {
    within_the_limit(|| {
        let mut command = Command::new(programs().pools);
        command.args(["--pools", "request", "--limit", &(256 << 10).to_string()]);
        let service = ServiceProcess::start_with(&mut command).unwrap();
        let mut client = Client::connect(service.address()).unwrap();
        let mut large = Vec::new();
        SampleOrder::with_words(7, 100_000).put_order(&mut large);
        for id in 0..20 {
            let reply = client.request("POST", "/orders", &large).unwrap();
            assert_eq!(reply.status, 413, "{}", String::from_utf8_lossy(&reply.body));
            client.confirm(&[SampleOrder::usual(id)]).unwrap();
        }
        assert_eq!(service.end(), "");
    });
}

fn refused(program: &str, options: &[&str]) -> Output {
    let output = Command::new(program).args(options).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    output
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let limit_alone = refused(env!("CARGO_BIN_EXE_service-pools"), &["--limit", "1000"]);
    assert!(String::from_utf8_lossy(&limit_alone.stderr).contains("--pools request"));
    let no_pools = refused(env!("CARGO_BIN_EXE_service-glibc"), &["--pools", "handler"]);
    assert!(String::from_utf8_lossy(&no_pools.stderr).contains("service-pools"));
}

#[test]
fn a_service_that_can_not_listen_says_why() {
    let handler = Variant::named("handler").unwrap();
    let service = ServiceProcess::start(&programs(), handler, 10).unwrap();
    let taken = service.address().to_string();
    let output = Command::new(programs().glibc).args(["--listen", &taken]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("service: "), "{output:?}");
}
