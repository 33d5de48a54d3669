//! Doc tests: programs that seal what may not be sealed don't compile.

/// A field that can be written to through a shared reference, or a mutable reference:
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Counter { hits: std::cell::Cell<u32> }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Counter { hits: std::sync::Mutex<u32> }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Counter { hits: std::sync::atomic::AtomicU32 }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Counter<'s> { hits: &'s std::sync::atomic::AtomicU32 }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Counter<'s> { hits: &'s mut u32 }
/// ```
///
/// A field that owns memory elsewhere:
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { url: String }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { ports: Vec<u16> }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { port: Box<u16> }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { port: std::rc::Rc<u16> }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { port: std::sync::Arc<u16> }
/// ```
///
/// A raw pointer, through which a write is possible:
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { port: *const u16 }
/// ```
///
/// The same in a variant of an enum, behind a type parameter, or without a derive:
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// enum Route { Files, Redirect { to: String } }
/// ```
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Wrapper<T>(T);
/// let sealed = allotment::Sealed::<Wrapper<String>>::new(|_| Wrapper(String::new()));
/// ```
///
/// ```compile_fail,E0277
/// let sealed = allotment::Sealed::<String>::new(|_| String::new());
/// ```
///
/// ```compile_fail,E0277
/// let sealed = allotment::Sealed::<&'static [u8]>::new(|sealer| {
///     sealer.alloc_slice_from_iter([String::new()]);
///     sealer.alloc_slice_from_iter([1])
/// });
/// ```
///
/// A type with a destructor, which would never run:
///
/// ```compile_fail,E0119
/// #[derive(allotment::ReadOnly)]
/// struct Guard { port: u16 }
/// impl Drop for Guard {
///     fn drop(&mut self) {}
/// }
/// ```
///
/// More than one lifetime parameter. The sealed memory has one lifetime:
///
/// ```compile_fail
/// #[derive(allotment::ReadOnly)]
/// struct Config<'s, 't> { url: &'s str, path: &'t str }
/// ```
///
/// A union: nothing says which of its fields holds a value:
///
/// ```compile_fail
/// #[derive(allotment::ReadOnly)]
/// union Either { number: u32, other: i32 }
/// ```
///
/// An implementation by hand without `unsafe`:
///
/// ```compile_fail,E0200
/// struct Counter(u32);
/// impl allotment::ReadOnly for Counter {}
/// ```
///
/// The sealer can't leave the initialiser:
///
/// ```compile_fail
/// let mut stolen = None;
/// let sealed = allotment::Sealed::<()>::new(|sealer| stolen = Some(sealer));
/// ```
///
/// Sealed memory can't refer to the memory of another sealed value, which it may outlive:
///
/// ```compile_fail
/// let outer = allotment::Sealed::<()>::new(|outer| {
///     let inner = allotment::Sealed::<&'static str>::new(|_| outer.alloc_str("of the outer one"));
///     drop(inner);
/// });
/// ```
///
/// A value can't be dropped while it is read:
///
/// ```compile_fail,E0505
/// let sealed = allotment::Sealed::<&'static str>::new(|sealer| sealer.alloc_str("read"));
/// let text = sealed.get();
/// drop(sealed);
/// assert_eq!(*text, "read");
/// ```
///
/// ```compile_fail,E0597
/// let text = {
///     let shared = allotment::RwShared::<&'static str>::new(|sealer| sealer.alloc_str("read"));
///     let guard = shared.read();
///     *guard.get()
/// };
/// assert_eq!(text, "read");
/// ```
struct NotSealed;
