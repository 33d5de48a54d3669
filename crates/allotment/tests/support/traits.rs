//! Asks the compiler whether a type has a trait.

/// Whether a type has a trait, without asking that it has: an inherent constant hides the trait's
/// where the bound holds.
macro_rules! has {
    ($type:ty: $bound:path) => {{
        #[allow(dead_code, reason = "unused where the bound holds")]
        trait Otherwise {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Probe<T: ?Sized>(core::marker::PhantomData<T>);
        #[allow(dead_code, reason = "unused where the bound does not hold")]
        impl<T: ?Sized + $bound> Probe<T> {
            const HAS: bool = true;
        }
        <Probe<$type>>::HAS
    }};
}
pub(crate) use has;
