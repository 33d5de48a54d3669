//! Panics of the user's code: catches them, reads their message, and drops their payload.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a panic's message and drops the payload, whose destructor may panic too.
pub(crate) fn take_message(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => match payload.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => String::from("a panic that carries no text"),
        },
    };
    drop_payload(payload);
    text
}

/// Runs a closure and catches its panic. Returns whether it ended without one.
pub(crate) fn run_catching(run: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(payload) => {
            drop_payload(payload);
            false
        }
    }
}

/// Drops a payload. If its destructor panics too, the new payload is leaked, because dropping that
/// one could panic again without end.
pub(crate) fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(second_payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second_payload);
    }
}
