//! What carries a panic up the stack, in the place of the unwinder that Rust links.
//!
//! The standard library's panic runtime calls it, by the names of the Itanium C++ ABI; nothing of
//! ours does. It finds a function's record ([`table`]), asks the function's personality whether it
//! catches, and once one does, goes the same way again and stops wherever something is to be
//! dropped. LLVM's unwinder does this for every language and every record that a compiler may
//! write, in 48 kilobytes, a twentieth of the agent. This one knows what Rust writes for x86-64; at
//! anything else it ends the search, upon which the panic runtime aborts, as it does where there is
//! no unwinder. Nothing here allocates, and nothing panics.
//!
//! Only the small build has it: docs/decisions/0007-a-small-agent.md.

#![cfg_attr(not(own_unwinder), allow(dead_code, reason = "tests do not panic with it"))]

mod frame;
mod table;
#[cfg(test)]
mod tests;

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use self::frame::{Frame, Saved};

/// Where the table of all functions begins. Before `main` there is none.
static TABLE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// `_Unwind_Exception`: what is thrown, as far as an unwinder knows it.
#[repr(C)]
struct Exception {
    class: u64,
    cleanup: Option<extern "C" fn(Reason, *mut Exception)>,
    /// The stack pointer of the frame that catches; the rest is of no use here.
    caught_at: usize,
    unused: usize,
}

/// `_Unwind_Reason_Code`, as far as it is said or heard here.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Reason(c_int);

impl Reason {
    const FOREIGN_EXCEPTION_CAUGHT: Self = Self(1);
    const FATAL_PHASE2_ERROR: Self = Self(2);
    const FATAL_PHASE1_ERROR: Self = Self(3);
    const END_OF_STACK: Self = Self(5);
    const HANDLER_FOUND: Self = Self(6);
    const INSTALL_CONTEXT: Self = Self(7);
    const CONTINUE_UNWIND: Self = Self(8);
}

/// `_Unwind_Action`: which of the two walks a personality is asked in.
const SEARCH: c_int = 1;
const CLEANUP: c_int = 2;
const HANDLER_FRAME: c_int = 4;

/// Asks a function what it does about an exception that has come as far as a call of its.
type Personality = extern "C" fn(c_int, c_int, u64, *mut Exception, *mut Frame) -> Reason;

/// The only version of the interface.
const VERSION: c_int = 1;

/// The C runtime's start-up code says where the table is, before `main` and any thread.
#[cfg_attr(own_unwinder, unsafe(export_name = "__register_frame_info"))]
extern "C" fn register(table: *mut u8, _: *mut c_void) {
    TABLE.store(table, Ordering::Relaxed);
}

/// Throws. Comes back only if nobody catches.
///
/// Builds a [`Saved`] on the stack: the registers that a callee keeps, and our return address.
#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_RaiseException"))]
#[unsafe(naked)]
extern "C-unwind" fn throw(exception: *mut Exception) -> Reason {
    naked_asm!(
        "push r15", "push r14", "push r13", "push r12", "push rbp", "push rbx",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {raise}",
        "add rsp, 56",
        "ret",
        raise = sym raise,
    )
}

/// Goes on after a frame has dropped what it had.
#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_Resume"))]
#[unsafe(naked)]
extern "C-unwind" fn go_on(exception: *mut Exception) -> ! {
    naked_asm!(
        "push r15", "push r14", "push r13", "push r12", "push rbp", "push rbx",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {resume}",
        "ud2",
        resume = sym resume,
    )
}

extern "C" fn raise(exception: &mut Exception, saved: &Saved) -> Reason {
    match search(exception, Frame::of(saved)) {
        Ok(caught_at) => exception.caught_at = caught_at,
        Err(reason) => return reason,
    }
    clean(exception, Frame::of(saved))
}

extern "C" fn resume(exception: &mut Exception, saved: &Saved) -> ! {
    clean(exception, Frame::of(saved));
    // The frames are no longer those of the search, or were never there.
    std::process::abort()
}

/// The first walk: the stack pointer of the frame that catches.
fn search(exception: &mut Exception, mut frame: Frame) -> Result<usize, Reason> {
    while frame.look_up(TABLE.load(Ordering::Relaxed)).is_some() {
        match ask(&mut frame, SEARCH, exception) {
            Reason::CONTINUE_UNWIND => {}
            Reason::HANDLER_FOUND => return Ok(frame.stack_pointer()),
            _ => return Err(Reason::FATAL_PHASE1_ERROR),
        }
        if frame.leave().is_none() {
            break;
        }
    }
    Err(Reason::END_OF_STACK)
}

/// The second walk: enters the next frame that has something to drop, or that catches.
fn clean(exception: &mut Exception, mut frame: Frame) -> Reason {
    while frame.look_up(TABLE.load(Ordering::Relaxed)).is_some() {
        let catches = frame.stack_pointer() == exception.caught_at;
        let actions = if catches { CLEANUP | HANDLER_FRAME } else { CLEANUP };
        match ask(&mut frame, actions, exception) {
            Reason::CONTINUE_UNWIND if !catches => {}
            Reason::INSTALL_CONTEXT => frame.enter(),
            _ => break,
        }
        if frame.leave().is_none() {
            break;
        }
    }
    Reason::FATAL_PHASE2_ERROR
}

fn ask(frame: &mut Frame, actions: c_int, exception: &mut Exception) -> Reason {
    match frame.personality() {
        Some(personality) => personality(VERSION, actions, exception.class, exception, frame),
        None => Reason::CONTINUE_UNWIND,
    }
}

/// Ends an exception that is not Rust's; in this program none is.
#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_DeleteException"))]
extern "C" fn delete(exception: &mut Exception) {
    if let Some(cleanup) = exception.cleanup {
        cleanup(Reason::FOREIGN_EXCEPTION_CAUGHT, exception);
    }
}

/// The address behind the call that the frame has made.
#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_GetIPInfo"))]
extern "C" fn address(frame: &Frame, is_before_instruction: &mut c_int) -> usize {
    *is_before_instruction = 0;
    frame.address()
}

#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_GetRegionStart"))]
extern "C" fn function_start(frame: &Frame) -> usize {
    frame.function().start
}

#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_GetLanguageSpecificData"))]
extern "C" fn cleanups(frame: &Frame) -> usize {
    frame.function().cleanups
}

/// Nothing is relative to the sections that these two would name.
#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_GetTextRelBase"))]
extern "C" fn text_base(_: &Frame) -> usize {
    0
}

#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_GetDataRelBase"))]
extern "C" fn data_base(_: &Frame) -> usize {
    0
}

#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_SetGR"))]
extern "C" fn set_register(frame: &mut Frame, register: c_int, value: usize) {
    frame.set_register(register, value);
}

#[cfg_attr(own_unwinder, unsafe(export_name = "_Unwind_SetIP"))]
extern "C" fn set_address(frame: &mut Frame, address: usize) {
    frame.set_address(address);
}
