//! What a server is: requests, the configuration, and the objects that all workers share.

use super::locks::Tally;
use super::sessions::Sessions;
use crate::peers::Task;

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub user: u32,
    pub page: u32,
}

/// The contents of the configuration.
pub trait ConfigurationContents {
    fn title(&self) -> &str;
    fn url(&self) -> &str;
    fn footer(&self) -> &str;
    /// Path and label.
    fn link(&self, number: usize) -> (&str, &str);
}

/// The objects that all workers share.
pub trait Server: Sync + Sized {
    type ConfigurationContents<'s>: ConfigurationContents;

    fn new() -> Self;

    fn sessions(&self) -> &Sessions;

    /// Calls `inspect` with the configuration.
    fn configuration<R>(
        &self,
        tally: &Tally,
        inspect: impl FnOnce(&Self::ConfigurationContents<'_>) -> R,
    ) -> R;

    /// Serves a request: renders its page and passes the bytes to `send`.
    fn serve<T: Task>(&self, task: T, request: Request, tally: &Tally, send: impl FnOnce(&[u8]));
}
