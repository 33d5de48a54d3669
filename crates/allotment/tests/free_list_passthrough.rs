//! `ALLOTMENT_PASSTHROUGH=1` for free lists: runs, boxes and copies. The claims about every
//! allocator are in `claims_passthrough.rs`.
#![cfg(system_memory)]

#[path = "support/mod.rs"]
mod support;

use allotment::free_list::Copier;
use allotment::{Budget, ErrorKind, FreeList, ListBox};
use support::child::{self, Child};
use support::list;

/// Runs `body` in a child process in pass-through mode.
fn passed_through(test: &str, body: impl Fn()) {
    if child::is(test) {
        return body();
    }
    Child::new(test, test).env("ALLOTMENT_PASSTHROUGH", "1").succeeds();
}

#[test]
fn a_fresh_object_is_a_block_and_a_run_of_more_is_refused() {
    passed_through("a_fresh_object_is_a_block_and_a_run_of_more_is_refused", || {
        let list = FreeList::<[u64; 4]>::new();
        let fresh = list.raw().try_alloc_fresh().expect("a block");
        // SAFETY: allocated just now.
        unsafe { list.raw().free(fresh) };
        assert_eq!(list.alloc_run(1).map(|slot| slot.fill([1; 4])[3]).sum::<u64>(), 1);
        assert_eq!(list.alloc_run(0).count(), 0);
        assert_eq!(list.raw().try_alloc_run(2).unwrap_err().kind(), ErrorKind::LimitReached);
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
