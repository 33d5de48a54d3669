//! Another static library in Rust. It contains its own copy of the standard library, allocates,
//! panics and uses thread-locals.

use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The sum of the first `n` numbers, by way of a thread, a heap block, a panic that is caught and a
/// thread-local.
#[unsafe(no_mangle)]
pub extern "C" fn other_sum(n: u64) -> u64 {
    CALLS.set(CALLS.get() + 1);
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| {
        if n > 0 {
            panic!("caught");
        }
    });
    assert!(caught.is_err());
    let numbers: Vec<u64> = (1..=n).collect();
    std::thread::spawn(move || numbers.iter().sum::<u64>()).join().unwrap_or(0)
}
