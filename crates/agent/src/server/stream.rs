//! A connection's socket: records transfers, ends a client that stopped reading, and replaces the
//! replies that the HTTP parser writes by itself.

use super::connections::Connection;
use super::reply::Reply;
use super::request_error::RequestError;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A socket below hyper.
#[derive(Debug)]
pub struct ConnectionStream {
    socket: TokioIo<TcpStream>,
    connection: Rc<Connection>,
    /// How long a client may leave its reply unread.
    write_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
    /// The text that replaces the parser's reply, and how many of its bytes are written.
    replacement: Option<(Vec<u8>, usize)>,
}

impl ConnectionStream {
    /// Wraps a socket.
    pub fn new(socket: TcpStream, connection: Rc<Connection>, write_timeout: Duration) -> Self {
        Self {
            socket: TokioIo::new(socket),
            connection,
            write_timeout,
            stall_timer: None,
            replacement: None,
        }
    }

    /// Records the result of a write. A write that is pending for too long fails.
    fn record_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                self.stall_timer = None;
                self.connection.record_transfer(Instant::now());
                Poll::Ready(written)
            }
            Poll::Pending => {
                let write_timeout = self.write_timeout;
                let stall_timer = self
                    .stall_timer
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(write_timeout)));
                stall_timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Writes the rest of the replacement for `whole` bytes, and then returns that these were
    /// written.
    fn write_replacement(
        &mut self,
        context: &mut Context<'_>,
        whole: usize,
    ) -> Poll<io::Result<usize>> {
        while let Some((text, from)) = &mut self.replacement {
            if *from == text.len() {
                break;
            }
            let written = Pin::new(&mut self.socket).poll_write(context, &text[*from..]);
            match written {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => *from += count,
                other => return self.record_write(context, other),
            }
        }
        self.replacement = None;
        self.record_write(context, Poll::Ready(Ok(whole)))
    }
}

impl Read for ConnectionStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if read.is_ready() {
            self.connection.record_transfer(Instant::now());
        }
        read
    }
}

impl Write for ConnectionStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.replacement.is_none()
            && let Some(status) = parser_error_status(bytes)
        {
            let text = Reply::problem(&RequestError::Malformed(status)).closing_text();
            self.replacement = Some((text, 0));
        }
        if self.replacement.is_some() {
            return self.write_replacement(context, bytes.len());
        }
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.record_write(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.connection.record_flush();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices {
            return self.poll_write(context, only);
        }
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.record_write(context, written)
    }
}

/// Returns the status of hyper's own reply to a request that it can't parse: a head without a body
/// and without the fields of every reply of the agent. The handler never sees such a request.
fn parser_error_status(bytes: &[u8]) -> Option<u16> {
    const LONGEST: usize = 256;
    let head = std::str::from_utf8(bytes.get(..bytes.len().min(LONGEST))?).ok()?;
    let status = head.strip_prefix("HTTP/1.1 4").or_else(|| head.strip_prefix("HTTP/1.0 4"))?;
    let status: u16 = status.get(..2)?.parse().ok()?;
    let bare = bytes.len() <= LONGEST
        && head.find("\r\n\r\n") == Some(bytes.len() - 4)
        && head.contains("content-length: 0\r\n")
        && !head.contains("x-content-type-options");
    bare.then_some(400 + status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parsers_own_words_are_replaced() {
        let own = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n";
        assert_eq!(parser_error_status(own.as_bytes()), Some(400));
        let large = own.replace("400 Bad Request", "431 Request Header Fields Too Large");
        assert_eq!(parser_error_status(large.as_bytes()), Some(431));
        for other in [
            own.replace("400", "200"),
            own.replace("content-length: 0", "content-length: 10"),
            own.replace("date", "x-content-type-options: nosniff\r\ndate"),
            own.to_owned() + "x",
            own.trim_end().to_owned(),
            String::new(),
            "HTTP/1.1 4".to_owned(),
        ] {
            assert_eq!(parser_error_status(other.as_bytes()), None, "{other}");
        }
    }
}
