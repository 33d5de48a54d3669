//! What a decision about huge pages asks the kernel for.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::error::AllocError;
use crate::memory::layout::HUGE_PAGE;
use crate::memory::os;

/// The file with the system's setting for huge pages: `always [madvise] never`.
const SETTING: &CStr = c"/sys/kernel/mm/transparent_hugepage/enabled";

/// The bytes of small pages that are touched to learn their cost; at least one page.
const SAMPLE: usize = 32 << 10;

/// What a decision asks the kernel for. Tests simulate a kernel.
pub(super) trait Kernel {
    /// A clock that ticks every few milliseconds.
    fn coarse_millis(&self) -> u64;

    /// The processor time of the thread.
    fn thread_nanos(&self) -> u64;

    /// The number of free blocks of 2 MiB. `None` if the kernel does not say.
    fn free_blocks(&self) -> Option<u64>;

    /// Whether a page has memory. `None` if the kernel does not say.
    fn is_resident(&self, page: NonNull<u8>) -> Option<bool>;

    fn advise_huge(&self, start: NonNull<u8>, len: usize);

    fn advise_small(&self, start: NonNull<u8>, len: usize);

    /// Touches a page. The write is volatile, because only the page fault matters.
    ///
    /// # Safety
    /// The page is mapped, and nothing uses it.
    unsafe fn touch(&self, page: NonNull<u8>);

    /// Touches [`sample_len`] bytes with one system call.
    ///
    /// # Errors
    /// If there is no such call.
    fn populate_sample(&self, start: NonNull<u8>) -> Result<(), AllocError>;

    /// Maps [`sample_len`] bytes.
    fn map_sample(&self) -> Result<NonNull<u8>, AllocError>;

    /// # Safety
    /// The sample was mapped by [`map_sample`](Self::map_sample), and is unmapped once.
    unsafe fn unmap_sample(&self, start: NonNull<u8>);
}

/// The kernel that runs this process.
pub(super) struct RunningKernel;

impl Kernel for RunningKernel {
    fn coarse_millis(&self) -> u64 {
        os::coarse_millis()
    }

    fn thread_nanos(&self) -> u64 {
        os::thread_nanos()
    }

    fn free_blocks(&self) -> Option<u64> {
        const FILE: &CStr = c"/proc/buddyinfo";
        let mut text = [0; 4096];
        let len = os::read_start(FILE, &mut text);
        let order = (HUGE_PAGE / os::page_size()).ilog2();
        free_blocks_in(&text[..len], order)
    }

    fn is_resident(&self, page: NonNull<u8>) -> Option<bool> {
        os::is_resident(page)
    }

    fn advise_huge(&self, start: NonNull<u8>, len: usize) {
        let _ = os::advise_huge(start, len);
    }

    fn advise_small(&self, start: NonNull<u8>, len: usize) {
        let _ = os::advise_small(start, len);
    }

    unsafe fn touch(&self, page: NonNull<u8>) {
        // SAFETY: guaranteed by the caller.
        unsafe { page.write_volatile(0) };
    }

    fn populate_sample(&self, start: NonNull<u8>) -> Result<(), AllocError> {
        os::populate(start, sample_len())
    }

    fn map_sample(&self) -> Result<NonNull<u8>, AllocError> {
        let start = os::map(sample_len(), 1)?;
        // The kernel may join it to a larger mapping.
        refuse_huge(start, sample_len());
        Ok(start)
    }

    unsafe fn unmap_sample(&self, start: NonNull<u8>) {
        // SAFETY: guaranteed by the caller.
        let _ = unsafe { os::unmap(start, sample_len()) };
    }
}

/// The bytes of a sample of small pages.
pub(super) fn sample_len() -> usize {
    SAMPLE.max(os::page_size())
}

/// The address `offset` bytes into a range.
pub(super) fn at(start: NonNull<u8>, offset: usize) -> NonNull<u8> {
    start.map_addr(|address| address.saturating_add(offset))
}

/// Requests small pages for a range if the system uses huge pages without being asked.
pub(crate) fn refuse_huge(start: NonNull<u8>, len: usize) {
    if system_prefers_huge() {
        let _ = os::advise_small(start, len);
    }
}

/// Whether the system uses huge pages without being asked. The setting is read once.
fn system_prefers_huge() -> bool {
    const UNKNOWN: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = ANSWER.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    let mut text = [0; 64];
    let len = os::read_start(SETTING, &mut text);
    let is_always = setting_is_always(&text[..len]);
    ANSWER.store(u8::from(is_always), Ordering::Relaxed);
    is_always
}

/// The active setting is in brackets.
fn setting_is_always(text: &[u8]) -> bool {
    text.split(|byte| byte.is_ascii_whitespace()).any(|word| word == b"[always]")
}

/// Adds up `/proc/buddyinfo`: for each zone a line `Node 0, zone Normal 5 3 ...` with the numbers
/// of free blocks of 1, 2, 4, ... pages. `order` is the logarithm of the pages of a huge page.
/// `None` if there is no such line.
fn free_blocks_in(text: &[u8], order: u32) -> Option<u64> {
    let mut sum: Option<u64> = None;
    for line in text.split(|&byte| byte == b'\n') {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        if !words.any(|word| word == b"zone") {
            continue;
        }
        let counts = words.skip(1 + order as usize).enumerate();
        for (double, count) in counts {
            let count: u64 = core::str::from_utf8(count).ok()?.parse().ok()?;
            let blocks = count.saturating_mul(1u64.checked_shl(double as u32).unwrap_or(0));
            sum = Some(sum.unwrap_or(0).saturating_add(blocks));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_force_stands_in_brackets() {
        assert!(setting_is_always(b"[always] madvise never\n"));
        for text in
            ["always [madvise] never\n", "always madvise [never]\n", "", "always", "[always"]
        {
            assert!(!setting_is_always(text.as_bytes()), "{text:?}");
        }
    }

    const LINES: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3
Node 0, zone   Normal   1306  10862   6517   1830   1203   1927   1254    643    445    923   2446
Node 1, zone   Normal      0      0      0      0      0      0      0      0      0      0      0
";

    #[test]
    fn free_blocks_of_all_nodes_and_zones_are_added_up() {
        assert_eq!(free_blocks_in(LINES.as_bytes(), 9), Some(1 + 2 * 3 + 923 + 2 * 2446));
        assert_eq!(free_blocks_in(LINES.as_bytes(), 10), Some(3 + 2446));
        assert_eq!(free_blocks_in(LINES.as_bytes(), 11), None);
    }

    #[test]
    fn what_is_not_such_a_text_has_no_number() {
        let huge = format!("Node 0, zone Normal{}", " 18446744073709551615".repeat(80));
        assert_eq!(free_blocks_in(huge.as_bytes(), 9), Some(u64::MAX));
        for text in ["", "\n\n", "Node 0, zone", "Node 0, zone Normal", "zone zone zone"] {
            assert_eq!(free_blocks_in(text.as_bytes(), 9), None, "{text:?}");
        }
        for text in
            ["zone N 0 x", "zone N 0 -1", "zone N 0 99999999999999999999", "zone N 0 \u{e9}"]
        {
            assert_eq!(free_blocks_in(text.as_bytes(), 1), None, "{text:?}");
        }
    }
}
