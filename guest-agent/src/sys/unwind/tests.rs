//! How records are read: as another unwinder reads those of this program, and some that no compiler
//! here writes. How panics fare with it is seen in `examples/panics.rs`.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::hint::black_box;

use super::frame::{Frame, Saved};
use super::table::{self, Rule};

/// Addresses and stack pointers, from the innermost frame outwards.
struct Seen(Vec<[usize; 2]>);

/// Deep enough to pass frames of several shapes.
const DEPTH: usize = 20;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*const c_void, *mut c_void) -> c_int,
        seen: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *const c_void) -> usize;
    fn _Unwind_GetCFA(frame: *const c_void) -> usize;
}

/// Calls `walk` with what the entry points save.
#[unsafe(naked)]
extern "C" fn with_saved(seen: &mut Seen, walk: extern "C" fn(&mut Seen, &Saved)) {
    naked_asm!(
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "push rbp",
        "push rbx",
        "mov rax, rsi",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call rax",
        "add rsp, 56",
        "ret",
    )
}

extern "C" fn ours(seen: &mut Seen, saved: &Saved) {
    let mut frame = Frame::of(saved);
    while frame.look_up(table_of_this_program()).is_some() {
        seen.0.push([frame.address(), frame.stack_pointer()]);
        frame.leave().expect("the record is understood");
    }
}

extern "C" fn theirs(frame: *const c_void, seen: *mut c_void) -> c_int {
    // SAFETY: the unwinder lends the frame to us for this call.
    let address = unsafe { _Unwind_GetIP(frame) };
    // SAFETY: the same.
    let stack_pointer = unsafe { _Unwind_GetCFA(frame) };
    // SAFETY: it is what the only caller has given.
    let seen = unsafe { &mut *seen.cast::<Seen>() };
    seen.0.push([address, stack_pointer]);
    0
}

#[inline(never)]
fn descend<const WIDTH: usize>(depth: usize, look: &mut dyn FnMut()) -> usize {
    let width = black_box([depth; WIDTH]);
    let below = match depth {
        0 => {
            look();
            0
        }
        _ if depth.is_multiple_of(2) => descend::<7>(depth - 1, look),
        _ => [look].into_iter().map(|look| descend::<300>(depth - 1, look)).sum(),
    };
    below + width.len()
}

#[test]
fn every_frame_is_where_another_unwinder_finds_it() {
    let (mut seen, mut expected) = (Seen(Vec::new()), Seen(Vec::new()));
    descend::<1>(DEPTH, &mut || {
        with_saved(&mut seen, ours);
        // SAFETY: `theirs` gets the list that goes with it.
        unsafe { _Unwind_Backtrace(theirs, (&raw mut expected).cast()) };
    });
    // The first frame makes both calls, from two places.
    let (seen, expected) = (&seen.0[1..], expected.0);
    let first = expected.iter().position(|frame| *frame == seen[0]).expect("a common frame");
    assert_eq!(seen, &expected[first..first + seen.len()]);
    assert!(seen.len() > DEPTH, "{} frames", seen.len());
}

/// From the program header that leads to the table's index, and the index to the table.
fn table_of_this_program() -> *const u8 {
    extern "C" fn note(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader lends it to us for this call.
        let object = unsafe { &*object };
        // SAFETY: it says where its headers are and how many.
        let headers =
            unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
        let header = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
        let index = header.expect("the program has one").p_vaddr + object.dlpi_addr;
        let distance = index as usize + 4;
        // SAFETY: all linkers write the distance of the table there, in this form.
        let distance_read = unsafe { (distance as *const i32).read_unaligned() };
        let table = distance.wrapping_add_signed(distance_read as isize);
        // SAFETY: it is the place below.
        unsafe { found.cast::<usize>().write(table) };
        // The program itself comes first; its libraries are of no interest.
        1
    }
    let mut found = 0_usize;
    // SAFETY: `note` gets the place that it writes to.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found as *const u8
}

/// Where the function of a made-up record begins, counted from the record's own word for it.
const DISTANCE: i32 = 0x1000;
const SIZE: u32 = 0x100;

/// A table of one function, and where that function begins.
fn made_up(augmentation: &str, instructions: &[u8]) -> (*const u8, usize) {
    fn record(table: &mut Vec<u8>, content: &[u8]) {
        table.extend((content.len() as u32).to_le_bytes());
        table.extend(content);
    }
    let mut table = Vec::new();
    // Version, augmentation, units 1 and -8, return address in 16; and "base is rsp + 8".
    let common =
        [&[0, 0, 0, 0, 1], augmentation.as_bytes(), &[0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8]];
    record(&mut table, &common.concat());
    let function = [
        &(table.len() as u32 + 4).to_le_bytes(),
        &DISTANCE.to_le_bytes()[..],
        &SIZE.to_le_bytes(),
        &[0],
        instructions,
    ];
    let start = table.len() + 8 + DISTANCE as usize;
    record(&mut table, &function.concat());
    table.extend([0; 4]);
    let table = table.leak().as_ptr();
    (table, table as usize + start)
}

#[test]
fn a_row_holds_from_its_place_on() {
    // push rbp at 0; mov rbp, rsp at 1; four bytes pushed between 0x20 and 0x60; out at 0x70.
    let (table, start) = made_up(
        "zR",
        &[
            0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x1c, 0x2e, 4, 0x0a, 0x03, 0x50, 0, 0x0c,
            7, 8, 0xc6, 0x41, 0x0b,
        ],
    );
    let row = |place: usize| {
        let (function, row) = table::find(table, start + place).expect("it is known");
        assert_eq!((function.start, function.personality, function.cleanups), (start, 0, 0));
        let saved = match row.rules[6] {
            Rule::At(offset) => Some(offset),
            Rule::Unchanged => None,
        };
        (row.base, row.base_offset, saved, row.pushed)
    };
    assert_eq!(row(0), (7, 8, None, 0));
    assert_eq!(row(1), (7, 16, Some(-16), 0));
    assert_eq!(row(4), (6, 16, Some(-16), 0));
    assert_eq!(row(0x20), (6, 16, Some(-16), 4));
    assert_eq!(row(0x6f), (6, 16, Some(-16), 4));
    assert_eq!(row(0x70), (7, 8, None, 4));
    assert_eq!(row(0x71), (6, 16, Some(-16), 4));
    assert_eq!(row(SIZE as usize - 1), (6, 16, Some(-16), 4));
}

#[test]
fn nothing_is_known_beyond_a_function_or_without_a_table() {
    let (table, start) = made_up("zR", &[]);
    assert!(table::find(table, start).is_some());
    assert!(table::find(table, start - 1).is_none());
    assert!(table::find(table, start + SIZE as usize).is_none());
    assert!(table::find(std::ptr::null(), start).is_none());
}

#[test]
fn what_is_not_understood_ends_the_walk_instead_of_misleading_it() {
    let expression = [0x0f, 1, 0x30];
    let second_restored = [0x0b];
    let saved_too_often = [0x0a, 0x0a, 0x0a];
    let cut_off = [0x0c, 0x87];
    let endless = [0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let register_unknown = [0x91, 1];
    for instructions in
        [&expression[..], &second_restored, &saved_too_often, &cut_off, &endless, &register_unknown]
    {
        let (table, start) = made_up("zR", instructions);
        assert!(table::find(table, start).is_none(), "{instructions:x?}");
    }
    for augmentation in ["", "zS", "zX", "R"] {
        let (table, start) = made_up(augmentation, &[]);
        assert!(table::find(table, start).is_none(), "{augmentation}");
    }
}
