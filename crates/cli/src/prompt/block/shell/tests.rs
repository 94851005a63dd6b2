use super::is_open;

#[test]
fn complete_code_runs() {
    for code in [
        "ls",
        "echo 'a b' \"c\"",
        "for i in 1 2; do echo $i; done",
        "if true; then echo; fi",
        "f() { echo hi; }",
        "f() {\n  echo hi\n}",
        "case $x in a) echo;; b|c) echo;; esac",
        "echo if for case {",
        "echo done fi",
        "x=$(ls | wc -l)",
        "echo $((1<<2))",
        "((i++))",
        "cat <<EOF\nif (\nEOF\n",
        "cat <<-'END' | wc\n\tx\n\tEND",
        "wc <<< 'x'",
        "echo a # it's (",
        "echo ${x#y} a#b",
        "sleep 1 &",
        "a=(1 2 3)",
        "echo \\\n hi",
        "while read -r x; do\n echo; done < file",
    ] {
        assert!(!is_open(code), "{code}");
    }
}

#[test]
fn incomplete_code_waits_for_more() {
    for code in [
        "echo 'a",
        "echo \"a\\\"",
        "for i in 1 2; do",
        "for i in 1 2",
        "if true; then\n echo",
        "f() {",
        "case $x in a) echo;;",
        "x=$(ls",
        "echo $((1 +",
        "cat <<EOF",
        "cat <<EOF\nx\n",
        "ls |",
        "true &&",
        "true && ",
        "echo \\",
        "a=(1",
        "if a; then for b in c; do d; done",
    ] {
        assert!(is_open(code), "{code}");
    }
}
