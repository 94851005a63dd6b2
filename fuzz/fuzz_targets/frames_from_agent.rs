//! The host's end, fed what a hostile guest may send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::mux::Side;

fuzz_target!(|data: &[u8]| burrow_fuzz::feed(Side::Host, data));
