//! What may not be sealed does not compile.

/// Neither does a field that somebody could write to:
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
/// nor one that owns memory elsewhere:
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
/// nor a pointer that anyone may write through:
///
/// ```compile_fail,E0277
/// #[derive(allotment::ReadOnly)]
/// struct Config { port: *const u16 }
/// ```
///
/// not in a variant of an enum either, nor behind a parameter:
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
///     sealer.slice([String::new()]);
///     sealer.slice([1])
/// });
/// ```
///
/// A destructor would never run:
///
/// ```compile_fail,E0119
/// #[derive(allotment::ReadOnly)]
/// struct Guard { port: u16 }
/// impl Drop for Guard {
///     fn drop(&mut self) {}
/// }
/// ```
///
/// The sealed memory has one lifetime:
///
/// ```compile_fail
/// #[derive(allotment::ReadOnly)]
/// struct Config<'s, 't> { url: &'s str, path: &'t str }
/// ```
///
/// and a union's bytes are nobody knows what:
///
/// ```compile_fail
/// #[derive(allotment::ReadOnly)]
/// union Either { number: u32, other: i32 }
/// ```
///
/// A promise that is made by hand is `unsafe`:
///
/// ```compile_fail,E0200
/// struct Counter(u32);
/// impl allotment::ReadOnly for Counter {}
/// ```
///
/// What an initialiser is given can't leave it:
///
/// ```compile_fail
/// let mut stolen = None;
/// let sealed = allotment::Sealed::<()>::new(|sealer| stolen = Some(sealer));
/// ```
///
/// nor go from one region into another, which may outlive it:
///
/// ```compile_fail
/// let outer = allotment::Sealed::<()>::new(|outer| {
///     let inner = allotment::Sealed::<&'static str>::new(|_| outer.str("of the outer one"));
///     drop(inner);
/// });
/// ```
///
/// and one that is read is not replaced:
///
/// ```compile_fail,E0505
/// let sealed = allotment::Sealed::<&'static str>::new(|sealer| sealer.str("read"));
/// let text = sealed.get();
/// drop(sealed);
/// assert_eq!(*text, "read");
/// ```
///
/// ```compile_fail,E0597
/// let text = {
///     let shared = allotment::RwShared::<&'static str>::new(|sealer| sealer.str("read"));
///     let guard = shared.read();
///     *guard.get()
/// };
/// assert_eq!(text, "read");
/// ```
struct NotSealed;
