//! Values and bytes in a task's memory, used through pointers, as in a C program.

use crate::peers::Task;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Frees what [`Task::put`] allocated. The value is not dropped: workloads put in only values that
/// need no drop.
///
/// # Safety
/// `value` came from `put` on this task and is live; it is not used after.
#[inline(always)]
pub unsafe fn give_back<T: Task, V>(task: &T, value: NonNull<V>) {
    // SAFETY: `put` allocated it with this layout; live by the caller's promise.
    unsafe { task.free(value.cast(), Layout::new::<V>()) };
}

/// An array of `count` copies of `value`.
#[inline(always)]
pub fn put_array<T: Task, V: Copy>(task: &T, count: usize, value: V) -> NonNull<V> {
    let first = task.alloc(array_layout::<V>(count)).cast::<V>();
    for index in 0..count {
        // SAFETY: `index` is below `count`, for which the memory was allocated.
        unsafe { first.add(index).write(value) };
    }
    first
}

/// Frees what [`put_array`] allocated.
///
/// # Safety
/// As for [`give_back`], and `count` is the one that the array was made with.
#[inline(always)]
pub unsafe fn give_back_array<T: Task, V: Copy>(task: &T, first: NonNull<V>, count: usize) {
    // SAFETY: `put_array` allocated it with this layout; live by the caller's promise.
    unsafe { task.free(first.cast(), array_layout::<V>(count)) };
}

fn array_layout<V>(count: usize) -> Layout {
    Layout::array::<V>(count).expect("a workload's arrays are small")
}

/// A string in a task's memory. An empty one takes none.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    bytes: NonNull<u8>,
    length: usize,
}

impl Text {
    /// Copies `text` into the task's memory.
    #[inline(always)]
    pub fn put<T: Task>(task: &T, text: &str) -> Self {
        let bytes = if text.is_empty() { NonNull::dangling() } else { task.put_str(text) };
        Self { bytes, length: text.len() }
    }

    /// Frees it.
    ///
    /// # Safety
    /// It was put into this task and is live; neither it nor a copy is used after.
    #[inline(always)]
    pub unsafe fn give_back<T: Task>(self, task: &T) {
        if self.length > 0 {
            let layout = array_layout::<u8>(self.length);
            // SAFETY: `put` allocated it with this layout; live by the caller's promise.
            unsafe { task.free(self.bytes, layout) };
        }
    }

    /// The text.
    ///
    /// # Safety
    /// It is live, and stays so while the result is used.
    #[inline(always)]
    pub unsafe fn as_str<'a>(self) -> &'a str {
        // SAFETY: `put` copied `length` bytes of a `str` there; live by the caller's promise.
        unsafe {
            std::str::from_utf8_unchecked(std::slice::from_raw_parts(
                self.bytes.as_ptr(),
                self.length,
            ))
        }
    }
}

/// Bytes appended to one buffer of a task, which grows by doubling.
pub struct Buffer<'t, T: Task> {
    task: &'t T,
    bytes: NonNull<u8>,
    length: usize,
    capacity: usize,
}

impl<'t, T: Task> Buffer<'t, T> {
    /// An empty buffer with room for `capacity` bytes (at least one).
    pub fn with_capacity(task: &'t T, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { task, bytes: task.alloc(Self::layout(capacity)), length: 0, capacity }
    }

    /// Appends `more`.
    #[inline]
    pub fn push(&mut self, more: &[u8]) {
        if more.len() > self.capacity - self.length {
            self.grow(self.length + more.len());
        }
        // SAFETY: `length + more.len() <= capacity` by the line above; `more` is borrowed and the
        // buffer is ours, so they do not overlap.
        unsafe {
            self.bytes
                .add(self.length)
                .copy_from_nonoverlapping(NonNull::from(more).cast(), more.len());
        }
        self.length += more.len();
    }

    /// The bytes appended so far.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `push` has written the first `length` bytes, and they live as long as the task.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.length) }
    }

    /// Frees the buffer, if its task does not free everything together.
    pub fn free(self) {
        if !T::FREED_TOGETHER {
            // SAFETY: `bytes` came from this task with `capacity`, and `self` ends here.
            unsafe { self.task.free(self.bytes, Self::layout(self.capacity)) };
        }
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let capacity = (self.capacity * 2).max(needed);
        // SAFETY: `bytes` came from this task, is live, and has `capacity` bytes; the new one is
        // larger.
        self.bytes = unsafe { self.task.grow(self.bytes, Self::layout(self.capacity), capacity) };
        self.capacity = capacity;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::array::<u8>(capacity).expect("a reply is small")
    }
}

impl<T: Task> std::fmt::Write for Buffer<'_, T> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl<T: Task> std::fmt::Debug for Buffer<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Allocator;
    use crate::workloads::testing::{System, take_counts};

    #[test]
    fn a_buffer_keeps_its_bytes_while_it_grows_and_gives_all_back() {
        take_counts();
        let mut system = System::start();
        let task = system.begin();
        let mut buffer = Buffer::with_capacity(&task, 0);
        let mut expected = Vec::new();
        for step in 0..200u8 {
            let piece = vec![step; usize::from(step) % 64];
            buffer.push(&piece);
            expected.extend_from_slice(&piece);
        }
        assert_eq!(buffer.as_bytes(), expected);
        buffer.free();
        assert_eq!(take_counts(), (1, 0));
    }

    #[test]
    fn a_string_is_one_object_and_an_empty_one_is_none() {
        for (content, objects) in [("name", 1), ("", 0)] {
            take_counts();
            let mut system = System::start();
            let task = system.begin();
            let text = Text::put(&task, content);
            // SAFETY: live until given back.
            unsafe {
                assert_eq!(text.as_str(), content);
                text.give_back(&task);
            }
            assert_eq!(take_counts(), (objects, 0));
        }
    }
}
