//! `Debug` of an allocator says what its user set and what it holds, and never an address or a
//! field of its own.
#![cfg(system_memory)]

use std::alloc::Layout;
use std::fmt::Debug;

use allotment::{Arena, FreeList, LocalPool, RawFreeList, RawSlab, Reap, Slab, Statistics};

/// The text of an allocator with these fields.
fn text(type_name: &str, name: &str, layout: Option<Layout>, statistics: Statistics) -> String {
    let layout = layout.map_or_else(String::new, |layout| format!("layout: {layout:?}, "));
    format!("{type_name} {{ name: Some({name:?}), {layout}statistics: {statistics:?} }}")
}

fn shows(value: &impl Debug, expected: &str) {
    assert_eq!(format!("{value:?}"), expected);
    assert!(!expected.contains("0x"), "no address: {expected}");
}

#[test]
fn a_free_list_shows_its_name_layout_and_statistics() {
    let layout = Layout::new::<[u64; 3]>();
    for checked in [false, true] {
        let list = RawFreeList::builder(layout).name("lines").hardened(checked).build();
        let _ = list.alloc();
        shows(&list, &text("RawFreeList", "lines", Some(layout), list.statistics()));
    }
    let list = FreeList::<[u64; 3]>::builder().name("lines").build();
    let raw = text("RawFreeList", "lines", Some(layout), list.statistics());
    shows(&list, &format!("FreeList({raw})"));
}

#[test]
fn a_reap_and_a_pool_show_their_name_and_statistics() {
    for hardened in [false, true] {
        let reap = Reap::builder().name("request").hardened(hardened).build();
        let _ = reap.alloc_layout(Layout::new::<u64>());
        shows(&reap, &text("Reap", "request", None, reap.statistics()));
        let pool = LocalPool::builder().name("session").hardened(hardened).build();
        let block = pool.alloc_layout(Layout::new::<u64>());
        shows(&pool, &text("LocalPool", "session", None, pool.statistics()));
        // SAFETY: allocated above with this layout, freed once, not used any more.
        unsafe { pool.free_layout(block, Layout::new::<u64>()) };
    }
}

#[test]
fn a_mark_shows_its_arena_and_a_position_nothing_internal() {
    let mut arena = Arena::builder().name("parser").build();
    arena.alloc(7);
    shows(&arena.position(), "ArenaPosition { .. }");
    let mark = arena.mark();
    mark.alloc(8);
    let arena_text = text("Arena", "parser", None, mark.statistics());
    shows(&mark, &format!("Mark {{ arena: {arena_text} }}"));
}

#[test]
fn a_handle_shows_its_slab() {
    let layout = Layout::new::<[u64; 3]>();
    let slab = RawSlab::builder(layout).name("orders").build();
    let handle = slab.handle();
    let slab_text = text("RawSlab", "orders", Some(layout), slab.statistics());
    shows(&handle, &format!("RawSlabHandle {{ slab: {slab_text} }}"));
    let slab = Slab::<[u64; 3]>::builder().name("orders").build();
    let handle = slab.handle();
    let slab_text = text("RawSlab", "orders", Some(layout), slab.statistics());
    shows(&handle, &format!("SlabHandle(RawSlabHandle {{ slab: {slab_text} }})"));
}
