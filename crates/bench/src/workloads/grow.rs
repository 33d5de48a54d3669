//! `grow`: a reply that grows in small pieces and is then dropped.

use crate::peers::Allocator;
use crate::workloads::observer::Observer;
use crate::workloads::random::Random;
use crate::workloads::task_memory::Buffer;
use crate::workloads::task_threads::{self, Run, TaskCounter};
use std::hint::black_box;

/// Bytes of one reply.
pub const REPLY_BYTES: usize = 1 << 20;

/// A piece has 1 to this many bytes.
pub const LONGEST_PIECE: usize = 64;

/// The initial capacity of a reply. It doubles whenever it is full.
pub const FIRST_ROOM: usize = 64;

/// Runs `replies` replies on each of `threads` workers.
pub fn run<A: Allocator>(threads: usize, replies: u64, observer: &dyn Observer) -> Run<()> {
    task_threads::run(
        threads,
        observer,
        |_| ReplyPieces::new(),
        A::start,
        |allocator, pieces: &mut ReplyPieces, counter: &mut TaskCounter<'_>| {
            for _ in 0..replies {
                let task = allocator.begin();
                let mut reply = Buffer::with_capacity(&task, FIRST_ROOM);
                for length in &pieces.lengths {
                    reply.push(&pieces.text[..usize::from(*length)]);
                }
                black_box(reply.as_bytes());
                reply.free();
                drop(task);
                counter.task_done();
            }
        },
    )
}

/// The lengths of a reply's pieces, the same for every reply, thread and allocator.
struct ReplyPieces {
    lengths: Vec<u8>,
    text: [u8; LONGEST_PIECE],
}

impl ReplyPieces {
    fn new() -> Self {
        let mut random = Random::stream(0);
        let mut lengths = Vec::new();
        let mut left = REPLY_BYTES;
        while left > 0 {
            let length = (1 + random.below(LONGEST_PIECE as u32) as usize).min(left);
            lengths.push(length as u8);
            left -= length;
        }
        Self { lengths, text: std::array::from_fn(|index| b'a' + (index % 26) as u8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::observer::Unobserved;
    use crate::workloads::testing::{FreedTogether, System, take_counts};

    #[test]
    fn the_pieces_make_up_the_reply_exactly() {
        let pieces = ReplyPieces::new();
        let sum: usize = pieces.lengths.iter().map(|length| usize::from(*length)).sum();
        assert_eq!(sum, REPLY_BYTES);
        assert!(pieces.lengths.iter().all(|length| (1..=64).contains(length)));
        assert_eq!(pieces.lengths, ReplyPieces::new().lengths);
    }

    #[test]
    fn a_reply_is_one_object_that_grows() {
        take_counts();
        run::<System>(1, 2, &Unobserved);
        assert_eq!(take_counts(), (2, 0));
    }

    #[test]
    fn a_reply_works_where_all_is_freed_together() {
        take_counts();
        run::<FreedTogether>(1, 1, &Unobserved);
        let (allocated, live) = take_counts();
        // 64 B to 1 MiB by doubling.
        assert_eq!((allocated, live), (15, 0));
    }
}
