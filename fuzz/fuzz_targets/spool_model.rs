//! The spool against a plain vector that forgets nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::requests::SpoolPolicy;
use protocol::spool::{Budget, Discarded, Spool};

const CAPACITY: usize = 20_000;

fuzz_target!(|data: &[u8]| {
    let Some((first, operations)) = data.split_first() else { return };
    let policy = if first & 1 == 0 { SpoolPolicy::Block } else { SpoolPolicy::DropOldest };
    let mut spool = Spool::new(0, CAPACITY, policy, Budget::new(usize::from(*first) * 128));
    let mut written: Vec<u8> = Vec::new();
    let mut pin = 0;
    let mut fetched = Vec::new();
    for operation in operations.chunks_exact(3) {
        let argument = u16::from_be_bytes([operation[1], operation[2]]);
        match operation[0] % 4 {
            0 => {
                let bytes = vec![operation[1]; usize::from(argument)];
                let had_room = spool.has_room(Some(pin));
                let count = spool.push(&bytes, Some(pin));
                assert_eq!(had_room || bytes.is_empty(), count > 0 || bytes.is_empty());
                written.extend_from_slice(&bytes[..count]);
            }
            1 => pin = (pin + u64::from(argument)).min(spool.end()),
            2 => {
                let from = u64::from(argument) % (spool.end() + 1);
                fetched.clear();
                match spool.read(from, usize::from(operation[1]) * 64, &mut fetched) {
                    Ok(count) => assert_eq!(fetched, written[from as usize..from as usize + count]),
                    Err(Discarded { to }) => assert!(from < to && to == spool.start()),
                }
            }
            _ => spool.discard_below(pin.min(u64::from(argument))),
        }
        assert_eq!(spool.end(), written.len() as u64);
        assert!(spool.end() - spool.start() <= CAPACITY as u64);
        if policy == SpoolPolicy::Block {
            assert!(spool.start() <= pin, "what is needed is kept");
        }
    }
});
