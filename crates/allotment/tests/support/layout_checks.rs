//! The address arithmetic against the same sums in 128 bits, where nothing can wrap.

use super::input::Input;
use allotment::layout_for_fuzzing::*;

/// The library relies on no larger address.
#[cfg(target_pointer_width = "64")]
const LAST_ADDRESS: usize = MAX_ADDRESS;
#[cfg(target_pointer_width = "32")]
const LAST_ADDRESS: usize = usize::MAX;

const LIMIT: u128 = isize::MAX as u128;

fn up(value: u128, align: usize) -> u128 {
    value.next_multiple_of(align as u128)
}

fn power_up_to(input: &mut Input<'_>, most: u32) -> usize {
    1 << (u32::from(input.byte()) % (most.min(usize::BITS - 1) + 1))
}

/// Decodes questions from the bytes, and asserts each answer of `memory/layout.rs`.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        match input.byte() % 6 {
            0 => check_object_end(&mut input),
            1 => check_chunk_bytes(&mut input),
            2 => check_next_chunk(&mut input),
            3 => check_class_of(input.number()),
            4 => check_class(usize::from(input.byte()) % CLASSES),
            _ => check_align_up(&mut input),
        }
    }
}

/// A size and an alignment that make a valid layout.
fn layout(input: &mut Input<'_>) -> (usize, usize) {
    let align = power_up_to(input, usize::BITS - 2);
    let size = input.number().min(isize::MAX as usize - (align - 1));
    assert!(core::alloc::Layout::from_size_align(size, align).is_ok());
    (size, align)
}

/// An object behind any address: neither its padding nor its end wraps.
fn check_object_end(input: &mut Input<'_>) {
    let min_align = power_up_to(input, 12);
    let pos = input.number().min(LAST_ADDRESS) & !(min_align - 1);
    let (size, align) = layout(input);
    let wide_start = up(pos as u128, align);
    for end in [pos, pos.saturating_add(size), LAST_ADDRESS, input.number().min(LAST_ADDRESS)] {
        let fits = wide_start + size as u128 <= end as u128;
        let start = start_within(pos, align, size, end);
        assert_eq!(start.map(|start| start as u128), fits.then_some(wide_start), "before {end}");
    }
    // Below, 32 bits need a block with room, which `start_within` asks for.
    if usize::BITS == 32 {
        return;
    }
    let start = align_up(pos, align.max(min_align));
    let end = align_up(start.wrapping_add(size), min_align);
    let wide_start = up(pos as u128, align.max(min_align));
    let wide_end = up(wide_start + size as u128, min_align);
    assert_eq!(start as u128, wide_start, "{size} bytes at {align} and {min_align} behind {pos}");
    assert_eq!(end as u128, wide_end, "{size} bytes at {align} and {min_align} behind {pos}");
    assert!(start >= pos && end >= start && end - start >= size);
    assert!(start % align == 0 && end % min_align == 0);
}

fn check_chunk_bytes(input: &mut Input<'_>) {
    let header = 16 * (usize::from(input.byte()) % 16);
    let chunk_align = power_up_to(input, 21).max(16);
    let (size, align) = layout(input);
    let answer = chunk_bytes_for(header, size, align, chunk_align);
    let exact = up(header as u128, align.min(chunk_align))
        + align.saturating_sub(chunk_align) as u128
        + size as u128;
    // Where the object ends in a chunk at the worst of the addresses that a chunk may have.
    let larger = align.max(chunk_align) as u128;
    let worst = (0..16)
        .map(|k| larger - chunk_align as u128 * (k % (larger / chunk_align as u128)))
        .map(|address| up(address + header as u128, align) + size as u128 - address)
        .max()
        .unwrap();
    assert!(exact >= worst);
    let question = format!("chunk_bytes_for({header}, {size}, {align}, {chunk_align})");
    assert_eq!(
        answer.map(|bytes| bytes as u128),
        Some(exact).filter(|&e| e <= LIMIT),
        "{question}"
    );
}

fn check_next_chunk(input: &mut Input<'_>) {
    let need = input.number();
    let previous = input.number();
    let page = 1 << (12 + u32::from(input.byte()) % 10);
    match next_chunk(need, previous, page) {
        Some(size) => {
            assert!(size >= need && size >= page && size % page == 0 && size as u128 <= LIMIT);
            assert!(size >= previous.saturating_mul(2).min(MAX_GROWTH));
            // Not more than a class, and whole pages, above the larger of what was asked.
            let asked = need.max(previous.saturating_mul(2).min(MAX_GROWTH)).max(page);
            assert!((size as u128) < 2 * asked as u128 + page as u128);
            if size <= MAX_CLASS_SIZE && page <= HUGE_PAGE {
                assert!(
                    exact_class(size).is_some() || page > MIN_CHUNK,
                    "a chunk of {size} bytes could never be recycled"
                );
            }
        }
        None => assert!(up(need as u128, page) > LIMIT, "next_chunk({need}, {previous}, {page})"),
    }
}

fn check_class_of(bytes: usize) {
    match class_of(bytes) {
        Some(class) => {
            assert!(class < CLASSES && class_size(class) >= bytes);
            assert!(class == 0 || class_size(class - 1) < bytes, "{bytes} fits a smaller class");
            assert_eq!(exact_class(bytes).is_some(), class_size(class) == bytes);
        }
        None => {
            assert!(bytes > MAX_CLASS_SIZE);
            assert_eq!(exact_class(bytes), None);
        }
    }
}

fn check_class(class: usize) {
    let size = class_size(class);
    assert!((MIN_CHUNK..=MAX_CLASS_SIZE).contains(&size) && size % MIN_CHUNK == 0);
    assert_eq!(class_of(size), Some(class));
    assert_eq!(exact_class(size), Some(class));
    assert!(class + 1 == CLASSES || class_size(class + 1) > size);
}

fn check_align_up(input: &mut Input<'_>) {
    let align = power_up_to(input, 63);
    let size = input.number();
    let wide = up(size as u128, align);
    assert_eq!(checked_align_up(size, align), usize::try_from(wide).ok());
    if size <= LAST_ADDRESS && (usize::BITS == 32 || align <= 1 << 62) && wide <= usize::MAX as u128
    {
        assert_eq!(align_up(size, align) as u128, wide);
    }
}
