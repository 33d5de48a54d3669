//! One definition for a C call and its `try_` twin, and one for a C call that has no twin.
//!
//! The body of a pair is a Rust function that returns a `Result` with a
//! [`FailedCall`](crate::error::FailedCall). [`call_pair`] exports it twice: the call aborts on
//! failure, the twin reports it.

/// Exports a call that must not fail, and its `try_` twin.
///
/// | form | body returns | call returns | twin returns on failure |
/// |---|---|---|---|
/// | `CALL, TWIN(ARGUMENTS) -> *mut T = BODY` | `Result<NonNull<_>, FailedCall>` | the object | NULL |
/// | `CALL, TWIN(ARGUMENTS) -> *mut T = FAST else BODY` | the same; `FAST` returns an `Option<NonNull<_>>` | the object | NULL |
/// | `CALL, TWIN(ARGUMENTS) = BODY` | `Result<(), FailedCall>` | nothing | `false` |
///
/// `FAST` is inlined into both functions. What it does not serve goes through a cold function, so
/// that the exported functions save no registers on their fast path.
///
/// `unsafe` before the names makes the functions unsafe: their caller keeps the contract of the
/// header, which includes the contract of `FAST` and `BODY`.
macro_rules! call_pair {
    (unsafe fn $($pair:tt)*) => { call_pair!(@pair [unsafe] $($pair)*); };
    (fn $($pair:tt)*) => { call_pair!(@pair [] $($pair)*); };

    (@pair [$($safety:tt)?] $call:ident, $twin:ident($($argument:ident: $type:ty),* $(,)?)
        -> *mut $object:ty = $fast:ident else $body:ident) => {
        call_pair!(@fast [$($safety)?] $call($($argument: $type),*) -> *mut $object
            = $fast else pointer_or_abort $body);
        call_pair!(@fast [$($safety)?] $twin($($argument: $type),*) -> *mut $object
            = $fast else pointer_or_null $body);
    };
    (@pair [$($safety:tt)?] $call:ident, $twin:ident($($argument:ident: $type:ty),* $(,)?)
        -> *mut $object:ty = $body:ident) => {
        #[unsafe(no_mangle)]
        pub $($safety)? extern "C" fn $call($($argument: $type),*) -> *mut $object {
            // SAFETY: the caller keeps the contract of the header.
            let result = $($safety)? { $body($($argument),*) };
            $crate::error::pointer_or_abort(result).cast()
        }

        #[unsafe(no_mangle)]
        pub $($safety)? extern "C" fn $twin($($argument: $type),*) -> *mut $object {
            // SAFETY: the caller keeps the contract of the header.
            let result = $($safety)? { $body($($argument),*) };
            $crate::error::pointer_or_null(result).cast()
        }
    };
    (@pair [$($safety:tt)?] $call:ident, $twin:ident($($argument:ident: $type:ty),* $(,)?)
        = $body:ident) => {
        #[unsafe(no_mangle)]
        pub $($safety)? extern "C" fn $call($($argument: $type),*) {
            // SAFETY: the caller keeps the contract of the header.
            $crate::error::or_abort($($safety)? { $body($($argument),*) });
        }

        #[unsafe(no_mangle)]
        pub $($safety)? extern "C" fn $twin($($argument: $type),*) -> bool {
            // SAFETY: the caller keeps the contract of the header.
            let result: Result<(), $crate::error::FailedCall> = $($safety)? { $body($($argument),*) };
            result.is_ok()
        }
    };

    (@fast [$($safety:tt)?] $call:ident($($argument:ident: $type:ty),*) -> *mut $object:ty
        = $fast:ident else $finish:ident $body:ident) => {
        #[unsafe(no_mangle)]
        pub $($safety)? extern "C" fn $call($($argument: $type),*) -> *mut $object {
            #[cold]
            #[inline(never)]
            $($safety)? extern "C" fn slow($($argument: $type),*) -> *mut $object {
                // SAFETY: the caller keeps the contract of the header.
                let result = $($safety)? { $body($($argument),*) };
                $crate::error::$finish(result).cast()
            }
            // SAFETY: the caller keeps the contract of the header.
            $($safety)? {
                match $fast($($argument),*) {
                    Some(object) => object.as_ptr().cast(),
                    None => slow($($argument),*),
                }
            }
        }
    };
}

/// Exports a call without a twin, which aborts on failure. Its caller keeps the contract of the
/// header, which includes the contract of the body.
///
/// | form | body |
/// |---|---|
/// | `CALL(ARGUMENTS) -> T = FUNCTION` | returns `Result<T, FailedCall>`, and gets the arguments |
/// | `CALL(HANDLE, ARGUMENTS) -> T => EXPRESSION` | `HANDLE` is what the handle refers to |
macro_rules! call {
    (fn $call:ident($($argument:ident: $type:ty),* $(,)?) $(-> $returned:ty)? = $body:path) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $call($($argument: $type),*) $(-> $returned)? {
            // SAFETY: the caller keeps the contract of the header.
            $crate::error::or_abort(unsafe { $body($($argument),*) })
        }
    };
    (fn $call:ident($handle:ident: $target:ty $(, $argument:ident: $type:ty)* $(,)?)
        $(-> $returned:ty)? => $value:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $call($handle: $target $(, $argument: $type)*) $(-> $returned)? {
            // SAFETY: the caller keeps the contract of the header.
            let $handle = $crate::error::or_abort(unsafe { $crate::handle::get($handle) });
            $value
        }
    };
}
pub(crate) use {call, call_pair};
