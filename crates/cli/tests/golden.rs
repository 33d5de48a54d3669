//! Verdicts on programs whose right answer is known: distributions' packages, and small programs of
//! our own.
//!
//! A test whose program isn't installed says so and passes; `.ci/run` installs them.

use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fn allot() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allot"));
    command.stdin(Stdio::null());
    command
}

/// One test at a time: verdicts rest on CPU times, which a test beside would change.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("golden");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Whether a program is there; a test that needs it says so and ends.
fn installed(program: &str, package: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !found {
        eprintln!("SKIPPED: {program} is not installed (package {package})");
    }
    found
}

/// Records a program to its end, and analyses the recording.
fn analysed(name: &str, program: &[&str]) -> Value {
    let recording = folder().join(format!("{name}.allot"));
    let output =
        allot().args(["record", "-o"]).arg(&recording).arg("--").args(program).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {errors}");
    findings(&recording)
}

fn findings(recording: &Path) -> Value {
    let output = allot().args(["analyse", "--json", "--check"]).arg(recording).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The groups with a word of advice.
fn advised(findings: &Value) -> Vec<&Value> {
    let groups = findings["groups"].as_array().unwrap();
    groups.iter().filter(|group| group["verdict"]["category"] != "leave_it").collect()
}

fn verdicts(findings: &Value) -> String {
    let mut text = String::new();
    for group in findings["groups"].as_array().unwrap() {
        let verdict = &group["verdict"];
        writeln!(
            text,
            "{}: {} of {}, {} {}, {}",
            group["title"],
            group["count"],
            findings["program"]["allocations"],
            verdict["allocator"],
            verdict["gain"],
            verdict["reason"]
        )
        .unwrap();
    }
    text
}

/// Builds one of the programs beside this file.
fn built(name: &str) -> Option<PathBuf> {
    let source = format!("{}/tests/programs/{name}.c", env!("CARGO_MANIFEST_DIR"));
    built_from(Path::new(&source))
}

/// Builds a program of one C or C++ source file.
fn built_from(source: &Path) -> Option<PathBuf> {
    let (compiler, package) = compiler(source);
    if !installed(compiler, package) {
        return None;
    }
    let program = folder().join(source.file_stem().unwrap());
    let status = Command::new(compiler)
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .unwrap();
    assert!(status.success(), "{}", source.display());
    Some(program)
}

/// The compiler of a source file, and the package that it is in.
fn compiler(source: &Path) -> (&'static str, &'static str) {
    if source.extension().is_some_and(|extension| extension == "c") {
        ("cc", "gcc")
    } else {
        ("c++", "g++")
    }
}

fn documents(count: usize) -> Vec<String> {
    let mut text = String::from("<list>\n");
    for i in 0..1500 {
        writeln!(text, "<item id=\"{i}\"><title>Title {i}</title><text>some words</text></item>")
            .unwrap();
    }
    text += "</list>\n";
    let name = |i| folder().join(format!("document-{i}.xml")).to_str().unwrap().to_owned();
    let names: Vec<String> = (0..count).map(name).collect();
    names.iter().for_each(|name| std::fs::write(name, &text).unwrap());
    names
}

#[test]
fn xmllint_gets_an_arena_for_the_document() {
    let _alone = alone();
    if !installed("xmllint", "libxml2-utils") {
        return;
    }
    for count in [1, 8] {
        let names = documents(count);
        let mut program = vec!["xmllint", "--noout"];
        program.extend(names.iter().map(String::as_str));
        let findings = analysed("xmllint", &program);
        let best = advised(&findings)[0];
        assert_eq!(best["verdict"]["allocator"], "arena", "{}", verdicts(&findings));
        let all = findings["program"]["allocations"].as_f64().unwrap();
        assert!(best["count"].as_f64().unwrap() > 0.9 * all, "{}", verdicts(&findings));
        // One document at a time; the last one ends with the program.
        assert_eq!(best["returns_to_zero"], count - 1, "{}", verdicts(&findings));
        assert_eq!(best["verdict"]["without_reset"], count == 1, "{}", verdicts(&findings));
    }
}

#[test]
fn an_arena_for_recursive_functions_is_created_in_the_loop_that_calls_them() {
    let _alone = alone();
    let Some(program) = built("recursive") else { return };
    let findings = analysed("recursive", &[program.to_str().unwrap()]);
    let best = advised(&findings)[0];
    assert_eq!(best["verdict"]["allocator"], "arena", "{}", verdicts(&findings));
    let place = &best["place"];
    assert_eq!(place["function"], "load_all", "{place:#}");
    assert!(place["file"].as_str().unwrap().ends_with("recursive.c"), "{place:#}");
    let source = include_str!("programs/recursive.c");
    let line = 1 + source.lines().position(|line| line.ends_with("// here")).unwrap();
    assert_eq!(place["line"], line, "{place:#}");
}

#[test]
fn jq_gets_an_arena() {
    let _alone = alone();
    if !installed("jq", "jq") {
        return;
    }
    let mut text = String::from("[");
    for i in 0..8000 {
        let comma = if i > 0 { "," } else { "" };
        writeln!(
            text,
            "{comma}{{\"id\":{i},\"name\":\"n{}\",\"tags\":[\"a\",\"b\"],\"x\":{{\"y\":[1,2.5]}}}}",
            i % 97
        )
        .unwrap();
    }
    text += "]";
    let file = folder().join("large.json");
    std::fs::write(&file, text).unwrap();
    let findings = analysed("jq", &["jq", "map(.id) | add", file.to_str().unwrap()]);
    let best = advised(&findings)[0];
    assert_eq!(best["verdict"]["allocator"], "arena", "{}", verdicts(&findings));
    let all = findings["program"]["allocations"].as_f64().unwrap();
    assert!(best["count"].as_f64().unwrap() > 0.8 * all, "{}", verdicts(&findings));
    assert!(best["drag"].as_f64().unwrap() < 1.2);
}

#[test]
fn sqlite_gets_a_free_list_or_a_pool_and_an_arena_is_refused() {
    let _alone = alone();
    if !installed("sqlite3", "sqlite3") {
        return;
    }
    let script = folder().join("work.sql");
    std::fs::write(
        &script,
        "create table t(a integer primary key, b text, c real);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000)
             insert into t select i, 'text ' || i || printf('%08d', i), i * 1.5 from n;
         select count(*), sum(length(b || a)) from t where b like '%7%';
         select substr(b, 1, 7) k, count(*), max(a || b) from t group by k order by 2 desc limit 3;
         update t set b = upper(b) || 'x' where a % 3 = 0;
         delete from t where a % 5 = 0;",
    )
    .unwrap();
    let read = format!(".read {}", script.display());
    let findings = analysed("sqlite", &["sqlite3", ":memory:", &read]);
    let advised = advised(&findings);
    assert!(!advised.is_empty(), "{}", verdicts(&findings));
    for group in &advised {
        let allocator = group["verdict"]["allocator"].as_str().unwrap();
        assert!(["free_list", "pool"].contains(&allocator), "{}", verdicts(&findings));
    }
    let refused = advised[0]["verdict"]["refused"].to_string();
    assert!(refused.contains("arena") && refused.contains("never be reset"), "{refused}");
}

#[test]
fn what_grows_to_megabytes_stays_with_malloc_and_out_of_the_pool() {
    let _alone = alone();
    let Some(program) = built("growing") else { return };
    let findings = analysed("growing", &[program.to_str().unwrap()]);
    let groups = findings["groups"].as_array().unwrap();
    let pool = groups.iter().find(|group| group["verdict"]["allocator"] == "pool");
    let pool = pool.unwrap_or_else(|| panic!("no pool: {}", verdicts(&findings)));
    let (large, bytes) = (pool["large_bytes"].as_f64().unwrap(), pool["bytes"].as_f64().unwrap());
    assert!(large < 0.1 * bytes, "{}", verdicts(&findings));
    // Of the sites that grow, none is in a group that is to be taken from malloc.
    let sites = findings["sites"].as_array().unwrap();
    let grow: Vec<&Value> = sites.iter().filter(|site| site["title"] == "grow").collect();
    assert!(!grow.is_empty(), "{sites:?}");
    for site in grow {
        let group = &groups[site["group"].as_u64().unwrap() as usize];
        assert_eq!(group["verdict"]["allocator"], "none", "{}", verdicts(&findings));
        let refused = group["verdict"]["refused"].to_string();
        assert!(refused.contains("pool") && refused.contains("32 KiB"), "{refused}");
    }
}

#[test]
fn messages_between_threads_get_a_slab() {
    let _alone = alone();
    let Some(program) = built("producer_consumer") else { return };
    let findings = analysed("producer", &[program.to_str().unwrap()]);
    let best = advised(&findings)[0];
    assert_eq!(best["verdict"]["allocator"], "slab", "{}", verdicts(&findings));
    assert_eq!(best["verdict"]["category"], "shared");
    assert_eq!((&best["title"], &best["dominant_size"]), (&"make_message".into(), &96.into()));
    assert!(best["same_thread_share"].as_f64().unwrap() < 0.01);
    // With its line, from the debug information.
    let site = &findings["sites"][0];
    assert_eq!(site["frames"][0]["function"], "make_message", "{site:#}");
    assert!(site["frames"][0]["file"].as_str().unwrap().ends_with("producer_consumer.c"));
    assert!(site["frames"][0]["line"].as_u64().unwrap() > 0);
}

/// The programs of `crates/advisor/golden.py`, which has their changed versions run and measured.
/// Here those only have to compile.
#[test]
fn programs_that_were_changed_as_advised_get_that_advice() {
    let _alone = alone();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../advisor/golden");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../allotment-c/include");
    let own = "blocks freed by their own thread";
    for (file, less_work, expected) in [
        ("compiler.cc", "150", &[("arena", "sum")][..]),
        ("document.c", "40", &[("arena", "parse_value")]),
        ("log.c", "50000", &[("pool", own)]),
        ("messages.c", "1000000", &[("slab", "read_message")]),
        ("orders.c", "1500000", &[("free_list", "enter_order")]),
        ("pages.c", "1000", &[("arena", "handle"), ("pool", own)]),
    ] {
        let source = golden.join(file);
        let Some(program) = built_from(&source) else { continue };
        let status = Command::new(compiler(&source).0)
            .args(["-fsyntax-only", "-DADVISED", "-I"])
            .arg(&headers)
            .arg(&source)
            .status()
            .unwrap();
        assert!(status.success(), "{file} as advised");
        let findings = analysed(file, &[program.to_str().unwrap(), less_work]);
        for (allocator, title) in expected {
            assert!(
                advised(&findings).iter().any(|group| {
                    group["verdict"]["allocator"] == *allocator && group["title"] == *title
                }),
                "{file}: no {allocator} for {title}: {}",
                verdicts(&findings)
            );
        }
    }
}

#[test]
fn a_configuration_read_at_start_is_a_candidate_for_sealing() {
    let _alone = alone();
    let Some(program) = built("configured_server") else { return };
    let findings = analysed("server", &[program.to_str().unwrap()]);
    let sealed: Vec<_> = advised(&findings)
        .into_iter()
        .filter(|group| group["verdict"]["allocator"] == "sealed")
        .collect();
    assert_eq!(sealed.len(), 1, "{}", verdicts(&findings));
    let verdict = &sealed[0]["verdict"];
    assert_eq!(
        (&verdict["category"], &verdict["candidate"]),
        (&"read_only_shared".into(), &true.into())
    );
    // 40 sections with a name, 25 entries each with key and value; what threads need comes from
    // elsewhere.
    assert!(
        (3080..3090).contains(&sealed[0]["count"].as_u64().unwrap()),
        "{}",
        verdicts(&findings)
    );
    assert_eq!(sealed[0]["title"], "load_configuration");
}

#[test]
fn a_program_that_spends_a_hundredth_of_its_time_in_malloc_has_little_to_gain() {
    let _alone = alone();
    let Some(program) = built("one_percent") else { return };
    assert_little_to_gain(&analysed("little", &[program.to_str().unwrap()]));
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fails if anything that is advised may save more than a twentieth. These programs gain about as
/// much as the hundredth below which nothing is advised, and a disturbed CPU time shows more.
fn assert_little_to_gain(findings: &Value) {
    let share = findings["program"]["allocator_share"].as_f64().unwrap();
    assert!(share > 0.0 && share < 0.05, "{share}: {}", verdicts(findings));
    for group in advised(findings) {
        let ceiling = group["verdict"]["gain"]["ceiling"].as_f64().unwrap();
        assert!(ceiling < 0.05, "{}", verdicts(findings));
    }
}

#[test]
fn nginx_has_pools_of_its_own_and_little_to_gain() {
    let _alone = alone();
    if !installed("nginx", "nginx-light") {
        return;
    }
    let findings = nginx();
    assert!(findings["program"]["allocations"].as_u64().unwrap() > 1000, "{}", verdicts(&findings));
    assert_little_to_gain(&findings);
}

/// Records an nginx that answers, and analyses the recording.
fn nginx() -> Value {
    let home = folder().join("nginx");
    std::fs::create_dir_all(home.join("logs")).unwrap();
    std::fs::write(home.join("page.html"), "a page").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let home = home.to_str().unwrap();
    let configuration = format!(
        "daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;
         events {{ worker_connections 64; }}
         http {{
             access_log off; keepalive_requests 100000;
             client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
             uwsgi_temp_path {home}; scgi_temp_path {home};
             server {{ listen 127.0.0.1:{port}; location / {{ root {home}; }} }}
         }}"
    );
    let file = format!("{home}/nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let recording = folder().join("nginx.allot");
    let server = allot()
        .args(["record", "-o"])
        .arg(&recording)
        .args(["--", "nginx", "-p", home, "-c", &file])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Server(server);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut connection = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(connection) => break connection,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut answer = [0; 4096];
    for _ in 0..3000 {
        connection.write_all(b"GET /page.html HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"a page") {
            let length = connection.read(&mut answer).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&answer[..length]);
        }
        assert!(seen.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&seen));
    }
    drop(connection);
    let pid = std::fs::read_to_string(format!("{home}/pid")).unwrap();
    let quit = Command::new("kill").args(["-QUIT", pid.trim()]).status().unwrap();
    assert!(quit.success());
    assert!(server.0.wait().unwrap().success());
    findings(&recording)
}

/// The program of postgres's own name, wherever its package puts it.
fn postgres(program: &str) -> Option<PathBuf> {
    let packaged = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = packaged.map(|version| version.path().join("bin").join(program));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others =
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect::<Vec<_>>();
    let found = found.chain(others).find(|program| program.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: {program} is not installed (package postgresql)");
    }
    found
}

/// A command that doesn't run as root: postgres refuses that.
fn unprivileged(program: &Path) -> Command {
    if !nix::unistd::Uid::effective().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command
}

#[test]
fn postgres_has_pools_of_its_own_and_little_to_gain() {
    let _alone = alone();
    let (Some(initdb), Some(postgres)) = (postgres("initdb"), postgres("postgres")) else { return };
    // Another user has to come to it, and a socket's path would be too long below the target
    // folder.
    let home = tempfile::tempdir().unwrap();
    let all_users = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(home.path(), all_users).unwrap();
    let allot = home.path().join("allot");
    std::fs::copy(env!("CARGO_BIN_EXE_allot"), &allot).unwrap();
    let database = home.path().join("database");
    let made = unprivileged(&initdb)
        .args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8", "-D"])
        .arg(&database)
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if !made.status.success() {
        eprintln!("SKIPPED: initdb can't run here: {}", String::from_utf8_lossy(&made.stderr));
        return;
    }
    let queries = home.path().join("queries");
    std::fs::write(
        &queries,
        "create table t(id int primary key, name text, value float8)
insert into t select i, 'name ' || (i * 7919 % 1000), random() from generate_series(1, 40000) i
select name, count(*), sum(value) from t group by name order by 2 desc limit 5
select count(*) from t a join t b on a.id = b.id + 1 where b.name like '%7%'
update t set name = upper(name) || 'x' where id % 3 = 0
select string_agg(name, ',' order by value) is not null from t
",
    )
    .unwrap();
    let recording = home.path().join("postgres.allot");
    let output = unprivileged(&allot)
        .args(["record", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&postgres)
        .args(["--single", "-D"])
        .arg(&database)
        .arg("postgres")
        .current_dir(home.path())
        .stdin(std::fs::File::open(&queries).unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let answers = String::from_utf8_lossy(&output.stdout);
    assert!(answers.contains("name = \"NAME") || answers.contains("count = "), "{answers}");
    let findings = findings(&recording);
    assert!(findings["program"]["allocations"].as_u64().unwrap() > 1000, "{}", verdicts(&findings));
    assert!(advised(&findings).is_empty(), "{}", verdicts(&findings));
}
