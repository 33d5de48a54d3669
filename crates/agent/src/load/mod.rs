//! A load generator: each of its connections sends its next request when it has received the reply.
//!
//! | file, lowest first | contents |
//! |---|---|
//! | `report` | the figures of a load |
//! | `compare` | the same load on two agents; imports the load generator from this file |

mod compare;
mod report;

pub use compare::{CompareError, CompareOptions, CompareReport, compare};
pub use report::LoadReport;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use report::LoadTally;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The options of a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The addresses to request in turn, all of one host.
    pub addresses: Vec<Uri>,
    /// Number of connections.
    pub connections: usize,
    /// The duration.
    pub time: Duration,
}

/// Why there was no load.
#[derive(Debug)]
pub enum LoadError {
    /// An address is not of the form `http://HOST[:PORT]/...`, or has another host than the first.
    Address(String),
    /// The host does not listen, or the system has no sockets left.
    Connect(String, io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(
                f,
                "'{address}' can't be requested; give addresses of one host, such as http://127.0.0.1:19990/api/v1/contexts"
            ),
            Self::Connect(host, error) => write!(
                f,
                "no connection to {host}: {error}; is the agent running, and is that the address it listens on?"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// What all connections share.
struct LoadState {
    host: String,
    field: HeaderValue,
    paths: Vec<Uri>,
    next: Cell<usize>,
    end: Instant,
    tally: RefCell<LoadTally>,
}

impl LoadState {
    fn has_time_left(&self) -> bool {
        Instant::now() < self.end
    }

    fn path(&self) -> Uri {
        let next = self.next.get();
        self.next.set((next + 1) % self.paths.len());
        self.paths[next].clone()
    }
}

/// Generates the load. Requests that are running at its end stay unanswered. `progress` is called
/// with the number of replies once a second. `stop` ends the load early.
///
/// # Errors
/// When an address is invalid, or the first connection fails.
pub async fn run(
    load: &LoadOptions,
    mut progress: impl FnMut(Duration, u64),
    stop: impl Future<Output = ()>,
) -> Result<LoadReport, LoadError> {
    let (host, paths) = split(&load.addresses)?;
    let connect_error = |error| LoadError::Connect(host.clone(), error);
    drop(TcpStream::connect(&host).await.map_err(connect_error)?);
    let field = HeaderValue::from_str(&host).map_err(|_| LoadError::Address(host.clone()))?;
    let start = Instant::now();
    let shared = Rc::new(LoadState {
        host,
        field,
        paths,
        next: Cell::new(0),
        end: start + load.time,
        tally: RefCell::default(),
    });
    let tasks = tokio::task::LocalSet::new();
    for _ in 0..load.connections.max(1) {
        tasks.spawn_local(send_requests(Rc::clone(&shared)));
    }
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    let mut stop = std::pin::pin!(stop);
    let mut time = std::pin::pin!(tokio::time::sleep(load.time));
    let mut tasks = std::pin::pin!(tasks);
    loop {
        tokio::select! {
            () = tasks.as_mut() => break,
            // Running requests are left out of the report.
            () = &mut time => break,
            () = &mut stop => break,
            _ = every_second.tick() => {
                progress(start.elapsed(), shared.tally.borrow().replies());
            }
        }
    }
    Ok(shared.tally.take().report(start.elapsed(), load.connections))
}

/// Returns the host with its port, and the paths.
fn split(addresses: &[Uri]) -> Result<(String, Vec<Uri>), LoadError> {
    let mut host = None;
    let mut paths = Vec::new();
    for address in addresses {
        let wrong = || LoadError::Address(address.to_string());
        if address.scheme_str() != Some("http") {
            return Err(wrong());
        }
        let authority = address.authority().ok_or_else(wrong)?;
        let this = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:80"),
        };
        if host.get_or_insert_with(|| this.clone()) != &this {
            return Err(wrong());
        }
        let path = address.path_and_query().map_or("/", |path| path.as_str());
        paths.push(path.parse().map_err(|_| wrong())?);
    }
    let host = host.ok_or_else(|| LoadError::Address(String::new()))?;
    Ok((host, paths))
}

/// Opens one connection after the other, until the time is over or the host does not listen any
/// more.
async fn send_requests(shared: Rc<LoadState>) {
    while shared.has_time_left() {
        match connect(&shared.host).await {
            Ok(sender) => {
                shared.tally.borrow_mut().connections += 1;
                send_until_closed(&shared, sender).await;
            }
            Err(error) => {
                shared.tally.borrow_mut().refused += 1;
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn connect(host: &str) -> io::Result<SendRequest<Empty<Bytes>>> {
    let socket = TcpStream::connect(host).await?;
    socket.set_nodelay(true)?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
    // Its errors are also those of the requests.
    tokio::task::spawn_local(async move { drop(connection.await) });
    Ok(sender)
}

async fn send_until_closed(shared: &LoadState, mut sender: SendRequest<Empty<Bytes>>) {
    while shared.has_time_left() {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = shared.path();
        request.headers_mut().insert(header::HOST, shared.field.clone());
        if sender.ready().await.is_err() {
            return;
        }
        let asked = Instant::now();
        let answered = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let length = body.collect().await?.to_bytes().len();
            Ok::<_, hyper::Error>((head, length))
        };
        match answered.await {
            Ok((head, length)) => {
                shared.tally.borrow_mut().reply(head.status.as_u16(), asked.elapsed(), length);
                if head.headers.get(header::CONNECTION).is_some_and(|value| value == "close") {
                    return;
                }
            }
            Err(error) => {
                // A request that was never sent can be sent on another connection. Any other is
                // lost.
                if !error.is_canceled() {
                    shared.tally.borrow_mut().lost += 1;
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_one_host() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let (host, paths) =
            split(&[uri("http://localhost:1/a?b=c"), uri("http://localhost:1")]).unwrap();
        assert_eq!(host, "localhost:1");
        assert_eq!(paths, [uri("/a?b=c"), uri("/")]);
        assert_eq!(split(&[uri("http://localhost/")]).unwrap().0, "localhost:80");
        for bad in [
            &[uri("https://localhost/")][..],
            &[uri("/a")],
            &[],
            &[uri("http://a/"), uri("http://b/")],
        ] {
            assert!(matches!(split(bad), Err(LoadError::Address(_))), "{bad:?}");
        }
    }
}
