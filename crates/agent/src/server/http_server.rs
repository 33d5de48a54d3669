//! The front: takes connections in, reads requests within limits, hands them to the application, writes replies, and
//! ends without losing a request that was accepted.
//!
//! It runs on one thread, which waits for sockets and does no work of a request itself.

use super::connections::{Connection, ConnectionGuard, ConnectionTable};
use super::reply::{COMMON_FIELDS, Reply};
use super::stream::ConnectionStream;
use crate::server::problem::Problem;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioTimer;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a client may do, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// Open connections.
    pub connections: usize,
    /// Bytes of a request's header.
    pub header_bytes: usize,
    /// Fields of a request's header.
    pub header_fields: usize,
    /// From the moment a connection may send a request to the end of its header; so long may one be silent, too.
    pub header_time: Duration,
    /// How long a client may leave its reply unread.
    pub write_time: Duration,
    /// When the server ends: how long idle connections may still send a request that was under way.
    pub grace: Duration,
    /// When the server ends: how long requests may still take.
    pub drain: Duration,
}

/// The least that `header_bytes` may be: what the HTTP library reads at once.
pub const MIN_HEADER_BYTES: usize = 8192;

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            header_bytes: 16 << 10,
            header_fields: 64,
            header_time: Duration::from_secs(20),
            write_time: Duration::from_secs(20),
            grace: Duration::from_millis(250),
            drain: Duration::from_secs(10),
        }
    }
}

/// A request without a body.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// GET, HEAD, POST...
    pub method: Method,
    /// What is asked for.
    pub uri: Uri,
    /// The cookies that the client sent.
    pub cookies: Option<HeaderValue>,
    /// Lives as long as somebody waits for the reply.
    pub client_waits: Weak<()>,
}

impl HttpRequest {
    /// Whether somebody waits for the reply still.
    pub fn is_client_waiting(&self) -> bool {
        self.client_waits.strong_count() > 0
    }
}

/// What answers requests.
pub trait Application: 'static {
    /// Answers one.
    fn answer(&self, ask: HttpRequest) -> impl Future<Output = Reply>;

    /// A look at the figures, with each connection.
    fn observe(&self, figures: HttpStatistics);
}

/// What the front has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HttpStatistics {
    /// Connections that are open.
    pub open: usize,
    /// Connections that were taken in so far.
    pub accepted: u64,
    /// Connections that had to make room for others.
    pub evicted: u64,
    /// Requests that were answered, refusals included.
    pub answered: u64,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainResult {
    /// What was counted.
    pub figures: HttpStatistics,
    /// Connections whose requests took longer than the drain may.
    pub abandoned: usize,
}

/// What all connections share.
struct HttpServer<A> {
    application: A,
    limits: HttpLimits,
    connections: Rc<ConnectionTable>,
    /// Replies say that the connection ends.
    closing: Cell<bool>,
    answered: Cell<u64>,
    /// Accepted, while every place is taken.
    waiting: RefCell<Option<TcpStream>>,
}

impl<A> HttpServer<A> {
    fn figures(&self) -> HttpStatistics {
        HttpStatistics {
            open: self.connections.len(),
            accepted: self.connections.accepted(),
            evicted: self.connections.evictions(),
            answered: self.answered.get(),
        }
    }
}

/// Serves until `stop` ends, then drains. To be called inside of a `LocalSet`.
pub async fn serve<A: Application>(
    listener: TcpListener,
    application: A,
    limits: HttpLimits,
    stop: impl Future<Output = ()>,
) -> DrainResult {
    let connections = Rc::new(ConnectionTable::new(limits.connections));
    let http_server = Rc::new(HttpServer {
        application,
        limits,
        connections,
        closing: Cell::new(false),
        answered: Cell::new(0),
        waiting: RefCell::new(None),
    });
    let (end, ending) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            place = accept(&listener, &http_server) => begin(&http_server, place, &ending),
        }
        http_server.application.observe(http_server.figures());
    }
    drain(listener, http_server, &end, &ending).await
}

/// The next connection that there is room for. Nothing is lost if it is dropped before it ends.
async fn accept<A>(
    listener: &TcpListener,
    http_server: &HttpServer<A>,
) -> (TcpStream, ConnectionGuard) {
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        if http_server.waiting.borrow().is_none() {
            match listener.accept().await {
                Ok((socket, _)) => *http_server.waiting.borrow_mut() = Some(socket),
                // A client that gave up before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Too many open files, most likely: no reason to end.
                Err(_) => {
                    let _ = http_server.connections.evict_one();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        if http_server.waiting.borrow().is_some() {
            match http_server.connections.enter(Instant::now()) {
                Ok(place) => {
                    if let Some(socket) = http_server.waiting.take() {
                        return (socket, place);
                    }
                }
                // All are at work: this one waits, and those behind it in the system's queue.
                Err(_full) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

fn begin<A: Application>(
    http_server: &Rc<HttpServer<A>>,
    (socket, place): (TcpStream, ConnectionGuard),
    ending: &watch::Receiver<bool>,
) {
    // Replies are written at once; there is nothing to wait for.
    let _ = socket.set_nodelay(true);
    let (http_server, ending) = (Rc::clone(http_server), ending.clone());
    tokio::task::spawn_local(async move { connection(http_server, socket, place, ending).await });
}

/// One connection, to its end.
async fn connection<A: Application>(
    http_server: Rc<HttpServer<A>>,
    socket: TcpStream,
    place: ConnectionGuard,
    mut ending: watch::Receiver<bool>,
) {
    let known = Rc::clone(&place.connection);
    let stream = ConnectionStream::new(socket, Rc::clone(&known), http_server.limits.write_time);
    let service = service_fn(|request: Request<Incoming>| {
        let (http_server, known) = (Rc::clone(&http_server), Rc::clone(&known));
        known.begin();
        async move { Ok::<_, Infallible>(answer(&http_server, known, request).await) }
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(http_server.limits.header_time)
        .max_buf_size(http_server.limits.header_bytes.max(MIN_HEADER_BYTES))
        .max_headers(http_server.limits.header_fields)
        // A client that closes its side is taken for gone, with the request that it waits for: else those who gave up on
        // a busy server would keep it busy.
        .half_close(false)
        .serve_connection(stream, service);
    let mut http = std::pin::pin!(http);
    // Errors are the client's: it broke off, was too slow, or sent no HTTP, and was told so where that was possible.
    tokio::select! {
        biased;
        // First, so that no request is read once the place is another's.
        () = known.evicted() => return,
        _ = http.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => {}
    }
    http.as_mut().graceful_shutdown();
    let _ = http.await;
}

async fn answer<A: Application>(
    http_server: &HttpServer<A>,
    known: Rc<Connection>,
    request: Request<Incoming>,
) -> Response<ReplyBody> {
    let has_body = !request.body().is_end_stream();
    let (head, _) = request.into_parts();
    let reply = if has_body {
        Reply::problem(&Problem::Body)
    } else {
        let cookies = head.headers.get(header::COOKIE).cloned();
        // Gone with this future, which is dropped with its connection.
        let waiting = Arc::new(());
        let client_waits = Arc::downgrade(&waiting);
        let ask = HttpRequest { method: head.method, uri: head.uri, cookies, client_waits };
        http_server.application.answer(ask).await
    };
    http_server.answered.set(http_server.answered.get() + 1);
    let mut response = Response::new(ReplyBody { bytes: Some(reply.body), connection: known });
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    for (name, value) in COMMON_FIELDS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    fields.extend(reply.fields);
    if http_server.closing.get() {
        fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Ends without losing a request that was accepted: what lies in the system's queue is taken in, connections end
/// with their next reply, those that stay silent for the grace end then, and what is at work may take its time.
async fn drain<A: Application>(
    listener: TcpListener,
    http_server: Rc<HttpServer<A>>,
    end: &watch::Sender<bool>,
    ending: &watch::Receiver<bool>,
) -> DrainResult {
    http_server.closing.set(true);
    let grace = tokio::time::sleep(http_server.limits.grace);
    let mut grace = std::pin::pin!(grace);
    // Connections that the system has accepted in our name are ours.
    loop {
        let nobody_came = tokio::time::sleep(Duration::from_millis(1));
        tokio::select! {
            biased;
            () = &mut grace => break,
            place = accept(&listener, &http_server) => begin(&http_server, place, ending),
            () = nobody_came, if http_server.waiting.borrow().is_none() => break,
        }
    }
    drop(listener);
    while !http_server.connections.is_empty() && !grace.is_elapsed() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let _ = end.send(true);
    let deadline = Instant::now() + http_server.limits.drain;
    while !http_server.connections.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let figures = http_server.figures();
    http_server.application.observe(figures);
    DrainResult { figures, abandoned: http_server.connections.len() }
}

/// A body in one piece that tells its connection when it lies in the connection's buffer.
#[derive(Debug)]
struct ReplyBody {
    bytes: Option<Bytes>,
    connection: Rc<Connection>,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take().filter(|bytes| !bytes.is_empty());
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        self.connection.buffer();
    }
}
