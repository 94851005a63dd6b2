//! The greeting of a TLS client. What was made out of some bytes is not made otherwise by more of them:
//! or a server, which sees all of them, could be greeted under another name than we have read.
#![no_main]

use burrow_fuzz::egress::hello::{Greeting, Hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((step, bytes)) = data.split_first() else { return };
    let whole = Greeting::default().read(bytes);
    let mut pieces = Greeting::default();
    for end in (0..bytes.len()).step_by(usize::from(*step) + 1) {
        match pieces.read(&bytes[..end]) {
            Hello::More => {}
            early => return assert_eq!(early, whole, "{end} of {} bytes", bytes.len()),
        }
    }
});
