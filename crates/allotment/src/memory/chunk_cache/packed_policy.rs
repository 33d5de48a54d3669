//! A release policy in one word, so that no thread sees half of a change.

use core::time::Duration;

use crate::memory::release::Release;

/// The kind of the policy in the two highest bits, and its bytes or milliseconds in the others. The
/// largest number stands for all larger ones.
pub(super) const fn pack_policy(policy: Release) -> u64 {
    let (kind, number) = match policy {
        Release::AtOnce => (AT_ONCE, 0),
        Release::Keep(bytes) => (KEEP, bytes as u128),
        Release::Decay(time) => (DECAY, time.as_millis()),
        Release::Adaptive => (ADAPTIVE, 0),
    };
    let number = if number > MAX_NUMBER as u128 { MAX_NUMBER } else { number as u64 };
    (kind << KIND_SHIFT) | number
}

pub(super) fn unpack_policy(word: u64) -> Release {
    let number = word & MAX_NUMBER;
    match word >> KIND_SHIFT {
        AT_ONCE => Release::AtOnce,
        KEEP if number == MAX_NUMBER => Release::Keep(usize::MAX),
        KEEP => Release::Keep(number as usize),
        DECAY => Release::Decay(Duration::from_millis(number)),
        _ => Release::Adaptive,
    }
}

const AT_ONCE: u64 = 0;
const KEEP: u64 = 1;
const DECAY: u64 = 2;
const ADAPTIVE: u64 = 3;
const KIND_SHIFT: u32 = 62;
const MAX_NUMBER: u64 = (1 << KIND_SHIFT) - 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_its_packing() {
        for policy in [
            Release::AtOnce,
            Release::Keep(0),
            Release::Keep(123_456),
            Release::Keep(usize::MAX),
            Release::Decay(Duration::ZERO),
            Release::Decay(Duration::from_millis(1500)),
            Release::Adaptive,
        ] {
            assert_eq!(unpack_policy(pack_policy(policy)), policy);
        }
        // A fraction of a millisecond is lost, and a decay beyond all time is shortened.
        let decay = |time| unpack_policy(pack_policy(Release::Decay(time)));
        assert_eq!(decay(Duration::from_micros(2500)), Release::Decay(Duration::from_millis(2)));
        let longest = Duration::from_millis(MAX_NUMBER);
        assert_eq!(decay(Duration::MAX), Release::Decay(longest));
    }
}
