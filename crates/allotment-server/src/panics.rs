//! Panics of the user's code: catches them, reads their message, and drops the payload.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a panic's message. Drops the payload, which may panic again.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
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

/// Runs a closure that may panic and has no result. Returns whether it ended without a panic.
pub(crate) fn quietly(run: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => true,
        Err(payload) => {
            forget_panic(payload);
            false
        }
    }
}

/// Drops a payload. If its destructor panics too, the new payload is leaked, because dropping it
/// could panic without end.
pub(crate) fn forget_panic(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}
