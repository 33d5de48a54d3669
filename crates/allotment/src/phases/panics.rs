//! Panics of code that isn't ours: caught, read, and got rid of.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic said; the payload is dropped, which may panic again.
pub(super) fn message(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => match payload.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => String::from("a panic that carries no text"),
        },
    };
    forget_panic(payload);
    text
}

/// Runs what may panic and of which nothing is expected. Whether it came to its end.
pub(super) fn quietly(run: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(payload) => {
            forget_panic(payload);
            false
        }
    }
}

/// Drops a payload. One whose own drop panics leaves another payload, which could go on for ever: that one is leaked.
pub(super) fn forget_panic(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
