//! Accepts connections, with a pool around their polls.
//!
//! `axum::serve` accepts connections too, and spawns their tasks itself. A pool around each poll of
//! a connection needs a loop like this one.

use super::pools::Pools;
use allotment::pool;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::error::Error;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The pause after a connection could not be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves each connection in a task of its own.
pub(super) async fn serve(
    listener: TcpListener,
    routes: Router,
    pools: Pools,
) -> Result<(), Box<dyn Error>> {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("can't accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let connection = serve_connection(stream, routes.clone());
        if pools == Pools::Connection {
            tokio::spawn(pool::poll_in_thread_pools(connection));
        } else {
            tokio::spawn(connection);
        }
    }
}

async fn serve_connection(stream: TcpStream, routes: Router) {
    // A reply is written whole, so there is nothing to wait for.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(routes);
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!("a connection ended early: {error}");
    }
}
