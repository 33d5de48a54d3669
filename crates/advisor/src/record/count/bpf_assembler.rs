//! An assembler for eBPF programs, with labels.

use super::bpf::BpfInstruction;

/// A register. A call returns its result in `R0`, takes its arguments in `R1` and the following
/// ones, and preserves `R6` to `R9` and `Frame`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpfRegister {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
    /// The end of the program's stack frame of 512 bytes.
    Frame,
}

/// A function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpfHelper {
    Lookup = 1,
    Update = 2,
    Delete = 3,
    Nanoseconds = 5,
    /// The thread id in the lower half, the process id in the upper half.
    Thread = 14,
    /// The process id and the thread id in a PID namespace, 32 bits each.
    ThreadInNamespace = 120,
}

/// When to jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JumpCondition {
    Equal = 0x10,
    NotLess = 0x30,
    NotEqual = 0x50,
    SignedNotLess = 0x70,
}

/// A position in the program to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JumpTarget(usize);

/// A program that is being written.
#[derive(Debug, Default)]
pub struct BpfAssembler {
    instructions: Vec<BpfInstruction>,
    /// For each label: its position, once it is known.
    labels: Vec<Option<usize>>,
    /// Each jump with its label.
    jumps: Vec<(usize, usize)>,
}

const IMMEDIATE: u8 = 0;
const FROM_REGISTER: u8 = 8;
const ADD: u8 = 0x07;
const SUBTRACT: u8 = 0x17;
const OR: u8 = 0x47;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const SHIFT_RIGHT: u8 = 0x77;
const MOVE: u8 = 0xb7;
const LOAD_WIDE: u8 = 0x18;
const LOAD_32: u8 = 0x61;
const LOAD_64: u8 = 0x79;
const STORE_32: u8 = 0x63;
const STORE_64: u8 = 0x7b;
const ADD_ATOMICALLY: u8 = 0xdb;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The source of a [`LOAD_WIDE`] whose value is the descriptor of a map.
const OF_MAP: u8 = 1;

impl BpfAssembler {
    fn push(&mut self, code: u8, to: BpfRegister, from: u8, offset: i16, value: i32) {
        let registers = to as u8 | from << 4;
        self.instructions.push(BpfInstruction { code, registers, offset, value });
    }

    pub fn label(&mut self) -> JumpTarget {
        self.labels.push(None);
        JumpTarget(self.labels.len() - 1)
    }

    /// Sets the position of a label.
    pub fn here(&mut self, label: JumpTarget) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    pub fn set(&mut self, to: BpfRegister, value: i32) {
        self.push(MOVE | IMMEDIATE, to, 0, 0, value);
    }

    pub fn set_wide(&mut self, to: BpfRegister, value: u64) {
        self.push(LOAD_WIDE, to, 0, 0, value as i32);
        self.push(0, BpfRegister::R0, 0, 0, (value >> 32) as i32);
    }

    pub fn set_map(&mut self, to: BpfRegister, map: i32) {
        self.push(LOAD_WIDE, to, OF_MAP, 0, map);
        self.push(0, BpfRegister::R0, 0, 0, 0);
    }

    pub fn copy(&mut self, to: BpfRegister, from: BpfRegister) {
        self.push(MOVE | FROM_REGISTER, to, from as u8, 0, 0);
    }

    pub fn add(&mut self, to: BpfRegister, value: i32) {
        self.push(ADD | IMMEDIATE, to, 0, 0, value);
    }

    pub fn subtract(&mut self, from: BpfRegister, what: BpfRegister) {
        self.push(SUBTRACT | FROM_REGISTER, from, what as u8, 0, 0);
    }

    pub fn and(&mut self, to: BpfRegister, value: i32) {
        self.push(AND | IMMEDIATE, to, 0, 0, value);
    }

    pub fn or(&mut self, to: BpfRegister, what: BpfRegister) {
        self.push(OR | FROM_REGISTER, to, what as u8, 0, 0);
    }

    pub fn shift_left(&mut self, to: BpfRegister, bits: i32) {
        self.push(SHIFT_LEFT | IMMEDIATE, to, 0, 0, bits);
    }

    pub fn shift_right(&mut self, to: BpfRegister, bits: i32) {
        self.push(SHIFT_RIGHT | IMMEDIATE, to, 0, 0, bits);
    }

    pub fn load(&mut self, to: BpfRegister, at: BpfRegister, offset: i16) {
        self.push(LOAD_64, to, at as u8, offset, 0);
    }

    pub fn load_32(&mut self, to: BpfRegister, at: BpfRegister, offset: i16) {
        self.push(LOAD_32, to, at as u8, offset, 0);
    }

    pub fn store(&mut self, at: BpfRegister, offset: i16, from: BpfRegister) {
        self.push(STORE_64, at, from as u8, offset, 0);
    }

    pub fn store_32(&mut self, at: BpfRegister, offset: i16, from: BpfRegister) {
        self.push(STORE_32, at, from as u8, offset, 0);
    }

    /// Adds to memory atomically.
    pub fn add_to(&mut self, at: BpfRegister, offset: i16, from: BpfRegister) {
        self.push(ADD_ATOMICALLY, at, from as u8, offset, 0);
    }

    pub fn jump(&mut self, label: JumpTarget) {
        self.jumps.push((self.instructions.len(), label.0));
        self.push(JUMP, BpfRegister::R0, 0, 0, 0);
    }

    /// Jumps if a register compares so with a value, which is sign-extended.
    pub fn jump_when(
        &mut self,
        register: BpfRegister,
        when: JumpCondition,
        value: i32,
        label: JumpTarget,
    ) {
        self.jumps.push((self.instructions.len(), label.0));
        self.push(when as u8 | JUMP | IMMEDIATE, register, 0, 0, value);
    }

    /// Jumps if a register compares so with another one.
    pub fn jump_when_register(
        &mut self,
        a: BpfRegister,
        when: JumpCondition,
        b: BpfRegister,
        label: JumpTarget,
    ) {
        self.jumps.push((self.instructions.len(), label.0));
        self.push(when as u8 | JUMP | FROM_REGISTER, a, b as u8, 0, 0);
    }

    pub fn call(&mut self, function: BpfHelper) {
        self.push(CALL, BpfRegister::R0, 0, 0, function as i32);
    }

    pub fn exit(&mut self) {
        self.push(EXIT, BpfRegister::R0, 0, 0, 0);
    }

    /// The instructions. Every label must have a position.
    pub fn finish(mut self) -> Vec<BpfInstruction> {
        for (jump, label) in self.jumps {
            let to = self.labels[label].map_or(0, |to| to as isize - jump as isize - 1);
            debug_assert!(to >= 0, "programs only go forward");
            self.instructions[jump].offset = to as i16;
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_to_their_labels() {
        let mut program = BpfAssembler::default();
        let (end, middle) = (program.label(), program.label());
        program.set_wide(BpfRegister::R2, 0x1_0000_0002);
        program.jump_when(BpfRegister::R2, JumpCondition::NotEqual, -1, end);
        program.jump(middle);
        program.here(middle);
        program.set(BpfRegister::R0, 7);
        program.here(end);
        program.exit();
        let instructions = program.finish();
        let fields: Vec<_> =
            instructions.iter().map(|i| (i.code, i.registers, i.offset, i.value)).collect();
        let expected = [
            (0x18, 2, 0, 2),
            (0, 0, 0, 1),
            (0x55, 2, 2, -1),
            (0x05, 0, 0, 0),
            (0xb7, 0, 0, 7),
            (0x95, 0, 0, 0),
        ];
        assert_eq!(fields, expected);
    }
}
