//! One call on the stack: its registers, and how to get to the call that made it.
//!
//! The two walks of `unwind` move it upwards. It asks [`table`](super::table) what a function's
//! record says and reads the stack where that says so.

use std::arch::naked_asm;
use std::ffi::c_int;
use std::mem;

use super::Personality;
use super::table::{Function, REGISTERS, Row, Rule};

/// DWARF's numbers of the registers that are called by name here.
const RBX: usize = 3;
const RBP: usize = 6;
const RSP: usize = 7;
const R12: usize = 12;
/// Not a register of the machine: where the call returns to.
const RETURN: usize = 16;

/// What the entry points push: the registers that a callee keeps, below the return address.
#[repr(C)]
pub(super) struct Saved {
    rbx: usize,
    rbp: usize,
    r12_to_r15: [usize; 4],
    return_address: usize,
}

pub(super) struct Frame {
    /// As they are at the call that the frame has made.
    registers: [usize; REGISTERS],
    function: Function,
    row: Row,
}

impl Frame {
    /// The frame that called an entry point.
    pub(super) fn of(saved: &Saved) -> Self {
        let mut registers = [0; REGISTERS];
        registers[RBX] = saved.rbx;
        registers[RBP] = saved.rbp;
        registers[RSP] = &raw const *saved as usize + size_of::<Saved>();
        registers[R12..RETURN].copy_from_slice(&saved.r12_to_r15);
        registers[RETURN] = saved.return_address;
        Self { registers, function: Function::default(), row: Row::default() }
    }

    /// Finds what the table says about the frame. There is nothing about the C library's frames,
    /// which are the bottom of every stack.
    pub(super) fn look_up(&mut self, table: *const u8) -> Option<()> {
        // The call is before the address that it returns to, which may be the next function's.
        let call = self.registers[RETURN].checked_sub(1)?;
        (self.function, self.row) = super::table::find(table, call)?;
        Some(())
    }

    /// Moves up to the caller.
    pub(super) fn leave(&mut self) -> Option<()> {
        let base = self.registers.get(self.row.base)?.checked_add_signed(self.row.base_offset)?;
        let mut above = self.registers;
        above[RSP] = base;
        for (register, rule) in above.iter_mut().zip(self.row.rules) {
            if let Rule::At(offset) = rule {
                let place = base.checked_add_signed(offset)? as *const usize;
                // SAFETY: the function's record says that its prologue has saved the register there,
                // and the frame is live: we were called by what it called.
                *register = unsafe { place.read() };
            }
        }
        self.registers = above;
        Some(())
    }

    /// Goes on in this frame instead of where we are, with the registers as they are here.
    pub(super) fn enter(&self) -> ! {
        // SAFETY: the personality has set the address to a landing pad of the frame's function,
        // and the registers are those which that function had at its call; all frames between it
        // and us have been asked and have nothing to drop.
        unsafe { go(&self.registers) }
    }

    pub(super) fn personality(&self) -> Option<Personality> {
        let address = self.function.personality;
        // SAFETY: the record's personality is a function of this type, or none, which is zero.
        unsafe { mem::transmute::<usize, Option<Personality>>(address) }
    }

    pub(super) fn function(&self) -> &Function {
        &self.function
    }

    pub(super) fn address(&self) -> usize {
        self.registers[RETURN]
    }

    pub(super) fn stack_pointer(&self) -> usize {
        self.registers[RSP]
    }

    pub(super) fn set_register(&mut self, register: c_int, value: usize) {
        if let Some(register) = self.registers.get_mut(register as usize) {
            *register = value;
        }
    }

    pub(super) fn set_address(&mut self, address: usize) {
        self.registers[RETURN] = address;
        // What was pushed for the call is gone, as if the call had returned.
        self.registers[RSP] += self.row.pushed;
    }
}

/// Loads the registers that a landing pad expects, and jumps there.
///
/// The stack pointer comes last: below it, a signal may overwrite what is read here.
#[unsafe(naked)]
unsafe extern "C" fn go(registers: &[usize; REGISTERS]) -> ! {
    naked_asm!(
        "mov rax, [rdi + 8 * 0]",
        "mov rdx, [rdi + 8 * 1]",
        "mov rbx, [rdi + 8 * 3]",
        "mov rbp, [rdi + 8 * 6]",
        "mov r12, [rdi + 8 * 12]",
        "mov r13, [rdi + 8 * 13]",
        "mov r14, [rdi + 8 * 14]",
        "mov r15, [rdi + 8 * 15]",
        "mov rcx, [rdi + 8 * 16]",
        "mov rsp, [rdi + 8 * 7]",
        "jmp rcx",
    )
}
