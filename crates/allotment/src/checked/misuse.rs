//! Misuse, and the message with which it ends the process.

use alloc::string::String;
use core::fmt;

use crate::standard_error;
use crate::statistics::printable;
#[cfg(system_memory)]
use crate::statistics::record_of;

/// A misuse that an allocator detected.
#[cfg_attr(not(system_memory), allow(dead_code, reason = "only hardened mode detects them all"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    DoubleFree,
    ForeignPointer,
    /// The size given to the free differs from the size allocated, which is the value.
    WrongSize(usize),
    /// The alignment given to the free differs from the alignment allocated, which is the value.
    WrongAlignment(usize),
    Overrun,
    WriteAfterFree,
    /// The memory was written after the arena was reset or rewound.
    WriteAfterReset,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleFree => f.write_str("double free"),
            Self::ForeignPointer => {
                f.write_str("foreign pointer, no live object of this allocator")
            }
            Self::WrongSize(asked) => write!(f, "wrong size at free, allocated with {asked} bytes"),
            Self::WrongAlignment(asked) => {
                write!(f, "wrong alignment at free, allocated with alignment {asked}")
            }
            Self::Overrun => f.write_str("overrun, bytes behind the object were written"),
            Self::WriteAfterFree => f.write_str("write after free"),
            Self::WriteAfterReset => f.write_str("write after reset"),
        }
    }
}

/// Prints the misuse, its address and its allocator, and aborts the process.
#[cold]
pub(crate) fn abort_on_misuse(
    misuse: Misuse,
    kind: &str,
    name: Option<&str>,
    address: usize,
    size: usize,
) -> ! {
    let name = shown(name.unwrap_or(""));
    let owner = if misuse == Misuse::ForeignPointer {
        other_owner(kind, &name, address)
    } else {
        String::new()
    };
    standard_error::abort_with(format_args!(
        "allotment: {kind} '{name}': {misuse}: {size} bytes at {address:#x}{owner}\n"
    ))
}

/// Names the allocator that the address belongs to, if it is another one.
#[cfg(system_memory)]
fn other_owner(kind: &str, name: &str, address: usize) -> String {
    match record_of(address).and_then(|record| record.snapshot()) {
        Some((its_name, its_kind, _)) if its_kind.as_str() != kind || shown(&its_name) != name => {
            format!("; it lies in {} '{}'", its_kind.as_str(), shown(&its_name))
        }
        _ => String::new(),
    }
}

#[cfg(not(system_memory))]
fn other_owner(_: &str, _: &str, _: usize) -> String {
    String::new()
}

fn shown(name: &str) -> String {
    printable(if name.is_empty() { "(no name)" } else { name })
}
