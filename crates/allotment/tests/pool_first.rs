//! The first claims.
use allotment::{LocalPool, PoolRef, Reap, Routed};
use std::alloc::{Layout, System};
use std::collections::HashMap;

#[global_allocator]
static GLOBAL: Routed<System> = Routed::new(System);

#[test]
fn ordinary_code_runs_in_a_pool_and_what_escapes_stays() {
    let pool = LocalPool::new();
    let kept: HashMap<u32, String> =
        pool.enter(|| (0..1000).map(|n| (n, format!("number {n}"))).collect());
    assert!(LocalPool::any_holds(kept[&7].as_ptr()));
    drop(pool);
    let other = std::thread::spawn(move || {
        assert_eq!(kept[&999], "number 999");
        kept
    })
    .join()
    .unwrap();
    drop(other);
}

#[test]
fn threads_free_each_others() {
    let (send, receive) = std::sync::mpsc::channel::<Vec<Box<[u64; 9]>>>();
    let freer = std::thread::spawn(move || {
        let pool = LocalPool::new();
        pool.enter(|| {
            for boxes in receive {
                drop(boxes);
            }
        });
    });
    let makers: Vec<_> = (0..4)
        .map(|_| {
            let send = send.clone();
            std::thread::spawn(move || {
                let pool = LocalPool::new();
                for round in 0..200 {
                    let boxes =
                        pool.enter(|| (0..100).map(|n| Box::new([n + round; 9])).collect());
                    send.send(boxes).unwrap();
                }
                pool.statistics()
            })
        })
        .collect();
    drop(send);
    for maker in makers {
        println!("{:?}", maker.join().unwrap());
    }
    freer.join().unwrap();
}

#[test]
fn reap_basics() {
    let mut reap = Reap::new();
    for _ in 0..3 {
        let mut blocks = Vec::new();
        for size in (0..70_000).step_by(97) {
            for align in [1, 16, 64, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let block = reap.alloc_layout(layout);
                assert_eq!(block.addr().get() % align, 0);
                unsafe { block.write_bytes(7, size) };
                blocks.push((block, layout));
            }
        }
        for (block, layout) in blocks.into_iter().step_by(2) {
            unsafe { reap.free_layout(block, layout) };
        }
        println!("{:?}", reap.statistics());
        reap.reset();
        println!("{:?}", reap.statistics());
    }
    assert_eq!(PoolRef::default(), PoolRef::GLOBAL);
}
