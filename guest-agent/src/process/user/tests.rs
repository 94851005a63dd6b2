use super::*;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
                      # a comment\n\
                      broken:x:1\n\
                      ann:x:1000:1000:Ann,,,:/home/ann:/bin/zsh\n\
                      1234:x:77:77::/odd:\n\
                      bob:x:1001:100::/home/bob:\n";
const GROUP: &str = "root:x:0:\nusers:x:100:ann,bob\ndocker:x:999:ann\nann:x:1000:\nempty:x:50:\n";

fn resolve(text: &str) -> Result<(u32, u32, Vec<u32>, String), String> {
    let user = resolve_in(text, PASSWD, GROUP).map_err(|error| error.to_string())?;
    let identity = user.identity.expect("a user that is named has an identity");
    Ok((identity.uid, identity.gid, identity.groups, user.home))
}

fn is(text: &str, uid: u32, gid: u32, groups: &[u32], home: &str) {
    assert_eq!(resolve(text), Ok((uid, gid, groups.to_vec(), home.to_owned())), "{text}");
}

#[test]
fn a_name_brings_its_groups() {
    is("ann", 1000, 1000, &[1000, 100, 999], "/home/ann");
    is("bob", 1001, 100, &[100], "/home/bob");
    is("root", 0, 0, &[0], "/root");
}

#[test]
fn a_group_that_is_asked_for_is_the_only_one() {
    is("ann:docker", 1000, 999, &[999], "/home/ann");
    is("ann:4242", 1000, 4242, &[4242], "/home/ann");
}

#[test]
fn numbers_need_no_entry_but_use_one() {
    is("5000", 5000, 0, &[0], "/");
    is("5000:6000", 5000, 6000, &[6000], "/");
    is("1000", 1000, 1000, &[1000, 100, 999], "/home/ann");
}

#[test]
fn a_name_of_digits_is_a_name_first() {
    is("1234", 77, 77, &[77], "/odd");
}

#[test]
fn missing_names_are_unknown() {
    let errno = |text| resolve_in(text, PASSWD, GROUP).expect_err("unknown").errno();
    assert_eq!(errno("nobody-here"), libc::ENOENT);
    assert_eq!(errno("ann:no-group"), libc::ENOENT);
    assert_eq!(errno("broken"), libc::ENOENT);
    assert_eq!(errno("+5"), libc::ENOENT);
    assert_eq!(errno("4294967295"), libc::ENOENT);
    assert_eq!(errno("99999999999"), libc::ENOENT);
    for malformed in ["", ":", "ann:", ":users", "a:b:c"] {
        assert_eq!(errno(malformed), libc::EINVAL, "{malformed}");
    }
}

#[test]
fn empty_fields_have_sensible_values() {
    let user = resolve_in("bob", PASSWD, GROUP).expect("bob is known");
    assert_eq!(user.shell, "/bin/sh");
    let user = resolve_in("5000", "", "").expect("a number is enough");
    assert_eq!((user.name.as_str(), user.home.as_str()), ("5000", "/"));
}
