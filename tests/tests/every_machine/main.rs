//! What a sandbox does on every kind of machine: programs, terminals, files, ports, contexts, freezing and
//! adoption. `just test` runs these tests on the process machine, and `just test-vm` runs them again in
//! virtual machines (`BURROW_TEST_MACHINE` and `BURROW_TEST_IMAGE`), so no test here may know which machine
//! it has. `nothing_lost` is run in virtual machines by `just soak-vm` alone, because it takes minutes there.

mod adopt;
mod contexts;
mod files;
mod freeze;
mod nothing_lost;
mod ports;
mod sessions;
mod terminal;
