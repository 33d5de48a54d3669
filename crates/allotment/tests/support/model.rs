//! The model that an arena is checked against: which ranges are live, and what is in them.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::BTreeMap;

use allotment::Statistics;

/// Longer objects have this pattern at both ends and in a byte every so often between.
const WHOLE: usize = 4096;
const END: usize = 256;

/// Where a pattern starts is its object's seed: two neighbours never look alike.
static PATTERN: [u8; 256 + WHOLE] = pattern();

const fn pattern() -> [u8; 256 + WHOLE] {
    let mut bytes = [0; 256 + WHOLE];
    let mut state = 0x9e37_79b9_u32;
    let mut index = 0;
    while index < bytes.len() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes[index] = (state >> 24) as u8;
        index += 1;
    }
    bytes
}

/// The bytes that a seed stands for.
pub fn bytes_of(seed: u8, len: usize) -> &'static [u8] {
    &PATTERN[usize::from(seed)..usize::from(seed) + len]
}

fn strides(len: usize) -> impl Iterator<Item = usize> {
    (END..len - END).step_by((len / 61).max(1))
}

/// One live object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub start: NonNull<u8>,
    pub layout: Layout,
    pub seed: u8,
    /// Objects are numbered as they come; a scope holds those from its own number on.
    pub serial: u64,
}

impl Object {
    fn address(&self) -> usize {
        self.start.addr().get()
    }

    fn size(&self) -> usize {
        self.layout.size()
    }

    /// Writes the pattern.
    pub fn fill(&self) {
        let (first, len) = (self.start.as_ptr(), self.size());
        let ends = if len <= WHOLE { len } else { END };
        // SAFETY: a live object of the arena under test, `len` bytes long.
        unsafe {
            let bytes = bytes_of(self.seed, ends);
            first.copy_from_nonoverlapping(bytes.as_ptr(), ends);
            if len > WHOLE {
                first.add(len - END).copy_from_nonoverlapping(bytes.as_ptr(), END);
                for index in strides(len) {
                    first.add(index).write(self.seed);
                }
            }
        }
    }

    /// Asserts that the first `len` bytes are those of `fill`.
    pub fn assert_intact(&self, len: usize) {
        let whole = self.size();
        let ends = if whole <= WHOLE { whole } else { END };
        // SAFETY: as in `fill`; `len` is at most the object's size.
        unsafe {
            let at = |from: usize, len: usize| {
                core::slice::from_raw_parts(self.start.as_ptr().add(from), len)
            };
            let head = ends.min(len);
            assert!(at(0, head) == bytes_of(self.seed, head), "the start of {self:?} changed");
            if whole > WHOLE {
                for index in strides(whole).filter(|&index| index < len) {
                    assert_eq!(at(index, 1)[0], self.seed, "byte {index} of {self:?} changed");
                }
                if len == whole {
                    let tail = at(whole - END, END);
                    assert!(tail == bytes_of(self.seed, END), "the end of {self:?} changed");
                }
            }
        }
    }
}

/// An object that was freed, or made smaller, inside a scope that it lies outside of. It keeps its
/// place and its bytes, and no step touches it before the rewind.
struct SetAside {
    object: Object,
    /// When: the rewinds to this number, or to a lower one, undo it.
    serial: u64,
    /// What the statistics count less until then.
    objects: u64,
    bytes: u64,
}

/// All live objects of one arena.
#[derive(Default)]
pub struct Model {
    objects: Vec<Object>,
    set_aside: Vec<SetAside>,
    /// Start to end of those that have a size.
    ranges: BTreeMap<usize, usize>,
    pub next_serial: u64,
    /// Objects below this number lie outside the open scope: they keep their place and their bytes.
    pub scope: u64,
    live_bytes: u64,
}

impl Model {
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// A new object: aligned, and apart from all others. Fills it.
    pub fn add(&mut self, start: NonNull<u8>, layout: Layout, min_align: usize) -> Object {
        let serial = self.next_serial;
        self.next_serial += 1;
        let seed = (serial.wrapping_mul(37) & 0xff) as u8;
        let object = Object { start, layout, seed, serial };
        assert_eq!(object.address() % layout.align(), 0, "{object:?} is aligned");
        assert!(layout.size() == 0 || object.address() % min_align == 0, "{object:?}: MIN_ALIGN");
        self.claim(&object);
        object.fill();
        self.objects.push(object);
        object
    }

    fn claim(&mut self, object: &Object) {
        if object.size() == 0 {
            return;
        }
        let (start, end) = (object.address(), object.address() + object.size());
        if let Some((other, other_end)) = self.ranges.range(..end).next_back() {
            assert!(*other_end <= start, "{object:?} overlaps {other:#x}..{other_end:#x}");
        }
        self.ranges.insert(start, end);
        self.live_bytes += object.size() as u64;
    }

    fn disclaim(&mut self, object: &Object) {
        if object.size() > 0 {
            self.ranges.remove(&object.address()).expect("a live object");
            self.live_bytes -= object.size() as u64;
        }
    }

    /// Whether the object may be freed and resized now.
    pub fn in_scope(&self, object: &Object) -> bool {
        object.serial >= self.scope
    }

    pub fn remove(&mut self, index: usize) -> Object {
        let object = self.objects.swap_remove(index);
        self.disclaim(&object);
        object
    }

    /// An object from outside the scope was freed, or has lost its last bytes: it stays as it is,
    /// and the statistics count it so until the rewind.
    pub fn set_aside(&mut self, index: usize, left: Option<usize>) {
        let object = self.objects.swap_remove(index);
        let size = object.size();
        self.set_aside.push(SetAside {
            object,
            serial: self.next_serial,
            objects: u64::from(left.is_none() && size > 0),
            bytes: (size - left.unwrap_or(0)) as u64,
        });
        self.next_serial += 1;
    }

    /// The object now starts here and has this layout; its first bytes came along. Fills it anew.
    pub fn resize(&mut self, index: usize, start: NonNull<u8>, layout: Layout) {
        let old = self.objects[index];
        let new = Object { start, layout, ..old };
        self.disclaim(&old);
        self.claim(&new);
        assert_eq!(new.address() % layout.align(), 0, "{new:?} is aligned");
        new.fill();
        self.objects[index] = new;
    }

    /// Everything from this number on is gone.
    pub fn rewind(&mut self, serial: u64) {
        let (undone, stays) =
            core::mem::take(&mut self.set_aside).into_iter().partition(|it| it.serial >= serial);
        self.set_aside = stays;
        self.objects.extend(Vec::into_iter(undone).map(|it: SetAside| it.object));
        let all = core::mem::take(&mut self.objects);
        for object in all {
            if object.serial < serial {
                self.objects.push(object);
            } else {
                self.disclaim(&object);
            }
        }
    }

    /// The bytes that the statistics count as freed until a rewind.
    pub fn set_aside_bytes(&self) -> u64 {
        self.set_aside.iter().map(|it| it.bytes).sum()
    }

    /// The arena counts what the model counts, and each object has its own bytes.
    pub fn check(&self, statistics: &Statistics) {
        let set_aside = self.set_aside.iter().map(|it| it.objects).sum::<u64>();
        let live_objects = self.ranges.len() as u64 - set_aside;
        assert_eq!(statistics.live_objects, live_objects, "live objects");
        let live_bytes = self.live_bytes - self.set_aside_bytes();
        assert_eq!(statistics.live_bytes, live_bytes, "live bytes");
        for object in self.objects.iter().chain(self.set_aside.iter().map(|it| &it.object)) {
            object.assert_intact(object.size());
        }
    }
}
