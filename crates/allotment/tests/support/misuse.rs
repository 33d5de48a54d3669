//! Runs a misuse of a checked allocator in a child process, and checks the message with which it is
//! stopped.

use core::ptr::NonNull;

use super::child::{self, Child};

/// Prints the address that the message must name. The parent process reads it.
pub fn print_address(address: NonNull<u8>) {
    eprintln!("address={:#x}", address.addr().get());
}

/// A pointer to any address, which need not belong to the process. Prints the address.
pub fn pointer_to(address: usize) -> NonNull<u8> {
    let pointer = NonNull::new(core::ptr::without_provenance_mut(address)).expect("not null");
    print_address(pointer);
    pointer
}

/// Runs `misuse` in a child process, which must abort with one line of this allocator (as in `arena
/// 'victim'`) that has these words, the size and the address that was printed last. `case` is the
/// child's role: a test may have several cases. Returns the line, or an empty text in the child of
/// another case.
pub fn is_stopped(
    test: &str,
    case: &str,
    allocator: &str,
    words: &str,
    size: usize,
    misuse: impl FnOnce(),
) -> String {
    if child::is(case) {
        misuse();
        panic!("the misuse was not detected");
    }
    if child::is_any() {
        return String::new();
    }
    let stderr = Child::new(test, case).aborts();
    let printed = stderr.lines().filter_map(|line| line.strip_prefix("address=")).next_back();
    let address = printed.expect("the child printed the address");
    let start = format!("allotment: {allocator}: ");
    let line = stderr.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no line of {allocator}:\n{stderr}"));
    assert!(line.contains(words), "{line}");
    assert!(line.contains(&format!("{size} bytes at {address}")), "{line} (printed {address})");
    line.to_owned()
}
