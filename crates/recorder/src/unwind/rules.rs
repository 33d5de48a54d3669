//! The rules by which the caller of a frame is found.
//!
//! The canonical frame address (CFA) is the value of the stack pointer in the caller. The return
//! address and the saved frame pointer are at fixed offsets from it.

use super::loader::LoadedModule;
use super::readable::ReadableMemory;
use crate::number_table::mix;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, LittleEndian, Operation,
    Register, RegisterRule, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
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

/// The memory in which rows of unwind tables are assembled. No compiler saves more registers in one
/// function.
#[derive(Debug)]
pub struct ContextStorage;

impl UnwindContextStorage<usize> for ContextStorage {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 3];
}

/// Memory for the evaluation of unwind tables.
pub type UnwindContext = gimli::UnwindContext<usize, ContextStorage>;

/// How the CFA of a frame is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CfaBase {
    /// No rule: the slot of the cache is free.
    Free = 0,
    /// From the stack pointer.
    StackPointer,
    /// From the frame pointer.
    FramePointer,
    /// From the frame pointer, because there is no rule. It may hold any value.
    AssumedFramePointer,
    /// The frame has no caller.
    Outermost,
    /// There is a rule, but it is not supported.
    Unsupported,
    /// By an expression, or from a signal frame: evaluated each time.
    Complex,
}

/// How the caller of a frame is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnwindRule {
    /// How the CFA is found.
    pub base: CfaBase,
    /// The offset of the CFA from the base.
    pub cfa: i32,
    /// The offset of the return address from the CFA.
    pub return_address: i32,
    /// The offset of the saved frame pointer from the CFA, or [`UnwindRule::UNCHANGED`].
    pub frame_pointer: i32,
}

impl UnwindRule {
    /// The frame pointer register still holds the caller's value.
    pub const UNCHANGED: i32 = i32::MIN;
    /// The return address is in the register in which calls leave it.
    pub const IN_REGISTER: i32 = i32::MIN;

    const fn without_offsets(base: CfaBase) -> Self {
        Self { base, cfa: 0, return_address: 0, frame_pointer: Self::UNCHANGED }
    }

    /// The rule of code that maintains frame pointers.
    pub const BY_FRAME_POINTER: Self = Self {
        base: CfaBase::AssumedFramePointer,
        cfa: 16,
        return_address: -8,
        frame_pointer: -16,
    };
}

const SLOTS: usize = 4096;

/// Rules by the address of the code. Zeroed memory is an empty cache.
#[derive(Debug)]
pub struct RuleCache {
    slots: [(u64, UnwindRule); SLOTS],
}

impl RuleCache {
    /// Forgets all rules.
    pub fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.1.base = CfaBase::Free;
        }
    }

    /// The rule for the code at an address, if it is known.
    #[inline]
    pub fn get(&self, address: u64) -> Option<UnwindRule> {
        let (of, rule) = self.slots[Self::slot(address)];
        (of == address && rule.base != CfaBase::Free).then_some(rule)
    }

    /// Remembers the rule for the code at an address.
    pub fn insert(&mut self, address: u64, rule: UnwindRule) {
        self.slots[Self::slot(address)] = (address, rule);
    }

    #[inline]
    fn slot(address: u64) -> usize {
        mix(address) as usize % SLOTS
    }
}

/// The registers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRegisters {
    /// The address at which the frame's code continues.
    pub address: u64,
    /// Its stack pointer there.
    pub stack: u64,
    /// Its frame pointer there.
    pub frame: u64,
    /// A signal interrupted the frame there; it did not make a call.
    pub interrupted: bool,
}

impl FrameRegisters {
    /// An address in the instruction that the frame executes: the call, or the interrupted one.
    pub fn code_address(&self) -> u64 {
        super::without_signature(self.address).wrapping_sub(u64::from(!self.interrupted))
    }
}

/// The rule for the code at an address, from the module's unwind table. `None` if there is none.
///
/// # Safety
///
/// The module is loaded meanwhile.
pub unsafe fn rule_in(
    module: &LoadedModule,
    context: &mut UnwindContext,
    address: u64,
) -> Option<UnwindRule> {
    // SAFETY: as the caller promised.
    unsafe { with_row(module, context, address, |row, signal, _, _| simplify(row, signal)) }
}

type EhFrameSection = EhFrame<EndianSlice<'static, LittleEndian>>;

/// Finds the row of the unwind table for an address.
///
/// # Safety
///
/// The module is loaded meanwhile.
unsafe fn with_row<T>(
    module: &LoadedModule,
    context: &mut UnwindContext,
    address: u64,
    use_row: impl FnOnce(&UnwindTableRow<usize, ContextStorage>, bool, &EhFrameSection, Encoding) -> T,
) -> Option<T> {
    if module.unwind_header == 0 {
        return None;
    }
    // SAFETY: as the caller promised; the tables are in mapped parts of the module.
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

/// The rule that a row of an unwind table describes.
fn simplify(row: &UnwindTableRow<usize, ContextStorage>, signal: bool) -> UnwindRule {
    let complex = UnwindRule::without_offsets(CfaBase::Complex);
    let Some((base, cfa)) = (match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register == STACK => {
            Some((CfaBase::StackPointer, *offset))
        }
        CfaRule::RegisterAndOffset { register, offset } if *register == FRAME => {
            Some((CfaBase::FramePointer, *offset))
        }
        _ => None,
    }) else {
        return complex;
    };
    let return_address = match row.register(RETURN) {
        Some(RegisterRule::Undefined) => return UnwindRule::without_offsets(CfaBase::Outermost),
        Some(RegisterRule::Offset(offset)) => offset,
        None | Some(RegisterRule::SameValue) if cfg!(target_arch = "aarch64") => {
            i64::from(UnwindRule::IN_REGISTER)
        }
        _ => return complex,
    };
    let frame_pointer = match row.register(FRAME) {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => {
            i64::from(UnwindRule::UNCHANGED)
        }
        Some(RegisterRule::Offset(offset)) => offset,
        _ => return complex,
    };
    match (cfa.try_into(), return_address.try_into(), frame_pointer.try_into()) {
        (Ok(cfa), Ok(return_address), Ok(frame_pointer)) if !signal => {
            UnwindRule { base, cfa, return_address, frame_pointer }
        }
        _ => complex,
    }
}

/// The caller of a frame whose rule is [`CfaBase::Complex`].
///
/// # Safety
///
/// The module contains the frame's code, and is loaded meanwhile.
#[cold]
pub unsafe fn caller_by_expressions(
    module: &LoadedModule,
    context: &mut UnwindContext,
    readable: &mut ReadableMemory,
    registers: &FrameRegisters,
) -> Option<FrameRegisters> {
    // SAFETY: as the caller promised.
    unsafe {
        with_row(module, context, registers.code_address(), |row, signal, section, encoding| {
            let mut evaluator =
                ExpressionEvaluator { registers: *registers, readable, section, encoding };
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    evaluator.register(*register)?.wrapping_add_signed(*offset)
                }
                CfaRule::Expression(expression) => evaluator.value(expression, None)?,
            };
            let address = evaluator.recover(row.register(RETURN)?, cfa, 0)?;
            let frame = match row.register(FRAME) {
                None => registers.frame,
                Some(rule) => evaluator.recover(rule, cfa, registers.frame)?,
            };
            // A signal frame says what the stack pointer of the interrupted frame was. Otherwise it
            // is the CFA.
            let stack = match row.register(STACK) {
                Some(rule) if signal => evaluator.recover(rule, cfa, cfa)?,
                _ => cfa,
            };
            Some(FrameRegisters { address, stack, frame, interrupted: signal })
        })?
    }
}

/// Evaluates expressions, as far as stack frames use them.
struct ExpressionEvaluator<'a> {
    registers: FrameRegisters,
    readable: &'a mut ReadableMemory,
    section: &'a EhFrameSection,
    encoding: Encoding,
}

impl ExpressionEvaluator<'_> {
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

    /// The value of a register in the caller. `same` is its value in this frame.
    fn recover(&mut self, rule: RegisterRule<usize>, cfa: u64, same: u64) -> Option<u64> {
        match rule {
            RegisterRule::Offset(offset) => self.read(cfa.wrapping_add_signed(offset)),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Expression(expression) => {
                let address = self.value(&expression, Some(cfa))?;
                self.read(address)
            }
            RegisterRule::ValExpression(expression) => self.value(&expression, Some(cfa)),
            RegisterRule::SameValue => Some(same),
            _ => None,
        }
    }

    /// The value of an expression that begins with `first` on its stack.
    fn value(&mut self, expression: &UnwindExpression<usize>, first: Option<u64>) -> Option<u64> {
        let expression = expression.get(self.section).ok()?;
        let mut operations = expression.operations(self.encoding);
        let mut stack = ValueStack { values: [0; 8], count: 0 };
        if let Some(first) = first {
            stack.push(first)?;
        }
        while let Some(operation) = operations.next().ok()? {
            let value = match operation {
                Operation::RegisterOffset { register, offset, .. } => {
                    self.register(register)?.wrapping_add_signed(offset)
                }
                Operation::Deref { size: 8, space: false, .. } => {
                    let address = stack.pop()?;
                    self.read(address)?
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

struct ValueStack {
    values: [u64; 8],
    count: usize,
}

impl ValueStack {
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
