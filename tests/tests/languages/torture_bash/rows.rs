//! The rows: what people write, what ends badly, what never ends.

use tests::torture::{Case, End, case};

const MEGABYTE: usize = 1 << 20;

fn exits(name: &'static str, code: impl Into<Vec<u8>>, status: i32) -> Case {
    case(name, code).ends(End::Exited(status))
}

/// State that stays, and the shapes of commands and sources.
pub fn plain() -> Vec<Case> {
    vec![
        case("echo", "echo hello").out("hello\n"),
        case("no newline", "printf x").out("x"),
        case("both outputs", "echo o; echo e >&2").out("o\n").err("e\n"),
        case("nothing", ""),
        case("a comment", "# nothing"),
        case("newlines", "\n\n"),
        case("a variable", "v=5"),
        case("is kept", "echo $v").out("5\n"),
        case("a function", "f() { local l=$1; echo in f $l; }; f 1").out("in f 1\n"),
        case("is kept as well", "f 2").out("in f 2\n"),
        case("declarations", "declare -i n=4; declare -A map=([k]=v); declare -x ex=2; list=(a b)"),
        case("are kept", "n+=1; echo $n ${map[k]} $(sh -c 'echo $ex') ${list[1]}").out("5 v 2 b\n"),
        case("a readonly variable", "declare -r ro=1; echo $ro").out("1\n"),
        exits("cannot be set", "ro=2; echo no", 1).err_has("ro: readonly variable"),
        case("a directory", "mkdir -p /tmp/place; cd /tmp/place; pwd").out("/tmp/place\n"),
        case("is kept too", "pwd; cd /").out("/tmp/place\n"),
        case("a removed directory", "mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone"),
        case("commands in it", "echo here; sh -c 'echo child' 2>&1 | tail -n 1")
            .out("here\nchild\n"),
        case("and out of it", "cd /; pwd").out("/\n"),
        case("an alias", "alias hh='echo aliased'"),
        case("is expanded", "hh; unalias hh").out("aliased\n"),
        case("options", "set -f; shopt -s extglob"),
        case("are kept for the next", "echo *; shopt -q extglob && echo y; set +f").out("*\ny\n"),
        exits("a status", "false", 1),
        case("is in $?", "echo $?").out("0\n"),
        case("a quote within quotes", "echo \"a 'b' \\\"c\\\"\"").out("a 'b' \"c\"\n"),
        case("a heredoc", "cat <<X\nhello $((1 + 1))\nX\n").out("hello 2\n"),
        case("a process substitution", "cat <(echo sub)").out("sub\n"),
        case("a pipe", "seq 3 | while read n; do echo \"<$n>\"; done").out("<1>\n<2>\n<3>\n"),
        case("10,000 lines", "seq 10000")
            .out((1..=10_000).fold(String::new(), |all, n| all + &n.to_string() + "\n")),
        case("carriage returns", "echo hi\r\necho ho\r\n").out("hi\r\nho\r\n"),
        case("tabs", "\tif true; then\n\t\techo t\n\tfi").out("t\n"),
        case("NUL", b"echo a\0b".as_slice()).out("ab\n"),
        exits("a byte order mark", "\u{feff}echo hi", 127).err_has("command not found"),
        case("bytes that are not UTF-8", b"printf '\xff\xfe'; printf '\\xc3'".as_slice())
            .out("\u{fffd}\u{fffd}\u{fffd}"),
        case("a line of 1 MB", format!("x={}\necho ${{#x}}", "a".repeat(MEGABYTE)))
            .out("1048576\n"),
        case("1 MB of lines", "y=1\n".repeat(MEGABYTE / 4) + "echo end").out("end\n"),
        case("100 MB in one line", "head -c 100000000 /dev/zero | tr '\\0' x")
            .out_bytes(100_000_000),
        case("100 MB in lines of one byte", "yes x | head -c 100000000").out_bytes(100_000_000),
        case("a byte at a time", "for ((i = 0; i < 20000; i++)); do printf x; done")
            .out_bytes(20_000),
        exits("a command that is not there", "nosuchcommand", 127)
            .err_has("nosuchcommand: command not found"),
        exits("the line of an error", "true\ntrue\nnosuchcommand", 127).err_has("line 3: "),
        exits("no grammar", "echo a\nif then\n", 2).out("a\n").err_has("line 2: syntax error near"),
        exits("an unclosed quote", "echo 'abc", 2)
            .err_has("unexpected EOF while looking for matching"),
        exits("an unclosed double quote", "echo \"abc", 2)
            .err_has("unexpected EOF while looking for matching"),
        exits("an unclosed substitution", "echo $(echo a", 2).err_any(),
        exits("an unclosed brace", "{ echo a", 2).err_has("unexpected end of file"),
        exits("an unclosed loop", "while true; do echo a", 2).err_has("unexpected end of file"),
        case("an unclosed heredoc", "cat <<X\nhello").out("hello\n").err_has("here-document"),
        exits("a brace too many", "}", 2).err_has("syntax error"),
        exits("a division by nothing", "echo $((1 / 0)); echo no", 1).err_has("division by 0"),
        case("read at the end of the input", "read x; echo \"$? [$x]\"").out("1 []\n"),
        case("cat at the end of the input", "cat; echo end").out("end\n"),
        case("a child has no descriptors of ours", "ls /proc/self/fd").out("0\n1\n2\n3\n"),
        case(
            "nor variables but the session's name",
            "env | grep -i burrow | grep -v ^BURROW_SESSION=",
        )
        .out("")
        .ends(End::Exited(1)),
        case("a descriptor of the code's own", "exec 5>/tmp/five; echo a >&5"),
        case("stays open", "echo b >&5; exec 5>&-; cat /tmp/five").out("a\nb\n"),
        case("another one", "exec {fd}>/tmp/six; echo a >&$fd"),
        case("stays open as well", "echo b >&$fd; exec {fd}>&-; cat /tmp/six").out("a\nb\n"),
        case("background jobs", "sleep 100 & job=$!; jobs -p | wc -l").out("1\n"),
        case("are kept and ended", "kill $job; wait $job; echo $?").out("143\n").err_any(),
        case("a background command holds nothing up", "sleep 30 & echo hi").out("hi\n"),
        case("it is ended", "kill %1; wait").err_any(),
        case("set -x", "set -x; echo a; set +x").out("a\n").err_has("+ echo a"),
        case("set -v", "set -v; echo a").out("a\n").err_any(),
        case("no set -v", "set +v").err_any(),
        case("set -a", "set -a; exported=1; env | grep -c '^exported='; set +a").out("1\n"),
        case("posix", "set -o posix; echo a; set +o posix").out("a\n"),
    ]
}

/// Ends: of a run, of a shell.
pub fn ends() -> Vec<Case> {
    let dies = |name, code: &'static str, end| case(name, code).ends(end).loses_state();
    vec![
        exits("exit", "echo a; exit 3; echo b", 3).out("a\n"),
        case("exit with nothing", "true; exit").ends(End::Ok),
        exits("exit after a failure", "false; exit", 1),
        exits("exit with too much", "exit 300", 44),
        exits("exit with less than nothing", "exit -1", 255),
        exits("exit with words", "exit words", 2).err_has("numeric argument required"),
        exits("exit in a function", "f() { local l=3; exit 7; }; f; echo no", 7),
        exits(
            "exit in loops",
            "for i in 1 2; do while true; do f; echo no; done; done; echo no",
            7,
        ),
        exits("exit behind ||", "false || exit 4; echo no", 4),
        exits("exit in an eval", "eval 'exit 9'; echo no", 9),
        exits("exit in a source", "echo 'exit 8; echo no' > /tmp/s; source /tmp/s; echo no", 8),
        exits("exit in redirected commands", "{ echo hid; exit 2; } > /dev/null; echo no", 2),
        case("and its redirection is over", "echo seen").out("seen\n"),
        case("exit of a subshell", "(exit 5); echo $?").out("5\n"),
        case("exit of a substitution", "x=$(echo a; exit 6); echo $? $x").out("6 a\n"),
        case("exit of a pipe's part", "echo a | { read x; exit 3; }; echo $?").out("3\n"),
        exits("return", "echo a; return 6; echo no", 6).out("a\n"),
        exits("set -e", "set -e; echo a; false; echo no", 1).out("a\n"),
        exits(
            "set -e stays set",
            "[[ $- == *e* ]] && echo set; f() { false; echo no; }; f; echo no",
            1,
        )
        .out("set\n"),
        case("set -e where it does not count", "if false; then :; fi; false || echo or; set +e")
            .out("or\n"),
        exits("set -eo pipefail", "set -eo pipefail; false | true; echo no", 1),
        case("is taken away", "set +eo pipefail"),
        dies("set -u", "set -u; echo $nosuch; echo no", End::Code(1))
            .err_has("nosuch: unbound variable"),
        dies("${:?}", "echo ${nosuch:?gone}; echo no", End::Code(1)).err_has("nosuch: gone"),
        case("set -u with all set", "set -u; y=1; echo $y; set +u").out("1\n"),
        dies("builtin exit", "builtin exit 5", End::Code(5)),
        dies("exec of another program", "exec sh -c 'echo other; exit 9'", End::Code(9))
            .out("other\n"),
        case("exec of no program", "exec /no/program; echo on $?")
            .out("on 127\n")
            .err_has("No such file"),
        dies("kill -9", "echo before; kill -9 $$", End::Signal(9)).out("before\n"),
        dies("kill", "echo before; kill $$; sleep 5", End::Signal(15)).out("before\n"),
        dies("kill -SEGV", "kill -SEGV $$; sleep 5", End::Signal(11)).err_any(),
        dies("recursion", "f() { f; }; f", End::Signal(11)).err_any(),
        case("a child that is killed", "sh -c 'kill -9 $$'; echo $?").out("137\n").err_any(),
        case("an EXIT trap waits for the end", "trap 'echo bye' EXIT; echo a").out("a\n"),
        case("that of a subshell does not", "(trap 'echo sub' EXIT)").out("sub\n"),
        case("an EXIT trap is taken away", "trap - EXIT"),
        case("an ERR trap", "trap 'echo err' ERR; false; true").out("err\n"),
        case("no ERR trap", "trap - ERR; true"),
        case("a DEBUG trap", "trap 'echo dbg' DEBUG; echo a").out("dbg\na\n"),
        case("which has ended with its run", "echo b").out("b\n"),
        case("a trap of a signal", "trap 'echo usr1' USR1; kill -USR1 $$; echo b").out("usr1\nb\n"),
        case("which stays", "kill -USR1 $$; trap - USR1").out("usr1\n"),
        exits("an interrupt of itself", "kill -INT $$; sleep 5; echo no", 130),
        case("exec >file", "exec >/tmp/out; echo hidden"),
        case("ends with its run", "cat /tmp/out").out("hidden\n"),
        case("exec 2>&1", "exec 2>&1; echo e >&2").out("e\n"),
        case("ends as well", "echo e >&2").err("e\n"),
        case("exec <file", "exec </tmp/out; read x; echo $x").out("hidden\n"),
        exits("closed outputs", "exec 1>&- 2>&-; echo x", 1),
        case("are another's in the next run", "echo seen; echo e >&2").out("seen\n").err("e\n"),
        case("a closed input", "exec 0<&-; echo x").out("x\n"),
    ]
}

/// Code that ruins what it shares with the driver.
pub fn hostile() -> Vec<Case> {
    vec![
        case("builtins overridden", "read() { echo no; }; printf() { echo no; }; eval() { echo no; }; source() { false; }; \
              trap() { false; }; set() { false; }; local() { false; }; unset() { false; }; return() { false; }; \
              exec() { false; }; builtin echo a").out("a\n"),
        case("echo is theirs", "echo() { builtin echo \"[$@]\"; }; echo a; unset -f echo").out_any().err_any().ends(End::Exited(1)),
        case("are given back", "builtin unset -f read printf eval source trap set local unset return exec echo"),
        case("aliases of builtins", "alias read=false printf=false builtin=false source=false local=false"),
        case("are gone", "unalias -a"),
        case("the driver's variables unset", "for v in ${!__burrow*}; do unset -v $v; done; true").err_any(),
        case("and set, the status too", "for v in ${!__burrow*}; do eval \"$v=9\"; done; true").err_any().ends(End::Exited(9)),
        case("the driver's functions replaced", "__burrow_done() { :; }; __burrow_say() { :; }; true").err_any(),
        case("IFS, PATH and the locale", "IFS=abcdef_0123456789; PATH=; LC_ALL=xx; LANG=yy").err_any(),
        case("are put back", "unset IFS LC_ALL LANG; PATH=/usr/local/bin:/usr/bin:/bin; echo x").out("x\n").err_any(),
        case("POSIXLY_CORRECT", "POSIXLY_CORRECT=1; echo x; unset POSIXLY_CORRECT; set +o posix").out("x\n"),
        case("BASH_ENV and ENV", "export BASH_ENV=/no/file ENV=/no/file; echo x; unset BASH_ENV ENV").out("x\n"),
        case("TMOUT", "TMOUT=1; echo x").out("x\n"),
        case("a while later", "sleep 1.3; echo y; unset TMOUT").out("y\n"),
        case("FUNCNEST", "FUNCNEST=20; echo x").out("x\n"),
        case("no FUNCNEST", "unset FUNCNEST; echo x").out("x\n"),
        case("extdebug", "shopt -s extdebug; echo x; shopt -u extdebug").out("x\n"),
        case("noclobber", "set -C; echo x").out("x\n"),
        case("no noclobber", "set +C; echo x").out("x\n"),
        case("a restricted glob", "set -f; IFS=; echo x; unset IFS; set +f").out("x\n"),
        case("monitor mode", "set -m; sleep 0.01 & wait; echo x; set +m").out_has("x\n").err_any(),
        case("garbage in every descriptor", "for i in {3..260}; do echo garbage >&$i; done 2>/dev/null; true").out_any().err_any(),
        case("hello after it", "echo hello").out("hello\n"),
        case("every descriptor closed", "for i in {3..260}; do eval \"exec $i>&-\"; done; true")
            .err_any()
            .out_any()
            .ends(End::Code(0)),
        case("the shell becomes readonly", "readonly BASH_ARGV0 PS4; echo x").out("x\n").err_any(),
        case("set -n", "set -n; echo no").within_ms(2000).loses_state().err_any(),
    ]
}

/// What an interrupt must end, with the state kept.
pub fn endless() -> Vec<Case> {
    let endless = |name, code: &'static str| case(name, code).within_ms(250).err_any();
    vec![
        endless("a loop", "while :; do :; done; echo no"),
        endless("a loop of arithmetic", "while ((1)); do ((i++)); done"),
        endless(
            "a loop in functions",
            "f() { while :; do :; done; }; g() { f; echo no; }; g; echo no",
        ),
        endless(
            "a loop in a source",
            "echo 'while :; do :; done; echo no' > /tmp/s; source /tmp/s; echo no",
        ),
        endless("a loop in an eval", "eval 'while :; do :; done'; echo no"),
        endless("a loop in a subshell", "( while :; do :; done ); echo no"),
        endless("a loop in a pipe", "while :; do :; done | cat; echo no"),
        endless("a loop that fails", "until false; do false; done; echo no"),
        endless("a loop that prints", "while :; do echo spam; done").out_any(),
        endless("a flood", "yes").out_any(),
        endless("a loop of subshells", "while :; do (:); done"),
        endless("a loop of children", "while :; do sleep 0.01; done; echo no"),
        endless("sleep", "sleep 100; echo no"),
        endless("sleep in a substitution", "x=$(sleep 100); echo no"),
        endless("sleep in a pipe", "sleep 100 | cat; echo no"),
        endless("sleep in a condition", "if sleep 100; then echo no; else echo no; fi"),
        endless("sleep || more", "sleep 100 || sleep 100 || echo no; echo no"),
        endless("wait", "sleep 100 & wait; echo no"),
        case("the job is ended", "kill %1 2>/dev/null; wait").err_any(),
        endless(
            "a FIFO that nobody writes to",
            "rm -f /tmp/ff; mkfifo /tmp/ff; read x </tmp/ff; echo no",
        ),
        endless("a read of it", "exec 7<>/tmp/ff; read -u 7 x; echo no"),
        case("it is closed", "exec 7>&-"),
        endless(
            "a child that catches it",
            "sh -c 'trap \"exit 0\" INT; while :; do sleep 0.05; done'; echo no",
        ),
        endless("a loop under set -e", "set -e; while :; do sleep 1; done; echo no"),
        case("set -e is kept", "[[ $- == *e* ]] && echo e; set +e").out("e\n"),
        endless("a loop under set -x", "set -x; while :; do sleep 0.05; done; echo no"),
        case("set -x is kept", "[[ $- == *x* ]] && echo x; set +x").out("x\n").err_any(),
        endless(
            "a loop with redirected output",
            "{ while :; do :; done; echo no; } >/dev/null; echo no",
        ),
        endless("a loop that ignores it", "trap '' INT; while :; do sleep 1; done"),
        case("what it ignored", "trap - INT"),
        endless("a loop with a trap of its own", "trap 'echo mine' INT; while :; do sleep 1; done")
            .out_any(),
        case("the trap is kept", "trap -p INT; trap - INT").out("trap -- 'echo mine' SIGINT\n"),
        endless("a child that ignores it", "(trap '' INT; while :; do sleep 1; done); echo no"),
        endless("a loop in a trap", "trap 'while :; do :; done' USR2; kill -USR2 $$; echo no"),
        case("without that trap", "trap - USR2"),
        endless("a substitution without end", "x=$(yes); echo no"),
        // bash matches a pattern to its end, whatever comes.
        endless(
            "a pattern is matched to the shell's end",
            "shopt -s extglob; [[ $(printf 'a%.0s' {1..40}) == +(+(a))c ]]; echo no",
        )
        .loses_state(),
    ]
}
