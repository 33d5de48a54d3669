//! The raw file of this process, and its chunks.
//!
//! Invariants: `HEADER` is null or the header page of this process's file, which stays mapped; what `PLACES` says is
//! written by the one thread that begins a file, before `PHASE` says that there is one. A file is written to only after it
//! was asked which one it is: a path may lead elsewhere for a program that has changed its root, and the number of a file that is
//! kept open may be another file's in a program that closes all that it doesn't know.

use crate::sys::{self, Failed, File, How, Identity};
use crate::{clock, generation, operator_new};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use trace_format::raw::{
    CHUNK_HEADER_SIZE, CHUNK_SIZE, Field, FileHeader, HEADER_SIZE, MAGIC, Measured, RawCosts,
    VERSION, state,
};

/// The variable that says in which directory raw files are made.
pub const DIRECTORY: &[u8] = b"ALLOT_RECORD_DIR=";
/// The variable that asks for each answer of the stack cache to be compared with the unwinder's.
pub const CHECK: &[u8] = b"ALLOT_RECORD_CHECK=";

const LONGEST_DIRECTORY: usize = 4000;

/// Whether this process is recorded.
static PHASE: AtomicU32 = AtomicU32::new(UNKNOWN);
/// Nobody has asked yet.
const UNKNOWN: u32 = 0;
/// A thread is finding out.
const BEGINNING: u32 = 1;
/// It is.
const ON: u32 = 2;
/// It isn't, or no longer.
const OFF: u32 = 3;

static HEADER: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static STREAMS: AtomicU32 = AtomicU32::new(0);
static CHECKING: AtomicU32 = AtomicU32::new(0);

struct Places {
    directory: [u8; LONGEST_DIRECTORY + 1],
    directory_length: usize,
    path: [u8; LONGEST_DIRECTORY + 40],
    path_length: usize,
    /// The directory and the file under the numbers that they are kept by: for programs that change their root or give up
    /// the right to open them.
    kept_directory: Option<(u32, Identity)>,
    kept_file: Option<(u32, Identity)>,
    identity: Option<Identity>,
}

struct Shared(UnsafeCell<Places>);

// SAFETY: written by one thread, read after PHASE says so; see the invariants.
unsafe impl Sync for Shared {}

static PLACES: Shared = Shared(UnsafeCell::new(Places {
    directory: [0; LONGEST_DIRECTORY + 1],
    directory_length: 0,
    path: [0; LONGEST_DIRECTORY + 40],
    path_length: 0,
    kept_directory: None,
    kept_file: None,
    identity: None,
}));

/// Whether the process is recorded now; finds out if nobody knows yet.
pub fn is_on() -> bool {
    loop {
        match PHASE.load(Ordering::Acquire) {
            ON => return true,
            OFF => return false,
            UNKNOWN => {
                let mine = PHASE.compare_exchange(
                    UNKNOWN,
                    BEGINNING,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if mine.is_ok() {
                    // SAFETY: nobody else is beginning.
                    let begun = unsafe { find_directory() && begin(0) };
                    PHASE.store(if begun { ON } else { OFF }, Ordering::Release);
                }
            }
            _ => sys::give_way(),
        }
    }
}

/// Whether answers of the cache are to be compared.
pub fn is_checking() -> bool {
    CHECKING.load(Ordering::Relaxed) != 0
}

/// In the child of a fork: begins a file of its own. Says whether it's recorded.
///
/// # Safety
///
/// No other thread is there.
pub unsafe fn begin_in_child() -> bool {
    if PHASE.load(Ordering::Relaxed) != ON {
        // If another thread was finding out while this one forked, nobody does any more.
        PHASE.store(OFF, Ordering::Relaxed);
        return false;
    }
    STREAMS.store(0, Ordering::Relaxed);
    // SAFETY: as the caller promised.
    let begun = unsafe { begin(state::FORKED) };
    PHASE.store(if begun { ON } else { OFF }, Ordering::Release);
    begun
}

/// Reads the directory from the environment that the process began with: the C library may not have its own yet.
///
/// # Safety
///
/// Nobody else is here.
unsafe fn find_directory() -> bool {
    // SAFETY: as the caller promised.
    let places = unsafe { &mut *PLACES.0.get() };
    let Ok(file) = File::open(b"/proc/self/environ\0", How::Read) else { return false };
    // A variable that doesn't fit in there is none of ours.
    let mut variable = Text { into: &mut places.path, length: 0 };
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        for &byte in &buffer[..length] {
            if byte != 0 {
                variable.text(&[byte]);
                continue;
            }
            let text = &variable.into[..variable.length];
            if let Some(directory) = text.strip_prefix(DIRECTORY)
                && directory.len() <= LONGEST_DIRECTORY
            {
                places.directory[..directory.len()].copy_from_slice(directory);
                places.directory_length = directory.len();
            }
            if text.starts_with(CHECK) {
                CHECKING.store(1, Ordering::Relaxed);
            }
            variable.length = 0;
        }
    }
    places.directory_length > 0
}

/// Makes the file, and maps its header.
///
/// # Safety
///
/// Nobody else is here.
unsafe fn begin(flags: u32) -> bool {
    // SAFETY: as the caller promised.
    let places = unsafe { &mut *PLACES.0.get() };
    let pid = sys::pid();
    // What a parent kept of its own.
    if let Some((number, identity)) = places.kept_file.take()
        && let Some(file) = File::kept(number, identity)
    {
        file.close();
    }
    for image in 0..10_000 {
        match places.make(pid, image) {
            Ok(file) => {
                let mapped = file.allocate(0, HEADER_SIZE).and_then(|()| file.map(0, HEADER_SIZE));
                let (Ok(page), Ok(identity)) = (mapped, file.identity()) else { return false };
                places.identity = Some(identity);
                places.kept_file = file.keep().ok().map(|number| (number, identity));
                let parent = header().and_then(|header| {
                    // SAFETY: a header's page, which stays mapped; its strings don't change.
                    let page = unsafe { core::slice::from_raw_parts(header, HEADER_SIZE) };
                    FileHeader::read(page).ok()
                });
                // SAFETY: the page is a header's, and ours.
                unsafe { fill(page, pid, flags, parent) };
                HEADER.store(page, Ordering::Release);
                return true;
            }
            // The same process had another image before.
            Err(sys::EEXIST) => {}
            Err(_) => return false,
        }
    }
    false
}

impl Places {
    /// Makes a new file.
    fn make(&mut self, pid: u32, image: u32) -> Result<File, Failed> {
        let mut path = Text { into: &mut self.path, length: 0 };
        path.text(&self.directory[..self.directory_length]);
        path.text(b"/");
        let name = path.length;
        path.number(pid);
        path.text(b"-");
        path.number(image);
        path.text(b".raw\0");
        self.path_length = path.length;
        let kept = self.kept_directory.and_then(|(number, which)| File::kept(number, which));
        if let Some(directory) = kept {
            return directory.open_in(&self.path[name..self.path_length], How::New);
        }
        // It was never opened, or the program has closed it.
        self.directory[self.directory_length] = 0;
        let directory = File::open(&self.directory[..=self.directory_length], How::Directory)?;
        let which = directory.identity()?;
        if self.kept_directory.is_some_and(|(_, known)| known != which) {
            return Err(sys::ENOENT);
        }
        let file = directory.open_in(&self.path[name..self.path_length], How::New)?;
        self.kept_directory = directory.keep().ok().map(|number| (number, which));
        Ok(file)
    }

    /// The file, for a moment.
    fn with_file<T>(&self, act: impl FnOnce(&File) -> Result<T, Failed>) -> Result<T, Failed> {
        if let Some((number, identity)) = self.kept_file
            && let Some(file) = File::kept(number, identity)
        {
            return act(&file);
        }
        let file = File::open(&self.path[..self.path_length], How::Write)?;
        if Some(file.identity()?) == self.identity { act(&file) } else { Err(sys::ENOENT) }
    }
}

/// Fills a header page in; that of the parent is there for a child of a fork.
///
/// # Safety
///
/// It is one, zero, and nobody else writes to it.
unsafe fn fill(page: *mut u8, pid: u32, flags: u32, parent: Option<FileHeader<'_>>) {
    // SAFETY: as the caller promised.
    let bytes = unsafe { core::slice::from_raw_parts_mut(page, HEADER_SIZE) };
    let now = clock::now();
    let flags = flags | if operator_new::is_unseen() { state::NEW_UNSEEN } else { 0 };
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(Field::VERSION, &VERSION.to_le_bytes());
    put(Field::PID, &pid.to_le_bytes());
    put(Field::PARENT, &sys::parent().to_le_bytes());
    put(Field::STATE, &flags.to_le_bytes());
    for clock in [Field::START, Field::LAST] {
        put(clock, &now.ticks.to_le_bytes());
        put(clock + 8, &now.ns.to_le_bytes());
    }
    let (start, most) = (Field::STRINGS, HEADER_SIZE / 2);
    let mut executable = sys::read_link(b"/proc/self/exe\0", &mut bytes[start..start + most]).len();
    let from_parent = parent.filter(|_| executable == 0);
    if let Some(parent) = &from_parent {
        // Where its root is now there is no such file.
        executable = parent.executable.len();
        bytes[start..start + executable].copy_from_slice(parent.executable);
    }
    let library = operator_new::library();
    let library = &library[..library.len().min(most / 2)];
    let end = start + executable + library.len();
    bytes[start + executable..end].copy_from_slice(library);
    let mut command = 0;
    if let Some(parent) = &from_parent {
        command = parent.command.len().min(HEADER_SIZE - end);
        bytes[end..end + command].copy_from_slice(&parent.command[..command]);
    } else if executable > 0
        && let Ok(file) = File::open(b"/proc/self/cmdline\0", How::Read)
    {
        command = file.read(&mut bytes[end..]).unwrap_or(0);
    }
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(Field::EXECUTABLE_LENGTH, &(executable as u32).to_le_bytes());
    put(Field::LIBRARY_LENGTH, &(library.len() as u32).to_le_bytes());
    put(Field::COMMAND_LENGTH, &(command as u32).to_le_bytes());
    put(0, &MAGIC);
}

/// A number of the header that several threads change.
fn counter(header: *mut u8, field: usize) -> &'static AtomicU32 {
    // SAFETY: the header stays mapped, and the field lies in it, aligned.
    unsafe { AtomicU32::from_ptr(header.add(field).cast()) }
}

fn long_counter(header: *mut u8, field: usize) -> &'static AtomicU64 {
    // SAFETY: the header stays mapped, and the field lies in it, aligned.
    unsafe { AtomicU64::from_ptr(header.add(field).cast()) }
}

fn header() -> Option<*mut u8> {
    let header = HEADER.load(Ordering::Acquire);
    (!header.is_null()).then_some(header)
}

/// The path of the executable, as it was when the file began.
pub fn executable() -> &'static [u8] {
    let Some(header) = header() else { return b"" };
    // SAFETY: the header stays mapped, and these fields of it don't change.
    unsafe {
        let length = header.add(Field::EXECUTABLE_LENGTH).cast::<u32>().read() as usize;
        core::slice::from_raw_parts(header.add(Field::STRINGS), length)
    }
}

/// The number of a new stream.
pub fn new_stream() -> u32 {
    STREAMS.fetch_add(1, Ordering::Relaxed)
}

/// The number of a new thread.
pub fn new_thread() -> u32 {
    header().map_or(0, |header| counter(header, Field::THREADS).fetch_add(1, Ordering::Relaxed))
}

/// Counts a call that could not be recorded.
pub fn missed() {
    if let Some(header) = header() {
        long_counter(header, Field::MISSED).fetch_add(1, Ordering::Relaxed);
    }
}

/// What one call took, in stamps.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// In the next function.
    pub program: u64,
    /// In the recorder.
    pub recorder: u64,
    /// Between two stamps with nothing between them.
    pub stamp: u64,
}

/// Adds a call that was measured to the header: not to the thread's own state, which is lost if the program is killed.
pub fn measured(what: Measured, took: Took) {
    let Some(header) = header() else { return };
    let add = |field, number| {
        long_counter(header, field).fetch_add(number, Ordering::Relaxed);
    };
    let long = clock::long();
    if took.program > long || took.recorder > long || took.stamp > long {
        return add(RawCosts::TOO_LONG, 1);
    }
    add(what.field(), 1);
    add(what.field() + 8, took.program);
    add(RawCosts::RECORDER, took.recorder);
    add(RawCosts::STAMPS, took.stamp);
}

/// Counts an answer of the cache that was compared.
pub fn compared(right: bool) {
    if let Some(header) = header() {
        long_counter(header, Field::CHECKED).fetch_add(1, Ordering::Relaxed);
        long_counter(header, Field::WRONG).fetch_add(u64::from(!right), Ordering::Relaxed);
    }
}

/// The header, unless it is still the parent's.
fn own_header() -> Option<*mut u8> {
    header().filter(|_| generation::is_begun())
}

/// Says that the process runs its exit handlers.
pub fn exits() {
    if let Some(header) = own_header() {
        // A lock of the loader that a thread of the parent had is one that nobody gives back in the child of a fork.
        let forked = counter(header, Field::STATE).load(Ordering::Relaxed) & state::FORKED != 0;
        let unseen = !forked && operator_new::is_unseen_after_all();
        let bits = state::EXITED | if unseen { state::NEW_UNSEEN } else { 0 };
        counter(header, Field::STATE).fetch_or(bits, Ordering::Relaxed);
    }
}

/// Ends the recording, since the program forbids itself the calls that it needs.
pub fn forbidden() {
    if PHASE.load(Ordering::Acquire) != ON {
        return;
    }
    match own_header() {
        Some(header) => stop(header, clock::ticks(), sys::EPERM),
        // The child of a handler in the middle of an event.
        None => PHASE.store(OFF, Ordering::Release),
    }
}

/// Ends the recording: no event from this time on can be kept.
///
/// Other threads still write to the chunks that they have. What they write from this time on isn't the whole of what happened, and
/// readers leave it out.
fn stop(header: *mut u8, tick: u64, error: Failed) {
    PHASE.store(OFF, Ordering::Release);
    lost(header, tick);
    let error = error.unsigned_abs() as u32;
    let first = counter(header, Field::ERROR);
    let _ = first.compare_exchange(0, error, Ordering::Relaxed, Ordering::Relaxed);
    // Last: it says that the others hold.
    counter(header, Field::STATE).fetch_or(state::FULL, Ordering::Release);
}

/// An event of this time was lost, maybe before the one that ended the recording.
fn lost(header: *mut u8, tick: u64) {
    let earlier = |known| (known == 0 || tick < known).then_some(tick);
    let first = long_counter(header, Field::FULL_AT);
    let _ = first.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
}

/// Takes a chunk for a stream, mapped and with its header; the latter not in a child of a fork that has not begun. `None`: there is no more room, the recording has ended.
pub fn take_chunk(stream: u32, sequence: u32, tick: u64) -> Option<*mut u8> {
    let header = header()?;
    if !is_on() {
        lost(header, tick);
        return None;
    }
    let number = counter(header, Field::CHUNKS).fetch_add(1, Ordering::Relaxed);
    match map_chunk(HEADER_SIZE + number as usize * CHUNK_SIZE) {
        // A handler has forked: the file is the parent's, and the caller sees to that.
        taken if !generation::is_begun() => taken.ok(),
        Ok(chunk) => {
            let now = clock::now();
            long_counter(header, Field::LAST).store(now.ticks, Ordering::Relaxed);
            long_counter(header, Field::LAST + 8).store(now.ns, Ordering::Relaxed);
            // SAFETY: the chunk is mapped and ours, its header lies at its beginning; the state is stored last.
            unsafe {
                chunk.add(Field::CHUNK_STREAM).cast::<u32>().write(stream);
                chunk.add(Field::CHUNK_SEQUENCE).cast::<u32>().write(sequence);
                chunk.add(Field::CHUNK_TICK).cast::<u64>().write(tick);
                AtomicU32::from_ptr(chunk.add(Field::CHUNK_STATE).cast())
                    .store(1, Ordering::Release);
            }
            Some(chunk)
        }
        Err(error) => {
            stop(header, tick, error);
            None
        }
    }
}

fn map_chunk(offset: usize) -> Result<*mut u8, Failed> {
    // SAFETY: there is a header, so they were written.
    let places = unsafe { &*PLACES.0.get() };
    let chunk = places.with_file(|file| {
        file.allocate(offset, CHUNK_SIZE)?;
        file.map(offset, CHUNK_SIZE)
    })?;
    sys::populate(chunk, CHUNK_SIZE);
    Ok(chunk)
}

/// Says that nothing more is written to a chunk, and gives it away.
///
/// # Safety
///
/// It is a chunk of [`take_chunk`] with `length` bytes of events, and nobody uses it any more.
pub unsafe fn close_chunk(chunk: *mut u8, length: usize) {
    debug_assert!(length <= CHUNK_SIZE - CHUNK_HEADER_SIZE);
    // SAFETY: as the caller promised; the state is stored last.
    unsafe {
        chunk.add(Field::CHUNK_LENGTH).cast::<u32>().write(length as u32);
        AtomicU32::from_ptr(chunk.add(Field::CHUNK_STATE).cast()).store(2, Ordering::Release);
        sys::unmap(chunk, CHUNK_SIZE);
    }
}

/// Text that is put together.
struct Text<'a> {
    into: &'a mut [u8],
    length: usize,
}

impl Text<'_> {
    /// Adds what fits.
    fn text(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.into.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, number: u32) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.text(&[b'0' + (number % 10) as u8]);
    }
}
