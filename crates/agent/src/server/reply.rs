//! A reply, before it is written as HTTP.

use super::request_error::{RETRY_AFTER_SECONDS, RequestError};
use crate::query::json::JsonWriter;
use allocator_api2::alloc::Global;
use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};

/// A reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The media type.
    pub content_type: &'static str,
    /// The body. It may own the arena that it lies in.
    pub body: Bytes,
    /// Fields in addition to those of every reply.
    pub fields: Vec<(HeaderName, HeaderValue)>,
}

/// The media type of JSON.
pub const JSON: &str = "application/json; charset=utf-8";
/// Fields of every reply: browsers must not guess types, and must not cache values that change each
/// second.
pub const COMMON_FIELDS: [(HeaderName, &str); 2] =
    [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::CACHE_CONTROL, "no-store")];

impl Reply {
    /// Creates a reply with status 200.
    pub fn new(content_type: &'static str, body: Bytes) -> Self {
        Self { status: 200, content_type, body, fields: Vec::new() }
    }

    /// Creates a refusal: `{"error": cause, "remedy": what helps}`.
    pub fn problem(problem: &RequestError) -> Self {
        let body = problem_text(problem);
        let mut fields = Vec::new();
        if problem.is_passing() {
            fields.push((header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS)));
        }
        if let RequestError::Method { allowed, .. } = problem {
            fields.push((header::ALLOW, HeaderValue::from_static(allowed)));
        }
        if matches!(problem, RequestError::Body | RequestError::Stopping) {
            fields.push((header::CONNECTION, HeaderValue::from_static("close")));
        }
        Self { status: problem.status(), content_type: JSON, body, fields }
    }

    /// Returns the reply as HTTP/1.1 text that closes the connection.
    pub fn closing_text(&self) -> Vec<u8> {
        let status = hyper::StatusCode::from_u16(self.status)
            .unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
        let mut text = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n",
            status.as_u16(),
            status.canonical_reason().unwrap_or("Error"),
            self.content_type,
            self.body.len()
        )
        .into_bytes();
        for (name, value) in COMMON_FIELDS {
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(&self.body);
        text
    }
}

fn problem_text(problem: &RequestError) -> Bytes {
    let write = || {
        let mut writer = JsonWriter::new(Global, 256)?;
        writer.raw("{\"error\":")?;
        writer.string(&problem.to_string())?;
        writer.raw(",\"remedy\":")?;
        writer.string(&problem.remedy())?;
        writer.raw("}\n")?;
        Ok::<_, crate::query::json::OutOfMemory>(writer.into_bytes().as_slice().to_vec())
    };
    write().map_or_else(|_| Bytes::from_static(b"{\"error\":\"\",\"remedy\":\"\"}\n"), Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_json_with_cause_and_remedy() {
        let reply = Reply::problem(&RequestError::UnknownContext("a\"b".to_owned()));
        let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(reply.status, 404);
        assert!(json["error"].as_str().unwrap().contains("a\"b"));
        assert!(json["remedy"].as_str().unwrap().contains("/api/v1/contexts"));
    }

    #[test]
    fn a_passing_refusal_says_when_to_come_back() {
        let reply = Reply::problem(&RequestError::Busy { queue: 3 });
        assert!(reply.fields.iter().any(|(name, _)| name == header::RETRY_AFTER));
        let reply =
            Reply::problem(&RequestError::Method { used: "PUT".into(), allowed: "GET, HEAD" });
        assert!(
            reply.fields.iter().any(|(name, value)| name == header::ALLOW && value == "GET, HEAD")
        );
    }
}
