//! The agent's end, fed what a broken host or anybody else on the host's CID may send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::mux::Side;

fuzz_target!(|data: &[u8]| burrow_fuzz::feed(Side::Agent, data));
