//! The page at `/`: one file, without external assets.

use hyper::header::{self, HeaderName};

/// The media type.
pub const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// The page, with its style and its script.
pub const PAGE: &str = include_str!("index.html");

/// The page may load nothing, connect only to the agent, and not be framed.
pub const FIELDS: [(HeaderName, &str); 2] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        assert!(PAGE.contains("/api/v1/contexts") && PAGE.len() < 64 << 10);
    }
}
