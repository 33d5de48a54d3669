//! The HTTP server: accepts connections, reads requests within limits, passes them to the
//! application, writes replies, and ends without losing an accepted request.
//!
//! It runs on one thread, which waits for sockets and does no work of a request itself.

use super::connections::{Connection, ConnectionGuard, ConnectionTable};
use super::reply::{COMMON_FIELDS, Reply};
use super::stream::ConnectionStream;
use crate::server::request_error::RequestError;
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

/// Limits on what a client may do, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// Number of open connections.
    pub connections: usize,
    /// Bytes of a request's header.
    pub header_bytes: usize,
    /// Number of fields in a request's header.
    pub header_fields: usize,
    /// Time within which a request's header must arrive, which is also how long a connection may be
    /// silent.
    pub header_time: Duration,
    /// How long a client may leave its reply unread.
    pub write_time: Duration,
    /// At the end: how long connections without a request may still send one that was on its way.
    pub grace: Duration,
    /// At the end: how long running requests may still take.
    pub drain: Duration,
}

/// The smallest value of `header_bytes`: what the HTTP library reads at once.
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

/// A request. It has no body.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// GET, HEAD, POST and so on.
    pub method: Method,
    /// The path and the query string.
    pub uri: Uri,
    /// The `Cookie` field, if there is one.
    pub cookies: Option<HeaderValue>,
    /// Alive as long as a connection waits for the reply.
    pub client_waits: Weak<()>,
}

impl HttpRequest {
    /// Whether a connection still waits for the reply.
    pub fn is_client_waiting(&self) -> bool {
        self.client_waits.strong_count() > 0
    }
}

/// Answers requests.
pub trait Application: 'static {
    /// Answers one request.
    fn answer(&self, request: HttpRequest) -> impl Future<Output = Reply>;

    /// Called with the current statistics after each accepted connection.
    fn observe(&self, statistics: HttpStatistics);
}

/// The statistics of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HttpStatistics {
    /// Open connections.
    pub open: usize,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were closed for others.
    pub evicted: u64,
    /// Requests that were answered, including refused ones.
    pub answered: u64,
}

/// The result of a server's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainResult {
    /// The last statistics.
    pub statistics: HttpStatistics,
    /// Connections whose requests took longer than the limit.
    pub abandoned: usize,
}

/// The state that all connections share.
struct HttpServer<A> {
    application: A,
    limits: HttpLimits,
    connections: Rc<ConnectionTable>,
    /// Whether replies close their connection.
    closing: Cell<bool>,
    answered: Cell<u64>,
    /// A connection that was accepted while no other could be closed for it.
    waiting: RefCell<Option<TcpStream>>,
}

impl<A> HttpServer<A> {
    fn statistics(&self) -> HttpStatistics {
        HttpStatistics {
            open: self.connections.len(),
            accepted: self.connections.accepted(),
            evicted: self.connections.evictions(),
            answered: self.answered.get(),
        }
    }
}

/// Serves until `stop` ends, and then drains. Must be called inside a `LocalSet`.
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
            guard = accept(&listener, &http_server) => spawn_connection(&http_server, guard, &ending),
        }
        http_server.application.observe(http_server.statistics());
    }
    drain(listener, http_server, &end, &ending).await
}

/// Returns the next connection that the table can hold. Dropping the future loses no connection.
async fn accept<A>(
    listener: &TcpListener,
    http_server: &HttpServer<A>,
) -> (TcpStream, ConnectionGuard) {
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        if http_server.waiting.borrow().is_none() {
            match listener.accept().await {
                Ok((socket, _)) => *http_server.waiting.borrow_mut() = Some(socket),
                // A client that closed before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Most likely too many open files, which is no reason to end.
                Err(_) => {
                    let _ = http_server.connections.evict_one();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        if http_server.waiting.borrow().is_some() {
            match http_server.connections.add(Instant::now()) {
                Ok(guard) => {
                    if let Some(socket) = http_server.waiting.take() {
                        return (socket, guard);
                    }
                }
                // Every connection has a request in flight. This one waits, and later ones wait in
                // the system's queue.
                Err(_full) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

fn spawn_connection<A: Application>(
    http_server: &Rc<HttpServer<A>>,
    (socket, guard): (TcpStream, ConnectionGuard),
    ending: &watch::Receiver<bool>,
) {
    // Replies are written in one piece, so nothing is gained by a delay.
    let _ = socket.set_nodelay(true);
    let (http_server, ending) = (Rc::clone(http_server), ending.clone());
    tokio::task::spawn_local(
        async move { serve_connection(http_server, socket, guard, ending).await },
    );
}

/// Serves one connection to its end.
async fn serve_connection<A: Application>(
    http_server: Rc<HttpServer<A>>,
    socket: TcpStream,
    guard: ConnectionGuard,
    mut ending: watch::Receiver<bool>,
) {
    let connection = Rc::clone(&guard.connection);
    let stream =
        ConnectionStream::new(socket, Rc::clone(&connection), http_server.limits.write_time);
    let service = service_fn(|request: Request<Incoming>| {
        let (http_server, connection) = (Rc::clone(&http_server), Rc::clone(&connection));
        connection.record_request();
        async move { Ok::<_, Infallible>(answer(&http_server, connection, request).await) }
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(http_server.limits.header_time)
        .max_buf_size(http_server.limits.header_bytes.max(MIN_HEADER_BYTES))
        .max_headers(http_server.limits.header_fields)
        // A client that closes its side is treated as gone, and its request is dropped. Otherwise
        // clients that gave up on a busy server would keep it busy.
        .half_close(false)
        .serve_connection(stream, service);
    let mut http = std::pin::pin!(http);
    // Errors are the client's: it closed the connection, was too slow, or did not send HTTP. It was
    // told so where that was possible.
    tokio::select! {
        biased;
        // Checked first, so that no request is read after the connection was evicted.
        () = connection.evicted() => return,
        _ = http.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => {}
    }
    http.as_mut().graceful_shutdown();
    let _ = http.await;
}

async fn answer<A: Application>(
    http_server: &HttpServer<A>,
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Response<ReplyBody> {
    let has_body = !request.body().is_end_stream();
    let (head, _) = request.into_parts();
    let reply = if has_body {
        Reply::problem(&RequestError::Body)
    } else {
        let cookies = head.headers.get(header::COOKIE).cloned();
        // Dropped with this future, which is dropped with its connection.
        let waiting = Arc::new(());
        let client_waits = Arc::downgrade(&waiting);
        let request = HttpRequest { method: head.method, uri: head.uri, cookies, client_waits };
        http_server.application.answer(request).await
    };
    http_server.answered.set(http_server.answered.get() + 1);
    let mut response = Response::new(ReplyBody { bytes: Some(reply.body), connection });
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

/// Ends without losing an accepted request. Connections in the system's queue are accepted. Each
/// connection ends with its next reply, or after the grace time if it stays silent. Running
/// requests have until the limit.
async fn drain<A: Application>(
    listener: TcpListener,
    http_server: Rc<HttpServer<A>>,
    end: &watch::Sender<bool>,
    ending: &watch::Receiver<bool>,
) -> DrainResult {
    http_server.closing.set(true);
    let grace = tokio::time::sleep(http_server.limits.grace);
    let mut grace = std::pin::pin!(grace);
    // The system has accepted these connections already.
    loop {
        let no_connection = tokio::time::sleep(Duration::from_millis(1));
        tokio::select! {
            biased;
            () = &mut grace => break,
            guard = accept(&listener, &http_server) => spawn_connection(&http_server, guard, ending),
            () = no_connection, if http_server.waiting.borrow().is_none() => break,
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
    let statistics = http_server.statistics();
    http_server.application.observe(statistics);
    DrainResult { statistics, abandoned: http_server.connections.len() }
}

/// A body in one piece, which records when it is in the connection's buffer.
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
        self.connection.record_reply();
    }
}
