//! One server, whose objects are shared in several ways.
//!
//! # Invariant
//!
//! [`OneHeap`] passes every call to the task inside it, in order and unchanged. The lock around a
//! call does not affect its result.

use super::locks::{Guarded, Tally};
use super::page::{self, LINKS, REPLY_CAPACITY, render};
use super::server::{ConfigurationContents, Request, Server};
use super::sessions::Sessions;
use crate::peers::Task;
use crate::workloads::task_memory::Buffer;
use allotment::{ReadOnly, Sealed};
use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// A configuration of ordinary strings.
#[derive(Debug)]
pub struct OnTheHeap {
    title: String,
    url: String,
    footer: String,
    links: Vec<(String, String)>,
}

impl OnTheHeap {
    fn new() -> Self {
        Self {
            title: page::TITLE.to_owned(),
            url: page::URL.to_owned(),
            footer: page::FOOTER.to_owned(),
            links: (0..LINKS).map(|number| (page::path(number), page::label(number))).collect(),
        }
    }
}

impl ConfigurationContents for OnTheHeap {
    fn title(&self) -> &str {
        &self.title
    }

    fn url(&self) -> &str {
        &self.url
    }

    fn footer(&self) -> &str {
        &self.footer
    }

    fn link(&self, number: usize) -> (&str, &str) {
        let (path, label) = &self.links[number];
        (path, label)
    }
}

/// A lock around the configuration.
pub trait ConfigurationLock: Sync {
    fn new(configuration: OnTheHeap) -> Self;
    fn with<R>(&self, inspect: impl FnOnce(&OnTheHeap) -> R) -> R;
}

impl ConfigurationLock for Mutex<OnTheHeap> {
    fn new(configuration: OnTheHeap) -> Self {
        Self::new(configuration)
    }

    #[inline]
    fn with<R>(&self, inspect: impl FnOnce(&OnTheHeap) -> R) -> R {
        inspect(&locked(self))
    }
}

impl ConfigurationLock for RwLock<OnTheHeap> {
    fn new(configuration: OnTheHeap) -> Self {
        Self::new(configuration)
    }

    #[inline]
    fn with<R>(&self, inspect: impl FnOnce(&OnTheHeap) -> R) -> R {
        inspect(&self.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Locks a mutex, and ignores poisoning: a panic leaves none of these objects in an invalid state.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every object has a lock: the session list, the configuration, and the buffers for replies. With
/// `ONE_HEAP` the heap has a lock too, as in the paper. Without it, calls go directly to the
/// allocator.
#[derive(Debug)]
pub struct Locked<C, const ONE_HEAP: bool> {
    sessions: Sessions,
    configuration: C,
    replies: Mutex<Vec<String>>,
    heap: Mutex<()>,
}

impl<C: ConfigurationLock, const ONE_HEAP: bool> Locked<C, ONE_HEAP> {
    fn take_reply(&self, tally: &Tally) -> String {
        tally.takes(Guarded::Replies);
        let reply = locked(&self.replies).pop();
        reply.unwrap_or_else(|| String::with_capacity(REPLY_CAPACITY))
    }

    fn give_back_reply(&self, mut reply: String, tally: &Tally) {
        reply.clear();
        tally.takes(Guarded::Replies);
        locked(&self.replies).push(reply);
    }
}

impl<C: ConfigurationLock, const ONE_HEAP: bool> Server for Locked<C, ONE_HEAP> {
    type ConfigurationContents<'s> = OnTheHeap;

    fn new() -> Self {
        Self {
            sessions: Sessions::default(),
            configuration: C::new(OnTheHeap::new()),
            replies: Mutex::default(),
            heap: Mutex::new(()),
        }
    }

    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    #[inline]
    fn configuration<R>(&self, tally: &Tally, inspect: impl FnOnce(&OnTheHeap) -> R) -> R {
        tally.takes(Guarded::Configuration);
        self.configuration.with(inspect)
    }

    fn serve<T: Task>(&self, task: T, request: Request, tally: &Tally, send: impl FnOnce(&[u8])) {
        let mut reply = self.take_reply(tally);
        if ONE_HEAP {
            let memory = OneHeap { task: &task, heap: &self.heap, tally };
            whole(render(self, &memory, &mut reply, request, tally));
        } else {
            whole(render(self, &task, &mut reply, request, tally));
        }
        send(reply.as_bytes());
        self.give_back_reply(reply, tally);
    }
}

/// A configuration in sealed memory.
#[derive(Debug, ReadOnly)]
pub struct InSealedMemory<'s> {
    title: &'s str,
    url: &'s str,
    footer: &'s str,
    links: &'s [(&'s str, &'s str)],
}

impl ConfigurationContents for InSealedMemory<'_> {
    fn title(&self) -> &str {
        self.title
    }

    fn url(&self) -> &str {
        self.url
    }

    fn footer(&self) -> &str {
        self.footer
    }

    fn link(&self, number: usize) -> (&str, &str) {
        self.links[number]
    }
}

/// The server with locking categories. Only the session list is shared and mutable, and has a lock.
/// The configuration is read-only. The reply and all texts of the request are in the request's
/// memory.
#[derive(Debug)]
pub struct ByCategory {
    sessions: Sessions,
    configuration: Sealed<InSealedMemory<'static>>,
}

impl Server for ByCategory {
    type ConfigurationContents<'s> = InSealedMemory<'s>;

    fn new() -> Self {
        let configuration = Sealed::new(|sealer| InSealedMemory {
            title: sealer.alloc_str(page::TITLE),
            url: sealer.alloc_str(page::URL),
            footer: sealer.alloc_str(page::FOOTER),
            links: sealer.alloc_slice_from_iter((0..LINKS).map(|number| {
                (sealer.alloc_str(&page::path(number)), sealer.alloc_str(&page::label(number)))
            })),
        });
        Self { sessions: Sessions::default(), configuration }
    }

    fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    #[inline]
    fn configuration<R>(&self, _: &Tally, inspect: impl FnOnce(&InSealedMemory<'_>) -> R) -> R {
        inspect(self.configuration.get())
    }

    fn serve<T: Task>(&self, task: T, request: Request, tally: &Tally, send: impl FnOnce(&[u8])) {
        let mut reply = Buffer::with_capacity(&task, REPLY_CAPACITY);
        whole(render(self, &task, &mut reply, request, tally));
        send(reply.as_bytes());
        reply.free();
    }
}

/// Checks the result of rendering, which can't fail: memory accepts every text.
fn whole(rendered: fmt::Result) {
    rendered.expect("a page is rendered whole");
}

/// A heap with one lock, which every call takes.
struct OneHeap<'h, T> {
    task: &'h T,
    heap: &'h Mutex<()>,
    tally: &'h Tally,
}

impl<T> OneHeap<'_, T> {
    #[inline(always)]
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.tally.takes(Guarded::Heap);
        locked(self.heap)
    }
}

impl<T: Task> Task for OneHeap<'_, T> {
    const FREED_TOGETHER: bool = T::FREED_TOGETHER;

    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        let _lock = self.lock();
        self.task.alloc(layout)
    }

    unsafe fn free(&self, ptr: NonNull<u8>, layout: Layout) {
        let _lock = self.lock();
        // SAFETY: the caller's promise, by the invariant at the top of the file.
        unsafe { self.task.free(ptr, layout) }
    }

    unsafe fn grow(&self, ptr: NonNull<u8>, old: Layout, new_size: usize) -> NonNull<u8> {
        let _lock = self.lock();
        // SAFETY: as for `free`.
        unsafe { self.task.grow(ptr, old, new_size) }
    }
}
