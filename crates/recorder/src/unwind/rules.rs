//! The rules by which a frame's caller is found.

use super::memory::Readable;
use super::modules::{self, Module};
use crate::table::mix;
use crate::thread::Thread;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, LittleEndian, Operation,
    Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow,
};

#[cfg(target_arch = "x86_64")]
mod registers {
    use gimli::{Register, X86_64};
    pub const STACK: Register = X86_64::RSP;
    pub const FRAME: Register = X86_64::RBP;
    pub const RETURN: Register = X86_64::RA;
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use gimli::{AArch64, Register};
    pub const STACK: Register = AArch64::SP;
    pub const FRAME: Register = AArch64::X29;
    pub const RETURN: Register = AArch64::X30;
}

use registers::{FRAME, RETURN, STACK};

/// What the rows of unwind tables are put together in: no compiler saves more registers in one function.
#[derive(Debug)]
pub struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 3];
}

/// Where unwind tables are evaluated.
pub type Context = UnwindContext<usize, Storage>;

/// From where the frame's end is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Base {
    /// The slot is free.
    Free = 0,
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
    /// The frame pointer, for want of a rule; it may be any number.
    Guessed,
    /// There is no caller.
    Outermost,
    /// There is no rule that is understood.
    Unknown,
    /// An expression, or a signal's frame: to be looked up each time.
    Odd,
}

/// How to find a frame's caller. The return address and the old frame pointer lie at offsets from the frame's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// From where the end is found.
    pub base: Base,
    /// The end's offset.
    pub end: i32,
    /// Where the return address is.
    pub return_address: i32,
    /// Where the frame pointer was saved; [`Rule::KEPT`] where it wasn't changed.
    pub frame_pointer: i32,
}

impl Rule {
    /// The frame pointer register is the caller's.
    pub const KEPT: i32 = i32::MIN;
    /// The return address is in the register that calls leave it in.
    pub const IN_REGISTER: i32 = i32::MIN;

    const fn only(base: Base) -> Self {
        Self { base, end: 0, return_address: 0, frame_pointer: Self::KEPT }
    }

    /// What code with frame pointers does.
    const BY_FRAME_POINTER: Self =
        Self { base: Base::Guessed, end: 16, return_address: -8, frame_pointer: -16 };
}

const SLOTS: usize = 4096;

/// Rules that were found, by the address of the code. Zeroed memory is one that has none.
#[derive(Debug)]
pub struct Rules {
    slots: [(u64, Rule); SLOTS],
}

impl Rules {
    /// Forgets all rules.
    pub fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.1.base = Base::Free;
        }
    }
}

/// The registers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Where it goes on.
    pub address: u64,
    /// Its stack pointer there.
    pub stack: u64,
    /// Its frame pointer there.
    pub frame: u64,
    /// It was interrupted there, not left by a call.
    pub interrupted: bool,
}

impl Registers {
    /// An address in the call that the frame is in.
    fn lookup(&self) -> u64 {
        super::unsigned(self.address).wrapping_sub(u64::from(!self.interrupted))
    }
}

/// The rule for a frame.
///
/// # Safety
///
/// The thread is the caller's own, and nothing of it is borrowed.
#[inline]
pub unsafe fn rule(thread: *mut Thread, tick: u64, registers: &Registers) -> Rule {
    let address = registers.lookup();
    // SAFETY: the caller's thread, of which nothing is borrowed.
    let slot = unsafe { &raw mut (*thread).rules.slots[mix(address) as usize % SLOTS] };
    // SAFETY: a slot of the thread's.
    unsafe {
        if (*slot).0 != address || (*slot).1.base == Base::Free {
            let found = find(thread, tick, address);
            *slot = (address, found);
        }
        (*slot).1
    }
}

#[cold]
unsafe fn find(thread: *mut Thread, tick: u64, address: u64) -> Rule {
    // SAFETY: the caller's thread.
    let Some(module) = (unsafe { modules::find(thread, tick, address) }) else {
        // Code that was made as the program ran; if it has frame pointers they lead on.
        return Rule::BY_FRAME_POINTER;
    };
    // SAFETY: the caller's thread.
    let context = unsafe { &mut (*thread).context };
    // SAFETY: code of the module is on the stack, so it is loaded.
    let rule = unsafe { with_row(module, context, address, |row, signal, _, _| pack(row, signal)) };
    rule.unwrap_or(Rule::BY_FRAME_POINTER)
}

type Section = EhFrame<EndianSlice<'static, LittleEndian>>;

/// Finds the row of the unwind table for an address.
///
/// # Safety
///
/// The module stays loaded meanwhile.
unsafe fn with_row<T>(
    module: &Module,
    context: &mut Context,
    address: u64,
    use_row: impl FnOnce(&UnwindTableRow<usize, Storage>, bool, &Section, Encoding) -> T,
) -> Option<T> {
    if module.unwind_header == 0 {
        return None;
    }
    // SAFETY: as the caller promised; the tables lie in the module's mapped parts.
    let header = unsafe { module.bytes(module.unwind_header) };
    let bases = BaseAddresses::default().set_eh_frame_hdr(module.unwind_header);
    let parsed = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).ok()?;
    let frames = parsed.eh_frame_ptr().pointer();
    // SAFETY: the same.
    let section = unsafe { module.bytes(frames) };
    let section = EhFrame::from(EndianSlice::new(section, LittleEndian));
    let bases = bases.set_eh_frame(frames);
    let table = parsed.table()?;
    let entry = table.fde_for_address(&section, &bases, address, EhFrame::cie_from_offset).ok()?;
    let encoding = entry.cie().encoding();
    let signal = entry.is_signal_trampoline();
    let row = entry.unwind_info_for_address(&section, &bases, context, address).ok()?;
    Some(use_row(row, signal, &section, encoding))
}

fn pack(row: &UnwindTableRow<usize, Storage>, signal: bool) -> Rule {
    let odd = Rule::only(Base::Odd);
    let Some((base, end)) = (match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register == STACK => {
            Some((Base::Stack, *offset))
        }
        CfaRule::RegisterAndOffset { register, offset } if *register == FRAME => {
            Some((Base::Frame, *offset))
        }
        _ => None,
    }) else {
        return odd;
    };
    let return_address = match row.register(RETURN) {
        Some(RegisterRule::Undefined) => return Rule::only(Base::Outermost),
        Some(RegisterRule::Offset(offset)) => offset,
        None | Some(RegisterRule::SameValue) if cfg!(target_arch = "aarch64") => {
            i64::from(Rule::IN_REGISTER)
        }
        _ => return odd,
    };
    let frame_pointer = match row.register(FRAME) {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => i64::from(Rule::KEPT),
        Some(RegisterRule::Offset(offset)) => offset,
        _ => return odd,
    };
    match (end.try_into(), return_address.try_into(), frame_pointer.try_into()) {
        (Ok(end), Ok(return_address), Ok(frame_pointer)) if !signal => {
            Rule { base, end, return_address, frame_pointer }
        }
        _ => odd,
    }
}

/// The caller of a frame whose rule is odd.
///
/// # Safety
///
/// The thread is the caller's own, and nothing of it is borrowed.
#[cold]
pub unsafe fn odd_caller(
    thread: *mut Thread,
    tick: u64,
    registers: &Registers,
) -> Option<Registers> {
    let address = registers.lookup();
    // SAFETY: the caller's thread, of which nothing is borrowed; context and readable part are two fields.
    unsafe {
        let module = modules::find(thread, tick, address)?;
        let context = &mut (*thread).context;
        let readable = &mut (*thread).frames.readable;
        with_row(module, context, address, |row, signal, section, encoding| {
            let mut odd = Odd { registers: *registers, readable, section, encoding };
            let end = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    odd.register(*register)?.wrapping_add_signed(*offset)
                }
                CfaRule::Expression(expression) => odd.value(expression, None)?,
            };
            let address = odd.recover(row.register(RETURN)?, end, 0)?;
            let frame = match row.register(FRAME) {
                None => registers.frame,
                Some(rule) => odd.recover(rule, end, registers.frame)?,
            };
            // The interrupted frame's stack pointer is what the signal's frame says, else the end.
            let stack = match row.register(STACK) {
                Some(rule) if signal => odd.recover(rule, end, end)?,
                _ => end,
            };
            Some(Registers { address, stack, frame, interrupted: signal })
        })?
    }
}

/// An evaluation of expressions, as far as stack frames use them.
struct Odd<'a> {
    registers: Registers,
    readable: &'a mut Readable,
    section: &'a Section,
    encoding: Encoding,
}

impl Odd<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        match register {
            STACK => Some(self.registers.stack),
            FRAME => Some(self.registers.frame),
            _ => None,
        }
    }

    fn read(&mut self, address: u64) -> Option<u64> {
        self.readable.read(address, self.registers.stack)
    }

    fn recover(&mut self, rule: RegisterRule<usize>, end: u64, same: u64) -> Option<u64> {
        match rule {
            RegisterRule::Offset(offset) => self.read(end.wrapping_add_signed(offset)),
            RegisterRule::ValOffset(offset) => Some(end.wrapping_add_signed(offset)),
            RegisterRule::Expression(expression) => {
                let place = self.value(&expression, Some(end))?;
                self.read(place)
            }
            RegisterRule::ValExpression(expression) => self.value(&expression, Some(end)),
            RegisterRule::SameValue => Some(same),
            _ => None,
        }
    }

    fn value(&mut self, expression: &UnwindExpression<usize>, first: Option<u64>) -> Option<u64> {
        let expression = expression.get(self.section).ok()?;
        let mut operations = expression.operations(self.encoding);
        let mut stack = Values { values: [0; 8], count: 0 };
        if let Some(first) = first {
            stack.push(first)?;
        }
        while let Some(operation) = operations.next().ok()? {
            let value = match operation {
                Operation::RegisterOffset { register, offset, .. } => {
                    self.register(register)?.wrapping_add_signed(offset)
                }
                Operation::Deref { size: 8, space: false, .. } => {
                    let place = stack.pop()?;
                    self.read(place)?
                }
                Operation::PlusConstant { value } => stack.pop()?.wrapping_add(value),
                Operation::UnsignedConstant { value } => value,
                Operation::SignedConstant { value } => value as u64,
                Operation::Plus => stack.pop()?.wrapping_add(stack.pop()?),
                Operation::Minus => {
                    let right = stack.pop()?;
                    stack.pop()?.wrapping_sub(right)
                }
                Operation::And => stack.pop()? & stack.pop()?,
                _ => return None,
            };
            stack.push(value)?;
        }
        stack.pop()
    }
}

struct Values {
    values: [u64; 8],
    count: usize,
}

impl Values {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.count)? = value;
        self.count += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        Some(self.values[self.count])
    }
}
