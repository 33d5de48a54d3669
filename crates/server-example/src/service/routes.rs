//! The routes, with a pool around a handler's polls or for each request.

use super::pools::Pools;
use super::shop::{InvalidOrder, Shop};
use allotment::{LocalPool, pool};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use tokio::task::yield_now;

/// Returns the service.
pub fn routes(shop: Arc<Shop>, pools: Pools) -> Router {
    let confirm = match pools {
        Pools::None | Pools::Connection => post(confirm),
        // One word around the handler.
        Pools::Handler => post(|shop, order| pool::poll_in_thread_pools(confirm(shop, order))),
        Pools::Request { limit } => {
            post(move |shop, order| confirm_in_request_pool(shop, order, limit))
        }
    };
    Router::new().route("/orders", confirm).route("/orders/{id}", get(summary)).with_state(shop)
}

/// Confirms an order.
async fn confirm(State(shop): State<Arc<Shop>>, order: Bytes) -> Response {
    let confirmation = shop.confirm(&order);
    wait_for_others().await;
    respond(confirmation)
}

/// Confirms an order in a pool of its own.
///
/// The pool ends before the await: it belongs to the thread, and the next poll may be on another.
/// The confirmation is still live then. Its memory goes back when hyper has sent it.
async fn confirm_in_request_pool(
    State(shop): State<Arc<Shop>>,
    order: Bytes,
    limit: Option<usize>,
) -> Response {
    let confirmation = {
        let pool = match limit {
            None => LocalPool::try_new(),
            Some(limit) => LocalPool::builder().maximum(limit).try_build(),
        };
        let pool = match pool {
            Ok(pool) => pool,
            Err(error) => {
                return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response();
            }
        };
        let confirmation = pool.enter(|| shop.confirm(&order));
        // A limit makes no allocation fail: malloc serves what the pool refuses, and the service
        // decides.
        if pool.refused_bytes() > 0 {
            return (StatusCode::PAYLOAD_TOO_LARGE, "the order takes too much memory")
                .into_response();
        }
        confirmation
    };
    wait_for_others().await;
    respond(confirmation)
}

/// Stands for a wait, as for a database: other tasks run, and another thread may go on with this
/// one.
async fn wait_for_others() {
    yield_now().await;
}

fn respond(confirmation: Result<Vec<u8>, InvalidOrder>) -> Response {
    match confirmation {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(InvalidOrder(cause)) => (StatusCode::BAD_REQUEST, cause).into_response(),
    }
}

/// Returns the summary of an order.
async fn summary(State(shop): State<Arc<Shop>>, Path(id): Path<u64>) -> Response {
    match shop.recent.get(id) {
        Some(summary) => summary.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
