//! The application server of *Locking Categories*, in its phases.
//!
//! It has three kinds of objects:
//!
//! - What to serve is configuration. It is made from data, sealed, and read without a lock.
//! - The user sessions are shared, under a lock.
//! - Each reply is transient: rendered in the arena of its request, and sent to the client together
//!   with that arena.
//!
//! Then the configuration changes while the server runs, a request panics, and the server stops and
//! starts again with the users that it knew.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use allotment::sealed::Sealable;
use allotment::{Arena, ArenaString, LocalPool, PoolString, ReadOnly, Sealed};
use allotment_server::{
    ArenaBytes, Configuration, ConfigurationError, Initialiser, ObjectFactories, Outcome,
    ReadOnlyObjects, RequestContext, Section, ServerHandle, Shared, WhenFull,
};

// ---- read-only shared ----

/// A page, made from a section of the kind "page" in the configuration.
struct Page<'s> {
    path: &'s str,
    title: &'s str,
}

// SAFETY: shared references to text. With the feature `derive`, `#[derive(ReadOnly)]` generates
// this implementation and the next one.
unsafe impl ReadOnly for Page<'_> {}

impl Sealable for Page<'static> {
    type In<'s> = Page<'s>;
}

type Pages = Sealed<ReadOnlyObjects<'static>>;

fn factories() -> ObjectFactories {
    ObjectFactories::new().read_only::<Page<'static>>("page", |sealer, section| {
        Ok(Page {
            path: sealer.try_alloc_str(section.get("path")?)?,
            title: sealer.try_alloc_str(section.get("title")?)?,
        })
    })
}

/// What a configuration file would contain; see `Configuration::read`.
fn configuration(titles: [&str; 2]) -> Configuration {
    let [home, about] = titles;
    Configuration::new("in code")
        .with(Section::new("page", "home").with("path", "/").with("title", home))
        .with(Section::new("page", "about").with("path", "/about").with("title", about))
}

// ---- shared ----

/// The session manager. Its methods are external: any worker calls them, and they take the lock.
#[derive(Default)]
struct Sessions {
    list: Shared<SessionList>,
    requests: Shared<u64>,
}

impl Sessions {
    /// Counts a visit of a new or known user. Returns the user's number of visits and the number of
    /// the request.
    fn visit(&self, user: &str) -> (u32, u64) {
        // Locks two objects at once. `lock_all` always takes the locks in the same order.
        let locked = allotment_server::lock_all((&self.list, &self.requests));
        let (mut list, mut requests) = locked.expect("no worker panics with these locked");
        *requests += 1;
        (list.visit(user), *requests)
    }

    fn known(&self) -> usize {
        self.list.with(|list| list.visits.len())
    }
}

/// The data under the lock. Its methods are internal: their callers hold the lock, and they can't
/// reach it.
#[derive(Default)]
struct SessionList {
    visits: HashMap<String, u32>,
}

impl SessionList {
    fn visit(&mut self, user: &str) -> u32 {
        match self.visits.get_mut(user) {
            Some(visits) => {
                *visits += 1;
                *visits
            }
            None => {
                self.visits.insert(user.to_owned(), 1);
                1
            }
        }
    }
}

// ---- transient ----

struct Request {
    path: &'static str,
    user: &'static str,
}

fn handle(context: &mut RequestContext<'_, Pages, Sessions>, request: Request) -> ArenaBytes {
    assert!(!request.path.contains(".."), "no way out");
    let pages = context.read_only().get(); // no lock
    let page = pages.of_kind::<Page<'static>>("page").find(|(_, page)| page.path == request.path);
    let (visits, number) = context.shared().visit(request.user); // one lock each
    let greeting = PoolString::from(if visits == 1 { "Welcome" } else { "Welcome back" });
    ArenaBytes::new(context.take_arena(), |arena| {
        let mut reply = ArenaString::new_in(arena);
        let title = page.map_or("not found", |(_, page)| page.title);
        let written = write!(reply, "{title}: {greeting}, {}! ({number})", request.user);
        written.expect("text takes text");
        reply.into_str().as_bytes()
    })
}

type Server = ServerHandle<Pages, Sessions, Request, ArenaBytes>;

fn ask(server: &Server, path: &'static str, user: &'static str) -> String {
    match server.submit(Request { path, user }) {
        Err(refused) => refused.to_string(),
        Ok(ticket) => match ticket.wait() {
            Outcome::Done(reply) => String::from_utf8_lossy(&reply).into_owned(),
            other => format!("{other:?}"),
        },
    }
}

fn initialise() -> Result<allotment_server::Initialised<Pages, Sessions>, ConfigurationError> {
    let pages = factories().make_read_only(&configuration(["Home", "About us"]))?;
    let initialiser = Initialiser::new("server")
        .workers(4)
        .queue(64)
        .when_full(WhenFull::Wait)
        .pool(|worker| LocalPool::builder().name(worker).reserved(256 << 10).maximum(8 << 20))
        .arena(|worker| Arena::builder().name(worker).hint(64 << 10));
    Ok(initialiser.objects(pages, Sessions::default()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let running = initialise()?.start(handle)?;
    assert_eq!(ask(&running, "/", "ada"), "Home: Welcome, ada! (1)");
    assert_eq!(ask(&running, "/about", "ada"), "About us: Welcome back, ada! (2)");

    // Clients on separate threads.
    std::thread::scope(|scope| {
        for user in ["grace", "barbara", "radia", "frances"] {
            let running = &running;
            scope.spawn(move || {
                for _ in 0..100 {
                    assert!(ask(running, "/", user).starts_with("Home: Welcome"));
                }
            });
        }
    });

    // From here on other pages. Requests in progress keep the pages that they started with.
    running.publish(factories().make_read_only(&configuration(["Start", "About"]))?);
    assert_eq!(ask(&running, "/", "ada"), "Start: Welcome back, ada! (403)");

    // A panic ends only its request. (The line that it prints is expected.)
    assert!(ask(&running, "/../etc/passwd", "eve").contains("no way out"));
    assert_eq!(ask(&running, "/none", "eve"), "not found: Welcome, eve! (404)");
    print!("{}", allotment::report());

    // Stop and start again: other pages, the same users.
    let stopped = running.stop(Duration::from_secs(10))?;
    println!("{:?}", stopped.counts());
    let pages = factories().make_read_only(&configuration(["Hello", "About"]))?;
    let running = stopped.with_read_only(pages).start(handle)?;
    assert_eq!(ask(&running, "/", "grace"), "Hello: Welcome back, grace! (405)");
    assert_eq!(running.shared().known(), 6);
    let stopped = running.stop(Duration::from_secs(10))?;

    // Or start again without any of the former objects.
    let pages = factories().make_read_only(&configuration(["Anew", "About"]))?;
    let running = stopped.reinitialise().objects(pages, Sessions::default()).start(handle)?;
    assert_eq!(ask(&running, "/", "grace"), "Anew: Welcome, grace! (1)");
    Ok(())
}
