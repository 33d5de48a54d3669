//! The page that a request asks for: a menu, a table, and the user's last pages. Its bytes are the
//! same, however the objects are shared.

use super::locks::Tally;
use super::server::{ConfigurationContents, Request, Server};
use super::sessions::Session;
use crate::peers::Task;
use crate::workloads::task_memory::Buffer;
use std::fmt::{self, Write};

/// The number of links of the menu.
pub const LINKS: usize = 16;
/// The number of lines of the table.
const LINES: u32 = 24;
/// The initial capacity of a reply. No page exceeds it.
pub const REPLY_CAPACITY: usize = 8 << 10;
/// The initial capacity of a text of the request.
const TEXT_ROOM: usize = 64;

pub const TITLE: &str = "The shop at the corner";
pub const URL: &str = "https://shop.example.org:8443/server";
pub const FOOTER: &str = "Open from eight to six. All prices in cents.";

pub fn path(number: usize) -> String {
    format!("/department/{number}")
}

pub fn label(number: usize) -> String {
    format!("Department number {number}")
}

/// Renders the page. Texts that only this request needs come from `memory`.
///
/// The configuration is read each time that something of it is needed, as in a program whose code
/// is in many places.
pub fn render<S: Server, T: Task>(
    server: &S,
    memory: &T,
    reply: &mut impl Write,
    request: Request,
    tally: &Tally,
) -> fmt::Result {
    let session = server.sessions().visit(request.user, request.page, tally);
    reply.write_str("<!doctype html><html><head><title>")?;
    server.configuration(tally, |settings| reply.write_str(settings.title()))?;
    reply.write_str("</title><base href=\"")?;
    server.configuration(tally, |settings| reply.write_str(settings.url()))?;
    reply.write_str("\"></head><body>")?;
    greet(memory, reply, request, session)?;
    for number in 0..LINKS {
        let mut target = Buffer::with_capacity(memory, TEXT_ROOM);
        let mut label = Buffer::with_capacity(memory, TEXT_ROOM);
        server.configuration(tally, |settings| {
            let (path, text) = settings.link(number);
            target.push(settings.url().as_bytes());
            target.push(path.as_bytes());
            label.push(text.as_bytes());
        });
        write!(target, "?user={}", request.user)?;
        reply.write_str("<a href=\"")?;
        push(reply, &target)?;
        reply.write_str("\">")?;
        push(reply, &label)?;
        reply.write_str("</a>")?;
        label.free();
        target.free();
    }
    reply.write_str("<table>")?;
    for line in 0..LINES {
        let mut cells = Buffer::with_capacity(memory, TEXT_ROOM);
        let article = request.page.wrapping_mul(31).wrapping_add(line) % 100_000;
        write!(cells, "<td>article {article}<td>{}", article % 977 + 99)?;
        reply.write_str("<tr>")?;
        push(reply, &cells)?;
        cells.free();
    }
    reply.write_str("</table><p>")?;
    server.configuration(tally, |settings| reply.write_str(settings.footer()))?;
    reply.write_str("</body></html>\n")
}

fn greet<T: Task>(
    memory: &T,
    reply: &mut impl Write,
    request: Request,
    session: Session,
) -> fmt::Result {
    let mut greeting = Buffer::with_capacity(memory, TEXT_ROOM);
    write!(
        greeting,
        "Welcome, user {}, for the {}. time. Last seen:",
        request.user, session.visits
    )?;
    for page in session.pages {
        write!(greeting, " {page}")?;
    }
    reply.write_str("<p>")?;
    push(reply, &greeting)?;
    greeting.free();
    Ok(())
}

fn push<T: Task>(reply: &mut impl Write, text: &Buffer<'_, T>) -> fmt::Result {
    // SAFETY: all that was pushed into the buffers of this file was text.
    reply.write_str(unsafe { std::str::from_utf8_unchecked(text.as_bytes()) })
}
