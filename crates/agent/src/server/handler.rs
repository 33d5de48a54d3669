//! Answers a request on a worker.

use super::agent_objects::AgentObjects;
use super::allocator_table;
use super::http_server::HttpRequest;
use super::prometheus;
use super::reply::{JSON, Reply};
use super::request_error::RequestError;
use crate::configuration::{AgentConfiguration, SealedConfiguration};
use crate::memory::{Memory, RequestMemory};
use crate::page;
use crate::query::answer::answer;
use crate::query::json::{JsonWriter, OutOfMemory};
use crate::query::parameters::{ParameterError, Query, pairs, set_once};
use crate::sessions::{Session, SessionKey, Theme};
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec as VecIn;
use allotment::{Arena, Budget, OnRefusal};
use allotment_server::RequestContext;
use bytes::Bytes;
use hyper::Method;
use hyper::header::{self, HeaderName, HeaderValue};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The context of a request of the agent.
pub type WorkerContext<'w, M> = RequestContext<'w, SealedConfiguration, AgentObjects<M>>;

const READ: &str = "GET, HEAD";
const READ_AND_WRITE: &str = "GET, HEAD, POST";
const INITIAL_BYTES: usize = 2048;
/// Most replies fit in this size, in bytes, so that their chunks have one size and can replace each
/// other.
const REPLY_BYTES: usize = 32 << 10;

/// Answers any request.
pub fn handle<M: Memory>(worker: &mut WorkerContext<'_, M>, request: HttpRequest) -> Reply {
    let AgentObjects { counters, log, .. } = worker.shared();
    if !request.is_client_waiting() {
        counters.abandoned.add();
        return Reply::new(JSON, Bytes::new());
    }
    if configuration(worker).log_requests {
        log.info(format_args!("{} {}", request.method, request.uri));
    }
    match route(worker, &request) {
        Ok(reply) => {
            counters.answered.add();
            reply
        }
        Err(problem) => {
            match problem {
                RequestError::Memory { .. } => counters.out_of_memory.add(),
                _ => counters.refused.add(),
            }
            Reply::problem(&problem)
        }
    }
}

fn route<M: Memory>(
    worker: &mut WorkerContext<'_, M>,
    request: &HttpRequest,
) -> Result<Reply, RequestError> {
    let path = request.uri.path();
    let query = request.uri.query().unwrap_or_default();
    let read = || method(request, &[Method::GET, Method::HEAD], READ);
    match path {
        "/" => read().and_then(|()| page(worker, request)),
        "/metrics" => {
            read().and_then(|()| without_parameters(query)).and_then(|()| metrics(worker))
        }
        "/api/v1/info" => {
            read().and_then(|()| without_parameters(query)).and_then(|()| info(worker))
        }
        "/api/v1/contexts" => {
            read().and_then(|()| without_parameters(query)).and_then(|()| contexts(worker, request))
        }
        "/api/v1/query" => read().and_then(|()| points(worker, request, query)),
        "/api/v1/allocators" => {
            read().and_then(|()| without_parameters(query)).and_then(|()| allocators_page(worker))
        }
        "/api/v1/session" => {
            method(request, &[Method::GET, Method::HEAD, Method::POST], READ_AND_WRITE)
                .and_then(|()| session(worker, request, query))
        }
        "/test/panic" if configuration(worker).test_pages => panic!("asked for by a test"),
        "/test/sleep" if configuration(worker).test_pages => {
            let milliseconds = query.parse().unwrap_or(100);
            std::thread::sleep(Duration::from_millis(milliseconds));
            Ok(Reply::new(JSON, Bytes::from_static(b"{}\n")))
        }
        _ => Err(RequestError::UnknownPath(path.to_owned())),
    }
}

fn configuration<'w, M: Memory>(worker: &WorkerContext<'w, M>) -> &'w AgentConfiguration<'w> {
    worker.read_only().get()
}

fn method(
    request: &HttpRequest,
    allowed: &[Method],
    named: &'static str,
) -> Result<(), RequestError> {
    if allowed.contains(&request.method) {
        return Ok(());
    }
    Err(RequestError::Method { used: request.method.to_string(), allowed: named })
}

fn without_parameters(query: &str) -> Result<(), RequestError> {
    match pairs(query)?.next() {
        None => Ok(()),
        Some((name, _)) => Err(ParameterError::Unknown(name.into_owned(), "none").into()),
    }
}

/// Renders a reply, which owns its memory.
///
/// The work of the request has other memory, which may be a thousand times as large: it is free for
/// the next request as soon as the reply is rendered, while a slow client still reads the reply.
fn rendered<M: Memory>(
    worker: &WorkerContext<'_, M>,
    content_type: &'static str,
    render: impl for<'r> FnOnce(
        &'r M::Request,
    ) -> Result<
        VecIn<u8, <M::Request as RequestMemory>::Handle<'r>>,
        OutOfMemory,
    >,
) -> Result<Reply, RequestError> {
    let configuration = configuration(worker);
    let most = usize::try_from(configuration.request_memory).unwrap_or(usize::MAX);
    let limit = &worker.shared().limit;
    let memory = M::request(|| {
        let budget = limit.as_ref().map_or_else(|| Budget::new(most), |all| all.child(most));
        // The reply's collections return the error, and the request gets an answer that says so.
        let arena = Arena::builder().name("replies").budget(&budget);
        let arena = arena.on_refusal(OnRefusal::ReturnError);
        // Without memory for the hint the arena is empty, and the first allocation gets the error.
        arena.clone().hint(REPLY_BYTES).try_build().unwrap_or_else(|_| arena.build())
    });
    let reply = memory.render(render).map_err(|OutOfMemory| RequestError::Memory {
        request: configuration.request_memory,
        all: configuration.memory_limit,
    })?;
    Ok(Reply::new(content_type, Bytes::from_owner(reply)))
}

/// Returns the time that a query calls now: the second after the newest one that all charts have.
fn now<M: Memory>(worker: &WorkerContext<'_, M>) -> i64 {
    match worker.shared().store.newest() {
        0 => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX / 2)
        }
        newest => i64::from(newest) + 1,
    }
}

fn points<M: Memory>(
    worker: &mut WorkerContext<'_, M>,
    request: &HttpRequest,
    query: &str,
) -> Result<Reply, RequestError> {
    let query = Query::parse(query, now(worker), configuration(worker).max_points)?;
    record_visit(worker, request);
    let store = &worker.shared().store;
    let newest = store.newest();
    let structure = store.structure();
    let context = structure
        .context(&query.context)
        .ok_or_else(|| RequestError::UnknownContext(query.context.clone().into_owned()))?;
    let work = M::request(|| worker.take_arena());
    rendered(worker, JSON, |reply| {
        let (work, reply) = (work.handle(), reply.handle());
        if <M::Request as RequestMemory>::FREED_TOGETHER {
            answer::<M, _, _, true>(context, &query, newest, work, reply)
        } else {
            answer::<M, _, _, false>(context, &query, newest, work, reply)
        }
    })
}

/// Returns the list of contexts, which is rendered again only when a chart was added or removed.
fn contexts<M: Memory>(
    worker: &mut WorkerContext<'_, M>,
    request: &HttpRequest,
) -> Result<Reply, RequestError> {
    record_visit(worker, request);
    let shared = worker.shared();
    let generation = shared.store.generation();
    let known = shared.contexts.with(|list| {
        (list.generation.is_some_and(|listed| listed >= generation)).then(|| list.reply.clone())
    });
    if let Some(reply) = known {
        return Ok(Reply::new(JSON, reply));
    }
    let structure = shared.store.structure();
    let reply = rendered(worker, JSON, |memory| {
        let mut json = JsonWriter::new(memory.handle(), INITIAL_BYTES)?;
        json.raw("{\"generation\":")?;
        json.whole(structure.generation())?;
        json.raw(",\"contexts\":[")?;
        for (index, context) in structure.contexts().enumerate() {
            json.raw(if index == 0 { "\n" } else { ",\n" })?;
            json.raw("{\"name\":")?;
            json.string(context.name())?;
            json.raw(",\"title\":")?;
            json.string(context.title())?;
            json.raw(",\"units\":")?;
            json.string(context.units())?;
            json.raw(",\"charts\":")?;
            json.whole(context.charts().len() as u64)?;
            let dimensions: usize =
                context.charts().iter().map(|chart| chart.dimensions().len()).sum();
            json.raw(",\"dimensions\":")?;
            json.whole(dimensions as u64)?;
            json.raw("}")?;
        }
        json.raw("\n]}\n")?;
        Ok(json.into_bytes())
    })?;
    shared.counters.contexts_listed.add();
    shared.contexts.with(|list| {
        if list.generation.is_none_or(|listed| listed < structure.generation()) {
            // A copy, because the reply's memory is freed with the reply.
            let reply = Bytes::copy_from_slice(&reply.body);
            (list.generation, list.reply) = (Some(structure.generation()), reply);
        }
    });
    Ok(reply)
}

fn info<M: Memory>(worker: &mut WorkerContext<'_, M>) -> Result<Reply, RequestError> {
    let (shared, configuration) = (worker.shared(), configuration(worker));
    let structure = shared.store.structure();
    let (mut charts, mut metrics) = (0u64, 0u64);
    for chart in structure.charts() {
        charts += 1;
        metrics += chart.dimensions().len() as u64;
    }
    let sessions = shared.sessions.with(|list| (list.len(), list.begun(), list.dropped()));
    let collector = &shared.collector;
    let micros =
        |time: Duration| JsonMember::Whole(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let counters = &shared.counters;
    let mut members: Vec<(&str, JsonMember<'_>)> = vec![
        ("name", JsonMember::Text("allotment-agent")),
        ("version", JsonMember::Text(env!("CARGO_PKG_VERSION"))),
        ("title", JsonMember::Text(configuration.title)),
        ("allocator", JsonMember::Text(configuration.allocator)),
        ("running_seconds", JsonMember::Whole(shared.started.elapsed().as_secs())),
        ("newest_second", JsonMember::Whole(u64::from(shared.store.newest()))),
        ("contexts", JsonMember::Whole(structure.contexts().len() as u64)),
        ("charts", JsonMember::Whole(charts)),
        ("metrics", JsonMember::Whole(metrics)),
        ("structure_generation", JsonMember::Whole(structure.generation())),
        ("configuration_generation", JsonMember::Whole(counters.configurations.get())),
        ("broken_configurations", JsonMember::Whole(counters.broken_configurations.get())),
        ("workers", JsonMember::Whole(u64::from(configuration.workers))),
        ("queue", JsonMember::Whole(u64::from(configuration.queue))),
        ("max_points", JsonMember::Whole(u64::from(configuration.max_points))),
        ("ticks", JsonMember::Whole(collector.ticks())),
        ("ticks_missed", JsonMember::Whole(collector.ticks_missed())),
        ("last_tick_us", micros(collector.last())),
        ("longest_tick_us", micros(collector.longest())),
        ("answered", JsonMember::Whole(counters.answered.get())),
        ("refused", JsonMember::Whole(counters.refused.get())),
        ("busy", JsonMember::Whole(counters.busy.get())),
        ("abandoned", JsonMember::Whole(counters.abandoned.get())),
        ("out_of_memory", JsonMember::Whole(counters.out_of_memory.get())),
        ("panicked", JsonMember::Whole(counters.panicked.get())),
        ("contexts_listed", JsonMember::Whole(counters.contexts_listed.get())),
        ("connections", JsonMember::Whole(counters.connections.get())),
        ("connections_accepted", JsonMember::Whole(counters.accepted.get())),
        ("connections_evicted", JsonMember::Whole(counters.evicted.get())),
        ("sessions", JsonMember::Whole(sessions.0 as u64)),
        ("sessions_begun", JsonMember::Whole(sessions.1)),
        ("sessions_dropped", JsonMember::Whole(sessions.2)),
        ("request_memory", JsonMember::Whole(configuration.request_memory)),
    ];
    if let Some(budget) = &shared.limit {
        members.push(("memory_limit", JsonMember::Whole(budget.limit() as u64)));
        members.push(("memory_used", JsonMember::Whole(budget.used() as u64)));
    }
    object(worker, &members)
}

/// A value in a flat JSON object.
#[derive(Clone, Copy)]
enum JsonMember<'t> {
    Text(&'t str),
    Whole(u64),
}

fn object<M: Memory>(
    worker: &mut WorkerContext<'_, M>,
    members: &[(&str, JsonMember<'_>)],
) -> Result<Reply, RequestError> {
    rendered(worker, JSON, |memory| {
        let mut json = JsonWriter::new(memory.handle(), INITIAL_BYTES)?;
        for (index, (name, member)) in members.iter().enumerate() {
            json.raw(if index == 0 { "{" } else { "," })?;
            json.key(name)?;
            match member {
                JsonMember::Text(text) => json.string(text)?,
                JsonMember::Whole(number) => json.whole(*number)?,
            }
        }
        json.raw("}\n")?;
        Ok(json.into_bytes())
    })
}

fn metrics<M: Memory>(worker: &mut WorkerContext<'_, M>) -> Result<Reply, RequestError> {
    let shared = worker.shared();
    rendered(worker, prometheus::CONTENT_TYPE, |memory| {
        in_memory(prometheus::render, shared, memory.handle())
    })
}

fn allocators_page<M: Memory>(worker: &mut WorkerContext<'_, M>) -> Result<Reply, RequestError> {
    let shared = worker.shared();
    rendered(worker, JSON, |memory| in_memory(allocator_table::render, shared, memory.handle()))
}

fn in_memory<M: Memory, A: Allocator + Copy>(
    render: impl FnOnce(&mut JsonWriter<A>, &AgentObjects<M>) -> Result<(), OutOfMemory>,
    shared: &AgentObjects<M>,
    memory: A,
) -> Result<VecIn<u8, A>, OutOfMemory> {
    let mut text = JsonWriter::new(memory, INITIAL_BYTES)?;
    render(&mut text, shared)?;
    Ok(text.into_bytes())
}

fn page<M: Memory>(
    worker: &mut WorkerContext<'_, M>,
    request: &HttpRequest,
) -> Result<Reply, RequestError> {
    let visit = find_or_begin_session(worker, request);
    let mut reply = Reply::new(page::CONTENT_TYPE, Bytes::from_static(page::PAGE.as_bytes()));
    reply.fields.extend(page::FIELDS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    reply.fields.extend(visit.and_then(|visit| visit.cookie));
    Ok(reply)
}

fn session_key(request: &HttpRequest) -> Option<SessionKey> {
    SessionKey::of_cookies(request.cookies.as_ref()?.to_str().ok()?)
}

/// Records a request of a known user.
fn record_visit<M: Memory>(worker: &WorkerContext<'_, M>, request: &HttpRequest) {
    if let Some(key) = session_key(request) {
        let limits = configuration(worker).sessions();
        worker.shared().sessions.with(|list| {
            let _ = list.visit(key, Instant::now(), limits);
        });
    }
}

/// A user's session.
struct SessionVisit {
    key: SessionKey,
    session: Session,
    /// The field that stores the key in the browser.
    cookie: Option<(HeaderName, HeaderValue)>,
}

/// Returns the user's session, or a new one. Without random bytes there are no new sessions;
/// everything else works.
fn find_or_begin_session<M: Memory>(
    worker: &WorkerContext<'_, M>,
    request: &HttpRequest,
) -> Option<SessionVisit> {
    let limits = configuration(worker).sessions();
    let now = Instant::now();
    let sessions = &worker.shared().sessions;
    let found = session_key(request).and_then(|key| {
        sessions.with(|list| list.visit(key, now, limits).map(|session| (key, *session)))
    });
    let (key, session) = found.or_else(|| {
        let key = SessionKey::random()?;
        Some((key, sessions.with(|list| *list.begin(key, now, limits))))
    })?;
    // Sent for an existing session too, so that the browser's expiry follows the agent's.
    let cookie = HeaderValue::from_str(&key.set_cookie(limits.expiry)).ok();
    Some(SessionVisit { key, session, cookie: cookie.map(|value| (header::SET_COOKIE, value)) })
}

fn session<M: Memory>(
    worker: &mut WorkerContext<'_, M>,
    request: &HttpRequest,
    query: &str,
) -> Result<Reply, RequestError> {
    let mut theme = None;
    for (name, value) in pairs(query)? {
        if request.method != Method::POST || name != "theme" {
            return Err(ParameterError::Unknown(name.into_owned(), "theme, with POST").into());
        }
        let chosen = Theme::from_name(&value).ok_or_else(|| {
            ParameterError::UnknownValue("theme", "auto, light, dark", value.into_owned())
        })?;
        set_once(&mut theme, "theme", chosen)?;
    }
    if request.method == Method::POST && theme.is_none() {
        return Err(ParameterError::Missing("theme").into());
    }
    let Some(SessionVisit { key, mut session, cookie }) = find_or_begin_session(worker, request)
    else {
        return object(worker, &[("theme", JsonMember::Text(Theme::default().as_str()))]);
    };
    if let Some(theme) = theme {
        session.theme = theme;
        worker.shared().sessions.with(|list| list.set_theme(key, theme));
    }
    let mut reply = object(
        worker,
        &[
            ("theme", JsonMember::Text(session.theme.as_str())),
            ("visits", JsonMember::Whole(session.visits)),
            ("since_seconds", JsonMember::Whole(session.since.elapsed().as_secs())),
        ],
    )?;
    reply.fields.extend(cookie);
    Ok(reply)
}
