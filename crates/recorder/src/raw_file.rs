//! The raw file of this process, and its chunks.
//!
//! Invariants:
//!
//! 1. `HEADER` is null, or the header page of this process's file, which stays mapped.
//! 2. `LOCATION` is written by the one thread that begins a file, before `PHASE` becomes `ON`.
//! 3. The identity of a file is checked before each use. A program that has changed its root may
//!    have another file at the path, and a program that closes all descriptors may have opened
//!    another file at a descriptor that was kept open.

use crate::sys::{self, FileDescriptor, FileIdentity, OpenMode, SysError};
use crate::trial::settings;
use crate::{clock, generation, operator_new};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use trace_format::raw::{
    CHUNK_HEADER_SIZE, CHUNK_SIZE, HEADER_SIZE, HeaderField, MAGIC, MeasuredCall,
    RawAllocatorCosts, RawFileHeader, VERSION, state,
};

/// The environment variable with the directory for raw files.
pub const DIRECTORY: &[u8] = b"ALLOT_RECORD_DIR=";
/// The environment variable that requests a comparison of each result of the stack cache with that
/// of the unwinder.
pub const VERIFY: &[u8] = b"ALLOT_RECORD_CHECK=";

const MAX_DIRECTORY_LENGTH: usize = 4000;

/// Whether this process is recorded.
static PHASE: AtomicU32 = AtomicU32::new(UNKNOWN);
/// Not determined yet.
const UNKNOWN: u32 = 0;
/// A thread is creating the file.
const BEGINNING: u32 = 1;
/// The process is recorded.
const ON: u32 = 2;
/// The process is not recorded, or not any more.
const OFF: u32 = 3;

static HEADER: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The number of streams.
static STREAMS: AtomicU32 = AtomicU32::new(0);
/// Not 0 if the results of the stack cache are verified.
static VERIFYING: AtomicU32 = AtomicU32::new(0);

/// Where the file is.
struct FileLocation {
    directory: [u8; MAX_DIRECTORY_LENGTH + 1],
    directory_length: usize,
    path: [u8; MAX_DIRECTORY_LENGTH + 40],
    path_length: usize,
    /// The descriptor at which the directory is kept open, for programs that change their root or
    /// give up the right to open files.
    kept_directory: Option<(u32, FileIdentity)>,
    /// The descriptor at which the file is kept open.
    kept_file: Option<(u32, FileIdentity)>,
    /// The identity of the file.
    identity: Option<FileIdentity>,
}

struct SharedLocation(UnsafeCell<FileLocation>);

// SAFETY: one thread writes it before PHASE becomes ON, and others read it afterwards (invariant
// 2).
unsafe impl Sync for SharedLocation {}

static LOCATION: SharedLocation = SharedLocation(UnsafeCell::new(FileLocation {
    directory: [0; MAX_DIRECTORY_LENGTH + 1],
    directory_length: 0,
    path: [0; MAX_DIRECTORY_LENGTH + 40],
    path_length: 0,
    kept_directory: None,
    kept_file: None,
    identity: None,
}));

/// Whether the process is recorded at the moment. The first call creates the file.
pub fn is_recording() -> bool {
    loop {
        match PHASE.load(Ordering::Acquire) {
            ON => return true,
            OFF => return false,
            UNKNOWN => {
                let exchanged = PHASE.compare_exchange(
                    UNKNOWN,
                    BEGINNING,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if exchanged.is_ok() {
                    // SAFETY: no other thread creates the file.
                    let created = unsafe {
                        // A process that can't be a trial is not recorded instead.
                        let found = find_directory();
                        let begun = found && settings::begin();
                        let flags = if begun { 0 } else { state::NO_TRIAL };
                        found && create_file(flags) && begun
                    };
                    PHASE.store(if created { ON } else { OFF }, Ordering::Release);
                }
            }
            _ => sys::yield_now(),
        }
    }
}

/// The process is not recorded, because its `malloc` bypasses the hooks.
pub fn never_record() {
    // Fails if a thread has begun to record already, which then goes on. Pairs with the load in
    // `is_recording`, which sees OFF or a later phase.
    let _ = PHASE.compare_exchange(UNKNOWN, OFF, Ordering::AcqRel, Ordering::Relaxed);
}

/// Creates a file without events, which says why the process is not recorded.
///
/// # Safety
///
/// [`never_record`] was called first, and no other thread calls this function.
pub unsafe fn announce_own_malloc() {
    // Pairs with the exchange in `never_record`.
    if PHASE.load(Ordering::Acquire) == OFF {
        // SAFETY: as the caller promised; `is_recording` does not access the location any more.
        let _ = unsafe { find_directory() && create_file(state::OWN_MALLOC) };
    }
}

/// Whether the results of the stack cache are verified.
pub fn verifies_cache() -> bool {
    VERIFYING.load(Ordering::Relaxed) != 0
}

/// Creates a file for the child of a fork. Returns whether the child is recorded.
///
/// # Safety
///
/// There is no other thread.
pub unsafe fn begin_in_child() -> bool {
    if PHASE.load(Ordering::Relaxed) != ON {
        // If another thread was creating the file during the fork, no thread does so here.
        PHASE.store(OFF, Ordering::Relaxed);
        return false;
    }
    STREAMS.store(0, Ordering::Relaxed);
    // SAFETY: as the caller promised.
    let created = unsafe { create_file(state::FORKED) };
    PHASE.store(if created { ON } else { OFF }, Ordering::Release);
    created
}

/// Reads the directory from the environment that the process began with, because that of the C
/// library may not be ready yet.
///
/// # Safety
///
/// No other thread accesses `LOCATION`.
unsafe fn find_directory() -> bool {
    // SAFETY: as the caller promised.
    let location = unsafe { &mut *LOCATION.0.get() };
    let Ok(file) = FileDescriptor::open(b"/proc/self/environ\0", OpenMode::Read) else {
        return false;
    };
    // None of our variables is longer than the buffer.
    let mut variable = TextBuffer { bytes: &mut location.path, length: 0 };
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        for &byte in &buffer[..length] {
            if byte != 0 {
                variable.push(&[byte]);
                continue;
            }
            let text = &variable.bytes[..variable.length];
            if let Some(directory) = text.strip_prefix(DIRECTORY)
                && directory.len() <= MAX_DIRECTORY_LENGTH
            {
                location.directory[..directory.len()].copy_from_slice(directory);
                location.directory_length = directory.len();
            }
            if let Some(file) = text.strip_prefix(settings::SITES)
                && !settings::is_on()
            {
                // SAFETY: no other thread begins the recording.
                unsafe { settings::read(file) };
            }
            if let Some(letters) = text.strip_prefix(settings::MEMORY) {
                settings::set_memory(letters);
            }
            if text.starts_with(VERIFY) {
                VERIFYING.store(1, Ordering::Relaxed);
            }
            variable.length = 0;
        }
    }
    location.directory_length > 0
}

/// Creates the file, and maps its header.
///
/// # Safety
///
/// No other thread accesses `LOCATION`.
unsafe fn create_file(flags: u32) -> bool {
    // SAFETY: as the caller promised.
    let location = unsafe { &mut *LOCATION.0.get() };
    let pid = sys::process_id();
    // The file that the parent kept open.
    if let Some((descriptor, identity)) = location.kept_file.take()
        && let Some(file) = FileDescriptor::kept_open(descriptor, identity)
    {
        file.close();
    }
    for image in 0..10_000 {
        match location.create(pid, image) {
            Ok(file) => {
                let mapped = file.allocate(0, HEADER_SIZE).and_then(|()| file.map(0, HEADER_SIZE));
                let (Ok(page), Ok(identity)) = (mapped, file.identity()) else { return false };
                location.identity = Some(identity);
                location.kept_file = file.keep_open().ok().map(|descriptor| (descriptor, identity));
                let parent = header().and_then(|header| {
                    // SAFETY: a header page, which stays mapped, and whose strings do not change.
                    let page = unsafe { core::slice::from_raw_parts(header, HEADER_SIZE) };
                    RawFileHeader::read(page).ok()
                });
                // SAFETY: a new header page, which no other thread knows.
                unsafe { fill_header(page, pid, flags, parent) };
                HEADER.store(page, Ordering::Release);
                return true;
            }
            // An earlier program of the same process has this file.
            Err(sys::EEXIST) => {}
            Err(_) => return false,
        }
    }
    false
}

impl FileLocation {
    /// Creates a new file for an image: the number of a program that the process has executed.
    fn create(&mut self, pid: u32, image: u32) -> Result<FileDescriptor, SysError> {
        let mut path = TextBuffer { bytes: &mut self.path, length: 0 };
        path.push(&self.directory[..self.directory_length]);
        path.push(b"/");
        let name = path.length;
        path.push_number(pid);
        path.push(b"-");
        path.push_number(image);
        path.push(b".raw\0");
        self.path_length = path.length;
        let kept = self
            .kept_directory
            .and_then(|(descriptor, identity)| FileDescriptor::kept_open(descriptor, identity));
        if let Some(directory) = kept {
            return directory.open_in(&self.path[name..self.path_length], OpenMode::New);
        }
        // The directory was never opened, or the program has closed it.
        self.directory[self.directory_length] = 0;
        let directory =
            FileDescriptor::open(&self.directory[..=self.directory_length], OpenMode::Directory)?;
        let identity = directory.identity()?;
        if self.kept_directory.is_some_and(|(_, known)| known != identity) {
            return Err(sys::ENOENT);
        }
        let file = directory.open_in(&self.path[name..self.path_length], OpenMode::New)?;
        self.kept_directory = directory.keep_open().ok().map(|descriptor| (descriptor, identity));
        Ok(file)
    }

    /// Calls `use_file` with the open file.
    fn with_file<T>(
        &self,
        use_file: impl FnOnce(&FileDescriptor) -> Result<T, SysError>,
    ) -> Result<T, SysError> {
        if let Some((descriptor, identity)) = self.kept_file
            && let Some(file) = FileDescriptor::kept_open(descriptor, identity)
        {
            return use_file(&file);
        }
        let file = FileDescriptor::open(&self.path[..self.path_length], OpenMode::Write)?;
        if Some(file.identity()?) == self.identity { use_file(&file) } else { Err(sys::ENOENT) }
    }
}

/// Fills a header page. `parent` is the parent's header in the child of a fork.
///
/// # Safety
///
/// It is a header page filled with zeros, and no other thread accesses it.
unsafe fn fill_header(page: *mut u8, pid: u32, flags: u32, parent: Option<RawFileHeader<'_>>) {
    // SAFETY: as the caller promised.
    let bytes = unsafe { core::slice::from_raw_parts_mut(page, HEADER_SIZE) };
    let now = clock::now();
    let flags = flags | if operator_new::bypasses_hooks() { state::NEW_BYPASSES_HOOKS } else { 0 };
    let mut put =
        |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
    put(HeaderField::VERSION, &VERSION.to_le_bytes());
    put(HeaderField::PID, &pid.to_le_bytes());
    put(HeaderField::PARENT, &sys::parent_id().to_le_bytes());
    put(HeaderField::STATE, &flags.to_le_bytes());
    for clock in [HeaderField::START, HeaderField::LAST] {
        put(clock, &now.ticks.to_le_bytes());
        put(clock + 8, &now.ns.to_le_bytes());
    }
    let (start, max_length) = (HeaderField::STRINGS, HEADER_SIZE / 2);
    let mut executable =
        sys::read_link(b"/proc/self/exe\0", &mut bytes[start..start + max_length]).len();
    let from_parent = parent.filter(|_| executable == 0);
    if let Some(parent) = &from_parent {
        // Below the root that the program has changed to, there is no such file.
        executable = parent.executable.len();
        bytes[start..start + executable].copy_from_slice(parent.executable);
    }
    let library = operator_new::library();
    let library = &library[..library.len().min(max_length / 2)];
    let end = start + executable + library.len();
    bytes[start + executable..end].copy_from_slice(library);
    let mut command = 0;
    if let Some(parent) = &from_parent {
        command = parent.command.len().min(HEADER_SIZE - end);
        bytes[end..end + command].copy_from_slice(&parent.command[..command]);
    } else if executable > 0
        && let Ok(file) = FileDescriptor::open(b"/proc/self/cmdline\0", OpenMode::Read)
    {
        command = file.read(&mut bytes[end..]).unwrap_or(0);
    }
    let mut put =
        |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
    put(HeaderField::EXECUTABLE_LENGTH, &(executable as u32).to_le_bytes());
    put(HeaderField::LIBRARY_LENGTH, &(library.len() as u32).to_le_bytes());
    put(HeaderField::COMMAND_LENGTH, &(command as u32).to_le_bytes());
    put(0, &MAGIC);
}

/// A field of the header that several threads change.
fn counter(header: *mut u8, field: usize) -> &'static AtomicU32 {
    // SAFETY: the header stays mapped; the field lies in it and is aligned.
    unsafe { AtomicU32::from_ptr(header.add(field).cast()) }
}

/// [`counter`] for a field of 64 bits.
fn counter_64(header: *mut u8, field: usize) -> &'static AtomicU64 {
    // SAFETY: the header stays mapped; the field lies in it and is aligned.
    unsafe { AtomicU64::from_ptr(header.add(field).cast()) }
}

fn header() -> Option<*mut u8> {
    let header = HEADER.load(Ordering::Acquire);
    (!header.is_null()).then_some(header)
}

/// The path of the executable at the time when the file was created.
pub fn executable() -> &'static [u8] {
    let Some(header) = header() else { return b"" };
    // SAFETY: the header stays mapped, and these fields do not change.
    unsafe {
        let length = header.add(HeaderField::EXECUTABLE_LENGTH).cast::<u32>().read() as usize;
        core::slice::from_raw_parts(header.add(HeaderField::STRINGS), length)
    }
}

/// The number of a new stream.
pub fn new_stream() -> u32 {
    STREAMS.fetch_add(1, Ordering::Relaxed)
}

/// The number of a new thread.
pub fn new_thread() -> u32 {
    header()
        .map_or(0, |header| counter(header, HeaderField::THREADS).fetch_add(1, Ordering::Relaxed))
}

/// Counts a call that could not be recorded.
pub fn count_missed() {
    if let Some(header) = header() {
        counter_64(header, HeaderField::MISSED).fetch_add(1, Ordering::Relaxed);
    }
}

/// The times that one call took, in units of [`clock::stamp`].
#[derive(Debug, Clone, Copy)]
pub struct SampledTimes {
    /// In the next function.
    pub program: u64,
    /// In the recorder.
    pub recorder: u64,
    /// Between two stamps with nothing between them.
    pub stamp: u64,
}

/// Adds the times of a call to the header. They are not kept in the thread's state, which is lost
/// if the program is killed.
pub fn add_times(call: MeasuredCall, times: SampledTimes) {
    let Some(header) = header() else { return };
    let add = |field, number| {
        counter_64(header, field).fetch_add(number, Ordering::Relaxed);
    };
    let limit = clock::stamps_of_20_us();
    if times.program > limit || times.recorder > limit || times.stamp > limit {
        return add(RawAllocatorCosts::TOO_LONG, 1);
    }
    add(call.field(), 1);
    add(call.field() + 8, times.program);
    add(RawAllocatorCosts::RECORDER, times.recorder);
    add(RawAllocatorCosts::STAMPS, times.stamp);
}

/// Adds to the sums of a kind of call: the number of calls and their time.
pub fn add_sums(call: MeasuredCall, count: u64, time: u64) {
    let Some(header) = own_header() else { return };
    counter_64(header, call.field()).fetch_add(count, Ordering::Relaxed);
    counter_64(header, call.field() + 8).fetch_add(time, Ordering::Relaxed);
}

/// Counts a result of the stack cache that was verified.
pub fn count_verified(correct: bool) {
    if let Some(header) = header() {
        counter_64(header, HeaderField::CHECKED).fetch_add(1, Ordering::Relaxed);
        counter_64(header, HeaderField::WRONG).fetch_add(u64::from(!correct), Ordering::Relaxed);
    }
}

/// The header, unless it is still the parent's.
fn own_header() -> Option<*mut u8> {
    header().filter(|_| generation::has_begun())
}

/// Notes in the header that the process runs its exit handlers.
pub fn note_exit() {
    if let Some(header) = own_header() {
        // In the child of a fork, the loader's lock may be held by a thread of the parent, and
        // would never be released.
        let forked =
            counter(header, HeaderField::STATE).load(Ordering::Relaxed) & state::FORKED != 0;
        let bypasses = !forked && operator_new::bypasses_hooks_at_exit();
        let bits = state::EXITED | if bypasses { state::NEW_BYPASSES_HOOKS } else { 0 };
        counter(header, HeaderField::STATE).fetch_or(bits, Ordering::Relaxed);
    }
}

/// Ends the recording, because the program forbids itself the system calls that recording needs.
pub fn end_before_filter() {
    if PHASE.load(Ordering::Acquire) != ON {
        return;
    }
    match own_header() {
        Some(header) => end(header, clock::ticks(), sys::EPERM),
        // The child of a fork in a signal handler, in the middle of an event.
        None => PHASE.store(OFF, Ordering::Release),
    }
}

/// Ends the recording: events from this time on are not complete.
///
/// Other threads still write to their current chunks. Readers leave out what they write from this
/// time on.
fn end(header: *mut u8, tick: u64, error: SysError) {
    PHASE.store(OFF, Ordering::Release);
    note_lost_event(header, tick);
    let error = error.unsigned_abs() as u32;
    let first = counter(header, HeaderField::ERROR);
    let _ = first.compare_exchange(0, error, Ordering::Relaxed, Ordering::Relaxed);
    // Last: this flag says that the other fields are valid.
    counter(header, HeaderField::STATE).fetch_or(state::FULL, Ordering::Release);
}

fn note_lost_event(header: *mut u8, tick: u64) {
    let earlier = |known| (known == 0 || tick < known).then_some(tick);
    let first = counter_64(header, HeaderField::FULL_AT);
    let _ = first.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
}

/// Takes a new chunk for a stream, maps it and writes its header. The header is not written in the
/// child of a fork that has not begun its recording. Returns `None` if the recording has ended, or
/// ends because there is no space.
pub fn take_chunk(stream: u32, sequence: u32, tick: u64) -> Option<*mut u8> {
    let header = header()?;
    if !is_recording() {
        note_lost_event(header, tick);
        return None;
    }
    let number = counter(header, HeaderField::CHUNKS).fetch_add(1, Ordering::Relaxed);
    match map_chunk(HEADER_SIZE + number as usize * CHUNK_SIZE) {
        // A signal handler has forked: the file is the parent's, and the caller replaces the
        // mapping.
        taken if !generation::has_begun() => taken.ok(),
        Ok(chunk) => {
            let now = clock::now();
            counter_64(header, HeaderField::LAST).store(now.ticks, Ordering::Relaxed);
            counter_64(header, HeaderField::LAST + 8).store(now.ns, Ordering::Relaxed);
            // SAFETY: the chunk is mapped and belongs to this call. Its header is at its start. The
            // state is stored last.
            unsafe {
                chunk.add(HeaderField::CHUNK_STREAM).cast::<u32>().write(stream);
                chunk.add(HeaderField::CHUNK_SEQUENCE).cast::<u32>().write(sequence);
                chunk.add(HeaderField::CHUNK_TICK).cast::<u64>().write(tick);
                AtomicU32::from_ptr(chunk.add(HeaderField::CHUNK_STATE).cast())
                    .store(1, Ordering::Release);
            }
            Some(chunk)
        }
        Err(error) => {
            end(header, tick, error);
            None
        }
    }
}

fn map_chunk(offset: usize) -> Result<*mut u8, SysError> {
    // SAFETY: there is a header, so the location was written.
    let location = unsafe { &*LOCATION.0.get() };
    let chunk = location.with_file(|file| {
        file.allocate(offset, CHUNK_SIZE)?;
        file.map(offset, CHUNK_SIZE)
    })?;
    sys::populate(chunk, CHUNK_SIZE);
    Ok(chunk)
}

/// Marks a chunk as complete, and unmaps it.
///
/// # Safety
///
/// It is a chunk of [`take_chunk`] with `length` bytes of events, and is not used any more.
pub unsafe fn close_chunk(chunk: *mut u8, length: usize) {
    debug_assert!(length <= CHUNK_SIZE - CHUNK_HEADER_SIZE);
    // SAFETY: as the caller promised. The state is stored last.
    unsafe {
        chunk.add(HeaderField::CHUNK_LENGTH).cast::<u32>().write(length as u32);
        AtomicU32::from_ptr(chunk.add(HeaderField::CHUNK_STATE).cast()).store(2, Ordering::Release);
        sys::unmap(chunk, CHUNK_SIZE);
    }
}

/// Text in a buffer of fixed size.
struct TextBuffer<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl TextBuffer<'_> {
    /// Appends as much as fits.
    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(next) = self.bytes.get_mut(self.length) {
                *next = byte;
                self.length += 1;
            }
        }
    }

    fn push_number(&mut self, number: u32) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }
}
