//! What the workers, the handles and the owner of a running server share.

use std::sync::Arc;

use allotment::Published;

use crate::initialiser::Initialiser;
use crate::queue::RequestQueue;
use crate::read_only_shared::ReadOnlyShared;

/// The state that the workers, the handles and the owner share.
pub(crate) struct ServerState<R: ReadOnlyShared, S, Q, A> {
    pub options: Initialiser,
    pub queue: RequestQueue<Q, A>,
    pub generations: Arc<Published<R>>,
    pub shared: Arc<S>,
}
