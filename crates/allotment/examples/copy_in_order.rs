//! Copies of linked structures (a tree, a list and a graph) whose objects lie in memory in the
//! order in which a program walks them.
//!
//! Each structure is built as in a program that has run for a while: in the holes that other
//! objects have left. Then it is copied into fresh slots in the order of a walk. The example prints
//! how far apart in memory the steps of a walk are.

use allotment::{FreeList, ListBox};

/// The mean distance in bytes between objects that a walk visits one after the other.
fn mean_step(addresses: &[usize]) -> usize {
    let steps = addresses.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    steps.sum::<usize>() / (addresses.len() - 1)
}

fn address<T>(object: &T) -> usize {
    std::ptr::from_ref(object).addr()
}

/// Numbers in pseudo-random order.
fn numbers(count: usize) -> Vec<usize> {
    (0..count).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) % (1 << 30)).collect()
}

/// A list of `places` slots, most of them used once and freed in pseudo-random order, as after
/// hours of work. Some slots stay in use, for two reasons: an empty list starts in order again, and
/// a list with few live objects sorts its free slots when it sweeps for empty chunks.
fn scrambled<T>(places: usize) -> FreeList<T> {
    let list = FreeList::new();
    let mut slots: Vec<_> = (0..places).map(|_| Some(list.alloc_slot())).collect();
    for number in numbers(places) {
        slots[number % places] = None;
    }
    slots.into_iter().for_each(std::mem::forget);
    list
}

// ---- a tree ----

#[derive(Default)]
struct Node<'l> {
    key: usize,
    children: [Option<ListBox<'l, Node<'l>>>; 2],
}

fn insert<'l>(list: &'l FreeList<Node<'l>>, place: &mut Option<ListBox<'l, Node<'l>>>, key: usize) {
    match place {
        Some(node) => {
            let side = usize::from(key > node.key);
            insert(list, &mut node.children[side], key);
        }
        None => *place = Some(list.alloc(Node { key, ..Node::default() })),
    }
}

fn walk(node: &Node<'_>, addresses: &mut Vec<usize>) {
    addresses.push(address(node));
    node.children.iter().flatten().for_each(|child| walk(child, addresses));
}

fn tree() -> [usize; 2] {
    let (built, compact) = (scrambled(50_000), FreeList::new());
    let mut root = None;
    numbers(20_000).into_iter().for_each(|key| insert(&built, &mut root, key));
    let root = root.expect("20,000 keys");
    let copy = compact.copy_in_order(&*root, |node, copier| Node {
        key: node.key,
        children: node.children.each_ref().map(|child| Some(copier.copy(&**child.as_ref()?))),
    });
    [&root, &copy].map(|root| {
        let mut addresses = Vec::new();
        walk(root, &mut addresses);
        mean_step(&addresses)
    })
}

// ---- a list ----

struct Link<'l> {
    number: usize,
    next: Option<ListBox<'l, Link<'l>>>,
}

impl Drop for Link<'_> {
    /// Drops link by link: recursive destructors of a long chain would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut link) = next {
            next = link.next.take();
        }
    }
}

fn chain<'l>(from: Option<&'l Link<'l>>) -> impl Iterator<Item = &'l Link<'l>> {
    std::iter::successors(from, |link| link.next.as_deref())
}

fn list() -> [usize; 2] {
    let (built, compact) = (scrambled(50_000), FreeList::new());
    let first = numbers(20_000)
        .into_iter()
        .fold(None, |next, number| Some(built.alloc(Link { number, next })));
    // The list may be as long as memory allows, so there is no recursion: take all slots first, in
    // order, then fill them from the last to the first.
    let links: Vec<_> = chain(first.as_deref()).collect();
    let places: Vec<_> = compact.alloc_run(links.len()).collect();
    let copy = places
        .into_iter()
        .zip(&links)
        .rev()
        .fold(None, |next, (place, link)| Some(place.fill(Link { number: link.number, next })));
    [&first, &copy]
        .map(|first| mean_step(&chain(first.as_deref()).map(address).collect::<Vec<_>>()))
}

// ---- a graph ----

/// A vertex stores the numbers of its neighbours; the boxes lie in one vector.
struct Vertex {
    neighbours: Vec<usize>,
}

/// The vertices in the order in which a breadth-first search from the first vertex meets them.
fn breadth_first(graph: &[ListBox<'_, Vertex>]) -> Vec<usize> {
    let mut order = vec![0];
    let mut seen = vec![false; graph.len()];
    seen[0] = true;
    let mut next = 0;
    while let Some(&vertex) = order.get(next) {
        for &neighbour in &graph[vertex].neighbours {
            if !std::mem::replace(&mut seen[neighbour], true) {
                order.push(neighbour);
            }
        }
        next += 1;
    }
    order
}

fn graph() -> [usize; 2] {
    const VERTICES: usize = 20_000;
    let (built, compact) = (scrambled(50_000), FreeList::new());
    let ends = numbers(3 * VERTICES);
    let graph: Vec<_> = (0..VERTICES)
        .map(|vertex| {
            let mut neighbours: Vec<_> =
                ends[3 * vertex..][..3].iter().map(|end| end % VERTICES).collect();
            neighbours.push((vertex + 1) % VERTICES);
            built.alloc(Vertex { neighbours })
        })
        .collect();
    let order = breadth_first(&graph);
    // In that order the copies are contiguous, and they are numbered in that order.
    let mut number = vec![0; graph.len()];
    order.iter().enumerate().for_each(|(new, &old)| number[old] = new);
    let copy: Vec<_> = order
        .iter()
        .zip(compact.alloc_run(order.len()))
        .map(|(&old, place)| {
            let neighbours = graph[old].neighbours.iter().map(|&old| number[old]).collect();
            place.fill(Vertex { neighbours })
        })
        .collect();
    [&graph, &copy].map(|graph| {
        let order = breadth_first(graph);
        mean_step(&order.iter().map(|&vertex| address(&*graph[vertex])).collect::<Vec<_>>())
    })
}

fn main() {
    println!("bytes between the steps of a walk, as built and as copied in visiting order");
    for (name, [built, copied]) in [("tree", tree()), ("list", list()), ("graph", graph())] {
        println!("{name:>6} {built:>10} {copied:>10}");
        assert!(copied * 10 < built, "{name}");
    }
}
