//! The size of a C structure and the offsets of its fields, for the comparison with a C compiler.

/// Defines a constant with the size of a structure and the offsets of its fields, each with its C
/// expression. `header_numbers` collects these constants.
macro_rules! struct_numbers {
    ($name:ident: $type:ident { $($field:ident),+ $(,)? }) => {
        pub(crate) const $name: &[(&str, usize)] = &[
            (concat!("sizeof(", stringify!($type), ")"), size_of::<$type>()),
            $((
                concat!("offsetof(", stringify!($type), ", ", stringify!($field), ")"),
                core::mem::offset_of!($type, $field),
            ),)+
        ];
    };
}
pub(crate) use struct_numbers;
