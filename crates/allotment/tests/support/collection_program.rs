//! Programs on vectors and strings in memory with a budget: bytes decoded into calls, each checked
//! against the standard library's collections. Infallible calls panic when the budget refuses.
//!
//! Every byte string is a program, as for arenas.

use std::cell::Cell;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use allotment::collections::{BlockSource, StringIn, VecIn};
use allotment::{Arena, LocalPool, Malloc, Reap};

use super::input::Input;

/// Runs the program that these bytes are.
pub fn run(bytes: &[u8]) {
    let input = &mut Input::new(bytes);
    match input.below(6) {
        0 => vec_in_reap(input, false),
        1 => vec_in_reap(input, true),
        2 => vec_in_arena(input),
        3 => vec_in_pool(input),
        4 => string_in_arena(input),
        _ => string_in_reap(input),
    }
}

/// From here on, the panic of a refusal is not passed to the panic hook. A fuzzer's ends the process.
pub fn ignore_refusals() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>();
        if !message.is_some_and(|message| is_refusal(message)) {
            hook(panic);
        }
    }));
}

fn is_refusal(message: &str) -> bool {
    message.starts_with("allotment: ") && message.contains("the budget of")
}

/// Runs a call. `None` if a budget refused.
pub fn granted<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(panic) => {
            let message = panic.downcast_ref::<String>().map_or("", |message| message);
            match is_refusal(message) {
                true => None,
                false => resume_unwind(panic),
            }
        }
    }
}

/// The number of values that live.
pub type Living = Rc<Cell<isize>>;

/// A value that counts itself, of 256 bytes, so that a chunk is full after a few.
pub struct Value {
    number: u16,
    living: Living,
    _rest: [u64; 30],
}

impl Value {
    pub fn new(number: u16, living: &Living) -> Self {
        living.set(living.get() + 1);
        Self { number, living: living.clone(), _rest: [0; 30] }
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        Self::new(self.number, &self.living)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.living.set(self.living.get() - 1);
    }
}

fn numbers(values: &[Value]) -> Vec<u16> {
    values.iter().map(|value| value.number).collect()
}

/// A vector of this memory against one of the standard library.
fn vec_program<S: BlockSource>(input: &mut Input<'_>, source: S) {
    let living = Living::default();
    let mut vec: VecIn<Value, S> = VecIn::new_in(source);
    let mut model: Vec<u16> = Vec::new();
    while !input.is_empty() {
        let (call, count, number) = (input.byte() % 11, input.below(12), input.word());
        let more: Vec<u16> = (0..count as u16).map(|index| number.wrapping_add(index)).collect();
        let values = || more.iter().map(|number| Value::new(*number, &living));
        match call {
            0..=2 => {
                if granted(|| vec.push(Value::new(number, &living))).is_some() {
                    model.push(number);
                }
            }
            3 => {
                let index = input.below(model.len() + 1);
                if granted(|| vec.insert(index, Value::new(number, &living))).is_some() {
                    model.insert(index, number);
                }
            }
            4 => {
                let before = model.clone();
                let all = granted(|| vec.extend(values())).is_some();
                // What was appended before the refusal stays.
                let appended = vec.len() - before.len();
                assert!(appended == count || !all);
                model.extend(&more[..appended]);
            }
            5 => {
                let others: Vec<Value> = values().collect();
                if granted(|| vec.extend_from_slice(&others)).is_some() {
                    model.extend(&more);
                }
            }
            6 => {
                if granted(|| vec.resize(count, Value::new(number, &living))).is_some() {
                    model.resize(count, number);
                } else {
                    assert!(count > model.len(), "less needs no memory");
                }
            }
            7 => {
                let other = granted(|| VecIn::from_iter_in(values(), source));
                if let Some(mut other) = other {
                    match granted(|| vec.append(&mut other)) {
                        Some(()) => model.extend(&more),
                        None => assert_eq!(numbers(&other), more, "both are as they were"),
                    }
                }
            }
            8 => {
                let index = input.below(model.len() + 1);
                if let Some(tail) = granted(|| vec.split_off(index)) {
                    assert_eq!(numbers(&tail), model.split_off(index));
                }
            }
            9 => {
                granted(|| vec.reserve(count));
                if input.one_in(3) {
                    granted(|| vec.shrink_to_fit());
                }
            }
            _ => {
                vec.truncate(count);
                model.truncate(count);
            }
        }
        assert_eq!(numbers(&vec), model);
        assert_eq!(living.get(), model.len() as isize);
    }
    drop(vec);
    assert_eq!(living.get(), 0);
}

/// A string of this memory against one of the standard library.
fn string_program<S: BlockSource>(input: &mut Input<'_>, source: S) {
    let mut string = StringIn::new_in(source);
    let mut model = String::new();
    while !input.is_empty() {
        let text = "äbc".repeat(input.below(200));
        match input.byte() % 6 {
            0 | 1 => {
                if granted(|| string.push_str(&text)).is_some() {
                    model.push_str(&text);
                }
            }
            2 => {
                if granted(|| string.push('ß')).is_some() {
                    model.push('ß');
                }
            }
            3 => {
                if granted(|| string.insert_str(0, &text)).is_some() {
                    model.insert_str(0, &text);
                }
            }
            4 => {
                // The trait has an error of its own, and appends whole pieces.
                if write!(string, "{text}").is_ok() {
                    model.push_str(&text);
                }
            }
            _ => {
                string.clear();
                model.clear();
            }
        }
        assert_eq!(&*string, model);
    }
}

/// A few chunks.
fn limit(input: &mut Input<'_>, chunk: usize) -> usize {
    chunk * input.below(8) + chunk
}

pub fn vec_in_reap(input: &mut Input<'_>, hardened: bool) {
    let maximum = limit(input, if hardened { 1 << 16 } else { 4096 });
    // Under Miri malloc checks every access.
    let builder = Reap::builder().source(Malloc).initial(4096).hardened(hardened);
    let reap = builder.maximum(maximum).build();
    vec_program(input, &reap);
    assert_eq!(reap.statistics().live_objects, 0, "no block stays behind");
}

pub fn vec_in_arena(input: &mut Input<'_>) {
    let maximum = limit(input, 4096);
    vec_program(input, &Arena::builder().source(Malloc).maximum(maximum).build());
}

pub fn vec_in_pool(input: &mut Input<'_>) {
    let maximum = limit(input, 1 << 16);
    let pool = LocalPool::builder().maximum(maximum).build();
    vec_program(input, pool.reference());
    assert_eq!(pool.statistics().live_objects, 0, "no block stays behind");
}

pub fn string_in_arena(input: &mut Input<'_>) {
    let maximum = limit(input, 4096);
    string_program(input, &Arena::builder().maximum(maximum).build());
}

pub fn string_in_reap(input: &mut Input<'_>) {
    let reap = Reap::builder().initial(4096).maximum(1 << 16).build();
    string_program(input, &reap);
    assert_eq!(reap.statistics().live_objects, 0);
}
