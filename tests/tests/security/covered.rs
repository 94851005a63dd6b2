//! Files by which the kernel tells of the whole host: a sandbox finds nothing in them.

use tests::Burrow;

use crate::ordinary;

#[test]
fn kernel_files_about_the_host_are_covered() {
    let look = "for path in /proc/interrupts /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /proc/latency_stats \
                /proc/acpi/* /proc/scsi/* /proc/asound/* /sys/firmware/* /sys/devices/virtual/powercap/*; do \
                if [ -d $path ] || { [ -e $path ] && [ -n \"$(head -c 1 $path | tr '\\0' x)\" ]; }; then echo $path; fi; done";
    assert_eq!(Burrow::new().ok(&["run", "--", "sh", "-c", look]), "");
}

#[test]
fn it_is_covered_for_an_ordinary_user_too() {
    ordinary::again("covered::kernel_files_about_the_host_are_covered");
}
