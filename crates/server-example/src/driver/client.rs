//! A keep-alive connection to the service.

use super::sample_order::SampleOrder;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any reply takes, unless the service hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why a request has failed.
#[derive(Debug)]
pub enum ClientError {
    /// The connection failed, or there was no reply in time.
    Connection(io::Error),
    /// The reply is not HTTP as the service writes it.
    Malformed(String),
    /// The reply is not the expected one. Both are shown.
    Wrong(String, String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "the connection failed: {error}"),
            Self::Malformed(head) => write!(f, "the head of a reply is malformed: {head:?}"),
            Self::Wrong(reply, expected) => {
                write!(f, "a reply is wrong: {reply:?}; expected {expected:?}")
            }
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// A reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A connection, with buffers that its requests share.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    sent: Vec<u8>,
    order: Vec<u8>,
    expected: Vec<u8>,
    /// What was received.
    received: Vec<u8>,
    /// The number of bytes of `received` that belong to earlier replies.
    read: usize,
}

impl Client {
    /// Connects to the service.
    ///
    /// # Errors
    /// When the service does not accept the connection.
    pub fn connect(address: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream,
            sent: Vec::new(),
            order: Vec::new(),
            expected: Vec::new(),
            received: Vec::new(),
            read: 0,
        })
    }

    /// Sends orders at once, and checks that their confirmations come in the same order.
    ///
    /// # Errors
    /// When the connection fails or a reply is not the expected one.
    pub fn confirm(&mut self, orders: &[SampleOrder]) -> Result<(), ClientError> {
        self.sent.clear();
        for order in orders {
            self.order.clear();
            order.put_order(&mut self.order);
            put_request(&mut self.sent, "POST", "/orders", &self.order);
        }
        self.stream.write_all(&self.sent)?;
        for order in orders {
            self.expected.clear();
            order.put_confirmation(&mut self.expected);
            let (status, start, end) = self.receive()?;
            let body = &self.received[start..end];
            if status != 200 || body != self.expected {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let reply = format!("{status} {}", text(body));
                return Err(ClientError::Wrong(reply, format!("200 {}", text(&self.expected))));
            }
        }
        Ok(())
    }

    /// Sends any request, and returns its reply.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<HttpReply, ClientError> {
        self.sent.clear();
        put_request(&mut self.sent, method, path, body);
        self.stream.write_all(&self.sent)?;
        let (status, start, end) = self.receive()?;
        Ok(HttpReply { status, body: self.received[start..end].to_vec() })
    }

    /// Receives the next reply. Returns its status, and where in `received` its body is.
    fn receive(&mut self) -> Result<(u16, usize, usize), ClientError> {
        if self.read == self.received.len() {
            self.received.clear();
            self.read = 0;
        }
        let head_end = loop {
            let unread = &self.received[self.read..];
            if let Some(length) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break self.read + length + 4;
            }
            self.receive_more()?;
        };
        let head = String::from_utf8_lossy(&self.received[self.read..head_end]);
        let Some((status, length)) = status_and_length(&head) else {
            return Err(ClientError::Malformed(head.into_owned()));
        };
        let end = head_end + length;
        while self.received.len() < end {
            self.receive_more()?;
        }
        self.read = end;
        Ok((status, head_end, end))
    }

    fn receive_more(&mut self) -> Result<(), ClientError> {
        let mut piece = [0; 16 << 10];
        match self.stream.read(&mut piece)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            length => {
                self.received.extend_from_slice(&piece[..length]);
                Ok(())
            }
        }
    }
}

fn put_request(out: &mut Vec<u8>, method: &str, path: &str, body: &[u8]) {
    // Writing to memory can't fail.
    let _ = write!(
        out,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    out.extend_from_slice(body);
}

fn status_and_length(head: &str) -> Option<(u16, usize)> {
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })?;
    Some((status, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_a_status_and_a_length() {
        let head = "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 17\r\n\r\n";
        assert_eq!(status_and_length(head), Some((200, 17)));
        for wrong in ["", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
        {
            assert_eq!(status_and_length(wrong), None, "{wrong:?}");
        }
    }
}
