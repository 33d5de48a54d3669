//! Why a request was refused, and what the client can do about it.

use crate::query::parameters::{ParameterError, excerpt};
use std::fmt;

/// Why a request was refused. `Display` writes the cause; [`remedy`](Self::remedy) says what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// The page does not exist.
    UnknownPath(String),
    /// The page does not support this method.
    Method {
        /// The method of the request.
        used: String,
        /// The allowed methods, as in the `Allow` field.
        allowed: &'static str,
    },
    /// The request has a body.
    Body,
    /// A parameter is missing, unknown, repeated or invalid.
    Parameter(ParameterError),
    /// No chart has this context.
    UnknownContext(String),
    /// The request's memory is used up.
    Memory {
        /// The limit on one request, in bytes.
        request: u64,
        /// The limit on all requests together, in bytes.
        all: Option<u64>,
    },
    /// Every worker is busy, and the queue is full.
    Busy {
        /// The number of requests that may wait.
        queue: usize,
    },
    /// The agent is ending.
    Stopping,
    /// The handler panicked, which is a defect of the agent.
    Panicked,
    /// The request is not valid HTTP: the parser's status.
    Malformed(u16),
}

/// How long a refused client should wait, in seconds.
pub const RETRY_AFTER_SECONDS: u32 = 1;

impl RequestError {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownPath(_) | Self::UnknownContext(_) => 404,
            Self::Method { .. } => 405,
            Self::Body => 413,
            Self::Parameter(_) => 400,
            Self::Memory { .. } | Self::Busy { .. } | Self::Stopping => 503,
            Self::Panicked => 500,
            Self::Malformed(status) => *status,
        }
    }

    /// Returns what the client can do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::UnknownPath(_) => {
                "ask for one of: /, /metrics, /api/v1/info, /api/v1/contexts, /api/v1/query, \
                 /api/v1/allocators, /api/v1/session"
                    .to_owned()
            }
            Self::Method { allowed, .. } => format!("use one of: {allowed}"),
            Self::Body => "put the parameters into the query string, and send no body".to_owned(),
            Self::Parameter(error) => error.remedy(),
            Self::UnknownContext(_) => {
                "use one of the contexts that /api/v1/contexts lists; a new context appears there with its first chart"
                    .to_owned()
            }
            Self::Memory { .. } => {
                "ask for fewer points or a shorter range, ask again later, or start the agent with \
                 a higher --request-memory or --memory-limit"
                    .to_owned()
            }
            Self::Busy { .. } => {
                "ask again in a second; if this happens often, start the agent with more --workers or a longer \
                 --queue"
                    .to_owned()
            }
            Self::Stopping => "ask again after the agent was restarted".to_owned(),
            Self::Panicked => {
                "this is a defect of the agent, which keeps running; please report it with the line in its log".to_owned()
            }
            Self::Malformed(414) => "a request's address has at most 64 KiB".to_owned(),
            Self::Malformed(431) => "send fewer or shorter header fields".to_owned(),
            Self::Malformed(_) => "send a request of HTTP/1.1 or HTTP/1.0".to_owned(),
        }
    }

    /// Whether the same request may be answered later.
    pub fn is_passing(&self) -> bool {
        self.status() == 503
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPath(path) => write!(f, "there is no page '{}'", excerpt(path)),
            Self::Method { used, .. } => {
                write!(f, "this page does not support the method {}", excerpt(used))
            }
            Self::Body => f.write_str("the request has a body"),
            Self::Parameter(error) => error.fmt(f),
            Self::UnknownContext(name) => write!(f, "no chart has the context '{}'", excerpt(name)),
            Self::Memory { request, all: None } => {
                write!(f, "the request needs more than {request} bytes of memory")
            }
            Self::Memory { request, all: Some(all) } => write!(
                f,
                "the request needs more than {request} bytes of memory, or more than is left of the {all} bytes for all requests"
            ),
            Self::Busy { queue } => {
                write!(f, "every worker is busy, and {queue} requests are waiting")
            }
            Self::Stopping => f.write_str("the agent is ending"),
            Self::Panicked => f.write_str("the request could not be answered"),
            Self::Malformed(414) => f.write_str("the request's address is too long"),
            Self::Malformed(431) => f.write_str("the request's header is too large"),
            Self::Malformed(_) => f.write_str("this is not an HTTP request"),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<ParameterError> for RequestError {
    fn from(error: ParameterError) -> Self {
        Self::Parameter(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_status_of_an_error_a_cause_and_a_remedy() {
        let problems = [
            RequestError::UnknownPath("/a".to_owned()),
            RequestError::Method { used: "PUT".to_owned(), allowed: "GET, HEAD" },
            RequestError::Body,
            RequestError::Parameter(ParameterError::Missing("context")),
            RequestError::UnknownContext("x".to_owned()),
            RequestError::Memory { request: 1, all: None },
            RequestError::Memory { request: 1, all: Some(2) },
            RequestError::Busy { queue: 2 },
            RequestError::Stopping,
            RequestError::Panicked,
            RequestError::Malformed(400),
            RequestError::Malformed(414),
            RequestError::Malformed(431),
        ];
        for problem in problems {
            assert!((400..600).contains(&problem.status()), "{problem:?}");
            assert!(problem.to_string().len() > 10, "{problem:?}");
            assert!(problem.remedy().len() > 10, "{problem:?}");
            assert_eq!(problem.is_passing(), problem.status() == 503);
        }
    }

    #[test]
    fn what_a_client_sent_is_repeated_in_part_only() {
        let long = "é".repeat(5000);
        let problem = RequestError::UnknownContext(long);
        assert!(problem.to_string().len() < 300);
    }
}
