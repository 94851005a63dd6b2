use super::Block;

fn block(lines: &[&str]) -> Block {
    let mut block = Block::default();
    for line in lines {
        block.push(line);
    }
    block
}

#[test]
fn lines_become_one_input() {
    let mut input = block(&["def f():"]);
    input.grow("    ");
    assert_eq!(input.indent(), "    ");
    assert_eq!(input.before(), "def f():\n");
    input.push("    return 1");
    assert_eq!(input.text(), "def f():\n    return 1");
    // The person has only pressed Enter.
    input.push("    ");
    assert_eq!(input.text(), "def f():\n    return 1\n");
}

#[test]
fn an_indentation_of_ones_own_replaces_the_given_one() {
    let mut input = block(&["def f():"]);
    input.grow("    ");
    input.push("        return 1");
    assert_eq!(input.text(), "def f():\n    return 1");
}

#[test]
fn input_with_its_own_indentation_gets_none() {
    let mut input = block(&["if x:"]);
    input.grow("    ");
    input.push("        y = 1");
    // Lines pasted through a terminal without bracketed paste.
    for line in ["else:", "    y = 2"] {
        input.grow("    ");
        assert_eq!(input.indent(), "");
        input.push(line);
    }
    assert_eq!(input.text(), "if x:\n    y = 1\nelse:\n    y = 2");
}

#[test]
fn an_indentation_that_was_erased_stays_erased() {
    let mut input = block(&["if x:"]);
    input.grow("    ");
    input.push("else:");
    assert_eq!(input.text(), "if x:\nelse:");
}

#[test]
fn a_guests_indentation_is_blank_or_nothing() {
    let mut input = block(&["x"]);
    for hostile in ["rm -rf /", "  \x1b[2J", "\n", &" ".repeat(10_000)] {
        input.grow(hostile);
        assert_eq!(input.indent(), "");
    }
    input.grow("\t ");
    assert_eq!(input.indent(), "\t ");
}

#[test]
fn without_the_interpreter_an_empty_line_ends_what_looks_open() {
    assert!(!block(&["x = 1"]).looks_open());
    assert!(block(&["def f():"]).looks_open());
    assert!(block(&["f("]).looks_open());
    assert!(block(&["def f():", "    return 1"]).looks_open());
    assert!(!block(&["def f():", "    return 1", ""]).looks_open());
    assert!(block(&["", " "]).is_blank());
    assert!(Block::default().is_fresh());
}
