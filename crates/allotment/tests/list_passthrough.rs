//! `ALLOTMENT_PASSTHROUGH=1`: every object of a free list is a separate malloc block, and the
//! allocator's guarantees still hold. Random programs are in `list_programs.rs`.

#[path = "support/mod.rs"]
mod support;

use core::ptr::NonNull;

use allotment::{Budget, Copier, ErrorKind, FreeList, ListBox, RawFreeList};
use support::child::{self, Child};
use support::list::{self, free_all, stamped};
use support::slab::layout;

type Misuse = fn(&RawFreeList);

/// Runs `body` in a child process in pass-through mode.
fn passed_through(test: &str, body: impl Fn()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn each_object_is_a_block_of_malloc() {
    passed_through("each_object_is_a_block_of_malloc", || {
        let budget = Budget::new(100_000);
        let list = RawFreeList::builder(layout(100, 8)).budget(&budget).name("through").build();
        let objects = stamped(&list, 300);
        for object in &objects {
            // SAFETY: live blocks of malloc, if the claim holds.
            let usable = unsafe { libc::malloc_usable_size(object.start.as_ptr().cast()) };
            assert!((100..200).contains(&usable), "{usable}");
        }
        let statistics = list::assert_exact(&list, 300, Some(&budget));
        assert_eq!((statistics.chunks, statistics.free_bytes, statistics.wasted_bytes), (0, 0, 0));
        assert_eq!(allotment::report().allocators[0].statistics, statistics);
        assert_eq!(list.trim(), 0);
        free_all(&list, objects);
        list::assert_empties(&list);
        let mut more = Vec::new();
        let error = loop {
            match list.try_alloc() {
                Ok(object) => more.push(object),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), more.len()), (ErrorKind::BudgetExceeded, 1000));
        list::assert_exact(&list, more.len(), Some(&budget));
        // A list that is dropped with live objects frees their blocks.
        drop(list);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_fresh_object_is_a_block_and_a_run_of_more_is_refused() {
    passed_through("a_fresh_object_is_a_block_and_a_run_of_more_is_refused", || {
        let list = FreeList::<[u64; 4]>::new();
        let fresh = list.raw().try_alloc_fresh().expect("a block");
        // SAFETY: allocated just now.
        unsafe { list.raw().free(fresh) };
        assert_eq!(list.run(1).map(|slot| slot.fill([1; 4])[3]).sum::<u64>(), 1);
        assert_eq!(list.run(0).count(), 0);
        assert_eq!(list.raw().try_alloc_run(2).unwrap_err().kind(), ErrorKind::SourceRefused);
        list::assert_exact(list.raw(), 0, None);
    });
}

#[test]
fn boxes_and_copies_work_as_in_other_modes() {
    passed_through("boxes_and_copies_work_as_in_other_modes", || {
        struct Node<'l> {
            key: usize,
            next: Option<ListBox<'l, Node<'l>>>,
        }
        let budget = Budget::new(usize::MAX);
        let list = FreeList::builder().budget(&budget).build();
        let mut head: Option<ListBox<'_, Node<'_>>> = None;
        for key in 0..100 {
            head = Some(list.alloc(Node { key, next: head.take() }));
        }
        let head = head.expect("a hundred");
        // A function and not a closure: on Rust 1.85 a closure keeps the source borrowed while the
        // copy lives.
        fn copy_node<'l, 's>(
            node: &'s Node<'l>,
            copier: &mut Copier<'_, 'l, &'s Node<'l>, Node<'l>>,
        ) -> Node<'l> {
            let next = node.next.as_deref().map(|next| copier.copy(next));
            Node { key: node.key + 1, next }
        }
        let copy = list.copy_in_order(&*head, copy_node);
        drop(head);
        list::assert_exact(list.raw(), 100, Some(&budget));
        let keys = core::iter::successors(Some(&*copy), |node| node.next.as_deref());
        assert!(keys.map(|node| node.key).eq((1..=100).rev()));
        drop(copy);
        assert_eq!(budget.used(), 0);
    });
}

#[test]
fn a_double_free_and_a_foreign_pointer_are_stopped_too() {
    let test = "a_double_free_and_a_foreign_pointer_are_stopped_too";
    let cases: [(&str, Misuse); 2] = [
        ("double", |list| {
            let object = list.alloc();
            // SAFETY: none: this is the misuse.
            unsafe {
                list.free(object);
                list.free(object);
            }
        }),
        ("foreign", |list| {
            let foreign = NonNull::from(Box::leak(Box::new(7u64)));
            // SAFETY: none: this is the misuse.
            unsafe { list.free(foreign.cast()) };
        }),
    ];
    for (case, misuse) in cases {
        if child::is(case) {
            misuse(&RawFreeList::builder(layout(24, 8)).name("victim").build());
            panic!("the misuse was not detected");
        }
    }
    if !child::is_any() {
        for (case, _) in cases {
            let stderr = Child::new(test, case).env("ALLOTMENT_PASSTHROUGH", "1").aborts();
            assert!(stderr.contains("allotment: free list 'victim': "), "{case}: {stderr}");
        }
    }
}
