use allotment::*;
use core::alloc::Layout;
#[test]
fn a() {
    let l = RawFreeList::new(Layout::new::<[u64; 8]>());
    let mut v = vec![];
    for _ in 0..100 {
        let r = l.alloc_run(1000);
        for i in 0..1000 {
            v.push(unsafe { r.add(i * l.stride()) });
        }
    }
    println!("{:?}", l.statistics());
    for o in v {
        unsafe { l.free(o) }
    }
    println!("{:?}", l.statistics());
    // hole + compaction
    let l = RawFreeList::new(Layout::new::<[u64; 8]>());
    let v: Vec<_> = (0..100_000).map(|_| l.alloc()).collect();
    for o in &v[..60000] {
        unsafe { l.free(*o) }
    }
    println!("pruned {:?}", l.statistics());
    let w: Vec<_> = (0..40_000).map(|_| l.alloc_fresh()).collect();
    for o in &v[60000..] {
        unsafe { l.free(*o) }
    }
    println!("copied {:?}", l.statistics());
    for o in w {
        unsafe { l.free(o) }
    }
    println!("freed {:?}", l.statistics());
    let l = RawFreeList::new(Layout::new::<[u64; 8]>());
    for n in [1000, 10000, 100_000] {
        let v: Vec<_> = (0..n).map(|_| l.alloc()).collect();
        for o in v.iter().rev() {
            unsafe { l.free(*o) }
        }
        println!("burst {:?}", l.statistics());
        let v: Vec<_> = (0..n).map(|_| l.alloc()).collect();
        for i in 0..n {
            unsafe { l.free(v[i * 7919 % n]) }
        }
        println!("burst {:?}", l.statistics());
    }
}
